// SPDX-License-Identifier: Apache-2.0
// The file that is mapped at an address, for a signal handler.
#ifndef PLUMB_CLI_MAPPED_FILE_H_
#define PLUMB_CLI_MAPPED_FILE_H_

#include <cstddef>

namespace plumb::cli {

// Writes the path of the file that is mapped at `address`, as the system has it, to `path`, cut to
// `capacity` bytes and ended with 0. Returns false if no file is mapped there. Async-signal-safe.
bool FindMappedFile(const void* address, char* path, size_t capacity);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_MAPPED_FILE_H_
