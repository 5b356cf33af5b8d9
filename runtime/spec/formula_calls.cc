// SPDX-License-Identifier: Apache-2.0
// Calls that have parameters: of sublayers, norm slots and projections.
#include <algorithm>
#include <string>
#include <utility>

#include "absl/container/inlined_vector.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/string_view.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_eval.h"

namespace plumb {
namespace {

constexpr char kProjection[] =
    "declare a projection: linear { name: \"proj\" }, and call it: proj(x)";
constexpr char kOverTokens[] =
    "tokens are mixed by shift(x, n), which is x n tokens before, and by sublayers: attention, "
    "conv";

// Name of a function in papers and libraries that the language spells differently or does not have.
struct Known {
  const char* name;  // lower case, without underscores
  const char* instead;
};
constexpr Known kKnown[] = {
    // activations
    {"relu", "write relu(x)"},
    {"leakyrelu", "write max(x, 0.01 * x)"},
    {"elu", "write max(x, 0) + exp(min(x, 0)) - 1"},
    {"silu", "write silu(x)"},
    {"swish", "write silu(x)"},
    {"gelu", "write gelu(x), or gelu_tanh(x) for its approximation"},
    {"gelunew", "write gelu_tanh(x)"},
    {"quickgelu", "write x * sigmoid(1.702 * x)"},
    {"softplus", "write softplus(x)"},
    {"logsigmoid", "write -softplus(-x)"},
    {"mish", "write x * tanh(softplus(x))"},
    {"logistic", "write sigmoid(x)"},
    {"hardtanh", "write min(max(x, -1), 1)"},
    // arithmetic
    {"square", "write x ^ 2"},
    {"pow", "write x ^ 2"},
    {"rsqrt", "write 1 / sqrt(x)"},
    {"reciprocal", "write 1 / x"},
    {"clamp", "write min(max(x, low), high)"},
    {"clip", "write min(max(x, low), high)"},
    {"where", "write c * a + (1 - c) * b, with a comparison for c: (x > 0)"},
    {"sign", "write (x > 0) - (x < 0)"},
    {"ceil", "write -floor(-x)"},
    {"round", "write floor(x + 0.5)"},
    {"ln", "write log(x); a norm slot has \"norm\" in its name"},
    {"log2", "write log(x) / log(2)"},
    {"log10", "write log(x) / log(10)"},
    {"tan", "write sin(x) / cos(x)"},
    {"erfc", "write 1 - erf(x)"},
    // over channels
    {"mean", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"var", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"std", "write dot(x, x) / d_model for a mean of squares; other means are norms' work"},
    {"inner", "write dot(a, b)"},
    {"prod", "only sum, softmax and concat run over a range"},
    {"cat", "write concat(a, b)"},
    {"stack", "write concat(a, b)"},
    {"concatenate", "write concat(a, b)"},
    {"chunk", "write part(x, i, n)"},
    {"split", "write part(x, i, n)"},
    {"logsoftmax", "write softmax(k = 1..n, score, value)"},
    {"logsumexp", "write log(sum(k = 1..n, exp(s[k])))"},
    // training
    {"dropout", "write drop(x, 0.1)"},
    {"droppath", "write drop_path(x, 0.1)"},
    {"stochasticdepth", "write drop_path(x, 0.1)"},
    {"detach", "write stop(x)"},
    {"stopgrad", "write stop(x)"},
    {"stopgradient", "write stop(x)"},
    {"nograd", "write stop(x)"},
    {"sg", "write stop(x)"},
    // functions with weights
    {"linear", kProjection},
    {"dense", kProjection},
    {"matmul", kProjection},
    {"einsum", kProjection},
    {"rms", "a norm slot has \"norm\" in its name: norm(x), rms_norm(x)"},
    {"attn", "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
    {"selfattention",
     "in \"block\" a sublayer goes by its name, by default attention; in \"each\" it is f"},
    {"ffn", "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
    {"feedforward",
     "in \"block\" a sublayer goes by its name, by default mlp; in \"each\" it is f"},
    // over tokens
    {"conv", kOverTokens},
    {"conv1d", kOverTokens},
    {"roll", "write shift(x, 1) for the value of the token before"},
    {"tokenshift", "write shift(x, 1) for the value of the token before"},
    {"cumsum", kOverTokens},
};

// Returns advice such as "write max(x, 0)" for "relu" or "ReLU", or "" for any other name. Ignores
// case and underscores.
std::string SuggestReplacement(absl::string_view name) {
  const std::string plain = absl::StrReplaceAll(absl::AsciiStrToLower(name), {{"_", ""}});
  for (const Known& known : kKnown) {
    if (plain == known.name) return known.instead;
  }
  return "";
}

}  // namespace

absl::StatusOr<Quantity> FormulaEval::EvaluateCall(const Expr& expr) {
  const auto sublayer = scope_.sublayers.find(expr.name);
  const LinearSpec* linear = FindLinear(expr.name);
  const bool takes_index = sublayer == scope_.sublayers.end() && !IsFunction(expr.name);
  if (!expr.index.empty() && !takes_index) {
    return Error(expr,
                 absl::StrCat("\"", expr.name, "\" has no index: norm slots and projections have"));
  }
  if (sublayer != scope_.sublayers.end()) return ApplySublayer(expr, sublayer->second);
  if (IsScalarFunction(expr.name)) return EvaluateOperator(expr);
  if (IsFunction(expr.name)) {
    PLUMB_RETURN_IF_ERROR(CheckExpertRows(expr));
    return ApplyTensorFunction(expr);
  }
  if (linear == nullptr) PLUMB_RETURN_IF_ERROR(CheckCallable(expr));
  PLUMB_RETURN_IF_ERROR(CheckExpertRows(expr));
  if (linear == nullptr && expr.args.size() == 2) return ApplyNormOfTwo(expr);
  // The argument is evaluated here, not in the functions below, so that a level of nesting uses
  // little stack.
  PLUMB_ASSIGN_OR_RETURN(const Quantity argument, OneTensorArgument(expr));
  return linear != nullptr ? ApplyLinear(expr, *linear, argument) : ApplyNorm(expr, {&argument, 1});
}

// Fails unless the name, which is no sublayer, function or projection, can be a norm slot.
absl::Status FormulaEval::CheckCallable(const Expr& expr) {
  const std::string& name = expr.name;
  if (FindVariable(name) != nullptr) {
    return Error(expr, absl::StrCat("\"", name, "\" is a tensor; it cannot be called"));
  }
  if (FindLearned(name) != nullptr) {
    return Error(expr, absl::StrCat("\"", name, "\" is a learned value; multiply with it: ", name,
                                    " * (...)"));
  }
  // Sublayers have other names in other sections; a norm slot with such a name would be an error.
  const BlockSpec& block = *scope_.block;
  const bool is_sublayer_name =
      name == "f" || std::any_of(block.sublayers.begin(), block.sublayers.end(),
                                 [&name](const SublayerSpec& s) { return s.name == name; });
  if (is_sublayer_name) {
    switch (scope_.kind) {
      case FormulaScope::Kind::kEach:
        return Error(expr, absl::StrCat("in \"each\" the sublayer is called f; to call ", name,
                                        " by its name use \"block\""));
      case FormulaScope::Kind::kBlock:
        return Error(expr, "in \"block\" the sublayers are called by their names, not f");
      default:
        return Error(expr, absl::StrCat("no sublayer can be called here: ", name));
    }
  }
  // An undeclared slot must have "norm" in its name. Otherwise a typo or an unknown function would
  // become a norm and be trained.
  const bool declared =
      block.placement->slot_per_head.count(name) > 0 || block.slots.count(name) > 0;
  if (declared || absl::StrContains(name, "norm")) return absl::OkStatus();
  if (const std::string instead = SuggestReplacement(name); !instead.empty()) {
    return Error(expr, absl::StrCat("the language has no function ", name, "; ", instead));
  }
  std::vector<std::string> callable = FunctionNames();
  callable.push_back("norm");
  for (const auto& [sublayer, site] : scope_.sublayers) callable.push_back(sublayer);
  for (const auto& [slot, binding] : block.slots) callable.push_back(slot);
  for (const LinearSpec& linear : block.placement->linear) callable.push_back(linear.name);
  const std::string meant = DidYouMean(name, callable);
  return Error(
      expr,
      absl::StrCat("unknown function \"", name, "\"",
                   !meant.empty() ? meant
                                  : absl::StrCat("; a norm slot has \"norm\" in its name, or is "
                                                 "declared: slot { name: \"",
                                                 name, "\" }; a projection: linear { name: \"",
                                                 name, "\" }")));
}

absl::StatusOr<Quantity> FormulaEval::TensorArgument(const Expr& call, const Expr& expr) {
  PLUMB_ASSIGN_OR_RETURN(Quantity argument, Evaluate(expr));
  if (argument.is_token()) return argument;
  return Error(expr, absl::StrCat(call.name, " takes a tensor; this is ", TypeName(argument)));
}

absl::StatusOr<Quantity> FormulaEval::OneTensorArgument(const Expr& expr) {
  if (expr.args.size() == 1) return TensorArgument(expr, expr.args[0]);
  return Error(expr,
               absl::StrCat(expr.name, " takes one tensor, not ", expr.args.size(), " arguments"));
}

absl::StatusOr<Quantity> FormulaEval::ApplySublayer(const Expr& expr, const SublayerSite& site) {
  const Statement* statement = current_;
  const bool is_attention = site.spec->kind == SublayerSpec::Kind::kAttention;
  if (expr.args.size() != 1 && !(is_attention && expr.args.size() == 3)) {
    return Error(expr,
                 absl::StrCat(expr.name, " takes one tensor",
                              is_attention ? ", or those of its queries, keys and values" : "",
                              ", not ", expr.args.size(), " arguments"));
  }
  std::vector<TensorHandle> inputs;
  const int64_t width = scope_.model->dims.d_model;
  for (const Expr& arg : expr.args) {
    PLUMB_ASSIGN_OR_RETURN(const Quantity argument, TensorArgument(expr, arg));
    if (argument.width != width) {
      return Error(arg, absl::StrCat(expr.name, " takes a tensor [batch, seq, ", width,
                                     "]; this is ", TypeName(argument)));
    }
    inputs.push_back(Materialize(argument));
  }
  if (++calls_[expr.name] > 1) {
    return Error(expr, absl::StrCat("the sublayer ", expr.name,
                                    " is called twice; its keys and values would be cached twice"));
  }
  walk_.settings.CallsSublayer();
  PLUMB_ASSIGN_OR_RETURN(const TensorHandle out, call_sublayer_(site, inputs));
  current_ = statement;
  return Quantity::Tensor(out, width);
}

std::string FormulaEval::NewName(const std::string& wanted) {
  int& count = walk_.slots_applied[wanted];
  std::string name;
  do {  // a slot may itself be called "norm_2"
    ++count;
    name = count == 1 ? wanted : absl::StrCat(wanted, "_", count);
  } while (!walk_.site_names.insert(name).second);
  return name;
}

absl::StatusOr<FormulaEval::Site> FormulaEval::FindSite(const Expr& expr) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> indices, Indices(expr.index));
  for (size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] >= 0) continue;
    return Error(expr.index[i], absl::StrCat(expr.name, "[", indices[i],
                                             "]: an index here is in the "
                                             "names of parameters; it cannot be negative"));
  }
  const std::string index = absl::StrJoin(indices, ".");
  std::string& name = sites_[{current_, expr.offset, index}];
  if (!name.empty()) return Site{name, true};
  name = NewName(absl::StrCat(scope_.prefix, ".", expr.name, index.empty() ? "" : ".", index));
  return Site{name, false};
}

absl::StatusOr<const NormBinding*> FormulaEval::GetNorm(const Expr& expr) const {
  const BlockSpec& block = *scope_.block;
  if (const auto it = block.slots.find(expr.name); it != block.slots.end()) return &it->second;
  if (block.norm.has_value()) return &*block.norm;
  std::vector<std::string> callable = FunctionNames();
  for (const auto& [name, site] : scope_.sublayers) callable.push_back(name);
  for (const auto& [name, binding] : block.slots) callable.push_back(name);
  return Error(
      expr, absl::StrCat("the slot \"", expr.name, "\" has no norm; give the block (",
                         block.place.ToString(), ") norm: \"...\" for all slots or slot { name: \"",
                         expr.name, "\" norm: \"...\" }", DidYouMean(expr.name, callable)));
}

absl::StatusOr<Quantity> FormulaEval::ApplyNormOfTwo(const Expr& expr) {
  PLUMB_ASSIGN_OR_RETURN(const Quantity x, TensorArgument(expr, expr.args[0]));
  PLUMB_ASSIGN_OR_RETURN(const Quantity y, TensorArgument(expr, expr.args[1]));
  const Quantity both[] = {x, y};
  return ApplyNorm(expr, both);
}

// Fails unless the number of inputs is that of the norm's descriptor and their widths are equal.
absl::Status FormulaEval::CheckNormInputs(const Expr& expr, const NormBinding& norm,
                                          absl::Span<const Quantity> arguments) const {
  const std::string& name = norm.name;
  if (norm.plugin->two_inputs() && arguments.size() == 1) {
    return Error(expr, absl::StrCat("the norm \"", name, "\" has two inputs: ", expr.name,
                                    "(x, y); here it is given one"));
  }
  if (arguments.size() == 1) return absl::OkStatus();
  if (!norm.plugin->two_inputs()) {
    return Error(expr.args[1],
                 absl::StrCat("the norm \"", name, "\" has one input, ", expr.name,
                              "(x); two are for norms that take them (plumb plugin describe shows "
                              "the trait \"two inputs\")"));
  }
  if (arguments[0].width == arguments[1].width) return absl::OkStatus();
  return Error(expr.args[1],
               absl::StrCat(expr.name, " takes two tensors of one width, ", arguments[0].width,
                            "; this is ", TypeName(arguments[1])));
}

absl::StatusOr<Quantity> FormulaEval::ApplyNorm(const Expr& expr,
                                                absl::Span<const Quantity> arguments) {
  NormSite site;
  PLUMB_ASSIGN_OR_RETURN(site.norm, GetNorm(expr));
  PLUMB_RETURN_IF_ERROR(CheckNormInputs(expr, *site.norm, arguments));
  const Quantity& argument = arguments[0];
  PLUMB_ASSIGN_OR_RETURN(const Site place, FindSite(expr));
  site.name = place.name;
  site.again = place.again;
  site.text = &current_->text;
  site.call = &expr;
  const size_t dot = place.name.rfind(absl::StrCat(".", expr.name));
  site.slot = place.name.substr(dot + 1);
  site.width = argument.width;
  site.dim = argument.width;
  const std::map<std::string, bool>& per_head = scope_.block->placement->slot_per_head;
  if (const auto it = per_head.find(expr.name); it != per_head.end() && it->second) {
    if (scope_.heads == 0) {
      return Error(expr,
                   absl::StrCat("the slot \"", expr.name,
                                "\" normalizes per head; there are heads only inside attention"));
    }
    site.dim = scope_.channels / scope_.heads;
    site.heads = site.width / site.dim;
    if (site.width % site.dim != 0) {
      return Error(expr.args[0], absl::StrCat("the slot \"", expr.name, "\" normalizes heads of ",
                                              site.dim, " channels; this is ", TypeName(argument)));
    }
  }
  absl::InlinedVector<TensorHandle, 2> inputs;
  for (const Quantity& input : arguments) inputs.push_back(Materialize(input));
  absl::StatusOr<TensorHandle> out = backend_->Norm(site, inputs);
  if (!out.ok()) {
    const std::string message(Error(expr, out.status().message()).message());
    return absl::Status(out.status().code(), message);
  }
  return Quantity::Tensor(*out, argument.width);
}

absl::StatusOr<Quantity> FormulaEval::ApplyLinear(const Expr& expr, const LinearSpec& linear,
                                                  const Quantity& argument) {
  LinearSite site;
  PLUMB_ASSIGN_OR_RETURN(const Site place, FindSite(expr));
  site.name = place.name;
  site.again = place.again;
  site.spec = &linear;
  site.scope = scope_.scalars;
  site.in = argument.width;
  PLUMB_ASSIGN_OR_RETURN(const double out, EvaluateScalar(linear.out, scope_.scalars));
  if (out < 1 || out > 1e9 || out != static_cast<double>(static_cast<int64_t>(out))) {
    return ErrorInText(linear.out.text, 0,
                       absl::StrCat("linear \"", linear.name, "\": out is ", out,
                                    scope_.scalars.Where(), "; it is a number of channels"));
  }
  site.out = static_cast<int64_t>(out);
  PLUMB_ASSIGN_OR_RETURN(const TensorHandle y, backend_->Linear(site, Materialize(argument)));
  return Quantity::Tensor(y, site.out);
}

}  // namespace plumb
