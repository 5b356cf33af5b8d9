// SPDX-License-Identifier: Apache-2.0
// A file that several processes write, each its parts. Functions without state.
#ifndef PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_
#define PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Makes a file of `bytes` bytes that begins with `begin`, and syncs it. What was there is lost.
absl::Status MakeSizedFile(const std::string& path, absl::string_view begin, int64_t bytes);

// Takes a piece of a content, and where it stands in it.
using OffsetSink = absl::FunctionRef<absl::Status(int64_t offset, absl::string_view piece)>;

// Writes the pieces that `produce` gives to the sink over what a file that exists holds there, and
// syncs it. Other processes may write other parts of it meanwhile.
absl::Status WriteIntoFile(const std::string& path,
                           absl::FunctionRef<absl::Status(OffsetSink sink)> produce);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_SHARED_FILE_H_
