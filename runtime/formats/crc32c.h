// SPDX-License-Identifier: Apache-2.0
// CRC-32C (Castagnoli; RFC 3720, appendix B.4), the checksum of TFRecord files. Pure, thread-safe.
#ifndef PLUMB_RUNTIME_FORMATS_CRC32C_H_
#define PLUMB_RUNTIME_FORMATS_CRC32C_H_

#include <cstdint>

#include "absl/strings/string_view.h"

namespace plumb {

// Returns the CRC with the reflected polynomial 0x82f63b78, initialized to all ones and inverted at
// the end.
uint32_t Crc32c(absl::string_view bytes);

// Returns the form that records store: rotated right by 15 bits, plus 0xa282ead8, so that computing
// the CRC of data that contains CRCs causes no trouble.
uint32_t MaskedCrc32c(absl::string_view bytes);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_FORMATS_CRC32C_H_
