// What normalizations need of Unicode: the four normal forms (Unicode Standard Annex 15), lower
// case and categories. All texts are UTF-8 and REQUIRED to be valid. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_UNICODE_H_
#define PLUMB_RUNTIME_TOKENIZER_UNICODE_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace plumb {

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
void AppendNormalForm(absl::string_view text, NormalForm form, std::string* out);

bool IsAscii(absl::string_view text);

// The full mapping of each character by itself.
void AppendLowerCase(uint32_t c, std::string* out);

bool IsNonspacingMark(uint32_t c);  // Mn
bool IsPunctuation(uint32_t c);     // P*
bool IsControl(uint32_t c);         // Cc, Cf, Co
bool IsNumber(uint32_t c);          // N*
bool IsWhiteSpace(uint32_t c);
bool IsWordCharacter(
    uint32_t c);  // ASCII letters, digits and _; and beyond ASCII neither space nor punctuation

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_UNICODE_H_
