// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/describe.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/base/status.h"
#include "runtime/model/parameters.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

// Describes a statement of an adapter at projection `name`: as an update of its weight if it adds
// "scale * up(down(input))", with dropout of the input or without, else as it is.
AdapterStatement DescribeUpdate(const std::string& name, const Statement& statement,
                                const ScalarScope& scope) {
  // Returns the argument of a call of a projection without bias, else null.
  const auto argument = [&scope](const Expr* expr) -> const Expr* {
    for (const LinearSpec& linear : scope.placement->linear) {
      const bool called = expr != nullptr && expr->kind == Expr::Kind::kCall && expr->index.empty();
      if (called && linear.name == expr->name && !linear.bias) return &expr->args[0];
    }
    return nullptr;
  };
  AdapterStatement as_it_is;
  as_it_is.text = absl::StrCat(name, ": ", statement.ToString());
  const std::string& target = statement.target;
  const Expr& sum = statement.value;
  const bool adds = sum.kind == Expr::Kind::kBinary && sum.name == "+" &&
                    sum.args[0].ToString() == target && absl::EndsWith(name, "." + target);
  if (!adds || !statement.index.empty()) return as_it_is;
  const Expr* up = &sum.args[1];
  absl::StatusOr<double> scale = 1.0;
  if (up->kind == Expr::Kind::kBinary && up->name == "*") {
    scale = EvaluateScalar({statement.text, up->args[0]}, scope);
    up = &up->args[1];
  }
  const Expr* const down = argument(up);
  const Expr* input = argument(down);
  if (input != nullptr && input->name == "drop") input = &input->args[0];
  if (!scale.ok() || input == nullptr || input->ToString() != "input") return as_it_is;
  const std::string prefix = name.substr(0, name.rfind('.'));
  AdapterStatement update = as_it_is;
  update.weight = absl::StrCat(name, ".weight");
  update.up = absl::StrCat(prefix, ".", up->name, ".weight");
  update.down = absl::StrCat(prefix, ".", down->name, ".weight");
  update.scale = *scale;
  return update;
}

// Returns true if the product of the update's matrices can be added to its weight: it has the
// weight's shape, and no convolution follows the projection.
bool IsMergeable(const AdapterStatement& update, const std::map<std::string, Shape>& shapes) {
  const auto weight = shapes.find(update.weight);
  const auto up = shapes.find(update.up), down = shapes.find(update.down);
  if (weight == shapes.end() || up == shapes.end() || down == shapes.end()) return false;
  const std::string conv = absl::StrReplaceAll(update.weight, {{".weight", "_conv.weight"}});
  if (weight->second.rank() != 2 || shapes.count(conv) > 0) return false;
  // A projection to one channel is a vector.
  const int64_t rank = down->second.num_elements() / weight->second[1];
  return down->second.num_elements() == rank * weight->second[1] &&
         up->second.num_elements() == weight->second[0] * rank;
}

// Collects the norm of each slot in each layer by a walk of the model. Norms of "begin" count as
// the first layer's, those of "end" and the head as the last layer's, since its block supplies
// them. Norms excluded by a condition are not listed.
class SlotCollector : public NullBackend {
 public:
  absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                    absl::Span<const TensorHandle> inputs) override {
    PLUMB_ASSIGN_OR_RETURN(const auto instance,
                           site.norm->plugin->Instantiate(site.dim, site.norm->attrs, site.heads));
    slots_[layer_].insert(absl::StrCat(site.slot, ": ", instance->ToString()));
    return inputs[0];
  }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override {
    for (const std::string& point : site.replaced) replaced_[point].push_back(layer_);
    return NullBackend::Sublayer(site, inputs, at_point);
  }
  void BeginLayer(int64_t layer_index, TensorHandle) override { layer_ = layer_index; }
  void Adapt(const std::string& name, const InsideSpec& inside, const ScalarScope& scope) override {
    for (const Statement& statement : inside.statements) {
      if (statement.condition.has_value()) {
        const auto holds = EvaluateScalar({statement.text, *statement.condition}, scope);
        if (holds.ok() && *holds == 0) continue;
      }
      updates_.push_back(DescribeUpdate(name, statement, scope));
    }
  }
  // Returns StackDescription::adapter. Each call of a linear has its own tensor, and `updates_` has
  // the name of the first: an update whose tensors another one names, too, is only a text. So is
  // one that is narrower than its weight, whose channels are repeated.
  absl::StatusOr<std::vector<AdapterStatement>> Updates(const ResolvedModel& model) const {
    if (updates_.empty()) return std::vector<AdapterStatement>();
    PLUMB_ASSIGN_OR_RETURN(const ModelTensors tensors, ListTensors(model));
    std::map<std::string, Shape> shapes;
    for (const ParameterSpec& parameter : tensors.parameters) {
      shapes.emplace(parameter.name, parameter.shape);
    }
    const SharedLayers shared(model);
    std::map<std::string, int> calls;
    for (const AdapterStatement& update : updates_) {
      ++calls[update.up];
      ++calls[update.down];
    }
    std::vector<AdapterStatement> found;
    for (AdapterStatement update : updates_) {
      const bool is_called_once = calls[update.up] == 1 && calls[update.down] == 1;
      if (is_called_once) {
        for (std::string* name : {&update.weight, &update.up, &update.down}) {
          *name = shared.GetName(*name, /*is_weight=*/true);
        }
      }
      // Layers that share parameters share the update, unless its factor differs.
      const auto same = std::find_if(found.begin(), found.end(), [&](const auto& other) {
        return is_called_once && other.up == update.up && other.down == update.down;
      });
      if (same == found.end()) {
        if (!is_called_once || !IsMergeable(update, shapes)) update.weight.clear();
        found.push_back(std::move(update));
      } else if (same->weight != update.weight || same->scale != update.scale) {
        same->weight.clear();
      }
    }
    for (AdapterStatement& update : found) {
      if (update.weight.empty()) continue;
      update.text = absl::StrFormat("%s += %.17g * %s * %s", update.weight, update.scale, update.up,
                                    update.down);
    }
    return found;
  }

  // Returns the slots of layers first..last, sorted.
  std::vector<std::string> Slots(int64_t first, int64_t last) const {
    std::set<std::string> slots;
    for (auto it = slots_.lower_bound(first); it != slots_.end() && it->first <= last; ++it) {
      slots.insert(it->second.begin(), it->second.end());
    }
    return {slots.begin(), slots.end()};
  }

  // Returns a line for each point of layers first..last where statements replace the projection.
  std::vector<std::string> Replaced(int64_t first, int64_t last) const {
    std::vector<std::string> lines;
    for (const auto& [point, layers] : replaced_) {
      std::set<int64_t> here;
      for (const int64_t layer : layers) {
        if (layer >= first && layer <= last) here.insert(layer);
      }
      if (here.empty()) continue;
      const bool all = static_cast<int64_t>(here.size()) == last - first + 1;
      lines.push_back(
          absl::StrCat(point, ": set by statements, without a projection",
                       all ? "" : absl::StrCat(" in layers ", absl::StrJoin(here, ", "))));
    }
    return lines;
  }

 private:
  int64_t layer_ = 0;
  std::map<std::string, std::vector<int64_t>> replaced_;
  std::map<int64_t, std::set<std::string>> slots_;
  std::vector<AdapterStatement> updates_;
};

void AddLines(const char* label, const std::vector<Statement>& statements,
              std::vector<std::string>* lines) {
  for (const Statement& statement : statements) {
    lines->push_back(absl::StrCat(label, ": ", statement.ToString()));
  }
}

std::string DescribeLearned(const LearnedSpec& learned) {
  const char* size = learned.per_channel ? " per channel" : learned.per_head ? " per head" : "";
  std::string indices;
  for (const RangeText& range : learned.index) {
    absl::StrAppend(&indices, " for ", range.range.ToString());
  }
  return absl::StrCat(learned.name, ": learned", size, indices, ", initially ",
                      learned.init.root.ToString());
}

std::string DescribeLinear(const LinearSpec& linear) {
  return absl::StrCat(linear.name, ": projection to ", linear.out.root.ToString(),
                      linear.bias ? ", with bias" : "");
}

// Returns "mlp(x) = 1.5 * sum over 2 of 4 experts e of p_e expert_e(x) + shared(x); p =
// softmax(router(x))".
std::string ExpertsEquation(const SublayerSpec& sublayer, const ExpertsNumbers& numbers) {
  const ExpertsSpec& experts = sublayer.experts;
  const char* const weights = experts.router == "softmax"   ? "softmax(router(x))"
                              : experts.router == "sigmoid" ? "sigmoid(router(x))"
                                                            : "softmax of the chosen router(x)";
  const std::string sum = experts.renormalize ? " / their sum" : "";
  std::string choice;
  if (experts.correction) absl::StrAppend(&choice, "; chosen by score + router.correction");
  if (numbers.n_group > numbers.top_group) {
    absl::StrAppend(&choice, "; from ", numbers.top_group, " of ", numbers.n_group, " groups");
  }
  std::string text = absl::StrCat(sublayer.name, "(x) = ");
  if (numbers.scale != 1) absl::StrAppend(&text, numbers.scale, " * ");
  const bool latent = numbers.latent > 0;
  absl::StrAppend(&text, latent ? "latent.up(" : "", "sum over ", numbers.top_k, " of ",
                  numbers.n_expert, " experts e of p_e expert_e(",
                  latent ? "latent.down(x)))" : "x)");
  if (numbers.shared_d_ff > 0) {
    absl::StrAppend(&text, " + ", experts.shared_gate ? "sigmoid(shared_gate(x)) * " : "",
                    "shared(x)");
  }
  return absl::StrCat(text, "; p = ", weights, sum, choice);
}

// Lines of a group, each with its value at the group's layers, if it has one at each.
class ScalarLines {
 public:
  void Add(const std::string& text, std::optional<double> value = std::nullopt) {
    const auto [it, is_new] = index_.emplace(text, lines_.size());
    if (is_new) lines_.push_back({text, {}});
    lines_[it->second].second.push_back(value);
  }
  // Returns "g = layer / n_layer = 0.125 .. 1 over the layers": the least and the greatest value,
  // the other way round if the last value is below the first.
  std::vector<std::string> Texts() const {
    std::vector<std::string> texts;
    for (const auto& [text, values] : lines_) {
      texts.push_back(text);
      const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
      if (!least->has_value()) continue;  // nullopt is less than any number
      std::string from = absl::StrCat(**least), to = absl::StrCat(**greatest);
      if (values.back() < values.front()) from.swap(to);
      absl::StrAppend(&texts.back(), " = ", from);
      if (from != to) absl::StrAppend(&texts.back(), " .. ", to, " over the layers");
    }
    return texts;
  }

 private:
  std::map<std::string, size_t> index_;
  std::vector<std::pair<std::string, std::vector<std::optional<double>>>> lines_;
};

// Adds "delta: S = S + beta (v - S k) k', o = S q; 16 states of 8 x 8".
absl::Status AddLinearAttention(const SublayerSpec& sublayer, const ScalarScope& scope,
                                ScalarLines* lines) {
  const LinearAttentionSpec& spec = sublayer.linear_attention;
  PLUMB_ASSIGN_OR_RETURN(const LinearAttentionNumbers numbers,
                         EvaluateLinearAttention(spec, scope));
  const bool decays = spec.decay != LinearAttentionSpec::Decay::kNone;
  const std::string kept = decays ? "S diag(exp(decay))" : "S";
  lines->Add(absl::StrCat(sublayer.name, ": S = ", kept,
                          spec.delta ? absl::StrCat(" + beta (v - ", kept, " k) k'") : " + v k'",
                          ", o = S q; ", numbers.n_head, " states of ", numbers.value_dim, " x ",
                          numbers.key_dim,
                          numbers.n_key_head == numbers.n_head
                              ? ""
                              : absl::StrCat(", ", numbers.n_key_head, " heads of keys")));
  if (spec.conv.has_value()) {
    lines->Add(absl::StrCat(sublayer.name, ".conv: over ", spec.conv->width, " tokens"));
  }
  return absl::OkStatus();
}

// Adds the fields by which a sublayer differs from a plain attention or MLP, with their values at
// this layer.
absl::Status AddFields(const SublayerSpec& sublayer, const ScalarScope& scope, ScalarLines* lines) {
  const auto add_own = [&](const char* field, const std::optional<Expression>& expression,
                           auto value) {
    if (!expression.has_value()) return;
    lines->Add(absl::StrCat(sublayer.name, ".", field, " = ", expression->root.ToString()),
               static_cast<double>(value));
  };
  const auto add = [&](const char* field, const std::optional<Expression>& expression) {
    if (!expression.has_value()) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(const double value, EvaluateScalar(*expression, scope));
    add_own(field, expression, value);
    return absl::OkStatus();
  };
  switch (sublayer.kind) {
    case SublayerSpec::Kind::kConv:
      lines->Add(absl::StrCat(sublayer.name, ": convolution over ", sublayer.conv.width,
                              sublayer.conv.width == 1 ? " token" : " tokens"));
      break;
    case SublayerSpec::Kind::kLinearAttention:
      PLUMB_RETURN_IF_ERROR(AddLinearAttention(sublayer, scope, lines));
      break;
    case SublayerSpec::Kind::kMlp:
      PLUMB_RETURN_IF_ERROR(add("d_ff", sublayer.mlp.d_ff));
      break;
    case SublayerSpec::Kind::kExperts: {
      PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers,
                             EvaluateExperts(sublayer.experts, scope));
      lines->Add(ExpertsEquation(sublayer, numbers));
      PLUMB_RETURN_IF_ERROR(add("d_ff", sublayer.experts.mlp.d_ff));
      PLUMB_RETURN_IF_ERROR(add("shared_d_ff", sublayer.experts.shared_d_ff));
      PLUMB_RETURN_IF_ERROR(add("latent", sublayer.experts.latent));
      PLUMB_RETURN_IF_ERROR(add("balance_loss", sublayer.experts.balance_loss));
      break;
    }
    case SublayerSpec::Kind::kAttention:
      add_own("n_head", sublayer.attention.n_head, scope.dims->n_head);
      add_own("n_kv_head", sublayer.attention.n_kv_head, scope.dims->n_kv_head);
      add_own("head_dim", sublayer.attention.head_dim, scope.dims->head_dim);
      PLUMB_RETURN_IF_ERROR(add("scale", sublayer.attention.scale));
      PLUMB_RETURN_IF_ERROR(add("score_cap", sublayer.attention.score_cap));
      PLUMB_RETURN_IF_ERROR(add("window", sublayer.attention.window));
      if (sublayer.attention.sinks) {
        lines->Add(absl::StrCat(sublayer.name, ".sink: learned per head"));
      }
      if (sublayer.attention.decay) {
        lines->Add(absl::StrCat(sublayer.name, ".decay: s_ij + decay_{j+1} + .. + decay_i"));
      }
      break;
  }
  return absl::OkStatus();
}

std::string DescribeScalingKind(const RopeScaling& scaling) {
  const std::string common =
      absl::StrCat("factor=", scaling.factor, ", original=", scaling.original_context_length);
  switch (scaling.kind) {
    case RopeScaling::Kind::kLinear:
      return absl::StrCat("linear(factor=", scaling.linear->root.ToString(), ")");
    case RopeScaling::Kind::kLlama3:
      return absl::StrCat("llama3(", common, ", low=", scaling.low_freq_factor,
                          ", high=", scaling.high_freq_factor, ")");
    case RopeScaling::Kind::kYarn:
      return absl::StrCat("yarn(", common, ", beta_fast=", scaling.beta_fast,
                          ", beta_slow=", scaling.beta_slow,
                          ", attention_factor=", scaling.attention_factor,
                          scaling.fractional ? ", fractional" : "", ")");
    case RopeScaling::Kind::kLongRope:
      return absl::StrCat("longrope(factors=[", absl::StrJoin(scaling.factors, " "),
                          "], attention_factor=", scaling.attention_factor, ")");
  }
  return "";
}

std::string DescribeScaling(const RopeScaling& scaling) {
  return absl::StrCat(
      DescribeScalingKind(scaling),
      scaling.when.has_value() ? absl::StrCat(" if ", scaling.when->root.ToString()) : "");
}

// Adds the position fields of attention that can differ between layers, with their values at this
// layer.
absl::Status AddPositions(const PositionSpec& positions, const ScalarScope& scope,
                          const std::string& sublayer, ScalarLines* lines) {
  const auto add = [&](const char* field, const std::optional<Expression>& expression,
                       double value) {
    if (!expression.has_value()) return;
    lines->Add(absl::StrCat(sublayer, ".", field, " = ", expression->root.ToString()), value);
  };
  if (positions.kind == PositionKind::kAlibi) {
    PLUMB_ASSIGN_OR_RETURN(const double scale, EvaluateAlibi(positions, scope));
    add("alibi_scale", positions.alibi_scale, scale);
  }
  if (positions.kind != PositionKind::kRope) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const RopeNumbers numbers, EvaluateRope(positions, scope));
  add("rope_dims", positions.rope_dims, static_cast<double>(numbers.dims));
  add("rope_base", positions.rope_base, numbers.base);
  if (numbers.scaling != nullptr) {
    const std::vector<double>& factors = numbers.linear_factors;
    add("rope_scaling.linear", numbers.scaling->linear, factors.empty() ? 0 : factors.front());
  }
  return absl::OkStatus();
}

// Returns LayerGroup::scalars without the lines that have no scalar.
absl::StatusOr<std::vector<std::string>> DescribeScalars(const ResolvedModel& model, int64_t first,
                                                         int64_t last) {
  const BlockSpec& block = *model.layers[static_cast<size_t>(first)];
  const PlacementSpec& placement = *block.placement;
  ScalarScope scope;
  scope.placement = &placement;
  for (int64_t i = 0; i < first; ++i) {
    scope.sublayer += static_cast<int64_t>(model.layers[static_cast<size_t>(i)]->sublayers.size());
  }
  ScalarLines lines;
  for (scope.layer = first + 1; scope.layer <= last + 1; ++scope.layer) {
    for (const SublayerSpec& sublayer : block.sublayers) {
      scope.dims = &model.dims;
      ++scope.sublayer;
      for (const Statement& let : placement.lets) {
        // A let may have no value here if conditions keep statements from using it.
        const absl::StatusOr<std::optional<double>> value = scope.Lookup(let.target);
        lines.Add(let.ToString(), value.ok() ? *value : std::nullopt);
      }
      for (const LearnedSpec& learned : placement.learned) lines.Add(DescribeLearned(learned));
      for (const LinearSpec& linear : placement.linear) lines.Add(DescribeLinear(linear));
      scope.dims = &model.DimsAt(scope.sublayer);
      PLUMB_RETURN_IF_ERROR(AddFields(sublayer, scope, &lines));
      if (sublayer.kind == SublayerSpec::Kind::kAttention) {
        PLUMB_RETURN_IF_ERROR(AddPositions(model.positions, scope, sublayer.name, &lines));
      }
    }
  }
  return lines.Texts();
}

absl::StatusOr<LayerGroup> DescribeGroup(const ResolvedModel& model, int64_t first, int64_t last,
                                         const SlotCollector& slots) {
  const BlockSpec& block = *model.layers[static_cast<size_t>(first)];
  const PlacementSpec& placement = *block.placement;
  LayerGroup group;
  group.first = first;
  group.last = last;
  group.placement = placement.name;
  group.doc = placement.doc;
  AddLines("each", placement.each, &group.equations);
  AddLines("block", placement.block, &group.equations);
  if (model.adapter != nullptr) {
    for (const InsideSpec& inside : model.adapter->inside) {
      AddLines(absl::StrCat("adapter ", inside.point).c_str(), inside.statements, &group.equations);
    }
  }
  for (const InsideSpec& inside : block.inside) {
    // The head runs the statements of the last layer's block.
    if (inside.point == kHeadPoint && last + 1 < model.dims.n_layer) continue;
    AddLines(absl::StrCat("inside ", inside.point).c_str(), inside.statements, &group.equations);
  }
  PLUMB_ASSIGN_OR_RETURN(group.scalars, DescribeScalars(model, first, last));
  if (!block.share.empty()) {
    group.scalars.push_back(absl::StrCat(
        "parameters: shared, as layers.", model.first_layers[static_cast<size_t>(first)],
        block.own_norms ? "; norms and learned values are each layer's own" : ""));
  }
  for (std::string& line : slots.Replaced(first, last)) group.scalars.push_back(std::move(line));
  group.norms = slots.Slots(first, last);
  return group;
}

// Returns the distinct ones among the Jacobians of the layers `first` to `last`.
std::vector<LayerJacobian> DistinctJacobians(const std::vector<std::string>& jacobians,
                                             int64_t first, int64_t last) {
  std::vector<LayerJacobian> distinct;
  for (int64_t layer = first; layer <= last; ++layer) {
    const std::string& text = jacobians[static_cast<size_t>(layer)];
    const auto same = std::find_if(distinct.begin(), distinct.end(),
                                   [&](const LayerJacobian& known) { return known.text == text; });
    if (same == distinct.end()) {
      distinct.push_back({{layer}, text});
    } else {
      same->layers.push_back(layer);
    }
  }
  return distinct;
}

}  // namespace

std::string DescribePositions(const PositionSpec& positions) {
  if (positions.kind == PositionKind::kLearned) {
    return positions.offset == 0 ? "learned"
                                 : absl::StrCat("learned(offset=", positions.offset, ")");
  }
  if (positions.kind == PositionKind::kNone) return "none";
  if (positions.kind == PositionKind::kAlibi) {
    return absl::StrCat("alibi(score - ",
                        positions.alibi_scale.has_value()
                            ? absl::StrCat("(", positions.alibi_scale->root.ToString(), ") * ")
                            : "",
                        "slope of the head * distance)");
  }
  std::string text = positions.rope_base.has_value()
                         ? absl::StrCat("rope(base=", positions.rope_base->root.ToString())
                         : absl::StrCat("rope(theta=", positions.rope_theta);
  if (positions.rope_dims.has_value()) {
    absl::StrAppend(&text, ", dims=", positions.rope_dims->root.ToString());
  }
  if (positions.rope_interleaved) absl::StrAppend(&text, ", interleaved");
  for (const RopeScaling& scaling : positions.rope_scalings) {
    absl::StrAppend(&text, ", ", DescribeScaling(scaling));
  }
  return absl::StrCat(text, ")");
}

absl::StatusOr<StackDescription> DescribeStack(const ResolvedModel& model) {
  StackDescription description;
  SlotCollector slots;
  PLUMB_RETURN_IF_ERROR(RunStack(model, &slots));
  PLUMB_ASSIGN_OR_RETURN(description.adapter, slots.Updates(model));
  PLUMB_ASSIGN_OR_RETURN(description.routes, AnalyzeRoutes(model));
  const int64_t width = model.embedding_width, d_model = model.dims.d_model;
  if (width != d_model) {
    description.begin.push_back(absl::StrCat("embedding.project: ", width, " to ", d_model));
  }
  for (const TokenTable& table : model.token_tables) {
    description.begin.push_back(absl::StrCat("embedding ", table.name, ": ", table.width,
                                             " a token",
                                             table.per_layer ? ", a table a layer" : ""));
  }
  AddLines("begin", model.layers.front()->placement->begin, &description.begin);
  AddLines("end", model.layers.back()->placement->end, &description.end);
  if (width != d_model) {
    description.end.push_back(absl::StrCat("head.project: ", d_model, " to ", width));
  }
  const int64_t n = model.dims.n_layer;
  for (int64_t first = 0; first < n;) {
    int64_t last = first;
    while (last + 1 < n && model.layers[static_cast<size_t>(last + 1)] ==
                               model.layers[static_cast<size_t>(first)]) {
      ++last;
    }
    PLUMB_ASSIGN_OR_RETURN(LayerGroup group, DescribeGroup(model, first, last, slots));
    group.jacobians = DistinctJacobians(description.routes.jacobians, first, last);
    description.groups.push_back(std::move(group));
    first = last + 1;
  }
  return description;
}

}  // namespace plumb
