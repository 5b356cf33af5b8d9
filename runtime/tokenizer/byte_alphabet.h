// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level vocabularies (Radford et al. 2019, GPT-2): every byte has a printable
// character, so that pieces are text in JSON. Bytes 33..126, 161..172 and 174..255 map to the code
// points of the same value, the others to 256, 257, ... in ascending order. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
#define PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

// Returns bytes as characters of the alphabet.
std::string ToByteAlphabet(absl::string_view bytes);

// Returns the bytes of such characters; nullopt if one is not in the alphabet.
absl::optional<std::string> FromByteAlphabet(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
