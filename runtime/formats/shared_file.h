// SPDX-License-Identifier: Apache-2.0
// A file of which several processes each write a part. Functions without state; thread-safe.
#ifndef PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_
#define PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Creates or overwrites a file of `bytes` bytes that starts with `begin`, and syncs it.
absl::Status MakeSizedFile(const std::string& path, absl::string_view begin, int64_t bytes);

// Consumes a piece of content for the given offset in the file.
using OffsetSink = absl::FunctionRef<absl::Status(int64_t offset, absl::string_view piece)>;

// Calls `produce` with a sink, writes all pieces that it passes to the sink into an existing file,
// and syncs it. Other processes may write other parts of the file at the same time.
absl::Status WriteIntoFile(const std::string& path,
                           absl::FunctionRef<absl::Status(OffsetSink sink)> produce);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_
