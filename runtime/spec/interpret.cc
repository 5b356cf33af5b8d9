// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/interpret.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/spec/formula_eval.h"
#include "runtime/spec/sublayer_numbers.h"

namespace plumb {
namespace {

constexpr const char* kAttentionPoints[] = {"attention.q",     "attention.k",
                                            "attention.v",     "attention.q_rot",
                                            "attention.k_rot", "attention.context"};
constexpr const char* kGatedMlpPoints[] = {"mlp.gate", "mlp.up", "mlp.hidden"};
constexpr const char* kMlpPoints[] = {"mlp.up", "mlp.hidden"};
constexpr const char* kLinearAttentionPoints[] = {
    "linear_attention.decay", "linear_attention.beta", "linear_attention.q",
    "linear_attention.k",     "linear_attention.v",    "linear_attention.context"};

std::string LastName(absl::string_view point) {
  return std::string(point.substr(point.rfind('.') + 1));
}

class Walk {
 public:
  Walk(const ResolvedModel& model, FormulaBackend* backend) : model_(model), backend_(backend) {}

  absl::Status Run() {
    PLUMB_RETURN_IF_ERROR(CheckStructure());
    const TensorHandle embedded = backend_->Embed();
    state_.streams["x"] = {Quantity::Tensor(embedded, model_.dims.d_model), false, -1};

    const BlockSpec& first = *model_.layers.front();
    PLUMB_RETURN_IF_ERROR(
        RunSection(MakeScope(FormulaScope::Kind::kBegin, first, "begin"), first.placement->begin));
    PLUMB_RETURN_IF_ERROR(CheckStreamsHaveBegun());
    for (int64_t layer = 0; layer < model_.dims.n_layer; ++layer) {
      backend_->BeginLayer(layer, X());
      PLUMB_RETURN_IF_ERROR(RunLayer(layer));
      backend_->EndLayer(layer, X());
    }
    const BlockSpec& last = *model_.layers.back();
    PLUMB_RETURN_IF_ERROR(
        RunSection(MakeScope(FormulaScope::Kind::kEnd, last, "end"), last.placement->end));
    PLUMB_RETURN_IF_ERROR(RunHead(last));
    PLUMB_RETURN_IF_ERROR(CheckAllRead());
    return CheckSlots();
  }

 private:
  TensorHandle X() const { return state_.streams.at("x").value.terms[0].tensor; }

  // Fails if a projection has the name of a sublayer, which would take precedence in a call.
  static absl::Status CheckProjections(const BlockSpec& block) {
    for (const LinearSpec& linear : block.placement->linear) {
      for (const SublayerSpec& sublayer : block.sublayers) {
        if (linear.name != sublayer.name) continue;
        return ErrorAt(linear.place, absl::StrCat("linear \"", linear.name, "\": the name is that ",
                                                  "of a sublayer; give it another"));
      }
    }
    return absl::OkStatus();
  }

  // Fails if the block has statements at a point that its sublayers do not have, since they would
  // never run. Points of a missing attention or MLP are allowed, as a block may lack one of them.
  static absl::Status CheckPoints(const BlockSpec& block) {
    const auto has = [&block](SublayerSpec::Kind kind) {
      return std::any_of(block.sublayers.begin(), block.sublayers.end(),
                         [kind](const SublayerSpec& s) { return s.kind == kind; });
    };
    for (const InsideSpec& inside : block.inside) {
      if (absl::StartsWith(inside.point, "mlp.") && has(SublayerSpec::Kind::kExperts) &&
          !has(SublayerSpec::Kind::kMlp)) {
        return ErrorAt(inside.place,
                       absl::StrCat("inside ", inside.point,
                                    ": the block has experts and no MLP; statements inside ",
                                    "experts are not possible"));
      }
      const auto has_values = [](const SublayerSpec& sublayer) {
        return sublayer.kind == SublayerSpec::Kind::kAttention &&
               !sublayer.attention.keys_as_values;
      };
      if (inside.point == kAttentionPoints[2] && has(SublayerSpec::Kind::kAttention) &&
          std::none_of(block.sublayers.begin(), block.sublayers.end(), has_values)) {
        return ErrorAt(inside.place,
                       absl::StrCat("inside ", inside.point, ": the values are the keys ",
                                    "(keys_as_values); write statements at attention.k_rot"));
      }
      PLUMB_RETURN_IF_ERROR(CheckLinearAttentionPoint(block, inside));
      if (inside.point != kGatedMlpPoints[0]) continue;
      const bool gated = std::any_of(
          block.sublayers.begin(), block.sublayers.end(),
          [](const SublayerSpec& s) { return s.kind == SublayerSpec::Kind::kMlp && s.mlp.gated; });
      if (gated) continue;
      return ErrorAt(inside.place,
                     absl::StrCat("inside ", inside.point,
                                  ": no MLP of the block is gated; write mlp { gated: "
                                  "true }, or use mlp.up"));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckLinearAttentionPoint(const BlockSpec& block, const InsideSpec& inside) {
    const bool is_decay = inside.point == kLinearAttentionPoints[0];
    if (!is_decay && inside.point != kLinearAttentionPoints[1]) return absl::OkStatus();
    bool lacks = false;
    for (const SublayerSpec& sublayer : block.sublayers) {
      const std::vector<const char*> points = PointsOf(sublayer);
      if (std::find(points.begin(), points.end(), inside.point) != points.end()) {
        return absl::OkStatus();
      }
      lacks = lacks || sublayer.kind == SublayerSpec::Kind::kLinearAttention;
    }
    if (!lacks) return absl::OkStatus();
    return ErrorAt(inside.place,
                   absl::StrCat("inside ", inside.point, ": no linear attention of the block has ",
                                is_decay ? "a decay; write decay: PER_HEAD, PER_KEY or FIXED"
                                         : "the delta rule; write delta: true"));
  }

  // Checks what can be checked without running a placement.
  absl::Status CheckStructure() const {
    std::set<const PlacementSpec*> seen;
    for (const auto& block : model_.layers) {
      PLUMB_RETURN_IF_ERROR(CheckPoints(*block));
      PLUMB_RETURN_IF_ERROR(CheckProjections(*block));
      const PlacementSpec& placement = *block->placement;
      if (!seen.insert(&placement).second) continue;
      const std::string name = absl::StrCat("placement \"", placement.name, "\": ");
      if (!placement.each.empty() && !placement.block.empty()) {
        return ErrorAt(placement.block[0].text.place,
                       absl::StrCat(name, "has both \"each\" and \"block\"; use one of them"));
      }
      const std::vector<Statement>& body =
          placement.each.empty() ? placement.block : placement.each;
      if (body.empty()) {
        return ErrorAt(placement.place, absl::StrCat(name, "needs \"each\" or \"block\""));
      }
      const auto lives_on = [&](const Statement& s) {
        return s.target == "x" || !s.index.empty() || SetsIn(placement.begin, s.target) ||
               SetsIn(model_.layers.front()->placement->begin, s.target);
      };
      if (!std::any_of(body.begin(), body.end(), lives_on)) {
        return ErrorInText(body.back().text, 0,
                           absl::StrCat(name,
                                        "x is never set, nor another stream or indexed name; the "
                                        "residual stream would not change"));
      }
    }
    return absl::OkStatus();
  }

  static bool SetsIn(const std::vector<Statement>& statements, const std::string& name) {
    return std::any_of(statements.begin(), statements.end(),
                       [&name](const Statement& s) { return s.target == name && s.index.empty(); });
  }

  FormulaScope MakeScope(FormulaScope::Kind kind, const BlockSpec& block,
                         const std::string& section) const {
    FormulaScope scope;
    scope.kind = kind;
    scope.model = &model_;
    scope.block = &block;
    scope.scalars.dims = &model_.dims;
    scope.scalars.placement = block.placement.get();
    scope.prefix = section;
    scope.channels = model_.dims.d_model;
    scope.description = absl::StrCat("placement \"", block.placement->name, "\", ", section);
    return scope;
  }

  absl::Status RunSection(const FormulaScope& scope, const std::vector<Statement>& statements) {
    const auto call = [this](const SublayerSite& site, absl::Span<const TensorHandle> inputs) {
      return CallSublayer(site, inputs);
    };
    return FormulaEval(scope, backend_, &state_, call).Run(statements);
  }

  absl::Status RunLayer(int64_t layer) {
    const BlockSpec& block = *model_.layers[static_cast<size_t>(layer)];
    const std::string prefix = absl::StrCat("layers.", layer);
    const bool by_name = !block.placement->block.empty();
    FormulaScope scope = MakeScope(by_name ? FormulaScope::Kind::kBlock : FormulaScope::Kind::kEach,
                                   block, by_name ? "block" : "each");
    scope.scalars.layer = layer + 1;
    scope.prefix = prefix;
    if (layer > 0) absl::StrAppend(&scope.description, ", layer ", layer + 1);
    const std::string description = scope.description;
    for (const SublayerSpec& spec : block.sublayers) {
      SublayerSite site;
      site.name = absl::StrCat(prefix, ".", spec.name);
      site.spec = &spec;
      site.layer_index = layer;
      site.scope = scope.scalars;
      site.scope.sublayer = ++sublayers_;
      if (by_name) {
        scope.sublayers[spec.name] = site;
        continue;
      }
      scope.scalars.sublayer = sublayers_;
      scope.prefix = site.name;
      scope.description =
          absl::StrCat(description, layer > 0 ? " (" : ", ", spec.name, layer > 0 ? ")" : "");
      scope.sublayers = {{"f", site}};
      PLUMB_RETURN_IF_ERROR(RunSection(scope, block.placement->each));
    }
    return by_name ? RunSection(scope, block.placement->block) : absl::OkStatus();
  }

  // Returns true if the block's statements at a projection set its result before they read it.
  static absl::StatusOr<bool> Replaces(const BlockSpec& block, absl::string_view point,
                                       const ScalarScope& scope) {
    const std::string name = LastName(point);
    for (const InsideSpec& inside : block.inside) {
      if (inside.point != point) continue;
      for (const Statement& statement : inside.statements) {
        if (statement.condition.has_value()) {
          PLUMB_ASSIGN_OR_RETURN(const double holds,
                                 EvaluateScalar({statement.text, *statement.condition}, scope));
          if (holds == 0) continue;
        }
        std::set<std::string> read;
        CollectNames(statement, Expr::Kind::kName, &read);
        if (read.count(name) > 0) return false;
        if (statement.target == name && statement.index.empty()) return true;
      }
    }
    return false;
  }

  absl::StatusOr<TensorHandle> CallSublayer(SublayerSite site,
                                            absl::Span<const TensorHandle> inputs) {
    const BlockSpec& block = *model_.layers[static_cast<size_t>(site.layer_index)];
    if (site.spec->kind == SublayerSpec::Kind::kAttention) {
      for (const char* point : {"attention.q", "attention.k", "attention.v"}) {
        PLUMB_ASSIGN_OR_RETURN(const bool replaces, Replaces(block, point, site.scope));
        if (replaces) site.replaced.push_back(point);
      }
    }
    const auto at_point = [&](absl::string_view point,
                              TensorHandle tensor) -> absl::StatusOr<TensorHandle> {
      PLUMB_ASSIGN_OR_RETURN(const PointShape shape, ShapeAt(point, site));
      const InsideSite inside = {site.name, site.scope, &inputs[0], shape, !site.projects(point)};
      return RunInside(block, inside, point, tensor);
    };
    return backend_->Sublayer(site, inputs, at_point);
  }

  absl::Status RunHead(const BlockSpec& last) {
    const TensorHandle x = X();
    Variable& stream = state_.streams["x"];
    stream.read = true;
    state_.settings.Reads(stream.setting);
    ScalarScope scope;
    scope.dims = &model_.dims;
    scope.placement = last.placement.get();
    const auto at_point = [&](absl::string_view point, TensorHandle tensor) {
      const PointShape shape = {model_.dims.vocab_size, 0};
      return RunInside(last, {"head", scope, nullptr, shape, false}, point, tensor);
    };
    return backend_->Head(x, at_point);
  }

  // Width of the tensor at a point and number of heads in it (0: none).
  struct PointShape {
    int64_t width, heads;
  };
  // Context of the statements that run inside a sublayer or the head.
  struct InsideSite {
    std::string prefix;
    ScalarScope scalars;
    const TensorHandle* input;  // input of the sublayer; null in the head
    PointShape shape;
    bool replaced;  // true if there is no tensor until a statement sets it
  };

  absl::StatusOr<PointShape> ShapeAt(absl::string_view point, const SublayerSite& site) const {
    const ModelDims& dims = model_.dims;
    if (site.spec->kind == SublayerSpec::Kind::kMlp) {
      PLUMB_ASSIGN_OR_RETURN(const int64_t width, EvaluateMlpWidth(site.spec->mlp, site.scope));
      return PointShape{width, 0};
    }
    if (site.spec->kind == SublayerSpec::Kind::kLinearAttention) {
      const LinearAttentionSpec& spec = site.spec->linear_attention;
      PLUMB_ASSIGN_OR_RETURN(const LinearAttentionNumbers numbers,
                             EvaluateLinearAttention(spec, site.scope));
      const std::string name = LastName(point);
      if (name == "q" || name == "k") return PointShape{numbers.keys(), numbers.n_key_head};
      if (name == "v" || name == "context") return PointShape{numbers.values(), numbers.n_head};
      const bool per_key = name == "decay" && spec.decay == LinearAttentionSpec::Decay::kPerKey;
      return PointShape{numbers.n_head * (per_key ? numbers.key_dim : 1), numbers.n_head};
    }
    if (point == "attention.k" || point == "attention.v" || point == "attention.k_rot") {
      return PointShape{dims.n_kv_head * dims.head_dim, dims.n_kv_head};
    }
    return PointShape{dims.n_head * dims.head_dim, dims.n_head};
  }

  absl::StatusOr<TensorHandle> RunInside(const BlockSpec& block, const InsideSite& site,
                                         absl::string_view point, TensorHandle tensor) {
    const auto [width, heads] = site.shape;
    int64_t width_now = width;
    bool is_set = !site.replaced;
    for (const InsideSpec& inside : block.inside) {
      if (inside.point != point) continue;
      FormulaScope scope =
          MakeScope(FormulaScope::Kind::kInside, block, absl::StrCat("inside ", point));
      scope.prefix = site.prefix;
      scope.scalars = site.scalars;
      scope.channels = width;
      scope.heads = heads;
      scope.point = LastName(point);
      scope.point_may_change_width = point == "attention.context";
      const auto no_sublayers = [](const SublayerSite&, absl::Span<const TensorHandle> inputs) {
        return absl::StatusOr<TensorHandle>(inputs[0]);
      };
      FormulaEval eval(scope, backend_, &state_, no_sublayers);
      if (is_set) eval.locals()[scope.point] = {Quantity::Tensor(tensor, width_now), false, -1};
      if (site.input != nullptr) {
        eval.locals()["input"] = {Quantity::Tensor(*site.input, model_.dims.d_model), true, -1};
      }
      PLUMB_RETURN_IF_ERROR(eval.Run(inside.statements));
      const auto after = eval.locals().find(scope.point);
      if (after == eval.locals().end()) continue;    // other statements will set it
      state_.settings.Reads(after->second.setting);  // read by the sublayer, and so by its caller
      tensor = after->second.value.terms[0].tensor;
      width_now = after->second.value.width;
      is_set = true;
    }
    backend_->EndPoint(point, width_now);
    return tensor;
  }

  // Fails if a placement reads one of its own streams that the `begin` that runs does not set.
  absl::Status CheckStreamsHaveBegun() const {
    const PlacementSpec& first = *model_.layers.front()->placement;
    for (const auto& block : model_.layers) {
      const PlacementSpec& placement = *block->placement;
      std::set<std::string> read;
      for (const auto* section : {&placement.each, &placement.block}) {
        for (const Statement& s : *section) CollectNames(s, Expr::Kind::kName, &read);
      }
      for (const Statement& statement : placement.begin) {
        if (!statement.index.empty()) continue;
        const std::string& name = statement.target;
        if (&placement == &first || state_.streams.count(name) > 0 || read.count(name) == 0)
          continue;
        return ErrorInText(statement.text, 0,
                           absl::StrCat("placement \"", placement.name, "\" (",
                                        block->place.ToString(), ") reads a stream \"", name,
                                        "\" that is never set: only the \"begin\" of the first ",
                                        "layer's placement, \"", first.name,
                                        "\", runs; set the stream there too"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckAllRead() const {
    const PlacementSpec& last = *model_.layers.back()->placement;
    const bool mixed = model_.layers.front()->placement.get() != &last;
    std::vector<std::string> streams;
    for (const auto& [name, variable] : state_.streams) streams.push_back(name);
    return state_.settings.Check(
        streams, mixed
                     ? absl::StrCat(" (the end that runs is that of the last layer's placement, \"",
                                    last.name, "\")")
                     : "");
  }

  // Returns the slots named in a block's formulas. Conditions are ignored.
  static std::set<std::string> SlotsOf(const BlockSpec& block) {
    const PlacementSpec& p = *block.placement;
    std::set<std::string> names;
    for (const auto* section : {&p.begin, &p.each, &p.block, &p.end}) {
      for (const Statement& s : *section) CollectNames(s, Expr::Kind::kCall, &names);
    }
    for (const InsideSpec& inside : block.inside) {
      for (const Statement& s : inside.statements) CollectNames(s, Expr::Kind::kCall, &names);
    }
    names.erase("f");
    for (const SublayerSpec& sublayer : block.sublayers) names.erase(sublayer.name);
    for (const std::string& function : FunctionNames()) names.erase(function);
    for (const LinearSpec& linear : p.linear) names.erase(linear.name);
    return names;
  }

  // Fails if a slot is bound or declared that no formula applies, since a misspelt name would go
  // unnoticed.
  absl::Status CheckSlots() const {
    std::map<const PlacementSpec*, std::set<std::string>> slots_of;
    for (const auto& block : model_.layers) {
      const std::set<std::string> slots = SlotsOf(*block);
      slots_of[block->placement.get()].insert(slots.begin(), slots.end());
      for (const auto& [slot, binding] : block->slots) {
        if (slots.count(slot) > 0) continue;
        return ErrorAt(binding.place, absl::StrCat("slot \"", slot, "\": placement \"",
                                                   block->placement->name, "\" has no such slot",
                                                   DidYouMean(slot, {slots.begin(), slots.end()})));
      }
    }
    for (const auto& block : model_.layers) {
      const PlacementSpec* placement = block->placement.get();
      const std::set<std::string>& slots = slots_of[placement];
      for (const auto& [slot, per_head] : placement->slot_per_head) {
        if (slots.count(slot) > 0) continue;
        return ErrorAt(placement->place,
                       absl::StrCat("placement \"", placement->name, "\": slot \"", slot,
                                    "\" is declared, but nothing applies it",
                                    DidYouMean(slot, {slots.begin(), slots.end()})));
      }
    }
    return absl::OkStatus();
  }

  const ResolvedModel& model_;
  FormulaBackend* backend_;
  FormulaEval::Walk state_;
  int64_t sublayers_ = 0;
};

}  // namespace

bool SublayerSite::projects(absl::string_view point) const {
  return std::find(replaced.begin(), replaced.end(), point) == replaced.end();
}

std::vector<const char*> PointsOf(const SublayerSpec& sublayer) {
  if (sublayer.kind == SublayerSpec::Kind::kAttention) {
    std::vector<const char*> points(std::begin(kAttentionPoints), std::end(kAttentionPoints));
    if (sublayer.attention.keys_as_values) points.erase(points.begin() + 2);  // attention.v
    return points;
  }
  if (sublayer.kind == SublayerSpec::Kind::kLinearAttention) {
    std::vector<const char*> points(std::begin(kLinearAttentionPoints),
                                    std::end(kLinearAttentionPoints));
    const LinearAttentionSpec& spec = sublayer.linear_attention;
    if (!spec.delta) points.erase(points.begin() + 1);
    if (spec.decay == LinearAttentionSpec::Decay::kNone) points.erase(points.begin());
    return points;
  }
  if (sublayer.kind != SublayerSpec::Kind::kMlp) return {};
  if (sublayer.mlp.gated) return {std::begin(kGatedMlpPoints), std::end(kGatedMlpPoints)};
  return {std::begin(kMlpPoints), std::end(kMlpPoints)};
}

std::vector<const char*> AllSublayerPoints() {
  std::vector<const char*> points(std::begin(kAttentionPoints), std::end(kAttentionPoints));
  points.insert(points.end(), std::begin(kLinearAttentionPoints), std::end(kLinearAttentionPoints));
  points.insert(points.end(), std::begin(kGatedMlpPoints), std::end(kGatedMlpPoints));
  return points;
}

absl::StatusOr<TensorHandle> NullBackend::Sublayer(const SublayerSite& site,
                                                   absl::Span<const TensorHandle> inputs,
                                                   AtPoint at_point) {
  for (const char* point : PointsOf(*site.spec)) {
    PLUMB_RETURN_IF_ERROR(at_point(point, inputs[0]).status());
  }
  return inputs[0];
}

absl::Status NullBackend::Head(TensorHandle x, AtPoint at_point) {
  return at_point(kHeadPoint, x).status();
}

absl::Status RunStack(const ResolvedModel& model, FormulaBackend* backend) {
  return Walk(model, backend).Run();
}

namespace {

// Collects the first call of each slot and norm for which the block's default norm is used.
class DefaultNorms : public NullBackend {
 public:
  DefaultNorms(const ResolvedModel& model, std::vector<NormSite>* sites) : sites_(sites) {
    for (const auto& block : model.layers) {
      if (block->norm.has_value()) defaults_.insert(&*block->norm);
    }
  }
  absl::StatusOr<TensorHandle> Norm(const NormSite& site, absl::Span<const TensorHandle>) override {
    if (defaults_.count(site.norm) > 0 && seen_.insert({site.call->name, site.norm}).second) {
      sites_->push_back(site);
    }
    return 0;
  }

 private:
  std::vector<NormSite>* const sites_;
  std::set<const NormBinding*> defaults_;
  std::set<std::pair<std::string, const NormBinding*>> seen_;
};

}  // namespace

absl::Status CheckFormulas(const ResolvedModel& model, std::vector<NormSite>* defaults) {
  DefaultNorms backend(model, defaults);
  return RunStack(model, &backend);
}

}  // namespace plumb
