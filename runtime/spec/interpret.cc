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

// Returns true for the points after the projection that ends a sublayer.
bool IsOutput(absl::string_view point) {
  return LastName(point) == "o" || LastName(point) == "down";
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
    if (model_.adapter != nullptr && !adapted_) {
      return ErrorAt(model_.adapter->place, "adapter: no sublayer has a projection at its points");
    }
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
  // never run. Points of a missing kind of sublayer are allowed, as a block may lack one.
  static absl::Status CheckPoints(const BlockSpec& block) {
    for (const InsideSpec& inside : block.inside) {
      if (inside.point != kHeadPoint) PLUMB_RETURN_IF_ERROR(CheckPoint(block, inside));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckPoint(const BlockSpec& block, const InsideSpec& inside) {
    bool has_experts = false, has_mlp = false, has_attention = false, has_linear_attention = false;
    std::vector<std::string> own;
    for (const SublayerSpec& sublayer : block.sublayers) {
      has_experts = has_experts || sublayer.kind == SublayerSpec::Kind::kExperts;
      has_mlp = has_mlp || sublayer.kind == SublayerSpec::Kind::kMlp;
      has_attention = has_attention || sublayer.kind == SublayerSpec::Kind::kAttention;
      has_linear_attention =
          has_linear_attention || sublayer.kind == SublayerSpec::Kind::kLinearAttention;
      for (const char* point : ListPoints(sublayer)) {
        if (IsPointOf(sublayer, point, inside.point)) return absl::OkStatus();
        own.push_back(absl::StrCat(sublayer.name, ".", LastName(point)));
      }
    }
    const absl::string_view kind =
        absl::string_view(inside.point).substr(0, inside.point.find('.'));
    if (LastName(inside.point) == "gate") {
      return ErrorAt(inside.place,
                     absl::StrCat("inside ", inside.point, ": no MLP of the block is ",
                                  "gated; write gated: true, or use ", kind, ".up"));
    }
    if (kind == "mlp" && has_experts && !has_mlp) {
      return ErrorAt(inside.place,
                     absl::StrCat("inside ", inside.point, ": the block has experts ",
                                  "and no MLP; use experts.", LastName(inside.point)));
    }
    if (kind == "attention" && has_attention && LastName(inside.point) == "decay") {
      return ErrorAt(inside.place,
                     absl::StrCat("inside ", inside.point, ": no attention of the block ",
                                  "has a decay; write decay: true"));
    }
    if (kind == "attention" && has_attention) {
      return ErrorAt(inside.place,
                     absl::StrCat("inside ", inside.point, ": the values are the keys ",
                                  "(keys_as_values); use attention.k_rot"));
    }
    if (kind == "linear_attention" && has_linear_attention) {
      return ErrorAt(
          inside.place,
          absl::StrCat("inside ", inside.point, ": no linear attention of the block has ",
                       LastName(inside.point) == "decay"
                           ? "a decay; write decay: PER_HEAD, PER_KEY or FIXED"
                           : "the delta rule; write delta: true"));
    }
    if (kind == "attention" || kind == "linear_attention" || kind == "mlp" || kind == "experts") {
      return absl::OkStatus();
    }
    return UnknownPoint(inside, own);
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
      site.scope.dims = &model_.DimsAt(sublayers_);
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
                                       const SublayerSite& site) {
    const std::string name = LastName(point);
    for (const InsideSpec& inside : block.inside) {
      if (!IsPointOf(*site.spec, point, inside.point)) continue;
      for (const Statement& statement : inside.statements) {
        if (statement.condition.has_value()) {
          PLUMB_ASSIGN_OR_RETURN(
              const double holds,
              EvaluateScalar({statement.text, *statement.condition}, site.scope));
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
      for (const char* point : {"attention.q", "attention.k", "attention.v", "attention.decay"}) {
        PLUMB_ASSIGN_OR_RETURN(const bool replaces, Replaces(block, point, site));
        if (replaces) site.replaced.push_back(point);
      }
    }
    const auto at_point = [&](absl::string_view point,
                              TensorHandle tensor) -> absl::StatusOr<TensorHandle> {
      PLUMB_ASSIGN_OR_RETURN(const PointShape shape, ShapeAt(point, site));
      const std::string name = LastName(point);
      PointTensor input = {inputs[0], model_.dims.d_model};
      if (name == "k" || name == "decay") input.tensor = inputs[inputs.size() / 2];
      if (name == "v") input.tensor = inputs.back();
      if (IsOutput(point)) input = last_;  // the context, or the hidden layer
      const InsideSite inside = {site.name, site.scope, site.spec,
                                 &input,    shape,      !site.projects(point)};
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
      return RunInside(last, {"head", scope, nullptr, nullptr, shape, false}, point, tensor);
    };
    return backend_->Head(x, at_point);
  }

  // Width of the tensor at a point and number of heads in it (0: none).
  struct PointShape {
    int64_t width, heads;
  };
  struct PointTensor {
    TensorHandle tensor;
    int64_t width;
  };
  // Context of the statements that run inside a sublayer or the head.
  struct InsideSite {
    std::string prefix;
    ScalarScope scalars;
    const SublayerSpec* sublayer;  // this and the next: null in the head
    const PointTensor* input;      // input of the projection at the point, else of the sublayer
    PointShape shape;
    bool replaced;  // true if there is no tensor until a statement sets it
  };

  // Returns the width at a point of experts; 0 at one of a shared expert that the layer lacks.
  absl::StatusOr<int64_t> ExpertsWidth(const SublayerSite& site, absl::string_view point) const {
    PLUMB_ASSIGN_OR_RETURN(const ExpertsNumbers numbers,
                           EvaluateExperts(site.spec->experts, site.scope));
    const int64_t d_model = model_.dims.d_model;
    if (absl::StartsWith(point, "shared.")) {
      return IsOutput(point) && numbers.shared_d_ff > 0 ? d_model : numbers.shared_d_ff;
    }
    if (!IsOutput(point)) return numbers.d_ff;
    return numbers.latent > 0 ? numbers.latent : d_model;
  }

  absl::StatusOr<PointShape> ShapeAt(absl::string_view point, const SublayerSite& site) const {
    const ModelDims& dims = *site.scope.dims;
    if (site.spec->kind == SublayerSpec::Kind::kMlp) {
      PLUMB_ASSIGN_OR_RETURN(const int64_t width, EvaluateMlpWidth(site.spec->mlp, site.scope));
      return PointShape{IsOutput(point) ? dims.d_model : width, 0};
    }
    if (site.spec->kind == SublayerSpec::Kind::kExperts) {
      PLUMB_ASSIGN_OR_RETURN(const int64_t width, ExpertsWidth(site, point));
      return PointShape{width, 0};
    }
    if (IsOutput(point)) return PointShape{dims.d_model, 0};
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
    return PointShape{dims.n_head * (point == "attention.decay" ? 1 : dims.head_dim), dims.n_head};
  }

  absl::StatusOr<TensorHandle> RunInside(const BlockSpec& block, const InsideSite& site,
                                         absl::string_view point, TensorHandle tensor) {
    const auto [width, heads] = site.shape;
    const bool in_experts =
        site.sublayer != nullptr && site.sublayer->kind == SublayerSpec::Kind::kExperts;
    if (in_experts && width == 0) return tensor;  // there is no shared expert here
    int64_t width_now = width;
    bool is_set = !site.replaced;
    // An adapter adds to the result of a projection, before the block's own statements.
    std::vector<std::pair<const BlockSpec*, const InsideSpec*>> insides;
    if (model_.adapter != nullptr && !in_experts && !site.replaced) {
      for (const InsideSpec& inside : model_.adapter->inside) {
        insides.emplace_back(model_.adapter.get(), &inside);
      }
    }
    for (const InsideSpec& inside : block.inside) insides.emplace_back(&block, &inside);
    for (const auto& [owner, each] : insides) {
      const InsideSpec& inside = *each;
      const bool runs = site.sublayer == nullptr ? inside.point == point
                                                 : IsPointOf(*site.sublayer, point, inside.point);
      if (!runs) continue;
      FormulaScope scope =
          MakeScope(FormulaScope::Kind::kInside, *owner, absl::StrCat("inside ", inside.point));
      scope.prefix = site.prefix;
      scope.scalars = site.scalars;
      scope.scalars.placement = owner->placement.get();
      scope.scalars.point_width = width;
      if (owner != &block) {
        adapted_ = true;
        backend_->Adapt(absl::StrCat(site.prefix, ".", LastName(point)), inside, scope.scalars);
      }
      scope.channels = width;
      scope.heads = heads;
      scope.point = LastName(point);
      scope.point_may_change_width = point == "attention.context";
      scope.in_experts = in_experts;
      const auto no_sublayers = [](const SublayerSite&, absl::Span<const TensorHandle> inputs) {
        return absl::StatusOr<TensorHandle>(inputs[0]);
      };
      FormulaEval eval(scope, backend_, &state_, no_sublayers);
      if (is_set) eval.locals()[scope.point] = {Quantity::Tensor(tensor, width_now), false, -1};
      if (site.input != nullptr && !in_experts) {
        eval.locals()["input"] = {Quantity::Tensor(site.input->tensor, site.input->width), true,
                                  -1};
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
    last_ = {tensor, width_now};
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
  static std::set<std::string> CollectSlots(const BlockSpec& block) {
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
      const std::set<std::string> slots = CollectSlots(*block);
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
  PointTensor last_ = {0, 0};  // the tensor after the last point
  bool adapted_ = false;       // the adapter has statements that ran
};

}  // namespace

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

// Backend that records the tables read by a walk.
class TablesRead : public NullBackend {
 public:
  TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) override {
    names_.insert(site.table);
    return 0;
  }
  bool Has(const std::string& name) const { return names_.count(name) > 0; }

 private:
  std::set<std::string> names_;
};

// Returns the kind of name in the block that equals `name`, or "".
std::string TakenIn(const BlockSpec& block, const std::string& name) {
  for (const Statement& let : block.placement->lets) {
    if (let.target == name) return "a let";
  }
  for (const LearnedSpec& learned : block.placement->learned) {
    if (learned.name == name) return "a learned value";
  }
  for (const SublayerSpec& sublayer : block.sublayers) {
    if (sublayer.name == name) return "a sublayer";
  }
  return "";
}

}  // namespace

absl::Status CheckFormulas(const ResolvedModel& model, std::vector<NormSite>* defaults) {
  DefaultNorms backend(model, defaults);
  return RunStack(model, &backend);
}

absl::Status CheckTokenTables(const ResolvedModel& model) {
  if (model.token_tables.empty()) return absl::OkStatus();
  TablesRead read;
  PLUMB_RETURN_IF_ERROR(RunStack(model, &read));
  for (const TokenTable& table : model.token_tables) {
    for (const auto& block : model.layers) {
      const std::string taken = TakenIn(*block, table.name);
      if (taken.empty()) continue;
      return ErrorAt(table.place,
                     absl::StrCat("embedding \"", table.name, "\": the name is that of ", taken,
                                  " of placement \"", block->placement->name,
                                  "\" or its block; give it another"));
    }
    if (read.Has(table.name)) continue;
    return ErrorAt(table.place,
                   absl::StrCat("embedding \"", table.name, "\" is never read; a formula reads it ",
                                "by its name: ", table.name, table.per_layer ? "[layer]" : ""));
  }
  return absl::OkStatus();
}

}  // namespace plumb
