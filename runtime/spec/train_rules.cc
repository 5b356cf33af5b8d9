// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/train_rules.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/scalar.h"
#include "runtime/spec/shipped_recipes.h"
#include "runtime/spec/train_message.h"

namespace plumb {
namespace {

// Returns the existing meaning of a name in the expressions of rules, which a let may not take, or
// "".
std::string TakenBy(const std::string& name) {
  if (IsBuiltInScalar(name)) return "a scalar of the model";
  if (IsScalarFunction(name)) return "a function";
  if (name == "fan_in" || name == "fan_out") return "a scalar of the tensor";
  for (const RuleField field : kRuleFields) {
    if (name == DefaultNameOf(field)) return absl::StrCat("the recipe's ", NameOf(field));
  }
  return "";
}

absl::StatusOr<TrainRule> ToRule(const v1::Rule& message, const Located& at,
                                 const SourceLocation& place) {
  TrainRule rule;
  rule.match = at.TextOf("match");
  if (rule.match.value.empty()) {
    return ErrorAt(place, "rule: match is missing; it names parameters, \"*\" for all");
  }
  if (message.tensors() == v1::Rule::MATRICES) rule.tensors = TensorClass::kMatrices;
  if (message.tensors() == v1::Rule::VECTORS) rule.tensors = TensorClass::kVectors;
  if (message.optimizer() == v1::Train::ADAMW) rule.optimizer = OptimizerKind::kAdamW;
  if (message.optimizer() == v1::Train::MUON) rule.optimizer = OptimizerKind::kMuon;
  rule.freezes = message.freeze();
  const auto excluded = [&at](const char* field) {
    return ErrorAt(at.At(field), absl::StrCat("rule: freeze excludes ", field,
                                              ", as frozen tensors are not updated; drop one"));
  };
  if (rule.freezes && rule.optimizer.has_value()) return excluded("optimizer");
  for (const RuleField field : kRuleFields) {
    const SourceText text = at.TextOf(NameOf(field));
    if (text.value.empty()) continue;
    if (rule.freezes) return excluded(NameOf(field));
    PLUMB_ASSIGN_OR_RETURN(rule.fields[static_cast<size_t>(field)], ParseExpression(text));
  }
  return rule;
}

// Adds lets. A let replaces an earlier one of the same name.
template <class Message>
absl::Status AddLets(const Message& message, const Located& at, std::vector<Statement>* lets) {
  for (int i = 0; i < message.let_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(Statement let, ParseStatement(at.TextOf("let", i), "let"));
    if (let.condition.has_value()) {
      return ErrorInText(let.text, let.condition->offset, "a let has no condition");
    }
    if (const std::string taken = TakenBy(let.target); !taken.empty()) {
      return ErrorInText(
          let.text, 0,
          absl::StrCat("\"", let.target, "\" is ", taken, "; a let needs a name of its own"));
    }
    const auto old = std::find_if(lets->begin(), lets->end(), [&let](const Statement& other) {
      return other.target == let.target;
    });
    if (old == lets->end()) {
      lets->push_back(std::move(let));
    } else {
      *old = std::move(let);
    }
  }
  return absl::OkStatus();
}

template <class Message>
absl::Status AddRules(const Message& message, const Located& at, TrainSpec* spec) {
  for (int i = 0; i < message.rule_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(TrainRule rule,
                           ToRule(message.rule(i), at.Nested("rule", i), at.At("rule", i)));
    spec->rules.push_back(std::move(rule));
  }
  for (int i = 0; i < message.normalize_size(); ++i) {
    const v1::Normalize& normalize = message.normalize(i);
    if (normalize.match().empty()) {
      return ErrorAt(at.At("normalize", i),
                     "normalize: match is missing; it names matrices, \"*\" for all");
    }
    spec->normalize.push_back(
        {at.Nested("normalize", i).TextOf("match"), normalize.axis() == v1::Normalize::OUT});
  }
  return absl::OkStatus();
}

// Imported file of rules.
struct Import {
  std::string path;
  v1::RecipeRules message;
  textproto::Locations locations;

  Located located() const { return Located(path, message, &locations); }
};

absl::Status ReadImport(const std::string& name, const Located& at, int index, Import* import) {
  const SourceLocation place = at.At("import", index);
  std::string text;
  if (absl::EndsWith(name, ".pbtxt")) {
    const std::string directory = DirectoryOf(at.file());
    import->path = directory == "." || name[0] == '/' ? name : JoinPath(directory, name);
    absl::StatusOr<std::string> read = ReadFile(import->path, kMaxTextBytes);
    if (!read.ok()) return ErrorAt(place, absl::StrCat("import: ", read.status().message()));
    text = *std::move(read);
  } else {
    std::vector<std::string> names;
    for (ShippedRecipe& recipe : ShippedRecipes()) {
      names.push_back(recipe.name);
      if (recipe.name == name) text = std::move(recipe.text);
    }
    if (text.empty()) {
      return ErrorAt(
          place, absl::StrCat("import: no rules called \"", name, "\" ship",
                              DidYouMean(name, names), "; there are ", absl::StrJoin(names, ", "),
                              ", and a file's name ends in "
                              ".pbtxt"));
    }
    import->path = absl::StrCat(name, ".pbtxt");
  }
  return textproto::ReadText(text, import->path, &import->message, &import->locations);
}

}  // namespace

const char* NameOf(RuleField field) {
  constexpr const char* kNames[] = {"learning_rate", "weight_decay", "beta1",
                                    "beta2",         "eps",          "clip"};
  return kNames[static_cast<size_t>(field)];
}

const char* DefaultNameOf(RuleField field) {
  constexpr const char* kNames[] = {"lr", "wd", "beta1", "beta2", "eps", ""};
  return kNames[static_cast<size_t>(field)];
}

absl::Status ReadRules(const v1::Train& message, const Located& at, TrainSpec* spec) {
  std::vector<std::unique_ptr<Import>> imports;
  for (int i = 0; i < message.import_size(); ++i) {
    imports.push_back(std::make_unique<Import>());
    PLUMB_RETURN_IF_ERROR(ReadImport(message.import(i), at, i, imports.back().get()));
    PLUMB_RETURN_IF_ERROR(AddLets(imports.back()->message, imports.back()->located(), &spec->lets));
  }
  PLUMB_RETURN_IF_ERROR(AddLets(message, at, &spec->lets));
  PLUMB_RETURN_IF_ERROR(AddRules(message, at, spec));
  for (const auto& import : imports) {
    PLUMB_RETURN_IF_ERROR(AddRules(import->message, import->located(), spec));
  }
  return absl::OkStatus();
}

absl::Status ReadMuon(const v1::Muon& message, const Located& at, MuonSpec* muon) {
  if (message.has_momentum()) muon->momentum = message.momentum();
  if (message.has_nesterov()) muon->nesterov = message.nesterov();
  if (message.has_newton_schulz_steps()) muon->newton_schulz_steps = message.newton_schulz_steps();
  muon->matches_adamw = message.scale() == v1::Muon::MATCH_ADAMW;
  if (!(muon->momentum >= 0 && muon->momentum < 1)) {
    return ErrorAt(at.At("momentum"), "momentum must be in [0, 1)");
  }
  if (muon->newton_schulz_steps < 1 || muon->newton_schulz_steps > 100) {
    return ErrorAt(at.At("newton_schulz_steps"), "newton_schulz_steps must be in 1..100");
  }
  for (const auto& [name, expression] : {std::pair("learning_rate", &muon->learning_rate),
                                         std::pair("weight_decay", &muon->weight_decay)}) {
    const SourceText text = at.TextOf(name);
    if (text.value.empty()) continue;
    PLUMB_ASSIGN_OR_RETURN(*expression, ParseExpression(text));
  }
  return absl::OkStatus();
}

namespace {

void WriteMuon(const MuonSpec& muon, v1::Muon* message) {
  message->set_momentum(muon.momentum);
  message->set_nesterov(muon.nesterov);
  message->set_newton_schulz_steps(static_cast<int32_t>(muon.newton_schulz_steps));
  message->set_scale(muon.matches_adamw ? v1::Muon::MATCH_ADAMW : v1::Muon::ASPECT_RATIO);
  if (muon.learning_rate) message->set_learning_rate(muon.learning_rate->text.value);
  if (muon.weight_decay) message->set_weight_decay(muon.weight_decay->text.value);
}

}  // namespace

void WriteRules(const TrainSpec& spec, v1::Train* message) {
  for (const NormalizeRule& rule : spec.normalize) {
    v1::Normalize* out = message->add_normalize();
    out->set_match(rule.match.value);
    out->set_axis(rule.columns ? v1::Normalize::OUT : v1::Normalize::IN);
  }
  if (spec.optimizer == OptimizerKind::kMuon) message->set_optimizer(v1::Train::MUON);
  if (spec.UsesMuon()) WriteMuon(spec.muon, message->mutable_muon());
  for (const Statement& let : spec.lets) message->add_let(let.text.value);
  for (const TrainRule& rule : spec.rules) {
    v1::Rule* out = message->add_rule();
    out->set_match(rule.match.value);
    if (rule.tensors != TensorClass::kAll) {
      out->set_tensors(rule.tensors == TensorClass::kMatrices ? v1::Rule::MATRICES
                                                              : v1::Rule::VECTORS);
    }
    const auto text = [&rule](RuleField field) {
      return rule.field(field).has_value() ? rule.field(field)->text.value : std::string();
    };
    out->set_learning_rate(text(RuleField::kLearningRate));
    out->set_weight_decay(text(RuleField::kWeightDecay));
    out->set_beta1(text(RuleField::kBeta1));
    out->set_beta2(text(RuleField::kBeta2));
    out->set_eps(text(RuleField::kEps));
    out->set_clip(text(RuleField::kClip));
    if (rule.optimizer.has_value()) {
      out->set_optimizer(*rule.optimizer == OptimizerKind::kMuon ? v1::Train::MUON
                                                                 : v1::Train::ADAMW);
    }
    out->set_freeze(rule.freezes);
  }
}

}  // namespace plumb
