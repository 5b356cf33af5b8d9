// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4), which identifies the files that a report is about. Stateless.
#ifndef PLUMB_RUNTIME_BASE_SHA256_H_
#define PLUMB_RUNTIME_BASE_SHA256_H_

#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns the digest as 64 lower-case hexadecimal digits.
std::string Sha256(absl::string_view bytes);
// Returns the digest of a file's content; "" if it cannot be read.
std::string Sha256OfFile(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_SHA256_H_
