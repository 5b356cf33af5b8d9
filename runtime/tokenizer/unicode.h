// SPDX-License-Identifier: Apache-2.0
// Unicode functions for normalization: the four normal forms (Unicode Standard Annex 15), lower
// case and categories. Requires: all texts are valid UTF-8. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_UNICODE_H_
#define PLUMB_RUNTIME_TOKENIZER_UNICODE_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace plumb {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void AppendNormalForm(absl::string_view text, NormalForm form, std::string* out);

bool IsAscii(absl::string_view text);

// Appends the full lower-case mapping of a character, independent of its context.
void AppendLowerCase(uint32_t c, std::string* out);

// Tests for sets of characters, as the tokenizers library defines them. Its parts follow different
// versions of Unicode; tools/make_unicode_tables.py states which.
bool IsMark(uint32_t c);            // Mn, Mc, Me: StripAccents
bool IsNonspacingMark(uint32_t c);  // Mn: BertNormalizer's strip_accents
bool IsPunctuation(uint32_t c);     // P*, and the symbols of ASCII
bool IsControl(uint32_t c);         // Cc, Cf, Co, U+FFFD: BertNormalizer's clean_text
bool IsNumber(uint32_t c);          // N*
bool IsWhiteSpace(uint32_t c);
bool IsWordCharacter(uint32_t c);  // letters, marks, decimal digits, connectors, joiners

// Visits the characters that are newer than Unicode 14 and have the given general category ("L" or
// "Lu"), in ascending order.
void ForEachNewCharacterRange(absl::string_view category,
                              absl::FunctionRef<void(uint32_t first, uint32_t last)> visit);

// Returns true if `text` contains a character that is newer than Unicode 14.
bool HasNewCharacter(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_UNICODE_H_
