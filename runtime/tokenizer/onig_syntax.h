// SPDX-License-Identifier: Apache-2.0
// Translation of a tokenizer.json's patterns, which are written for Oniguruma (its default syntax,
// close to Ruby's), to PCRE2's syntax. The two differ in ways that change matches without an error:
// {1,3}+ repeats there and is possessive here, \h is a hexadecimal digit or a space, ^ and $ are of
// lines or of the text, [a&&b] is an intersection or two characters. What has the same meaning is
// copied, what has another is rewritten, and everything else is refused. A pure function.
#ifndef PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_
#define PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Characters that categories in a pattern have: those of Unicode 16, or those that PCRE2 knows,
// which are the same for texts without a new character (HasNewCharacter). The latter matches
// faster.
enum class CategoriesOf { kUnicode16, kPcre2 };

// Returns a pattern for PCRE2 with the options UTF, UCP and MULTILINE.
// Errors: InvalidArgument with the byte in `pattern`.
absl::StatusOr<std::string> ToPcre2(absl::string_view pattern, CategoriesOf categories);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_
