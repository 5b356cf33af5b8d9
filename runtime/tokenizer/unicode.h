// SPDX-License-Identifier: Apache-2.0
// What normalizations need of Unicode: the four normal forms (Unicode Standard Annex 15), lower
// case and categories. All texts are UTF-8 and REQUIRED to be valid. Pure functions.
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

// The full mapping of each character by itself.
void AppendLowerCase(uint32_t c, std::string* out);

// Sets of characters as the tokenizers library has them. Its parts follow different versions of
// Unicode; tools/make_unicode_tables.py tells which.
bool IsMark(uint32_t c);            // Mn, Mc, Me: StripAccents
bool IsNonspacingMark(uint32_t c);  // Mn: strip_accents of BertNormalizer
bool IsPunctuation(uint32_t c);     // P*, and the symbols of ASCII
bool IsControl(uint32_t c);         // clean_text of BertNormalizer: Cc, Cf, Co, U+FFFD
bool IsNumber(uint32_t c);          // N*
bool IsWhiteSpace(uint32_t c);
bool IsWordCharacter(uint32_t c);  // letters, marks, decimal digits, connectors, joiners

// Visits the characters that are newer than Unicode 14 and of the given general category ("L" or
// "Lu"), in ascending order.
void ForEachNewCharacterRange(absl::string_view category,
                              absl::FunctionRef<void(uint32_t first, uint32_t last)> visit);

// Returns true if `text` has one of the characters that ForEachNewCharacterRange visits.
bool HasNewCharacter(absl::string_view text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_UNICODE_H_
