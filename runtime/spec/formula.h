// The formula language: text to tree. Values: copy, compare, print.
//
//   statement  = name "=" expression [ "if" condition ]
//   condition  = conjunction { "or" conjunction }
//   conjunction= negation { "and" negation }
//   negation   = "not" negation | comparison
//   comparison = expression [ ("==" | "!=" | "<" | "<=" | ">" | ">=") expression ]
//   expression = term { ("+" | "-") term }
//   term       = factor { ("*" | "/" | "%") factor }
//   factor     = "-" factor | power
//   power      = primary [ "^" factor ]
//   primary    = number | name [ "(" [ condition { "," condition } ] ")" ] | "(" condition ")"
//
// What names mean is not decided here: see spec/interpret.h.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_H_

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/place.h"

namespace plumb {

struct Expr {
  enum class Kind {
    kNumber,
    kName,
    kCall,   // name(args)
    kUnary,  // name is "-" or "not", one argument
    kBinary  // name is the operator, two arguments
  };
  Kind kind = Kind::kNumber;
  double number = 0;
  std::string name;
  std::vector<Expr> args;
  size_t offset = 0;  // into the text that it was parsed from, for errors

  // Canonical text with the fewest parentheses: "x + f(norm(x)) / sqrt(layer)".
  std::string ToString() const;
};

// An expression that stands alone: an init rule's, an attention scale.
struct Expression {
  Text text;
  Expr root;
};

struct Statement {
  Text text;
  std::string section;  // where it was written: "each", "let", "inside attention.q"
  std::string target;
  Expr value;
  std::optional<Expr> condition;

  std::string ToString() const;
};

// The names of all expressions of a kind in the tree: kCall for what is called, kName for what is
// read.
void CollectNames(const Expr& expr, Expr::Kind kind, std::set<std::string>* names);

// Errors: kInvalidArgument with place, text and caret.
absl::StatusOr<Statement> ParseStatement(const Text& text, std::string section);
absl::StatusOr<Expression> ParseExpression(const Text& text);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_H_
