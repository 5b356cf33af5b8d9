// SPDX-License-Identifier: Apache-2.0
// The formula language: text to tree. Values: copy, compare, print.
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
// What names mean is not decided here: see spec/interpret.h.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/mistakes.h"

namespace plumb {

struct Expr {
  enum class Kind {
    kNumber,
    kName,    // name, name[index]
    kCall,    // name(args), name[index](args)
    kUnary,   // name is "-" or "not", one argument
    kBinary,  // name is the operator, two arguments
    kReduce   // name is "sum", "concat" or "softmax"; args are the range's ends and what is reduced
              // over it: the term, or the score and the value
  };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string name;
  std::string variable;  // kReduce: the range's
  std::vector<Expr> args;
  std::vector<Expr> index;
  size_t offset = 0;  // into the text that it was parsed from, for errors

  // Canonical text with the fewest parentheses: "x + f(norm(x)) / sqrt(layer)".
  std::string ToString() const;
};

// An expression that stands alone: an init rule's, an attention scale.
struct Expression {
  Text text;
  Expr root;
};

// "i = 0..n - 1": the whole numbers from first to last; none if last is smaller.
struct IndexRange {
  std::string variable;
  Expr first, last;
  size_t offset = 0;

  std::string ToString() const;
};

struct Statement {
  Text text;
  std::string section;  // where it was written: "each", "let", "inside attention.q"
  std::string target;
  std::vector<Expr> index;  // of the target
  Expr value;
  std::optional<IndexRange> range;
  std::optional<Expr> condition;

  std::string ToString() const;
};

// The names of all expressions of a kind in the tree: kCall for what is called, kName for what is
// read. Those that a range binds are among what is read.
void CollectNames(const Expr& expr, Expr::Kind kind, std::set<std::string>* names);
// All that a statement reads or calls: its value, index, range and condition.
void CollectNames(const Statement& statement, Expr::Kind kind, std::set<std::string>* names);

// Errors: kInvalidArgument with place, text and caret.
absl::StatusOr<Statement> ParseStatement(const Text& text, std::string section);
absl::StatusOr<Expression> ParseExpression(const Text& text);
// A range and the text that it stands in.
struct RangeText {
  Text text;
  IndexRange range;
};
absl::StatusOr<RangeText> ParseRange(const Text& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_H_
