// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/formula_eval.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Max number of operations that a walk evaluates. More is assumed to be an error and would not fit
// into memory.
constexpr int64_t kMaxOperations = 4000000;

bool IsTensorOfWidth(const Quantity& value, int64_t width) {
  return value.is_token() && value.width == width;
}

}  // namespace

absl::Status FormulaEval::ErrorAtOffset(size_t offset, absl::string_view message) const {
  return ErrorInText(current_->text, offset, absl::StrCat(scope_.description, ": ", message));
}

absl::Status FormulaEval::Error(const Expr& expr, absl::string_view message) const {
  return ErrorAtOffset(expr.offset, message);
}

absl::Status FormulaEval::Run(const std::vector<Statement>& statements) {
  statements_ = &statements;
  for (const Statement& statement : statements) PLUMB_RETURN_IF_ERROR(Execute(statement));
  for (const auto& [name, site] : scope_.sublayers) {
    if (calls_.count(name) == 0) return NeverCalled(site, name, statements);
  }
  return absl::OkStatus();
}

absl::Status FormulaEval::NeverCalled(const SublayerSite& site, const std::string& name,
                                      const std::vector<Statement>& statements) {
  const bool conditional = std::any_of(
      statements.begin(), statements.end(),
      [](const Statement& s) { return s.condition.has_value() || s.range.has_value(); });
  const std::string message = absl::StrCat(
      scope_.description, ": the sublayer ",
      name == "f" ? absl::StrCat("f (", site.spec->name, ")") : name, " is never called",
      conditional ? scope_.scalars.Where() : "", "; its weights would be dead");
  // Reports the missing call at the last statement, if there is one.
  if (statements.empty()) return ErrorAt(scope_.block->place, message);
  return ErrorInText(statements.back().text, 0, message);
}

absl::Status FormulaEval::Execute(const Statement& statement) {
  current_ = &statement;
  if (!statement.range.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(statement));
    if (!holds) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(Assignment assignment, Evaluate(statement));
    return Assign(statement, std::move(assignment));
  }
  const IndexRange& range = *statement.range;
  if (statement.index.empty()) {
    return ErrorAtOffset(
        0, absl::StrCat("\"", statement.target, "\" is set for each ", range.variable,
                        "; give it an index: ", statement.target, "[", range.variable, "]"));
  }
  PLUMB_ASSIGN_OR_RETURN(const Bounds bounds, Ends(range.first, range.last));
  PLUMB_RETURN_IF_ERROR(Bind(range.variable, range.offset));
  // All right-hand sides are evaluated before a target is set, so that streams can be mixed.
  std::vector<Assignment> assignments;
  std::set<std::string> names;
  for (int64_t i = bounds.first; i <= bounds.last; ++i) {
    scalars_.indices.back().second = static_cast<double>(i);
    PLUMB_ASSIGN_OR_RETURN(const bool holds, Holds(statement));
    if (!holds) continue;
    PLUMB_ASSIGN_OR_RETURN(Assignment assignment, Evaluate(statement));
    if (!names.insert(assignment.name).second) {
      return ErrorAtOffset(
          0, absl::StrCat("\"", assignment.name, "\" is set more than once by this ", "statement",
                          scalars_.Where()));
    }
    assignments.push_back(std::move(assignment));
  }
  scalars_.indices.pop_back();
  for (Assignment& assignment : assignments) {
    PLUMB_RETURN_IF_ERROR(Assign(statement, std::move(assignment)));
  }
  return absl::OkStatus();
}

// Adds the index of a range to the scalars. The caller sets its value.
absl::Status FormulaEval::Bind(const std::string& variable, size_t offset) {
  PLUMB_ASSIGN_OR_RETURN(const std::optional<double> scalar, scalars_.Lookup(variable));
  const bool taken = scalar.has_value() || IsFunction(variable) ||
                     FindVariable(variable) != nullptr || FindLearned(variable) != nullptr ||
                     FindLinear(variable) != nullptr || IsBuiltInScalar(variable) ||
                     variable == "step" || variable == "position" ||
                     scope_.sublayers.count(variable) > 0;
  if (taken) {
    return ErrorAtOffset(offset, absl::StrCat("\"", variable,
                                              "\" means something already; give the index another "
                                              "name"));
  }
  scalars_.indices.emplace_back(variable, 0);
  return absl::OkStatus();
}

absl::StatusOr<FormulaEval::Bounds> FormulaEval::Ends(const Expr& first, const Expr& last) {
  Bounds bounds;
  PLUMB_ASSIGN_OR_RETURN(bounds.first, Integer(first, "the first value of a range"));
  PLUMB_ASSIGN_OR_RETURN(bounds.last, Integer(last, "the last value of a range"));
  if (bounds.last - bounds.first >= kMaxRangeValues) {
    return Error(first, absl::StrCat("the range has ", bounds.last - bounds.first + 1, " values",
                                     scalars_.Where(), "; at most ", kMaxRangeValues));
  }
  return bounds;
}

absl::StatusOr<int64_t> FormulaEval::Integer(const Expr& expr, absl::string_view what) {
  PLUMB_ASSIGN_OR_RETURN(const Quantity value, Evaluate(expr));
  if (!value.is_number()) {
    return Error(expr, absl::StrCat(what, " is decided when the model is loaded; this is ",
                                    TypeName(value), StepHint(expr)));
  }
  const bool whole = value.constant == std::floor(value.constant);
  if (!whole || std::abs(value.constant) > 1e9) {
    return Error(expr, absl::StrCat(what, " is a whole number", whole ? " of at most 1e9" : "",
                                    "; this is ", value.constant, scalars_.Where()));
  }
  return static_cast<int64_t>(value.constant);
}

std::string FormulaEval::StepHint(const Expr& expr) {
  std::set<std::string> names;
  CollectNames(expr, Expr::Kind::kName, &names);
  return names.count("step") == 0 ? "" : "; \"step\" changes while a model is trained";
}

absl::StatusOr<std::vector<int64_t>> FormulaEval::Indices(const std::vector<Expr>& index) {
  std::vector<int64_t> indices;
  for (const Expr& expr : index) {
    PLUMB_ASSIGN_OR_RETURN(const int64_t i, Integer(expr, "an index"));
    indices.push_back(i);
  }
  return indices;
}

absl::StatusOr<bool> FormulaEval::Holds(const Statement& statement) {
  if (!statement.condition.has_value()) return true;
  PLUMB_ASSIGN_OR_RETURN(const Quantity condition, Evaluate(*statement.condition));
  if (!condition.is_number()) {
    return Error(*statement.condition,
                 absl::StrCat("a condition is decided when the model is loaded; it cannot read a ",
                              "tensor", StepHint(*statement.condition)));
  }
  return condition.constant != 0;
}

absl::StatusOr<FormulaEval::Assignment> FormulaEval::Evaluate(const Statement& statement) {
  Assignment assignment;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, Indices(statement.index));
  assignment.name = statement.target;
  assignment.point = statement.target;
  if (!indices.empty()) {
    absl::StrAppend(&assignment.name, "[", absl::StrJoin(indices, ", "), "]");
    absl::StrAppend(&assignment.point, ".", absl::StrJoin(indices, "."));
  }
  Settings& settings = walk_.settings;
  assignment.setting =
      settings.Begin(statement, assignment.name, scope_.description, scalars_.Where());
  const int32_t outer = settings.Enter(assignment.setting);
  PLUMB_ASSIGN_OR_RETURN(assignment.value, Evaluate(statement.value));
  settings.Enter(outer);
  Quantity& value = assignment.value;
  if (!value.is_number()) value = Quantity::Tensor(Materialize(value), value.width, value.level);
  return assignment;
}

absl::Status FormulaEval::CheckTarget(const Statement& statement) const {
  const std::string& name = statement.target;
  const PlacementSpec& placement = *scope_.block->placement;
  const bool is_let = std::any_of(placement.lets.begin(), placement.lets.end(),
                                  [&name](const Statement& let) { return let.target == name; });
  const char* what = FindLearned(name) != nullptr       ? "a learned value"
                     : FindLinear(name) != nullptr      ? "a projection"
                     : is_let                           ? "a let"
                     : IsBuiltInScalar(name)            ? "a scalar of the language"
                     : name == "step"                   ? "the training step"
                     : name == "position"               ? "the position of a token"
                     : name == "input"                  ? "what the sublayer was given"
                     : scope_.sublayers.count(name) > 0 ? "a sublayer"
                     : IsFunction(name)                 ? "a function"
                                                        : nullptr;
  if (what != nullptr) {
    return ErrorAtOffset(0,
                         absl::StrCat("\"", name, "\" is ", what, "; a statement cannot set it"));
  }
  if (statement.index.empty()) {
    const auto at = walk_.indexed.lower_bound(absl::StrCat(name, "["));
    if (at == walk_.indexed.end() || at->first.compare(0, name.size() + 1, name + "[") != 0) {
      return absl::OkStatus();
    }
    return ErrorAtOffset(0, absl::StrCat("\"", name, "\" has an index elsewhere (", at->first,
                                         "); use another name"));
  }
  if (walk_.streams.count(name) == 0 && locals_.count(name) == 0) return absl::OkStatus();
  return ErrorAtOffset(0, absl::StrCat("\"", name, "\" has no index elsewhere; use another name"));
}

absl::Status FormulaEval::Assign(const Statement& statement, Assignment assignment) {
  PLUMB_RETURN_IF_ERROR(CheckTarget(statement));
  const std::string& name = assignment.name;
  const bool indexed = !statement.index.empty();
  const auto stream = walk_.streams.find(name);
  const bool is_local = locals_.count(name) > 0;
  const bool is_stream = !indexed && !is_local && stream != walk_.streams.end();
  const bool becomes_stream = is_stream || (!indexed && scope_.kind == FormulaScope::Kind::kBegin);
  if (is_stream && scope_.kind == FormulaScope::Kind::kInside) {
    return ErrorAtOffset(0, absl::StrCat("\"", name,
                                         "\" is a stream; inside a sublayer it can be "
                                         "read, not set"));
  }
  if (indexed && scope_.in_experts) {
    return ErrorAtOffset(0,
                         absl::StrCat("\"", name, "\": statements inside experts set no indexed ",
                                      "names, since rows are tokens sorted by expert"));
  }
  const bool is_point = name == scope_.point;
  const int64_t width = !is_point                       ? scope_.model->dims.d_model
                        : scope_.point_may_change_width ? assignment.value.width
                                                        : scope_.channels;
  if ((becomes_stream || is_point) && !IsTensorOfWidth(assignment.value, width)) {
    std::string hint;
    if (assignment.value.is_number()) hint = absl::StrCat("; write 0 * ", is_point ? name : "x");
    if (!hint.empty() && assignment.value.constant != 0) {
      absl::StrAppend(&hint, " + ", statement.value.ToString());
    }
    return Error(statement.value,
                 absl::StrCat("\"", name, "\" carries a tensor [batch, seq, ", width, "]; this is ",
                              TypeName(assignment.value), hint));
  }
  Variables& variables = indexed ? walk_.indexed : becomes_stream ? walk_.streams : locals_;
  Variable& variable = variables[name];
  if (variable.setting < 0 && !variable.read && !variable.value.terms.empty()) {
    return ErrorAtOffset(0, absl::StrCat("\"", name, "\" is replaced before anything reads it"));
  }
  const bool is_stream_like = IsTensorOfWidth(assignment.value, scope_.model->dims.d_model);
  variable = {std::move(assignment.value), false, assignment.setting};
  if (!variable.value.is_number()) {
    TensorHandle& tensor = variable.value.terms[0].tensor;
    tensor = becomes_stream || indexed ? backend_->SetName(name, tensor)
                                       : backend_->SetLocal(name, tensor);
  }
  if ((becomes_stream || (indexed && is_stream_like)) &&
      scope_.kind != FormulaScope::Kind::kInside) {
    backend_->SetStream(scope_.prefix, assignment.point, variable.value.terms[0].tensor);
  }
  return absl::OkStatus();
}

absl::Status FormulaEval::CountOperations(const Expr& expr, int64_t count) {
  walk_.operations += count;
  if (walk_.operations <= kMaxOperations) return absl::OkStatus();
  return Error(expr, absl::StrCat("the model's formulas come to more than ", kMaxOperations,
                                  " operations", scalars_.Where(), "; shorten its ranges"));
}

absl::StatusOr<Quantity> FormulaEval::Evaluate(const Expr& expr) {
  PLUMB_RETURN_IF_ERROR(CountOperations(expr, 1));
  switch (expr.kind) {
    case Expr::Kind::kNumber:
      return Quantity::Number(expr.number);
    case Expr::Kind::kName:
      return expr.index.empty() ? EvaluateName(expr) : EvaluateIndexed(expr);
    case Expr::Kind::kCall:
      return EvaluateCall(expr);
    case Expr::Kind::kReduce:
      return EvaluateReduce(expr);
    case Expr::Kind::kUnary:
    case Expr::Kind::kBinary:
      return EvaluateOperator(expr);
  }
  return Error(expr, "not an expression");
}

Quantity Quantity::Number(double value) {
  Quantity q;
  q.constant = value;
  return q;
}

Quantity Quantity::Tensor(TensorHandle tensor, int64_t width, Level level) {
  Quantity q;
  q.level = level;
  q.terms.push_back({1.0, tensor});
  q.width = width;
  return q;
}

std::string TypeName(const Quantity& q) {
  if (q.is_number()) return "a number";
  if (q.is_token()) return absl::StrCat("a tensor [batch, seq, ", q.width, "]");
  return q.width == 1 ? "a learned scalar" : absl::StrCat("learned [", q.width, "]");
}

}  // namespace plumb
