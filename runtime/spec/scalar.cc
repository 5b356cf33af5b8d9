// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/scalar.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

struct NamedScalar {
  const char* name;
  int64_t ModelDims::*field;
};
constexpr NamedScalar kDims[] = {
    {"n_layer", &ModelDims::n_layer},
    {"n_sublayer", &ModelDims::n_sublayer},
    {"n_head", &ModelDims::n_head},
    {"n_kv_head", &ModelDims::n_kv_head},
    {"d_model", &ModelDims::d_model},
    {"d_ff", &ModelDims::d_ff},
    {"head_dim", &ModelDims::head_dim},
    {"vocab_size", &ModelDims::vocab_size},
    {"context_length", &ModelDims::context_length},
};

struct NamedFunction {
  const char* name;
  size_t min_args, max_args;
};
constexpr NamedFunction kFunctions[] = {
    {"sqrt", 1, 1}, {"exp", 1, 1},     {"log", 1, 1},       {"abs", 1, 1},      {"min", 1, 16},
    {"max", 1, 16}, {"tanh", 1, 1},    {"erf", 1, 1},       {"relu", 1, 1},     {"gelu", 1, 1},
    {"silu", 1, 1}, {"sigmoid", 1, 1}, {"gelu_tanh", 1, 1}, {"softplus", 1, 1}, {"floor", 1, 1},
    {"cos", 1, 1},  {"sin", 1, 1}};
constexpr const char* kTensorFunctions[] = {"dot",  "part",      "slice", "concat", "stop",
                                            "drop", "drop_path", "shift", "sum",    "softmax"};

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

absl::StatusOr<double> CallFunction(const Expr& expr, absl::Span<const double> v) {
  for (const NamedFunction& f : kFunctions) {
    if (expr.name != f.name) continue;
    if (v.size() < f.min_args || v.size() > f.max_args) {
      return absl::InvalidArgumentError(absl::StrCat(
          f.name, f.max_args == 1 ? " takes one argument, not " : " takes 1 to 16 arguments, not ",
          v.size()));
    }
  }
  if (expr.name == "sqrt") return std::sqrt(v[0]);
  if (expr.name == "exp") return std::exp(v[0]);
  if (expr.name == "log") return std::log(v[0]);
  if (expr.name == "abs") return std::abs(v[0]);
  if (expr.name == "min") return *std::min_element(v.begin(), v.end());
  if (expr.name == "max") return *std::max_element(v.begin(), v.end());
  if (expr.name == "floor") return std::floor(v[0]);
  if (expr.name == "cos") return std::cos(v[0]);
  if (expr.name == "sin") return std::sin(v[0]);
  if (expr.name == "tanh") return std::tanh(v[0]);
  if (expr.name == "erf") return std::erf(v[0]);
  if (expr.name == "relu") return std::max(v[0], 0.0);
  if (expr.name == "gelu") return v[0] * 0.5 * std::erfc(-v[0] * std::sqrt(0.5));
  if (expr.name == "silu") return v[0] * Sigmoid(v[0]);
  if (expr.name == "gelu_tanh") {
    const double pi = std::acos(-1.0), cube = v[0] * v[0] * v[0];
    return v[0] * Sigmoid(2 * std::sqrt(2 / pi) * (v[0] + 0.044715 * cube));
  }
  if (expr.name == "softplus") return std::max(v[0], 0.0) + std::log1p(std::exp(-std::abs(v[0])));
  return Sigmoid(v[0]);
}

double CallOperator(const std::string& op, double a, double b) {
  if (op == "+") return a + b;
  if (op == "-") return a - b;
  if (op == "*") return a * b;
  if (op == "/") return a / b;
  if (op == "%") return a - b * std::floor(a / b);
  if (op == "^") return std::pow(a, b);
  if (op == "==") return a == b ? 1 : 0;
  if (op == "!=") return a != b ? 1 : 0;
  if (op == "<") return a < b ? 1 : 0;
  if (op == "<=") return a <= b ? 1 : 0;
  if (op == ">") return a > b ? 1 : 0;
  if (op == ">=") return a >= b ? 1 : 0;
  if (op == "and") return a != 0 && b != 0 ? 1 : 0;
  return a != 0 || b != 0 ? 1 : 0;  // or
}

using Lookup = absl::FunctionRef<absl::StatusOr<std::optional<double>>(const std::string&)>;

// Returns the names that an expression may use, including the first `lets` lets of the placement.
std::vector<std::string> KnownNames(const ScalarScope& scope, size_t lets) {
  std::vector<std::string> names;
  for (const NamedScalar& scalar : kDims) {
    if (scope.dims->*scalar.field != 0) names.push_back(scalar.name);
  }
  if (scope.layer > 0) names.push_back("layer");
  if (scope.sublayer > 0) names.push_back("sublayer");
  if (scope.point_width > 0) names.push_back("point_width");
  for (const auto& [name, value] : scope.indices) names.push_back(name);
  for (size_t i = 0; i < lets; ++i) names.push_back(scope.placement->lets[i].target);
  return names;
}

size_t CountLets(const ScalarScope& scope) {
  return scope.placement == nullptr ? 0 : scope.placement->lets.size();
}

// Returns true if a name that is no scalar refers to a stream, a sublayer's input or a learned
// value.
bool IsTensor(const std::string& name, const ScalarScope& scope) {
  if (name == "x" || name == "input") return true;
  if (scope.placement == nullptr) return false;
  const PlacementSpec& placement = *scope.placement;
  return std::any_of(placement.learned.begin(), placement.learned.end(),
                     [&name](const LearnedSpec& learned) { return learned.name == name; }) ||
         std::any_of(placement.begin.begin(), placement.begin.end(),
                     [&name](const Statement& statement) { return statement.target == name; });
}

// Evaluates an expression that may use the first `lets` lets of the placement.
absl::StatusOr<double> Evaluate(const SourceText& text, const Expr& expr, Lookup lookup,
                                const ScalarScope& scope, size_t lets) {
  if (expr.kind == Expr::Kind::kNumber) return expr.number;
  if (!expr.index.empty()) {
    return ErrorInText(
        text, expr.offset,
        absl::StrCat("\"", expr.ToString(), "\" is a tensor; a number is needed here"));
  }
  if (expr.kind == Expr::Kind::kName) {
    PLUMB_ASSIGN_OR_RETURN(const std::optional<double> value, lookup(expr.name));
    if (value.has_value()) return *value;
    if (IsTensor(expr.name, scope)) {
      return ErrorInText(text, expr.offset,
                         absl::StrCat("\"", expr.name, "\" is a tensor; a number is needed here"));
    }
    std::string hint = scope.Hint(expr.name, KnownNames(scope, lets));
    for (size_t i = lets; i < CountLets(scope); ++i) {
      if (scope.placement->lets[i].target == expr.name)
        hint = "; a let sees only the ones before it";
    }
    return ErrorInText(text, expr.offset, absl::StrCat("unknown scalar \"", expr.name, "\"", hint));
  }
  if (expr.kind == Expr::Kind::kReduce ||
      (expr.kind == Expr::Kind::kCall && !IsScalarFunction(expr.name) && IsFunction(expr.name))) {
    return ErrorInText(text, expr.offset,
                       absl::StrCat(expr.name, " is for statements; a number is needed here"));
  }
  if (expr.kind == Expr::Kind::kCall && !IsScalarFunction(expr.name)) {
    return ErrorInText(text, expr.offset,
                       absl::StrCat("unknown function \"", expr.name, "\"; a number is needed here",
                                    DidYouMean(expr.name, FunctionNames())));
  }
  std::vector<double> operands;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(text, arg, lookup, scope, lets));
    operands.push_back(value);
  }
  absl::StatusOr<double> value = ApplyScalarOperator(expr, operands);
  if (value.ok()) return value;
  return ErrorInText(text, expr.offset, DescribeScalarError(value.status(), scope));
}

std::optional<double> LookupBuiltIn(const ScalarScope& scope, const std::string& name) {
  for (auto it = scope.indices.rbegin(); it != scope.indices.rend(); ++it) {
    if (it->first == name) return it->second;
  }
  if (name == "layer" && scope.layer > 0) return static_cast<double>(scope.layer);
  if (name == "sublayer" && scope.sublayer > 0) return static_cast<double>(scope.sublayer);
  if (name == "point_width" && scope.point_width > 0) return static_cast<double>(scope.point_width);
  for (const NamedScalar& scalar : kDims) {
    if (name != scalar.name || scope.dims->*scalar.field == 0) continue;
    return static_cast<double>(scope.dims->*scalar.field);
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<std::optional<double>> ScalarScope::Lookup(const std::string& name) const {
  if (const std::optional<double> value = LookupBuiltIn(*this, name)) return value;
  const size_t count = CountLets(*this);
  size_t wanted = 0;
  while (wanted < count && placement->lets[wanted].target != name) ++wanted;
  if (wanted == count) return std::nullopt;
  // Each `let` sees the ones before it. A `let` that cannot be evaluated here (it reads `layer`
  // outside the layers) is an error only for expressions that use it.
  std::map<std::string, absl::StatusOr<double>> values;
  const auto lookup = [&](const std::string& n) -> absl::StatusOr<std::optional<double>> {
    if (const std::optional<double> value = LookupBuiltIn(*this, n)) return value;
    const auto it = values.find(n);
    if (it == values.end()) return std::nullopt;
    if (!it->second.ok()) return it->second.status();
    return *it->second;
  };
  for (size_t i = 0; i < wanted; ++i) {
    const Statement& let = placement->lets[i];
    values.insert_or_assign(let.target, Evaluate(let.text, let.value, lookup, *this, i));
  }
  const Statement& let = placement->lets[wanted];
  PLUMB_ASSIGN_OR_RETURN(const double value, Evaluate(let.text, let.value, lookup, *this, wanted));
  return value;
}

std::vector<std::string> ScalarScope::Names() const { return KnownNames(*this, CountLets(*this)); }

std::string ScalarScope::Hint(const std::string& name,
                              const std::vector<std::string>& known) const {
  if (name == "layer")
    return "; it has a value only in \"each\", in \"block\" and inside sublayers";
  if (name == "step") {
    return "; it changes while a model is trained: statements may read it, but not what is decided "
           "when the model is loaded";
  }
  if (name == "position") {
    return "; it differs from token to token: statements may read it, but not what is decided when "
           "the model is loaded";
  }
  if (name == "sublayer") return "; it has a value only in \"each\" and inside sublayers";
  if (IsBuiltInScalar(name)) return "; it has no value here";
  return DidYouMean(name, known);
}

std::string ScalarScope::Where() const {
  std::vector<std::string> parts;
  if (layer > 0) parts.push_back(absl::StrCat("layer ", layer));
  if (sublayer > 0) parts.push_back(absl::StrCat("sublayer ", sublayer));
  for (const auto& [name, value] : indices) parts.push_back(absl::StrCat(name, " = ", value));
  return parts.empty() ? "" : absl::StrCat(" at ", absl::StrJoin(parts, ", "));
}

bool IsBuiltInScalar(const std::string& name) {
  return name == "layer" || name == "sublayer" || name == "point_width" ||
         std::any_of(std::begin(kDims), std::end(kDims),
                     [&name](const NamedScalar& scalar) { return name == scalar.name; });
}

bool IsScalarFunction(const std::string& name) {
  return std::any_of(std::begin(kFunctions), std::end(kFunctions),
                     [&name](const NamedFunction& f) { return name == f.name; });
}

bool IsFunction(const std::string& name) {
  return IsScalarFunction(name) ||
         std::any_of(std::begin(kTensorFunctions), std::end(kTensorFunctions),
                     [&name](const char* function) { return name == function; });
}

std::vector<std::string> FunctionNames() {
  std::vector<std::string> names;
  for (const NamedFunction& f : kFunctions) names.push_back(f.name);
  names.insert(names.end(), std::begin(kTensorFunctions), std::end(kTensorFunctions));
  return names;
}

absl::StatusOr<double> ApplyScalarOperator(const Expr& expr, absl::Span<const double> operands) {
  double value = 0;
  if (expr.kind == Expr::Kind::kCall) {
    PLUMB_ASSIGN_OR_RETURN(value, CallFunction(expr, operands));
  } else if (expr.kind == Expr::Kind::kUnary) {
    value = expr.name == "not" ? (operands[0] == 0 ? 1 : 0) : -operands[0];
  } else {
    if ((expr.name == "/" || expr.name == "%") && operands[1] == 0) {
      return absl::OutOfRangeError("division by zero");
    }
    value = CallOperator(expr.name, operands[0], operands[1]);
  }
  if (!std::isfinite(value)) {
    return absl::OutOfRangeError(absl::StrCat("\"", expr.ToString(), "\" is not ",
                                              std::isnan(value) ? "a real number" : "finite"));
  }
  return value;
}

std::string DescribeScalarError(const absl::Status& error, const ScalarScope& scope) {
  return absl::StrCat(error.message(), absl::IsOutOfRange(error) ? scope.Where() : "");
}

absl::StatusOr<double> EvaluateScalar(const Expression& expression, const ScalarScope& scope) {
  const auto lookup = [&scope](const std::string& name) { return scope.Lookup(name); };
  return Evaluate(expression.text, expression.root, lookup, scope, CountLets(scope));
}

}  // namespace plumb
