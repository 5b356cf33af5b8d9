// SPDX-License-Identifier: Apache-2.0
// Canonical text of a formula, and the names in it.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/text_format.h"
#include "runtime/spec/formula.h"
#include "runtime/spec/formula_lexer.h"

namespace plumb {
namespace {

Precedence PrecedenceOfExpr(const Expr& expr) {
  if (expr.kind == Expr::Kind::kBinary) return GetPrecedence(expr.name);
  if (expr.kind == Expr::Kind::kUnary) return expr.name == "not" ? kNot : kFactor;
  return kPrimary;
}

// Returns the text of an operand, with parentheses if it binds looser than `lowest`.
std::string Operand(const Expr& expr, Precedence lowest) {
  const std::string text = expr.ToString();
  return PrecedenceOfExpr(expr) < lowest ? absl::StrCat("(", text, ")") : text;
}

std::string List(const std::vector<Expr>& exprs, Precedence lowest) {
  return absl::StrJoin(exprs, ", ", [lowest](std::string* out, const Expr& expr) {
    absl::StrAppend(out, Operand(expr, lowest));
  });
}

std::string Reference(const std::string& name, const std::vector<Expr>& index) {
  return index.empty() ? name : absl::StrCat(name, "[", List(index, kSum), "]");
}

std::string RangeString(const std::string& variable, const Expr& first, const Expr& last) {
  return absl::StrCat(variable, " = ", Operand(first, kSum), "..", Operand(last, kSum));
}

}  // namespace

std::string Expr::ToString() const {
  switch (kind) {
    case Kind::kNumber:
      return ShortestNumber(number);
    case Kind::kName:
      return Reference(name, index);
    case Kind::kCall:
      return absl::StrCat(Reference(name, index), "(", List(args, kOr), ")");
    case Kind::kReduce: {
      std::string text = absl::StrCat(name, "(", RangeString(variable, args[0], args[1]));
      for (size_t i = 2; i < args.size(); ++i) absl::StrAppend(&text, ", ", args[i].ToString());
      return text + ")";
    }
    case Kind::kUnary:
      return name == "not" ? absl::StrCat("not ", Operand(args[0], kNot))
                           : absl::StrCat("-", Operand(args[0], kFactor));
    case Kind::kBinary: {
      const Precedence mine = PrecedenceOfExpr(*this);
      // Chains associate to the left, so a right operand must bind tighter. A comparison does not
      // chain, and a power associates to the right.
      Precedence left = mine;
      Precedence right = static_cast<Precedence>(mine + 1);
      if (mine == kComparison) left = kSum;
      if (mine == kPower) {
        left = kPrimary;
        right = kFactor;
      }
      return absl::StrCat(Operand(args[0], left), " ", name, " ", Operand(args[1], right));
    }
  }
  return "";
}

std::string IndexRange::ToString() const { return RangeString(variable, first, last); }

std::string Statement::ToString() const {
  std::string out = absl::StrCat(Reference(target, index), " = ", Operand(value, kSum));
  if (range.has_value()) absl::StrAppend(&out, " for ", range->ToString());
  if (condition.has_value()) absl::StrAppend(&out, " if ", condition->ToString());
  return out;
}

void CollectNames(const Expr& expr, Expr::Kind kind, std::set<std::string>* names) {
  if (expr.kind == kind) names->insert(expr.name);
  for (const Expr& arg : expr.args) CollectNames(arg, kind, names);
  for (const Expr& index : expr.index) CollectNames(index, kind, names);
}

void CollectNames(const Statement& statement, Expr::Kind kind, std::set<std::string>* names) {
  CollectNames(statement.value, kind, names);
  for (const Expr& index : statement.index) CollectNames(index, kind, names);
  if (statement.range.has_value()) {
    CollectNames(statement.range->first, kind, names);
    CollectNames(statement.range->last, kind, names);
  }
  if (statement.condition.has_value()) CollectNames(*statement.condition, kind, names);
}

}  // namespace plumb
