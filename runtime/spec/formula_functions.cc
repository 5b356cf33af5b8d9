// SPDX-License-Identifier: Apache-2.0
// Functions of the formula language, on numbers and tensors.
#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_eval.h"

namespace plumb {
namespace {

constexpr int64_t kMaxSoftmax = 1024;  // each weight becomes a part of one tensor
constexpr int64_t kMaxParts = 10000;   // each becomes a value of the graph, even if unused
constexpr int64_t kMaxShift = 255;     // a convolution of at most 256 tokens

}  // namespace

// Applies a scalar function to operands of which at least one is a tensor.
absl::StatusOr<Quantity> FormulaEval::ApplyFunction(const Expr& expr,
                                                    std::vector<Quantity> operands) {
  if (expr.name == "min" || expr.name == "max") return Extremum(expr, operands);
  if (operands.size() != 1) {
    return Error(expr, absl::StrCat(expr.name, " takes one argument, not ", operands.size()));
  }
  return Applied({expr.name, {}}, {Materialize(operands[0])}, operands[0]);
}

// Folds the operands that are numbers into one, which costs a single function.
absl::StatusOr<Quantity> FormulaEval::Extremum(const Expr& expr,
                                               const std::vector<Quantity>& operands) {
  constexpr size_t kMax = 16;  // same limit as for numbers
  if (operands.size() > kMax) {
    return Error(
        expr, absl::StrCat(expr.name, " takes 1 to ", kMax, " arguments, not ", operands.size()));
  }
  std::vector<double> numbers;
  const Quantity* first = nullptr;
  for (const Quantity& operand : operands) {
    if (operand.is_number()) numbers.push_back(operand.constant);
    if (!operand.is_number() && first == nullptr) first = &operand;
  }
  Quantity result = *first;
  for (const Quantity& operand : operands) {
    if (operand.is_number() || &operand == first) continue;
    PLUMB_ASSIGN_OR_RETURN(const Quantity type, Broadcast(expr, result, operand));
    result = Applied({expr.name, {}}, {Materialize(result), Materialize(operand)}, type);
  }
  if (numbers.empty()) return result;
  const double number = expr.name == "min" ? *std::min_element(numbers.begin(), numbers.end())
                                           : *std::max_element(numbers.begin(), numbers.end());
  PLUMB_RETURN_IF_ERROR(Finite(expr, Quantity::Number(number)).status());
  return Applied({expr.name, {number}}, {Materialize(result)}, result);
}

absl::StatusOr<Quantity> FormulaEval::ApplyTensorFunction(const Expr& expr) {
  if (expr.name == "dot") return DotProduct(expr);
  if (expr.name == "part") return Part(expr);
  if (expr.name == "slice") return Slice(expr);
  if (expr.name == "concat") return Concat(expr);
  if (expr.name == "shift") return Shift(expr);
  if (expr.name == "drop" || expr.name == "drop_path") return DropOut(expr);
  if (expr.name == "sum") {
    return Error(expr,
                 "sum runs over a range: sum(k = 1..n, h[k]); the sum over channels of a "
                 "product is dot(a, b)");
  }
  if (expr.name == "softmax") {
    return Error(expr, "softmax runs over a range: softmax(k = 1..n, score, value)");
  }
  // stop
  if (expr.args.size() != 1) {
    return Error(expr, absl::StrCat("stop takes one argument, not ", expr.args.size()));
  }
  PLUMB_ASSIGN_OR_RETURN(const Quantity argument, Evaluate(expr.args[0]));
  if (argument.is_number()) return argument;
  return Applied({"stop", {}}, {Materialize(argument)}, argument);
}

absl::StatusOr<Quantity> FormulaEval::DotProduct(const Expr& expr) {
  if (expr.args.size() != 2 && expr.args.size() != 3) {
    return Error(expr, absl::StrCat("dot takes two tensors, and may take a number of groups of ",
                                    "channels; not ", expr.args.size(), " arguments"));
  }
  std::vector<Quantity> operands;
  for (const Expr* arg : {&expr.args[0], &expr.args[1]}) {
    PLUMB_ASSIGN_OR_RETURN(Quantity operand, Evaluate(*arg));
    if (operand.is_number()) return Error(*arg, "dot takes tensors; this is a number");
    operands.push_back(std::move(operand));
  }
  int64_t groups = 1;
  if (expr.args.size() == 3) {
    PLUMB_ASSIGN_OR_RETURN(groups, Integer(expr.args[2], "the number of groups"));
  }
  if (operands[0].level < operands[1].level) std::swap(operands[0], operands[1]);
  const Quantity &a = operands[0], &b = operands[1];
  if (a.width != b.width) {
    return Error(expr, absl::StrCat("dot of ", TypeName(a), " and ", TypeName(b),
                                    ": their widths must be equal"));
  }
  if (groups < 1 || a.width % groups != 0) {
    return Error(expr.args[2], absl::StrCat(TypeName(a), " has no ", groups, " equal groups"));
  }
  Function dot = {"dot", {}};
  if (groups > 1) dot.numbers.push_back(static_cast<double>(groups));
  const TensorHandle left = Materialize(a), right = Materialize(b);
  return Quantity::Tensor(backend_->Apply(dot, {left, right}), groups, a.level);
}

absl::StatusOr<Quantity> FormulaEval::Part(const Expr& expr) {
  if (expr.args.size() != 3) {
    return Error(expr,
                 "part takes a tensor, the part's number from 0, and the number of parts: "
                 "part(x, 0, 2)");
  }
  PLUMB_ASSIGN_OR_RETURN(const Quantity whole, Evaluate(expr.args[0]));
  if (whole.is_number()) return Error(expr.args[0], "part takes a tensor; this is a number");
  PLUMB_ASSIGN_OR_RETURN(const int64_t i, Integer(expr.args[1], "the number of a part"));
  PLUMB_ASSIGN_OR_RETURN(const int64_t n, Integer(expr.args[2], "the number of parts"));
  if (n < 1 || whole.width % n != 0) {
    return Error(expr.args[2], absl::StrCat(TypeName(whole), " has no ", n, " equal parts"));
  }
  if (i < 0 || i >= n) {
    return Error(expr.args[1],
                 absl::StrCat("the parts are 0 to ", n - 1, "; this is ", i, scalars_.Where()));
  }
  if (n == 1) return whole;
  if (n > kMaxParts) {
    return Error(expr.args[2], absl::StrCat("a tensor of ", n, " parts", scalars_.Where(),
                                            "; at most ", kMaxParts));
  }
  const TensorHandle tensor = Materialize(whole);
  // A tensor is split only once, into all of its parts.
  if (splits_.insert({tensor, n}).second) {
    PLUMB_RETURN_IF_ERROR(CountOperations(expr, n));
  }
  Quantity type = whole;
  type.width = whole.width / n;
  return Applied({"part", {static_cast<double>(i), static_cast<double>(n)}}, {tensor}, type);
}

absl::StatusOr<Quantity> FormulaEval::Slice(const Expr& expr) {
  if (expr.args.size() != 3) {
    return Error(expr,
                 "slice takes a tensor, the first channel from 0, and the number of channels: "
                 "slice(x, 0, 16)");
  }
  PLUMB_ASSIGN_OR_RETURN(const Quantity whole, Evaluate(expr.args[0]));
  if (whole.is_number()) return Error(expr.args[0], "slice takes a tensor; this is a number");
  PLUMB_ASSIGN_OR_RETURN(const int64_t first, Integer(expr.args[1], "the first channel"));
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, Integer(expr.args[2], "the number of channels"));
  if (first < 0 || count < 1 || first + count > whole.width) {
    return Error(expr, absl::StrCat(TypeName(whole), " has no ", count, " channels from ", first,
                                    " on", scalars_.Where()));
  }
  if (count == whole.width) return whole;
  Quantity type = whole;
  type.width = count;
  return Applied({"slice", {static_cast<double>(first), static_cast<double>(count)}},
                 {Materialize(whole)}, type);
}

absl::StatusOr<Quantity> FormulaEval::Shift(const Expr& expr) {
  if (expr.args.size() != 2) {
    return Error(expr, "shift takes a tensor and a number of tokens: shift(x, 1)");
  }
  if (scope_.prefix == "head") {
    return Error(expr,
                 "there is no shift in the head: decoding computes it for the last token alone");
  }
  PLUMB_ASSIGN_OR_RETURN(const Quantity argument, TensorArgument(expr, expr.args[0]));
  PLUMB_ASSIGN_OR_RETURN(const int64_t by, Integer(expr.args[1], "the number of tokens"));
  if (by < 1 || by > kMaxShift) {
    return Error(expr.args[1], absl::StrCat("the number of tokens is 1 to ", kMaxShift,
                                            ", back from a token; this is ", by, scalars_.Where()));
  }
  return Applied({"shift", {static_cast<double>(by)}}, {Materialize(argument)}, argument);
}

absl::StatusOr<Quantity> FormulaEval::Concat(const Expr& expr) {
  std::vector<Quantity> parts;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(Quantity part, Evaluate(arg));
    parts.push_back(std::move(part));
  }
  return Concatenated(expr, parts);
}

absl::StatusOr<Quantity> FormulaEval::Concatenated(const Expr& expr,
                                                   const std::vector<Quantity>& parts) {
  Quantity type;
  type.width = 0;
  for (const Quantity& part : parts) {
    type.level = std::max(type.level, part.level);
    type.width += part.width;
  }
  if (type.is_number()) return Error(expr, "concat takes tensors");
  std::vector<TensorHandle> operands;
  for (const Quantity& part : parts) operands.push_back(Materialize(part));
  if (operands.size() == 1) return Quantity::Tensor(operands[0], type.width, type.level);
  return Applied({"concat", {}}, operands, type);
}

absl::StatusOr<Quantity> FormulaEval::DropOut(const Expr& expr) {
  if (expr.args.size() != 2) {
    return Error(expr, absl::StrCat(expr.name, " takes a tensor and a probability: ", expr.name,
                                    "(x, 0.1)"));
  }
  PLUMB_ASSIGN_OR_RETURN(Quantity argument, TensorArgument(expr, expr.args[0]));
  PLUMB_ASSIGN_OR_RETURN(const Quantity p, Evaluate(expr.args[1]));
  if (!p.is_number() || !(p.constant >= 0 && p.constant < 1)) {
    return Error(expr.args[1],
                 absl::StrCat("the probability is a number from 0 to below 1; this is ",
                              p.is_number() ? absl::StrCat(p.constant) : TypeName(p),
                              scalars_.Where(), StepHint(expr.args[1])));
  }
  if (p.constant == 0) return argument;
  DropSite site;
  site.name = NewName(absl::StrCat(scope_.prefix, ".", expr.name));
  site.p = p.constant;
  site.path = expr.name == "drop_path";
  return Quantity::Tensor(backend_->Drop(site, Materialize(argument)), argument.width);
}

absl::StatusOr<Quantity> FormulaEval::EvaluateReduce(const Expr& expr) {
  PLUMB_ASSIGN_OR_RETURN(const Bounds bounds, Ends(expr.args[0], expr.args[1]));
  PLUMB_RETURN_IF_ERROR(Bind(expr.variable, expr.offset));
  if (expr.name == "softmax" && bounds.last - bounds.first >= kMaxSoftmax) {
    return Error(expr, absl::StrCat("softmax over ", bounds.last - bounds.first + 1, " values",
                                    scope_.scalars.Where(), "; at most ", kMaxSoftmax));
  }
  if (expr.name != "sum" && bounds.last < bounds.first) {
    return Error(expr, absl::StrCat("the range of ", expr.name, " is empty: ", expr.variable, " = ",
                                    bounds.first, "..", bounds.last, scope_.scalars.Where()));
  }
  Quantity sum = Quantity::Number(0);
  std::vector<Quantity> terms, values;
  for (int64_t k = bounds.first; k <= bounds.last; ++k) {
    scalars_.indices.back().second = static_cast<double>(k);
    PLUMB_ASSIGN_OR_RETURN(Quantity term, Evaluate(expr.args[2]));
    if (expr.name == "sum") {
      PLUMB_ASSIGN_OR_RETURN(sum, Sum(expr, sum, term, 1));
      continue;
    }
    terms.push_back(std::move(term));
    if (expr.name == "concat") continue;
    PLUMB_ASSIGN_OR_RETURN(Quantity value, Evaluate(expr.args[3]));
    values.push_back(std::move(value));
  }
  scalars_.indices.pop_back();
  if (expr.name == "sum") return sum;
  return expr.name == "concat" ? Concatenated(expr, terms) : Softmax(expr, terms, values);
}

absl::StatusOr<Quantity> FormulaEval::SoftmaxOfNumbers(const Expr& expr,
                                                       const std::vector<Quantity>& scores,
                                                       const std::vector<Quantity>& values) {
  double highest = scores[0].constant, total = 0;
  for (const Quantity& score : scores) highest = std::max(highest, score.constant);
  for (const Quantity& score : scores) total += std::exp(score.constant - highest);
  Quantity sum = Quantity::Number(0);
  for (size_t k = 0; k < values.size(); ++k) {
    const double weight = std::exp(scores[k].constant - highest) / total;
    PLUMB_ASSIGN_OR_RETURN(const Quantity term, Product(expr, Quantity::Number(weight), values[k]));
    PLUMB_ASSIGN_OR_RETURN(sum, Sum(expr, sum, term, 1));
  }
  return sum;
}

// Returns sum_k p_k value_k, where p is the softmax over k of the scores.
absl::StatusOr<Quantity> FormulaEval::Softmax(const Expr& expr, const std::vector<Quantity>& scores,
                                              const std::vector<Quantity>& values) {
  Quantity type;  // type of a score
  for (const Quantity& score : scores) {
    PLUMB_ASSIGN_OR_RETURN(type, Broadcast(expr, type, score));
  }
  if (type.is_number()) return SoftmaxOfNumbers(expr, scores, values);
  std::vector<TensorHandle> operands;
  for (const Quantity& score : scores) operands.push_back(Materialize(score));
  const TensorHandle weights = backend_->Apply({"softmax", {}}, operands);
  const double n = static_cast<double>(scores.size());
  Quantity sum = Quantity::Number(0);
  for (size_t k = 0; k < values.size(); ++k) {
    const Function part = {"part", {static_cast<double>(k), n}};
    PLUMB_ASSIGN_OR_RETURN(const Quantity term,
                           Product(expr, Applied(part, {weights}, type), values[k]));
    PLUMB_ASSIGN_OR_RETURN(sum, Sum(expr, sum, term, 1));
  }
  return sum;
}

}  // namespace plumb
