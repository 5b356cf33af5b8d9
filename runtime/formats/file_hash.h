// SPDX-License-Identifier: Apache-2.0
// Hashes of whole files, which identify data and weights by their contents. Stateless.
#ifndef PLUMB_RUNTIME_FORMATS_FILE_HASH_H_
#define PLUMB_RUNTIME_FORMATS_FILE_HASH_H_

#include <string>

#include "absl/status/statusor.h"

namespace plumb {

// Returns the ContentHash of a file, 16 hexadecimal digits. That of a file of 32 MiB or more is
// kept in the user's cache directory (XDG_CACHE_HOME, or else ~/.cache), under the path, and holds
// until the file's size, time or inode changes; a cache that cannot be read or written is ignored.
absl::StatusOr<std::string> HashOfFile(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_FILE_HASH_H_
