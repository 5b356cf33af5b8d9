// SPDX-License-Identifier: Apache-2.0
// The tokens of a formula, and how tightly its operators bind. Internal to the parser and the
// printer of spec/formula.h. Stateless.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mistakes.h"

namespace plumb {

struct FormulaToken {
  enum class Kind { kEnd, kNumber, kName, kSymbol } kind = Kind::kEnd;
  std::string text;
  double number = 0;
  size_t offset = 0;
};

// By the rules of the grammar, from the loosest.
enum Precedence { kOr, kAnd, kNot, kComparison, kSum, kTerm, kFactor, kPower, kPrimary };

// kPrimary for what is no binary operator.
Precedence PrecedenceOf(const std::string& binary_operator);

// At least one token: the last is kEnd. Errors: kInvalidArgument with place, text and caret.
absl::StatusOr<std::vector<FormulaToken>> TokenizeFormula(const Text& source);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_
