// SPDX-License-Identifier: Apache-2.0
// Parser of the formula language: text to tree. Values: copy, compare, print.
//
//   statement  = reference "=" expression [ "for" range ] [ "if" condition ]
//   range      = name "=" expression ".." expression
//   condition  = conjunction { "or" conjunction }
//   conjunction= negation { "and" negation }
//   negation   = "not" negation | comparison
//   comparison = expression [ ("==" | "!=" | "<" | "<=" | ">" | ">=") expression ]
//   expression = term { ("+" | "-") term }
//   term       = factor { ("*" | "/" | "%") factor }
//   factor     = "-" factor | power
//   power      = primary [ "^" factor ]
//   primary    = number | reference [ "(" [ condition { "," condition } ] ")" ] | "(" condition ")"
//              | ( "sum" | "concat" ) "(" range "," condition ")"
//              | "softmax" "(" range "," condition "," condition ")"
//   reference  = name [ "[" expression { "," expression } "]" ]
//
// Names get their meaning in spec/interpret.h.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/diagnostics.h"

namespace plumb {

struct Expr {
  enum class Kind {
    kNumber,
    kName,    // name, name[index]
    kCall,    // name(args), name[index](args)
    kUnary,   // name is "-" or "not", one argument
    kBinary,  // name is the operator, two arguments
    kReduce   // name is "sum", "concat" or "softmax"; args are the two ends of the range, then the
              // term, or the score and the value
  };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string name;
  std::string variable;  // kReduce: the variable of the range
  std::vector<Expr> args;
  std::vector<Expr> index;
  size_t offset = 0;  // into the parsed text, for errors

  // Returns the canonical text with the fewest parentheses: "x + f(norm(x)) / sqrt(layer)".
  std::string ToString() const;
};

// Expression outside a statement: in an init rule, an attention scale.
struct Expression {
  SourceText text;
  Expr root;
};

// Range "i = 0..n - 1": the integers from first to last, both included; empty if last < first.
struct IndexRange {
  std::string variable;
  Expr first, last;
  size_t offset = 0;

  std::string ToString() const;
};

struct Statement {
  SourceText text;
  std::string section;  // section of the placement: "each", "let", "inside attention.q"
  std::string target;
  std::vector<Expr> index;  // indices of the target
  Expr value;
  std::optional<IndexRange> range;
  std::optional<Expr> condition;

  std::string ToString() const;
};

// Adds the names of all expressions of a kind in the tree: kCall for called names, kName for names
// that are read. Includes reads of the variables that ranges bind.
void CollectNames(const Expr& expr, Expr::Kind kind, std::set<std::string>* names);
// Adds the names in the statement's value, index, range and condition.
void CollectNames(const Statement& statement, Expr::Kind kind, std::set<std::string>* names);

// Parse one statement, one expression, one range. Errors: kInvalidArgument with location, text and
// caret.
absl::StatusOr<Statement> ParseStatement(const SourceText& text, std::string section);
absl::StatusOr<Expression> ParseExpression(const SourceText& text);
// Range together with the text that contains it.
struct RangeText {
  SourceText text;
  IndexRange range;
};
absl::StatusOr<RangeText> ParseRange(const SourceText& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_H_
