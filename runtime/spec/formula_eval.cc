#include "runtime/spec/formula_eval.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/suggest.h"

namespace plumb {
namespace {

bool SameType(const Quantity& a, const Quantity& b) {
  return a.learned == b.learned && a.width == b.width;
}

std::string TypeName(const Quantity& q) {
  if (q.is_scalar) return "a number";
  if (q.learned) return q.width == 1 ? "a learned scalar" : absl::StrCat("learned [", q.width, "]");
  return absl::StrCat("a tensor [batch, seq, ", q.width, "]");
}

}  // namespace

Quantity Quantity::Scalar(double value) {
  Quantity q;
  q.constant = value;
  return q;
}

Quantity Quantity::Tensor(TensorHandle tensor, int64_t width, bool learned) {
  Quantity q;
  q.is_scalar = false;
  q.terms.push_back({1.0, tensor});
  q.width = width;
  q.learned = learned;
  return q;
}

absl::Status FormulaEval::ErrorAtOffset(size_t offset, absl::string_view message) const {
  return ErrorInText(current_->text, offset, absl::StrCat(scope_.description, ": ", message));
}

absl::Status FormulaEval::Error(const Expr& expr, absl::string_view message) const {
  return ErrorAtOffset(expr.offset, message);
}

absl::Status FormulaEval::Run(const std::vector<Statement>& statements, Variables* streams) {
  streams_ = streams;
  statements_ = &statements;
  for (const Statement& statement : statements) PLUMB_RETURN_IF_ERROR(Execute(statement));
  for (const auto& [name, variable] : locals_) {
    if (variable.read) continue;
    current_ = variable.setter;
    return ErrorAtOffset(0, absl::StrCat("\"", name, "\" is set and never read"));
  }
  for (const auto& [name, site] : scope_.sublayers) {
    if (calls_.count(name) == 0) return NeverCalled(site, name, statements);
  }
  return absl::OkStatus();
}

absl::Status FormulaEval::NeverCalled(const SublayerSite& site, const std::string& name,
                                      const std::vector<Statement>& statements) {
  const bool conditional = std::any_of(statements.begin(), statements.end(),
                                       [](const Statement& s) { return s.condition.has_value(); });
  std::string message = absl::StrCat(scope_.description, ": the sublayer ",
                                     name == "f" ? absl::StrCat("f (", site.spec->name, ")") : name,
                                     " is never called", conditional ? scope_.scalars.Where() : "",
                                     "; its weights would be dead");
  // A misspelt sublayer is a norm slot to the language.
  std::set<std::string> called;
  for (const Statement& statement : statements) {
    CollectNames(statement.value, Expr::Kind::kCall, &called);
  }
  for (const std::string& slot : called) {
    if (scope_.sublayers.count(slot) > 0 || DidYouMean(slot, {name}).empty()) continue;
    absl::StrAppend(&message, "; \"", slot, "\" is taken for a norm slot");
  }
  // The last statement is where the call is missed, if there is one.
  if (statements.empty()) return ErrorAt(scope_.block->place, message);
  return ErrorInText(statements.back().text, 0, message);
}

absl::Status FormulaEval::Execute(const Statement& statement) {
  current_ = &statement;
  if (statement.condition.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(const Quantity condition, Evaluate(*statement.condition));
    if (!condition.is_scalar) {
      return Error(*statement.condition,
                   "a condition is decided when the model is loaded; it cannot read a tensor");
    }
    if (condition.constant == 0) return absl::OkStatus();
  }
  PLUMB_ASSIGN_OR_RETURN(Quantity value, Evaluate(statement.value));
  return Assign(statement, std::move(value));
}

absl::Status FormulaEval::Assign(const Statement& statement, Quantity value) {
  const std::string& name = statement.target;
  const PlacementSpec& placement = *scope_.block->placement;
  const bool is_learned =
      std::any_of(placement.learned.begin(), placement.learned.end(),
                  [&name](const LearnedSpec& learned) { return learned.name == name; });
  const bool is_let = std::any_of(placement.lets.begin(), placement.lets.end(),
                                  [&name](const Statement& let) { return let.target == name; });
  const char* what = is_learned                         ? "a learned value"
                     : is_let                           ? "a let"
                     : IsBuiltInScalar(name)            ? "a scalar of the language"
                     : scope_.sublayers.count(name) > 0 ? "a sublayer"
                     : IsScalarFunction(name)           ? "a function"
                                                        : nullptr;
  if (what != nullptr) {
    return ErrorAtOffset(0,
                         absl::StrCat("\"", name, "\" is ", what, "; a statement cannot set it"));
  }
  Variable* existing = FindVariable(name);
  const bool is_stream = existing != nullptr && streams_->count(name) > 0;
  const bool becomes_stream = scope_.kind == FormulaScope::Kind::kBegin || is_stream;
  if (!value.is_scalar) {
    value = Quantity::Tensor(Materialize(value), value.width, value.learned);
  }
  if (becomes_stream) {
    const int64_t width = is_stream ? existing->value.width : scope_.model->dims.d_model;
    if (value.is_scalar || value.learned || value.width != width) {
      return Error(statement.value, absl::StrCat("\"", name, "\" carries a tensor [batch, seq, ",
                                                 width, "]; this is ", TypeName(value)));
    }
  }
  if (existing != nullptr && !existing->read) {
    const Statement* setter = existing->setter;
    if (setter == nullptr) {
      return ErrorAtOffset(0, absl::StrCat("\"", name, "\" is replaced before anything reads it"));
    }
    current_ = setter;
    return ErrorAtOffset(0, absl::StrCat("\"", name, "\" is set again before anything reads it"));
  }
  Variable& variable = becomes_stream ? (*streams_)[name] : locals_[name];
  variable = {std::move(value), false, &statement};
  if (becomes_stream && scope_.kind != FormulaScope::Kind::kInside) {
    TensorHandle& tensor = variable.value.terms[0].tensor;
    tensor = backend_->SetStream(scope_.prefix, name, tensor);
  }
  return absl::OkStatus();
}

absl::StatusOr<Quantity> FormulaEval::Evaluate(const Expr& expr) {
  switch (expr.kind) {
    case Expr::Kind::kNumber:
      return Quantity::Scalar(expr.number);
    case Expr::Kind::kName:
      return EvaluateName(expr);
    case Expr::Kind::kCall:
      return EvaluateCall(expr);
    case Expr::Kind::kUnary:
    case Expr::Kind::kBinary:
      return EvaluateOperator(expr);
  }
  return Error(expr, "not an expression");
}

Variable* FormulaEval::FindVariable(const std::string& name) {
  if (const auto it = locals_.find(name); it != locals_.end()) return &it->second;
  if (const auto it = streams_->find(name); it != streams_->end()) return &it->second;
  return nullptr;
}

std::vector<std::string> FormulaEval::KnownNames() const {
  std::vector<std::string> names = scope_.scalars.Names();
  for (const auto& [name, variable] : locals_) names.push_back(name);
  for (const auto& [name, variable] : *streams_) names.push_back(name);
  for (const LearnedSpec& learned : scope_.block->placement->learned) names.push_back(learned.name);
  return names;
}

absl::StatusOr<Quantity> FormulaEval::EvaluateName(const Expr& expr) {
  if (Variable* variable = FindVariable(expr.name)) {
    variable->read = true;
    return variable->value;
  }
  for (const LearnedSpec& learned : scope_.block->placement->learned) {
    if (learned.name == expr.name) return LearnedValue(expr, learned);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::optional<double> scalar, scope_.scalars.Lookup(expr.name));
  if (scalar.has_value()) return Quantity::Scalar(*scalar);
  if (scope_.sublayers.count(expr.name) > 0) {
    return Error(expr,
                 absl::StrCat("\"", expr.name, "\" is a sublayer; call it: ", expr.name, "(x)"));
  }
  return Error(expr, absl::StrCat("unknown name \"", expr.name, "\"", HintFor(expr.name)));
}

std::string FormulaEval::HintFor(const std::string& name) const {
  for (const Statement& statement : *statements_) {
    if (statement.target != name || &statement == current_) continue;
    if (&statement > current_) return "; it is set further down";
    return absl::StrCat("; the condition under which it is set does not hold",
                        scope_.scalars.Where());
  }
  std::string hint = scope_.scalars.Hint(name, KnownNames());
  if (hint.empty() && scope_.kind == FormulaScope::Kind::kInside) {
    hint = absl::StrCat("; inside a sublayer there is only \"", streams_->begin()->first,
                        "\" and what is set from it");
  }
  return hint;
}

absl::StatusOr<Quantity> FormulaEval::EvaluateCall(const Expr& expr) {
  if (const auto it = scope_.sublayers.find(expr.name); it != scope_.sublayers.end()) {
    return ApplySublayer(expr, it->second);
  }
  if (IsScalarFunction(expr.name)) return EvaluateOperator(expr);
  if (FindVariable(expr.name) != nullptr) {
    return Error(expr, absl::StrCat("\"", expr.name, "\" is a tensor; it cannot be called"));
  }
  for (const LearnedSpec& learned : scope_.block->placement->learned) {
    if (learned.name != expr.name) continue;
    return Error(expr, absl::StrCat("\"", expr.name, "\" is a learned value; multiply with it: ",
                                    expr.name, " * (...)"));
  }
  // Sublayers go by other names in other sections; a norm slot of such a name would be a mistake.
  const bool is_sublayer_name =
      expr.name == "f" ||
      std::any_of(scope_.block->sublayers.begin(), scope_.block->sublayers.end(),
                  [&expr](const SublayerSpec& s) { return s.name == expr.name; });
  if (is_sublayer_name) {
    switch (scope_.kind) {
      case FormulaScope::Kind::kEach:
        return Error(expr, absl::StrCat("in \"each\" the sublayer is called f; to call ", expr.name,
                                        " by its name use \"block\""));
      case FormulaScope::Kind::kBlock:
        return Error(expr, "in \"block\" the sublayers are called by their names, not f");
      default:
        return Error(expr, absl::StrCat("no sublayer can be called here: ", expr.name));
    }
  }
  return ApplyNorm(expr);
}

absl::StatusOr<Quantity> FormulaEval::OneTensorArgument(const Expr& expr) {
  if (expr.args.size() != 1) {
    return Error(
        expr, absl::StrCat(expr.name, " takes one tensor, not ", expr.args.size(), " arguments"));
  }
  PLUMB_ASSIGN_OR_RETURN(Quantity argument, Evaluate(expr.args[0]));
  if (argument.is_scalar || argument.learned) {
    return Error(expr.args[0],
                 absl::StrCat(expr.name, " takes a tensor; this is ", TypeName(argument)));
  }
  return argument;
}

absl::StatusOr<Quantity> FormulaEval::ApplySublayer(const Expr& expr, const SublayerSite& site) {
  const Statement* statement = current_;
  PLUMB_ASSIGN_OR_RETURN(const Quantity argument, OneTensorArgument(expr));
  if (++calls_[expr.name] > 1) {
    return Error(expr, absl::StrCat("the sublayer ", expr.name,
                                    " is called twice; its keys and values would be cached twice"));
  }
  PLUMB_ASSIGN_OR_RETURN(const TensorHandle out, call_sublayer_(site, Materialize(argument)));
  current_ = statement;
  return Quantity::Tensor(out, scope_.model->dims.d_model);
}

absl::StatusOr<Quantity> FormulaEval::ApplyNorm(const Expr& expr) {
  PLUMB_ASSIGN_OR_RETURN(const Quantity argument, OneTensorArgument(expr));
  const BlockSpec& block = *scope_.block;
  const NormBinding* norm = block.norm.has_value() ? &*block.norm : nullptr;
  if (const auto it = block.slots.find(expr.name); it != block.slots.end()) norm = &it->second;
  if (norm == nullptr) {
    std::vector<std::string> callable = FunctionNames();
    for (const auto& [name, site] : scope_.sublayers) callable.push_back(name);
    for (const auto& [name, binding] : block.slots) callable.push_back(name);
    return Error(expr, absl::StrCat("the slot \"", expr.name, "\" has no norm; give the block (",
                                    block.place.ToString(),
                                    ") norm: \"...\" for all slots or slot { name: \"", expr.name,
                                    "\" norm: \"...\" }", DidYouMean(expr.name, callable)));
  }
  NormSite site;
  const std::string name = absl::StrCat(scope_.prefix, ".", expr.name);
  int& count = census_->slots_applied[name];
  do {  // a slot may itself be called "norm_2"
    ++count;
    site.name = count == 1 ? name : absl::StrCat(name, "_", count);
  } while (!census_->norm_names.insert(site.name).second);
  site.norm = norm;
  site.width = argument.width;
  site.dim = argument.width;
  const auto per_head = block.placement->slot_per_head.find(expr.name);
  if (per_head != block.placement->slot_per_head.end() && per_head->second) {
    if (scope_.heads == 0) {
      return Error(expr,
                   absl::StrCat("the slot \"", expr.name,
                                "\" normalizes per head; there are heads only inside attention"));
    }
    site.dim = scope_.model->dims.head_dim;
  }
  absl::StatusOr<TensorHandle> out = backend_->Norm(site, Materialize(argument));
  if (!out.ok()) {
    const std::string message(Error(expr, out.status().message()).message());
    return absl::Status(out.status().code(), message);
  }
  return Quantity::Tensor(*out, argument.width);
}

absl::StatusOr<Quantity> FormulaEval::LearnedValue(const Expr& expr, const LearnedSpec& learned) {
  LearnedSite site;
  site.name = absl::StrCat(scope_.prefix, ".", learned.name);
  site.weight_decay = learned.weight_decay;
  site.size = learned.per_channel ? scope_.channels : 1;
  if (learned.per_head) {
    if (scope_.heads == 0) {
      return Error(expr,
                   absl::StrCat("\"", learned.name,
                                "\" is learned per head; there are heads only inside attention"));
    }
    site.size = scope_.heads;
  }
  const int64_t size = census_->learned_sizes.insert({site.name, site.size}).first->second;
  if (size != site.size) {
    return Error(expr, absl::StrCat("\"", learned.name, "\" has ", size,
                                    " elements elsewhere in this sublayer and would have ",
                                    site.size, " here; use two names"));
  }
  PLUMB_ASSIGN_OR_RETURN(site.init, EvaluateScalar(learned.init, scope_.scalars));
  return Quantity::Tensor(backend_->Learned(site), site.size, /*learned=*/true);
}

TensorHandle FormulaEval::Materialize(const Quantity& quantity) {
  if (quantity.constant == 0 && quantity.terms.size() == 1 && quantity.terms[0].coefficient == 1) {
    return quantity.terms[0].tensor;
  }
  return backend_->Combine(quantity.terms, quantity.constant);
}

absl::StatusOr<Quantity> FormulaEval::EvaluateOperator(const Expr& expr) {
  std::vector<Quantity> operands;
  bool scalar = true;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(Quantity operand, Evaluate(arg));
    scalar = scalar && operand.is_scalar;
    operands.push_back(std::move(operand));
  }
  if (scalar) {
    std::vector<double> numbers;
    for (const Quantity& operand : operands) numbers.push_back(operand.constant);
    const absl::StatusOr<double> value = ApplyScalarOperator(expr, numbers);
    if (value.ok()) return Quantity::Scalar(*value);
    return Error(expr, DescribeScalarError(value.status(), scope_.scalars));
  }
  const std::string& op = expr.name;
  if (expr.kind == Expr::Kind::kCall) {
    if (IsTensorFunction(op) && operands.size() == 1) {
      const TensorHandle out = backend_->Apply(op, Materialize(operands[0]));
      return Quantity::Tensor(out, operands[0].width, operands[0].learned);
    }
    if (IsTensorFunction(op)) {
      return Error(expr, absl::StrCat(op, " takes one argument, not ", operands.size()));
    }
    const size_t culprit =
        static_cast<size_t>(std::find_if(operands.begin(), operands.end(),
                                         [](const Quantity& q) { return !q.is_scalar; }) -
                            operands.begin());
    return Error(expr.args[culprit],
                 absl::StrCat(op, " works on numbers; this is ", TypeName(operands[culprit])));
  }
  if (expr.kind == Expr::Kind::kUnary && op == "-") {
    return Product(expr, Quantity::Scalar(-1), operands[0]);
  }
  if (op == "+") return Sum(expr, operands[0], operands[1], 1);
  if (op == "-") return Sum(expr, operands[0], operands[1], -1);
  if (op == "*") return Product(expr, operands[0], operands[1]);
  if (op == "/") {
    if (!operands[1].is_scalar) {
      return Error(expr.args[1], "division by a tensor; only a number can divide");
    }
    if (operands[1].constant == 0) {
      return Error(expr, absl::StrCat("division by zero", scope_.scalars.Where()));
    }
    Quantity quotient = std::move(operands[0]);
    for (Term& term : quotient.terms) term.coefficient /= operands[1].constant;
    quotient.constant /= operands[1].constant;
    return Finite(expr, std::move(quotient));
  }
  const size_t culprit = operands[0].is_scalar ? 1 : 0;
  const bool computes = op == "%" || op == "^";
  return Error(expr.args[culprit],
               absl::StrCat("\"", op, "\" works on numbers; this is ", TypeName(operands[culprit]),
                            computes ? "" : "; conditions are decided when the model is loaded"));
}

// Tensors are f32: a coefficient beyond its range would make them infinite.
absl::StatusOr<Quantity> FormulaEval::Finite(const Expr& expr, Quantity quantity) const {
  const auto fits = [](double value) { return std::isfinite(static_cast<float>(value)); };
  bool all = fits(quantity.constant);
  for (const Term& term : quantity.terms) all = all && fits(term.coefficient);
  if (all) return quantity;
  return Error(expr, absl::StrCat("a coefficient is too large for f32", scope_.scalars.Where()));
}

absl::StatusOr<Quantity> FormulaEval::Sum(const Expr& expr, const Quantity& a, const Quantity& b,
                                          double sign) {
  if (!a.is_scalar && !b.is_scalar && !SameType(a, b)) {
    return Error(
        expr, absl::StrCat(
                  "cannot add ", TypeName(a), " and ", TypeName(b),
                  a.learned != b.learned ? "; a learned value multiplies, it does not add" : ""));
  }
  Quantity sum = a.is_scalar ? b : a;
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
  return Finite(expr, std::move(sum));
}

absl::StatusOr<Quantity> FormulaEval::Product(const Expr& expr, const Quantity& a,
                                              const Quantity& b) {
  if (a.is_scalar || b.is_scalar) {
    const double factor = a.is_scalar ? a.constant : b.constant;
    Quantity product = a.is_scalar ? b : a;
    for (Term& term : product.terms) term.coefficient *= factor;
    product.constant *= factor;
    return Finite(expr, std::move(product));
  }
  // The wider one first, so that a learned vector scales the tensor.
  const bool swap = (a.learned && !b.learned) || (a.learned == b.learned && b.width > a.width);
  const Quantity& wide = swap ? b : a;
  const Quantity& narrow = swap ? a : b;
  const bool fits = SameType(wide, narrow) ||
                    (narrow.learned && narrow.width > 0 && wide.width % narrow.width == 0);
  if (!fits) {
    return Error(expr, absl::StrCat("cannot multiply ", TypeName(a), " and ", TypeName(b)));
  }
  const TensorHandle left = Materialize(wide);
  const TensorHandle right = Materialize(narrow);
  return Quantity::Tensor(backend_->Multiply(left, right), wide.width, wide.learned);
}

}  // namespace plumb
