// SPDX-License-Identifier: Apache-2.0
// The alphabet of byte-level vocabularies (Radford et al. 2019, GPT-2): every byte has a character
// that prints, so that pieces are text in JSON. Bytes 33..126, 161..172 and 174..255 are the code
// points of their value, the others 256, 257, ... in their order. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
#define PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_

#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

// Bytes as characters of the alphabet.
std::string ToByteAlphabet(absl::string_view bytes);

// And back; nullopt when a character is none of the alphabet's.
absl::optional<std::string> FromByteAlphabet(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_BYTE_ALPHABET_H_
