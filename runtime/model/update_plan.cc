// SPDX-License-Identifier: Apache-2.0
#include "runtime/model/update_plan.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/model/init_rules.h"
#include "runtime/spec/scalar.h"

namespace plumb {
namespace {

using Names = std::vector<std::pair<std::string, double>>;

// Returns a let, the form in which the formula evaluator accepts scalars that are not the model's.
Statement Given(const std::string& name, double value) {
  Statement let;
  let.section = "let";
  let.target = name;
  let.value.number = value;
  return let;
}

// Returns the offset of the first read of `name` in the text.
size_t GetOffset(const std::string& name, const Expr& expr) {
  if (expr.kind == Expr::Kind::kName && expr.name == name) return expr.offset;
  for (const Expr& arg : expr.args) {
    const size_t offset = GetOffset(name, arg);
    if (offset != std::string::npos) return offset;
  }
  return std::string::npos;
}

bool AppliesTo(TensorClass tensors, const ParameterSpec& parameter) {
  return tensors == TensorClass::kAll ||
         (tensors == TensorClass::kMatrices) == parameter.is_matrix();
}

class Planner {
 public:
  Planner(const TrainSpec& spec, const ResolvedModel& model,
          absl::Span<const ParameterSpec> parameters)
      : spec_(spec), model_(model), parameters_(parameters), matched_(spec.rules.size()) {}

  absl::StatusOr<UpdatePlan> Plan() && {
    plan_.clips = {spec_.grad_clip};
    group_of_.assign(spec_.rules.size(), 0);
    for (size_t r = 0; r < spec_.rules.size(); ++r) {
      PLUMB_RETURN_IF_ERROR(AddClipGroup(r));
    }
    for (const ParameterSpec& parameter : parameters_) {
      PLUMB_ASSIGN_OR_RETURN(ParameterUpdate update, MakeUpdate(parameter));
      plan_.parameters.push_back(update);
      if (update.is_frozen) plan_.frozen.push_back(parameter.name);
    }
    PLUMB_RETURN_IF_ERROR(CheckAllMatched());
    PLUMB_RETURN_IF_ERROR(CheckAnyTrained());
    PLUMB_RETURN_IF_ERROR(PlanNormalized());
    return std::move(plan_);
  }

 private:
  struct Matched {
    bool any = false;     // matches a tensor
    bool held = false;    // applies to one
    size_t taken_by = 0;  // earlier rule that applies to the first matched tensor
    std::string taken;
  };

  absl::Status AddClipGroup(size_t r) {
    const std::optional<Expression>& clip = spec_.rules[r].field(RuleField::kClip);
    if (!clip.has_value()) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(const double bound, Evaluate(*clip, RuleField::kClip, nullptr, {}));
    if (bound < 0) {
      return ErrorInText(clip->text, 0,
                         absl::StrCat("clip is ", bound, "; it must be zero or positive"));
    }
    group_of_[r] = static_cast<int>(plan_.clips.size());
    plan_.clips.push_back(bound);
    return absl::OkStatus();
  }

  absl::StatusOr<ParameterUpdate> MakeUpdate(const ParameterSpec& parameter) {
    ParameterUpdate update;
    update.lr_scale = parameter.lr_scale;
    const bool decays =
        parameter.weight_decay.value_or(spec_.decay_everything || parameter.is_matrix());
    update.weight_decay = decays ? spec_.weight_decay : 0;
    update.beta1 = spec_.beta1;
    update.beta2 = spec_.beta2;
    update.eps = spec_.eps;
    for (size_t r = 0; r < spec_.rules.size(); ++r) {
      const TrainRule& rule = spec_.rules[r];
      if (!MatchesPattern(rule.match.value, parameter.name) ||
          !AppliesTo(rule.tensors, parameter)) {
        continue;
      }
      if (update.rule >= 0) {
        if (!matched_[r].any) {
          matched_[r].taken_by = static_cast<size_t>(update.rule);
          matched_[r].taken = parameter.name;
        }
        matched_[r].any = true;
        continue;
      }
      matched_[r].any = matched_[r].held = true;
      update.rule = static_cast<int>(r);
      update.clip_group = group_of_[r];
    }
    const TrainRule* const rule =
        update.rule < 0 ? nullptr : &spec_.rules[static_cast<size_t>(update.rule)];
    if (rule != nullptr && rule->freezes && !parameter.is_correction) {
      ParameterUpdate frozen;
      frozen.rule = update.rule;
      frozen.is_frozen = true;
      return frozen;
    }
    PLUMB_ASSIGN_OR_RETURN(update.optimizer, GetOptimizer(rule, parameter));
    PLUMB_RETURN_IF_ERROR(Apply(rule, parameter, &update));
    if (parameter.is_correction) update.lr_scale = update.lr_offset = 0;  // has no gradient
    return update;
  }

  // Returns the optimizer of a parameter. `rule` is null if none applies.
  absl::StatusOr<OptimizerKind> GetOptimizer(const TrainRule* rule,
                                             const ParameterSpec& parameter) const {
    if (rule == nullptr || !rule->optimizer.has_value()) {
      const bool is_hidden = parameter.role == ParameterSpec::Role::kWeight &&
                             parameter.is_matrix() && GetLayer(parameter.name) > 0;
      return is_hidden ? spec_.optimizer : OptimizerKind::kAdamW;
    }
    if (*rule->optimizer == OptimizerKind::kMuon && !parameter.is_matrix()) {
      return ErrorInText(rule->match, 0,
                         absl::StrCat("rule: MUON is for matrices, and ", parameter.name,
                                      " is not one; tensors: MATRICES excludes it"));
    }
    return *rule->optimizer;
  }

  // Returns the expression of a field that applies to a parameter, or null.
  const Expression* Holding(const TrainRule* rule, RuleField field, OptimizerKind optimizer) const {
    if (rule != nullptr && rule->field(field).has_value()) return &*rule->field(field);
    if (optimizer != OptimizerKind::kMuon) return nullptr;
    const std::optional<Expression>* muons =
        field == RuleField::kLearningRate  ? &spec_.muon.learning_rate
        : field == RuleField::kWeightDecay ? &spec_.muon.weight_decay
                                           : nullptr;
    return muons == nullptr || !muons->has_value() ? nullptr : &**muons;
  }

  absl::Status Apply(const TrainRule* rule, const ParameterSpec& parameter,
                     ParameterUpdate* update) const {
    if (const Expression* rate = Holding(rule, RuleField::kLearningRate, update->optimizer)) {
      PLUMB_RETURN_IF_ERROR(SetRate(*rate, parameter, update));
    }
    const struct {
      RuleField field;
      double* value;
      double below;  // values are in [0, below), or above 0 if below is 0
    } others[] = {{RuleField::kWeightDecay, &update->weight_decay, HUGE_VAL},
                  {RuleField::kBeta1, &update->beta1, 1},
                  {RuleField::kBeta2, &update->beta2, 1},
                  {RuleField::kEps, &update->eps, 0}};
    for (const auto& other : others) {
      const Expression* const expression = Holding(rule, other.field, update->optimizer);
      if (expression == nullptr) continue;
      if (update->optimizer == OptimizerKind::kMuon && other.field != RuleField::kWeightDecay) {
        return ErrorInText(expression->text, 0,
                           absl::StrCat(GetName(other.field), " is a field of AdamW, and ",
                                        parameter.name, " is updated by Muon"));
      }
      PLUMB_ASSIGN_OR_RETURN(const double value,
                             Evaluate(*expression, other.field, &parameter,
                                      {{GetDefaultName(other.field), GetDefault(other.field)}}));
      if (other.below > 0 ? value < 0 || static_cast<float>(value) >= other.below : value <= 0) {
        return ErrorInText(expression->text, 0,
                           absl::StrCat(GetName(other.field), " of ", parameter.name, " is ", value,
                                        "; it must be ",
                                        other.below == 0   ? "positive"
                                        : other.below == 1 ? "in [0, 1)"
                                                           : "zero or positive"));
      }
      *other.value = value;
    }
    return absl::OkStatus();
  }

  double GetDefault(RuleField field) const {
    return field == RuleField::kWeightDecay ? spec_.weight_decay
           : field == RuleField::kBeta1     ? spec_.beta1
           : field == RuleField::kBeta2     ? spec_.beta2
                                            : spec_.eps;
  }

  // Fits a line through lr = 0 and lr = 1, which must also contain two other points.
  absl::Status SetRate(const Expression& rate, const ParameterSpec& parameter,
                       ParameterUpdate* update) const {
    const auto at = [&](double lr) {
      return Evaluate(rate, RuleField::kLearningRate, &parameter, {{"lr", lr}});
    };
    PLUMB_ASSIGN_OR_RETURN(update->lr_offset, at(0));
    PLUMB_ASSIGN_OR_RETURN(const double at_one, at(1));
    update->lr_scale = at_one - update->lr_offset;
    for (const double lr : {2.0, spec_.learning_rate}) {
      PLUMB_ASSIGN_OR_RETURN(const double value, at(lr));
      const double line = update->LearningRate(lr);
      if (std::fabs(value - line) <= 1e-9 * std::max(std::fabs(value), std::fabs(line))) continue;
      return ErrorInText(rate.text, 0,
                         "learning_rate is not linear in lr; it has the form a * lr + b");
    }
    for (const double lr : {0.0, spec_.learning_rate}) {
      const double value = update->LearningRate(lr);
      if (value >= 0) continue;
      return ErrorInText(rate.text, 0,
                         absl::StrCat("learning_rate of ", parameter.name, " is negative: ", value,
                                      " at lr = ", lr));
    }
    return absl::OkStatus();
  }

  // Evaluates a field. `parameter` is null if the value is for no single parameter. `more`: names
  // that only this field has.
  absl::StatusOr<double> Evaluate(const Expression& expression, RuleField field,
                                  const ParameterSpec* parameter, const Names& more) const {
    PlacementSpec lets;
    for (const auto& [name, value] : more) lets.lets.push_back(Given(name, value));
    if (parameter != nullptr && parameter->fans.has_value()) {
      lets.lets.push_back(Given("fan_in", static_cast<double>(parameter->fans->in)));
      lets.lets.push_back(Given("fan_out", static_cast<double>(parameter->fans->out)));
    }
    lets.lets.insert(lets.lets.end(), spec_.lets.begin(), spec_.lets.end());
    ScalarScope scope;
    scope.dims = &model_.dims;
    scope.placement = &lets;
    if (parameter != nullptr) scope.layer = GetLayer(parameter->name);
    PLUMB_RETURN_IF_ERROR(CheckNames(expression, field, parameter, scope));
    return EvaluateScalar(expression, scope);
  }

  // Fails on unknown names, with a hint if the name has a value elsewhere in a recipe.
  absl::Status CheckNames(const Expression& expression, RuleField field,
                          const ParameterSpec* parameter, const ScalarScope& scope) const {
    std::set<std::string> read;
    CollectNames(expression.root, Expr::Kind::kName, &read);
    const std::vector<std::string> known = scope.Names();
    for (const std::string& name : read) {
      if (std::find(known.begin(), known.end(), name) != known.end()) continue;
      std::string why = DidYouMean(name, known);
      for (const RuleField other : kRuleFields) {
        if (name == GetDefaultName(other)) {
          why = absl::StrCat("; it has a value in ", GetName(other), " only");
        }
      }
      if (name == "layer" || name == "fan_in" || name == "fan_out") {
        why = parameter == nullptr ? "; the bound is one for all tensors of the rule"
              : name == "layer"
                  ? absl::StrCat("; ", parameter->name, " is in no layer")
                  : absl::StrCat("; ", parameter->name, " is neither a weight nor the bias of one");
      }
      return ErrorInText(expression.text, GetOffset(name, expression.root),
                         absl::StrCat(GetName(field), ": unknown scalar \"", name, "\"", why));
    }
    return absl::OkStatus();
  }

  absl::Status PlanNormalized() {
    std::vector<const NormalizeRule*> rule_of(parameters_.size(), nullptr);
    for (const NormalizeRule& rule : spec_.normalize) {
      bool matches = false;
      for (size_t i = 0; i < parameters_.size(); ++i) {
        const ParameterSpec& parameter = parameters_[i];
        if (!parameter.is_matrix() || !MatchesPattern(rule.match.value, parameter.name)) continue;
        matches = true;
        if (rule_of[i] != nullptr) {
          return ErrorInText(
              rule.match, 0,
              absl::StrCat("normalize: ", parameter.name, " is normalized already, by \"",
                           rule_of[i]->match.value, "\""));
        }
        if (plan_.parameters[i].is_frozen) {
          return ErrorInText(
              rule.match, 0,
              absl::StrCat("normalize: ", parameter.name, " is frozen by the rule for \"",
                           GetMatch(plan_.parameters[i]).value,
                           "\", and normalizing would change it; drop one"));
        }
        rule_of[i] = &rule;
        plan_.parameters[i].unit_length = rule.columns ? UnitLength::kColumns : UnitLength::kRows;
      }
      if (!matches) return NoMatch(rule.match, "normalize", TensorClass::kMatrices);
    }
    return absl::OkStatus();
  }

  absl::Status NoMatch(const SourceText& match, const char* what, TensorClass tensors) const {
    std::vector<std::string> names;
    for (const ParameterSpec& parameter : parameters_) {
      if (AppliesTo(tensors, parameter)) names.push_back(parameter.name);
    }
    std::string hint = DidYouMean(match.value, names);
    if (hint.empty()) {
      hint = names.empty() ? "; the model has none of this kind"
                           : absl::StrCat("; names look like ", names.front(), ", ", names.back());
    }
    return ErrorInText(match, 0,
                       absl::StrCat(what, ": matches no ",
                                    tensors == TensorClass::kMatrices  ? "matrix"
                                    : tensors == TensorClass::kVectors ? "vector"
                                                                       : "tensor",
                                    hint, "; plumb describe lists them"));
  }

  // Returns the pattern of the rule that applies to a parameter.
  const SourceText& GetMatch(const ParameterUpdate& update) const {
    return spec_.rules[static_cast<size_t>(update.rule)].match;
  }

  absl::Status CheckAnyTrained() const {
    const ParameterUpdate* frozen = nullptr;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (plan_.parameters[i].is_frozen) frozen = &plan_.parameters[i];
      if (!plan_.parameters[i].is_frozen && !parameters_[i].is_correction) return absl::OkStatus();
    }
    if (frozen == nullptr) return absl::OkStatus();
    return ErrorInText(
        GetMatch(*frozen), 0,
        absl::StrCat("rule: nothing is left to train, as every tensor is frozen; put "
                     "a rule before it that matches those to train: rule { match: \"",
                     parameters_.back().name, "\" }"));
  }

  absl::Status CheckAllMatched() const {
    for (size_t r = 0; r < spec_.rules.size(); ++r) {
      const TrainRule& rule = spec_.rules[r];
      if (matched_[r].held) continue;
      if (matched_[r].any) {
        const SourceText& other = spec_.rules[matched_[r].taken_by].match;
        const std::string where = other.place.ToString();
        return ErrorInText(
            rule.match, 0,
            absl::StrCat("rule: matches only tensors that earlier rules match: ", matched_[r].taken,
                         " belongs to the rule for \"", other.value, "\"",
                         where.empty() ? "" : absl::StrCat(" (", where, ")"),
                         "; the first rule that matches a tensor applies, so move this one up"));
      }
      return NoMatch(rule.match, "rule", rule.tensors);
    }
    return absl::OkStatus();
  }

  const TrainSpec& spec_;
  const ResolvedModel& model_;
  const absl::Span<const ParameterSpec> parameters_;
  std::vector<Matched> matched_;
  std::vector<int> group_of_;  // indexed by rule
  UpdatePlan plan_;
};

}  // namespace

absl::StatusOr<UpdatePlan> PlanUpdates(const TrainSpec& spec, const ResolvedModel& model,
                                       absl::Span<const ParameterSpec> parameters) {
  return Planner(spec, model, parameters).Plan();
}

bool ParameterUpdate::operator==(const ParameterUpdate& other) const {
  return rule == other.rule && optimizer == other.optimizer && lr_scale == other.lr_scale &&
         lr_offset == other.lr_offset && weight_decay == other.weight_decay &&
         beta1 == other.beta1 && beta2 == other.beta2 && eps == other.eps &&
         clip_group == other.clip_group && unit_length == other.unit_length &&
         is_frozen == other.is_frozen;
}

namespace {

// Returns "0.0001 (0.1 lr)", "0.001" or "0.0005 (constant)".
std::string RateText(const ParameterUpdate& update, double peak) {
  const double rate = update.LearningRate(peak);
  if (update.lr_scale == 1 && update.lr_offset == 0) return absl::StrCat(rate);
  if (update.lr_scale == 0) return absl::StrCat(rate, " (constant)");
  return absl::StrCat(rate, " (", update.lr_scale, " lr",
                      update.lr_offset == 0 ? "" : absl::StrCat(" + ", update.lr_offset), ")");
}

std::string UpdateText(const ParameterUpdate& update, const UpdatePlan& plan,
                       const TrainSpec& spec) {
  if (update.is_frozen) return "frozen";
  const bool is_muon = update.optimizer == OptimizerKind::kMuon;
  const double clip = plan.clips[static_cast<size_t>(update.clip_group)];
  const char* const unit_length = update.unit_length == UnitLength::kRows ? ", rows of length 1"
                                  : update.unit_length == UnitLength::kColumns
                                      ? ", columns of length 1"
                                      : "";
  return absl::StrCat(
      is_muon ? "Muon" : "AdamW", ", learning rate ", RateText(update, spec.learning_rate),
      ", weight decay ", update.weight_decay, ", ",
      is_muon ? absl::StrCat("momentum ", spec.muon.momentum)
              : absl::StrCat("betas ", update.beta1, " ", update.beta2, ", eps ", update.eps),
      clip == 0
          ? ", not clipped"
          : absl::StrCat(", clip ", clip, update.clip_group > 0 ? " of the rule's own norm" : ""),
      unit_length);
}

// Returns the names, where those that differ only in the layer are one line:
// "layers.0..7.attention.q.weight".
std::string NamesText(const std::vector<std::string>& names) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> lines;  // without "layers.N."
  for (const std::string& name : names) {
    const int64_t layer = GetLayer(name);
    if (layer == 0) {
      lines.push_back({name, {}});
      continue;
    }
    const std::string rest = name.substr(name.find('.', sizeof("layers.") - 1) + 1);
    const auto same = std::find_if(lines.begin(), lines.end(), [&rest](const auto& line) {
      return line.first == rest && !line.second.empty();
    });
    if (same == lines.end()) {
      lines.push_back({rest, {layer - 1}});
    } else {
      same->second.push_back(layer - 1);
    }
  }
  std::string text;
  for (const auto& [rest, layers] : lines) {
    absl::StrAppend(&text, "      ",
                    layers.empty() ? rest : absl::StrCat("layers.", RangesText(layers), ".", rest),
                    "\n");
  }
  return text;
}

}  // namespace

std::string ToString(const UpdatePlan& plan, const TrainSpec& spec,
                     absl::Span<const ParameterSpec> parameters) {
  std::vector<std::pair<ParameterUpdate, std::vector<std::string>>> groups;
  int64_t trained = 0, all = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ParameterUpdate& update = plan.parameters[i];
    all += parameters[i].shape.num_elements();
    if (!update.is_frozen) trained += parameters[i].shape.num_elements();
    auto alike = std::find_if(groups.begin(), groups.end(),
                              [&update](const auto& group) { return group.first == update; });
    if (alike == groups.end()) alike = groups.insert(groups.end(), {update, {}});
    alike->second.push_back(parameters[i].name);
  }
  std::string text = "updates, at the peak of the schedule\n";
  for (const auto& [update, names] : groups) {
    const std::string rule =
        update.rule < 0
            ? "no rule"
            : absl::StrCat("rule \"", spec.rules[static_cast<size_t>(update.rule)].match.value,
                           "\"");
    absl::StrAppend(&text, "  ", rule, "\n    ", UpdateText(update, plan, spec), "\n",
                    NamesText(names));
  }
  if (trained < all) {
    absl::StrAppend(&text, "  trained: ", WithCommas(trained), " of ", Count(all, "parameter"),
                    "\n");
  }
  return text;
}

}  // namespace plumb
