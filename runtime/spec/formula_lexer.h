// SPDX-License-Identifier: Apache-2.0
// Tokens of a formula, and the precedence of its operators. Internal to the parser and the printer
// of spec/formula.h. Stateless.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/diagnostics.h"

namespace plumb {

struct FormulaToken {
  enum class Kind { kEnd, kNumber, kName, kSymbol } kind = Kind::kEnd;
  std::string text;
  double number = 0;
  size_t offset = 0;
};

// Precedence levels of the grammar, loosest first.
enum Precedence { kOr, kAnd, kNot, kComparison, kSum, kTerm, kFactor, kPower, kPrimary };

// Returns kPrimary for anything but a binary operator.
Precedence GetPrecedence(const std::string& binary_operator);

// Splits a formula into tokens, of which the last is kEnd. Errors: kInvalidArgument with location,
// text and caret.
absl::StatusOr<std::vector<FormulaToken>> TokenizeFormula(const SourceText& source);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_LEXER_H_
