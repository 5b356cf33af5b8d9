// SPDX-License-Identifier: Apache-2.0
// Translates the patterns of a tokenizer.json from Oniguruma's default syntax, which is close to
// Ruby's, to PCRE2's. The two differ in ways that change matches without an error: {1,3}+ repeats
// in Oniguruma and is possessive in PCRE2, \h is a hexadecimal digit or horizontal space, ^ and $
// match at lines or at the text, [a&&b] is an intersection or a list. Constructs with the same
// meaning are copied, others are rewritten, and the rest is rejected. A pure function.
#ifndef PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_
#define PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Characters of a category in a pattern: those of Unicode 16, or those that PCRE2 knows. Both match
// the same in texts without a new character (HasNewCharacter); PCRE2's match faster.
enum class CategoryFunction { kUnicode16, kPcre2 };

// Returns a pattern for PCRE2 with the options UTF, UCP and MULTILINE.
// Errors: kInvalidArgument with the byte offset in `pattern`.
absl::StatusOr<std::string> ToPcre2(absl::string_view pattern, CategoryFunction categories);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_ONIG_SYNTAX_H_
