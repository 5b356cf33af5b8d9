// SPDX-License-Identifier: Apache-2.0
// Operators of the formula language, on numbers and tensors.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_eval.h"

namespace plumb {
namespace {

constexpr size_t kMaxTerms = 10000;  // finding a tensor among the terms takes linear time

}  // namespace

TensorHandle FormulaEval::Materialize(const Quantity& quantity) {
  if (quantity.is_number()) return backend_->Apply({"constant", {quantity.constant}}, {});
  if (quantity.constant == 0 && quantity.terms.size() == 1 && quantity.terms[0].coefficient == 1) {
    return quantity.terms[0].tensor;
  }
  return backend_->Combine(quantity.terms, quantity.constant);
}

Quantity FormulaEval::Applied(const Function& function, absl::Span<const TensorHandle> operands,
                              const Quantity& type) {
  return Quantity::Tensor(backend_->Apply(function, operands), type.width, type.level);
}

absl::StatusOr<Quantity> FormulaEval::Broadcast(const Expr& expr, const Quantity& a,
                                                const Quantity& b) const {
  Quantity type;
  type.level = std::max(a.level, b.level);
  type.width = std::max(a.width, b.width);
  if (type.width % std::min(a.width, b.width) == 0) return type;
  return Error(expr, absl::StrCat("\"", expr.name, "\" of ", TypeName(a), " and ", TypeName(b),
                                  ": one width must divide the other"));
}

absl::StatusOr<Quantity> FormulaEval::EvaluateOperator(const Expr& expr) {
  std::vector<Quantity> operands;
  bool numbers = true;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(Quantity operand, Evaluate(arg));
    numbers = numbers && operand.is_number();
    operands.push_back(std::move(operand));
  }
  if (numbers) {
    std::vector<double> values;
    for (const Quantity& operand : operands) values.push_back(operand.constant);
    const absl::StatusOr<double> value = ApplyScalarOperator(expr, values);
    if (value.ok()) return Quantity::Number(*value);
    return Error(expr, DescribeScalarError(value.status(), scalars_));
  }
  if (expr.kind == Expr::Kind::kCall) return ApplyFunction(expr, std::move(operands));
  return ApplyOperator(expr, std::move(operands));
}

absl::StatusOr<Quantity> FormulaEval::ApplyOperator(const Expr& expr,
                                                    std::vector<Quantity> operands) {
  const std::string& op = expr.name;
  if (expr.kind == Expr::Kind::kUnary && op == "-") {
    return Product(expr, Quantity::Number(-1), operands[0]);
  }
  if (op == "+") return Sum(expr, operands[0], operands[1], 1);
  if (op == "-") return Sum(expr, operands[0], operands[1], -1);
  if (op == "*") return Product(expr, operands[0], operands[1]);
  if (op == "/") return Quotient(expr, std::move(operands[0]), operands[1]);
  if (op == "^") return Power(expr, operands[0], operands[1]);
  const bool computes = op == "%" || op == "and" || op == "or" || op == "not";
  if (!computes) return Compare(expr, operands[0], operands[1]);
  const size_t culprit = operands[0].is_number() ? 1 : 0;
  return Error(expr.args[culprit],
               absl::StrCat("\"", op, "\" works on numbers; this is ", TypeName(operands[culprit]),
                            op == "%" ? "" : "; conditions are decided when the model is loaded"));
}

// Fails if a coefficient exceeds the range of f32, since it would make tensors infinite.
absl::StatusOr<Quantity> FormulaEval::Finite(const Expr& expr, Quantity quantity) const {
  const auto fits = [](double value) { return std::isfinite(static_cast<float>(value)); };
  bool all = fits(quantity.constant);
  for (const Term& term : quantity.terms) all = all && fits(term.coefficient);
  if (all) return quantity;
  return Error(expr, absl::StrCat("a number is too large for f32", scalars_.Where()));
}

absl::StatusOr<Quantity> FormulaEval::Sum(const Expr& expr, const Quantity& a, const Quantity& b,
                                          double sign) {
  PLUMB_ASSIGN_OR_RETURN(Quantity sum, Broadcast(expr, a, b));
  sum.terms = a.terms;
  sum.constant = a.constant + sign * b.constant;
  for (const Term& term : b.terms) {
    const auto same = std::find_if(sum.terms.begin(), sum.terms.end(),
                                   [&term](const Term& t) { return t.tensor == term.tensor; });
    if (same != sum.terms.end()) {
      same->coefficient += sign * term.coefficient;
    } else {
      sum.terms.push_back({sign * term.coefficient, term.tensor});
    }
  }
  if (sum.terms.size() > kMaxTerms) {
    return Error(expr,
                 absl::StrCat("a sum of more than ", kMaxTerms, " tensors", scalars_.Where()));
  }
  return Finite(expr, std::move(sum));
}

absl::StatusOr<Quantity> FormulaEval::Product(const Expr& expr, const Quantity& a,
                                              const Quantity& b) {
  if (a.is_number() || b.is_number()) {
    const double factor = a.is_number() ? a.constant : b.constant;
    Quantity product = a.is_number() ? b : a;
    for (Term& term : product.terms) term.coefficient *= factor;
    product.constant *= factor;
    return Finite(expr, std::move(product));
  }
  PLUMB_ASSIGN_OR_RETURN(Quantity type, Broadcast(expr, a, b));
  // Multiply wants the operand that is per token first, then the wider one.
  const bool swap = a.level < b.level || (a.level == b.level && b.width > a.width);
  const TensorHandle left = Materialize(swap ? b : a);
  const TensorHandle right = Materialize(swap ? a : b);
  return Quantity::Tensor(backend_->Multiply(left, right), type.width, type.level);
}

absl::StatusOr<Quantity> FormulaEval::Quotient(const Expr& expr, Quantity a, const Quantity& b) {
  if (!b.is_number()) {
    return Product(expr, a, Applied({"reciprocal", {}}, {Materialize(b)}, b));
  }
  if (b.constant == 0) return Error(expr, absl::StrCat("division by zero", scalars_.Where()));
  for (Term& term : a.terms) term.coefficient /= b.constant;
  a.constant /= b.constant;
  return Finite(expr, std::move(a));
}

absl::StatusOr<Quantity> FormulaEval::Power(const Expr& expr, const Quantity& a,
                                            const Quantity& b) {
  if (!b.is_number()) {
    return Error(expr.args[1], absl::StrCat("an exponent is a number; this is ", TypeName(b),
                                            "; a ^ b is exp(b * log(a))"));
  }
  PLUMB_RETURN_IF_ERROR(Finite(expr, b).status());
  if (b.constant == 1) return a;
  const TensorHandle base = Materialize(a);
  if (b.constant == 2) return Quantity::Tensor(backend_->Multiply(base, base), a.width, a.level);
  return Applied({"pow", {b.constant}}, {base}, a);
}

absl::StatusOr<Quantity> FormulaEval::Compare(const Expr& expr, const Quantity& a,
                                              const Quantity& b) {
  PLUMB_ASSIGN_OR_RETURN(const Quantity difference, Sum(expr, a, b, -1));
  return Applied({expr.name, {0}}, {Materialize(difference)}, difference);
}

}  // namespace plumb
