// SPDX-License-Identifier: Apache-2.0
#include "runtime/spec/train_spec.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plumb/v1/train.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"
#include "runtime/spec/scalar.h"
#include "runtime/spec/shipped_recipes.h"

namespace plumb {
namespace {

// Collects values out of range, each with the location of its field.
class RangeChecks {
 public:
  void Require(bool holds, const Located& at, const char* field, absl::string_view wanted) {
    if (holds) return;
    errors_.push_back(
        std::string(ErrorAt(at.At(field), absl::StrCat(field, " must be ", wanted)).message()));
  }
  absl::Status status() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(ListDiagnostics(errors_));
  }

 private:
  std::vector<std::string> errors_;
};

// Returns the vocabulary; a tokenizer file implies TOKENIZER.
v1::Data::Vocabulary VocabularyOf(const v1::Data& data) {
  if (data.vocabulary() != v1::Data::VOCABULARY_UNSPECIFIED) return data.vocabulary();
  return data.tokenizer().empty() ? v1::Data::CHARACTERS : v1::Data::TOKENIZER;
}

void CheckData(const v1::Data& data, const Located& at, RangeChecks* checks) {
  const bool named = VocabularyOf(data) == v1::Data::TOKENIZER;
  checks->Require(named == !data.tokenizer().empty(), at, "tokenizer",
                  "set with vocabulary: TOKENIZER, and with no other vocabulary");
  checks->Require(data.format() != v1::Data::TOKENS || named, at, "tokenizer",
                  "set with format: TOKENS; it defines the ids of the files");
  checks->Require(!data.has_bpe_vocab_size() ||
                      (data.bpe_vocab_size() >= 257 && data.bpe_vocab_size() <= 1 << 22),
                  at, "bpe_vocab_size", "in 257..4194304 (257: the bytes and <|endoftext|>)");
  checks->Require(data.token_bits() == 0 || data.token_bits() == 16 || data.token_bits() == 32, at,
                  "token_bits", "16, 32 or 0 (as many as the vocabulary needs)");
  checks->Require(data.val_fraction() >= 0 && data.val_fraction() < 1, at, "val_fraction",
                  "in [0, 1)");
}

// Returns true if an average may keep this share of its value at each step; it is applied as a
// float.
bool IsDecay(double value) { return value >= 0 && static_cast<float>(value) < 1; }

absl::Status CheckRanges(const v1::Train& said, const TrainSpec& s, const Located& at) {
  RangeChecks checks;
  const auto require = [&](bool holds, const char* field, absl::string_view wanted) {
    checks.Require(holds, at, field, wanted);
  };
  require(s.max_steps >= 1, "max_steps", "at least 1");
  require(s.batch_size >= 1 && s.batch_size <= 1 << 20, "batch_size", "in 1..1048576");
  require(s.gradient_accumulation_steps >= 1, "gradient_accumulation_steps", "at least 1");
  // A bad value that is the unit of another field's check is reported only once.
  if (s.batch_size >= 1 && s.gradient_accumulation_steps >= 1) {
    require(
        s.units >= 0 && s.units % s.gradient_accumulation_steps == 0, "units",
        absl::StrCat("a multiple of gradient_accumulation_steps, ", s.gradient_accumulation_steps));
    require(s.units <= 0 || s.units % s.gradient_accumulation_steps != 0 ||
                s.batch_size % s.units_per_micro_batch() == 0,
            "units",
            absl::StrCat("such that each has as many of the ", s.batch_size, " x ",
                         s.gradient_accumulation_steps,
                         " sequences of a step (batch_size x gradient_accumulation_steps)"));
  }
  require(std::isfinite(s.learning_rate) && s.learning_rate >= 0, "learning_rate",
          "zero or positive");
  if (s.learning_rate >= 0) {
    require(s.min_learning_rate >= 0 && s.min_learning_rate <= s.learning_rate, "min_learning_rate",
            absl::StrCat("between 0 and learning_rate, ", s.learning_rate));
  }
  require(IsDecay(s.beta1), "beta1", "in [0, 1)");
  require(IsDecay(s.beta2), "beta2", "in [0, 1)");
  require(s.eps > 0 && std::isfinite(s.eps), "eps", "positive");
  require(s.weight_decay >= 0 && std::isfinite(s.weight_decay), "weight_decay", "zero or positive");
  require(s.grad_clip >= 0 && std::isfinite(s.grad_clip), "grad_clip", "zero or positive");
  require(s.warmup_steps >= 0, "warmup_steps", "zero or more");
  if (s.schedule == ScheduleKind::kWsd) {
    require(s.cooldown_steps >= 1 && s.cooldown_steps <= s.decay_steps, "cooldown_steps",
            absl::StrCat("between 1 and decay_steps, ", s.decay_steps,
                         ", with schedule: WSD: the steps in which it decays"));
  } else {
    require(s.cooldown_steps == 0, "cooldown_steps", "omitted unless schedule is WSD");
  }
  if (s.decay_steps != s.max_steps) require(s.decay_steps >= 1, "decay_steps", "at least 1");
  require(said.eval_interval() >= 0, "eval_interval", "zero or more");
  require(said.eval_batches() >= 0, "eval_batches", "zero or more");
  require(said.checkpoint_interval() >= 0, "checkpoint_interval", "zero or more");
  require(said.checkpoint_seconds() >= 0 && std::isfinite(said.checkpoint_seconds()),
          "checkpoint_seconds", "zero or more");
  require(said.keep_checkpoints() >= 0, "keep_checkpoints", "zero or more");
  require(said.max_divergences() >= 0, "max_divergences", "zero or more");
  require(s.label_smoothing >= 0 && s.label_smoothing <= 1, "label_smoothing", "in [0, 1]");
  require(s.z_loss >= 0 && std::isfinite(s.z_loss), "z_loss", "zero or positive");
  require(IsDecay(s.ema_decay), "ema_decay", "in [0, 1)");
  require(s.router_correction_rate >= 0 && std::isfinite(s.router_correction_rate),
          "router_correction_rate", "zero or positive");
  CheckData(said.data(), at.Nested("data"), &checks);
  return checks.status();
}

absl::Status ReadMaskedTokens(const v1::MaskedTokens& message, const Located& at,
                              MaskedTokensSpec* spec) {
  if (message.has_share()) spec->share = message.share();
  if (message.has_mask_token()) spec->mask_token = message.mask_token();
  if (message.has_masked()) spec->masked = message.masked();
  if (message.has_random()) spec->random = message.random();
  for (const int32_t token : message.special_token()) spec->special_tokens.push_back(token);
  RangeChecks checks;
  checks.Require(spec->share > 0 && spec->share <= 1, at, "share", "in (0, 1]");
  checks.Require(!spec->mask_token.has_value() || *spec->mask_token >= 0, at, "mask_token",
                 "zero or positive");
  checks.Require(spec->masked >= 0 && spec->masked <= 1, at, "masked", "in [0, 1]");
  checks.Require(spec->random >= 0 && spec->random <= 1, at, "random", "in [0, 1]");
  if (checks.status().ok()) {
    checks.Require(spec->masked + spec->random <= 1 + 1e-12, at, "random",
                   absl::StrCat("at most 1 - masked, ", 1 - spec->masked));
  }
  return checks.status();
}

void WriteMaskedTokens(const MaskedTokensSpec& spec, v1::MaskedTokens* message) {
  message->set_share(spec.share);
  if (spec.mask_token.has_value()) message->set_mask_token(static_cast<int32_t>(*spec.mask_token));
  message->set_masked(spec.masked);
  message->set_random(spec.random);
  for (const int32_t token : spec.special_tokens) message->add_special_token(token);
}

constexpr std::pair<v1::Schedule::Kind, ScheduleKind> kSchedules[] = {
    {v1::Schedule::CONSTANT, ScheduleKind::kConstant},
    {v1::Schedule::LINEAR, ScheduleKind::kLinear},
    {v1::Schedule::COSINE, ScheduleKind::kCosine},
    {v1::Schedule::WSD, ScheduleKind::kWsd},
    {v1::Schedule::INVERSE_SQRT, ScheduleKind::kInverseSqrt}};

ScheduleKind ToSchedule(v1::Schedule::Kind schedule) {
  for (const auto& [message, kind] : kSchedules) {
    if (message == schedule) return kind;
  }
  return ScheduleKind::kConstant;
}

// Returns the existing meaning of a name in the expressions of rules, which a let may not take, or
// "".
std::string TakenBy(const std::string& name) {
  if (IsBuiltInScalar(name)) return "a scalar of the model";
  if (IsScalarFunction(name)) return "a function";
  if (name == "fan_in" || name == "fan_out") return "a scalar of the tensor";
  for (const RuleField field : kRuleFields) {
    if (name == GetDefaultName(field)) return absl::StrCat("the recipe's ", GetName(field));
  }
  return "";
}

absl::StatusOr<TrainRule> ToRule(const v1::Rule& message, const Located& at,
                                 const SourceLocation& place) {
  TrainRule rule;
  rule.match = at.GetText("match");
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
    const SourceText text = at.GetText(GetName(field));
    if (text.value.empty()) continue;
    if (rule.freezes) return excluded(GetName(field));
    PLUMB_ASSIGN_OR_RETURN(rule.fields[static_cast<size_t>(field)], ParseExpression(text));
  }
  return rule;
}

// Adds lets. A let replaces an earlier one of the same name.
template <class Message>
absl::Status AddLets(const Message& message, const Located& at, std::vector<Statement>* lets) {
  for (int i = 0; i < message.let_size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(Statement let, ParseStatement(at.GetText("let", i), "let"));
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
        {at.Nested("normalize", i).GetText("match"), normalize.axis() == v1::Normalize::OUT});
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
    const std::string directory = ParentDirectory(at.file());
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

// Sets lets, rules and normalize from a recipe and its imports. Errors, with locations: a syntax
// error, a name that is taken, a rule without effect, an import that does not exist.
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
  if (!IsDecay(muon->momentum)) {
    return ErrorAt(at.At("momentum"), "momentum must be in [0, 1)");
  }
  if (muon->newton_schulz_steps < 1 || muon->newton_schulz_steps > 100) {
    return ErrorAt(at.At("newton_schulz_steps"), "newton_schulz_steps must be in 1..100");
  }
  for (const auto& [name, expression] : {std::pair("learning_rate", &muon->learning_rate),
                                         std::pair("weight_decay", &muon->weight_decay)}) {
    const SourceText text = at.GetText(name);
    if (text.value.empty()) continue;
    PLUMB_ASSIGN_OR_RETURN(*expression, ParseExpression(text));
  }
  return absl::OkStatus();
}

void WriteMuon(const MuonSpec& muon, v1::Muon* message) {
  message->set_momentum(muon.momentum);
  message->set_nesterov(muon.nesterov);
  message->set_newton_schulz_steps(static_cast<int32_t>(muon.newton_schulz_steps));
  message->set_scale(muon.matches_adamw ? v1::Muon::MATCH_ADAMW : v1::Muon::ASPECT_RATIO);
  if (muon.learning_rate) message->set_learning_rate(muon.learning_rate->text.value);
  if (muon.weight_decay) message->set_weight_decay(muon.weight_decay->text.value);
}

// Writes the rules and the optimizer; Muon only if the recipe uses it.
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

// Returns the data with its defaults filled in.
v1::Data CompleteData(const v1::Data& said) {
  v1::Data data;
  data.set_format(said.format() == v1::Data::FORMAT_UNSPECIFIED ? v1::Data::TEXT : said.format());
  data.set_vocabulary(VocabularyOf(said));
  data.set_tokenizer(said.tokenizer());
  if (data.vocabulary() == v1::Data::BPE) {
    data.set_bpe_vocab_size(said.has_bpe_vocab_size() ? said.bpe_vocab_size() : 4096);
  }
  data.set_token_bits(said.token_bits());
  data.set_begin_token(said.begin_token());
  data.set_end_token(said.end_token());
  data.set_val_fraction(said.has_val_fraction() ? said.val_fraction() : 0.1);
  data.set_keep_order(said.keep_order());
  return data;
}

// Returns the text of a recipe whose fields are those of `s`, and, if `s` does not have them, of
// `said`.
std::string CompleteText(const TrainSpec& s, const v1::Train& said) {
  v1::Train message;
  message.set_max_steps(static_cast<int32_t>(s.max_steps));
  message.set_batch_size(static_cast<int32_t>(s.batch_size));
  message.set_gradient_accumulation_steps(static_cast<int32_t>(s.gradient_accumulation_steps));
  message.set_units(static_cast<int32_t>(s.units));
  message.set_learning_rate(s.learning_rate);
  message.set_beta1(s.beta1);
  message.set_beta2(s.beta2);
  message.set_eps(s.eps);
  message.set_weight_decay(s.weight_decay);
  message.set_weight_decay_on(s.decay_everything ? v1::Train::EVERYTHING : v1::Train::MATRICES);
  message.set_grad_clip(s.grad_clip);
  const bool has_schedule = said.schedule() != v1::Schedule::KIND_UNSPECIFIED;
  message.set_schedule(has_schedule ? said.schedule() : v1::Schedule::CONSTANT);
  message.set_warmup_steps(static_cast<int32_t>(s.warmup_steps));
  if (s.warmup_multiplies) message.set_warmup(v1::Train::MULTIPLIES);
  message.set_min_learning_rate(s.min_learning_rate);
  message.set_decay_steps(static_cast<int32_t>(s.decay_steps));
  message.set_cooldown_steps(static_cast<int32_t>(s.cooldown_steps));
  if (s.schedule == ScheduleKind::kWsd) {
    const bool has_cooldown = said.cooldown() != v1::Cooldown::KIND_UNSPECIFIED;
    message.set_cooldown(has_cooldown ? said.cooldown() : v1::Cooldown::LINEAR);
  }
  message.set_seed(s.seed);
  *message.mutable_data() = CompleteData(said.data());
  message.set_eval_interval(said.eval_interval());
  message.set_eval_batches(said.eval_batches());
  message.set_checkpoint_interval(said.checkpoint_interval());
  message.set_checkpoint_seconds(said.has_checkpoint_seconds() ? said.checkpoint_seconds() : 60);
  message.set_keep_checkpoints(said.has_keep_checkpoints() ? said.keep_checkpoints() : 2);
  message.set_dtype(s.dtype == DType::kBF16 ? v1::Train::BF16 : v1::Train::F32);
  message.set_recompute(s.recompute_blocks ? v1::Recompute::BLOCK : v1::Recompute::NONE);
  const bool skips = said.on_divergence() == v1::Train::SKIP;
  message.set_on_divergence(skips ? v1::Train::SKIP : v1::Train::STOP);
  message.set_max_divergences(said.has_max_divergences() ? said.max_divergences() : 10);
  message.set_label_smoothing(s.label_smoothing);
  message.set_z_loss(s.z_loss);
  message.set_ema_decay(s.ema_decay);
  message.set_router_correction_rate(s.router_correction_rate);
  if (s.masked_tokens.has_value()) {
    WriteMaskedTokens(*s.masked_tokens, message.mutable_masked_tokens());
  }
  WriteRules(s, &message);
  return textproto::PrintText(message);
}

}  // namespace

const char* GetName(RuleField field) {
  constexpr const char* kNames[] = {"learning_rate", "weight_decay", "beta1",
                                    "beta2",         "eps",          "clip"};
  return kNames[static_cast<size_t>(field)];
}

const char* GetDefaultName(RuleField field) {
  constexpr const char* kNames[] = {"lr", "wd", "beta1", "beta2", "eps", ""};
  return kNames[static_cast<size_t>(field)];
}

absl::StatusOr<TrainSpec> ParseTrainSpec(
    absl::string_view text, const std::string& file,
    const std::vector<std::pair<std::string, std::string>>& overrides) {
  v1::Train message;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, file, &message, &locations));
  for (const auto& [path, value] : overrides) {
    PLUMB_RETURN_IF_ERROR(Annotate(textproto::SetField(&message, path, value), "train."));
  }
  TrainSpec s;
  if (message.has_max_steps()) s.max_steps = message.max_steps();
  if (message.has_batch_size()) s.batch_size = message.batch_size();
  if (message.has_gradient_accumulation_steps()) {
    s.gradient_accumulation_steps = message.gradient_accumulation_steps();
  }
  s.units = message.units();
  if (message.has_learning_rate()) s.learning_rate = message.learning_rate();
  if (message.has_beta1()) s.beta1 = message.beta1();
  if (message.has_beta2()) s.beta2 = message.beta2();
  if (message.has_eps()) s.eps = message.eps();
  if (message.has_weight_decay()) s.weight_decay = message.weight_decay();
  s.decay_everything = message.weight_decay_on() == v1::Train::EVERYTHING;
  if (message.has_grad_clip()) s.grad_clip = message.grad_clip();
  s.schedule = ToSchedule(message.schedule());
  s.warmup_steps = message.warmup_steps();
  s.warmup_multiplies = message.warmup() == v1::Train::MULTIPLIES;
  s.min_learning_rate = message.min_learning_rate();
  s.decay_steps = message.has_decay_steps() ? message.decay_steps() : s.max_steps;
  s.cooldown_steps = message.cooldown_steps();
  if (message.cooldown() == v1::Cooldown::ONE_MINUS_SQRT) s.cooldown = CooldownKind::kOneMinusSqrt;
  if (message.cooldown() == v1::Cooldown::COSINE) s.cooldown = CooldownKind::kCosine;
  if (message.has_seed()) s.seed = message.seed();
  s.keep_order = message.data().keep_order();
  if (message.dtype() == v1::Train::BF16) s.dtype = DType::kBF16;
  s.recompute_blocks = message.recompute() == v1::Recompute::BLOCK;
  s.label_smoothing = message.label_smoothing();
  s.z_loss = message.z_loss();
  s.ema_decay = message.ema_decay();
  s.router_correction_rate = message.router_correction_rate();
  const Located at(file, message, &locations);
  PLUMB_RETURN_IF_ERROR(CheckRanges(message, s, at));
  if (message.has_masked_tokens()) {
    PLUMB_RETURN_IF_ERROR(ReadMaskedTokens(message.masked_tokens(), at.Nested("masked_tokens"),
                                           &s.masked_tokens.emplace()));
  }
  if (message.optimizer() == v1::Train::MUON) s.optimizer = OptimizerKind::kMuon;
  PLUMB_RETURN_IF_ERROR(ReadMuon(message.muon(), at.Nested("muon"), &s.muon));
  PLUMB_RETURN_IF_ERROR(ReadRules(message, at, &s));
  // Rates that suit AdamW are about twenty times too small for orthogonal updates that are not
  // scaled to AdamW's. A learning_rate that the recipe sets is not multiplied.
  if (s.UsesMuon() && !s.muon.matches_adamw && !s.muon.learning_rate.has_value() &&
      !message.has_learning_rate()) {
    PLUMB_ASSIGN_OR_RETURN(s.muon.learning_rate, ParseExpression({"20 * lr", {}}));
  }
  if (message.has_muon() && !s.UsesMuon()) {
    return ErrorAt(at.At("muon"),
                   "muon: no tensor is updated by it; set optimizer: MUON, in a rule "
                   "or for all matrices of layers");
  }
  s.text = CompleteText(s, message);
  return s;
}

bool TrainSpec::UsesMuon() const {
  return optimizer == OptimizerKind::kMuon ||
         std::any_of(rules.begin(), rules.end(),
                     [](const TrainRule& rule) { return rule.optimizer == OptimizerKind::kMuon; });
}

}  // namespace plumb
