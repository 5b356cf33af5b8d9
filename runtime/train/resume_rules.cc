// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/resume_rules.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/check.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

using textproto::Field;
using textproto::Message;

constexpr ResumeRule kRules[] = {
    {"max_steps", true, "the run ends there; at least the number of completed steps"},
    {"learning_rate schedule warmup_steps warmup min_learning_rate decay_steps cooldown_steps "
     "cooldown",
     true, "the next step has the rate that the new schedule has at that step"},
    {"muon.momentum muon.nesterov muon.newton_schulz_steps muon.scale muon.learning_rate "
     "muon.weight_decay beta1 beta2 eps weight_decay weight_decay_on grad_clip label_smoothing "
     "z_loss router_correction_rate",
     true, "from the next step on"},
    {"import let rule", true,
     "from the next step on, unless the moments in the checkpoint do not fit: each tensor keeps "
     "its "
     "optimizer, and stays frozen or trained"},
    {"ema_decay", true, "from the next step on, but a run keeps an average or has none"},
    {"eval_interval eval_batches checkpoint_interval checkpoint_seconds keep_checkpoints "
     "on_divergence max_divergences",
     true, "from the next step on"},
    {"recompute", true, "no number changes"},
    {"units", true, "sums are rounded differently from the next step on"},
    {"batch_size gradient_accumulation_steps", false,
     "their product is the number of sequences of a step, so that another one repeats or skips "
     "some"},
    {"seed", false, "sequences and other random choices would not continue those of the run"},
    {"data.val_fraction", false, "validation would contain sequences that were trained on"},
    {"data.format data.vocabulary data.keep_order data.tokenizer data.bpe_vocab_size "
     "data.token_bits data.begin_token data.end_token",
     false, "the completed steps read these tokens in this order"},
    {"masked_tokens.share masked_tokens.mask_token masked_tokens.masked masked_tokens.random "
     "masked_tokens.special_token",
     false, "losses would be of other tokens than those of the completed steps"},
    {"dtype", false, "losses would have another precision than those of the completed steps"},
    {"optimizer", false, "the moments in the checkpoint are those of the other optimizer"},
    {"normalize", false, "the completed steps normalized these matrices and no others"},
};

const ResumeRule& FindRule(absl::string_view path) {
  const auto has = [path](const ResumeRule& rule) {
    const std::vector<absl::string_view> fields = absl::StrSplit(rule.fields, ' ');
    return std::find(fields.begin(), fields.end(), path) != fields.end();
  };
  const ResumeRule* const found = std::find_if(std::begin(kRules), std::end(kRules), has);
  PLUMB_CHECK(found != std::end(kRules), "each field has a rule");
  return *found;
}

// Returns a field as it is written in a recipe, in one line.
std::string ValueText(const Message& message, const Field& field) {
  const std::string text = textproto::PrintField(message, field);
  if (text.empty()) return absl::StrCat("no ", field.name);
  return absl::StrReplaceAll(absl::StripSuffix(text, "\n"), {{"\n", " "}});
}

int64_t SequencesOfStep(const v1::Train& recipe) {
  return int64_t{recipe.batch_size()} * recipe.gradient_accumulation_steps();
}

// Adds a line for each difference that its rule forbids. `path` is the path of both messages.
void AddDifferences(const Message& then, const Message& now, const std::string& path,
                    bool same_sequences, std::string* lines) {
  for (const Field& field : now.Type().fields) {
    const std::string name = absl::StrCat(path, field.name);
    if (field.type == textproto::FieldType::kMessage && !field.repeated()) {
      AddDifferences(then.GetMessage(field, 0), now.GetMessage(field, 0), name + ".",
                     same_sequences, lines);
      continue;
    }
    const ResumeRule& rule = FindRule(name);
    const std::string was = ValueText(then, field), is = ValueText(now, field);
    if (rule.may_change || was == is) continue;
    if (same_sequences && rule.fields == FindRule("batch_size").fields) continue;
    absl::StrAppend(lines, "\n  train.", name, ": was started with ", was, ", not ", is, "; ",
                    rule.note);
  }
}

}  // namespace

absl::Span<const ResumeRule> ResumeRules() { return kRules; }

absl::Status CheckResumedRecipe(const std::string& run, const v1::Train& then,
                                const v1::Train& now) {
  std::string lines;
  AddDifferences(then, now, "", SequencesOfStep(then) == SequencesOfStep(now), &lines);
  if (lines.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      run, ": cannot be resumed with other values of these fields:", lines,
      "\nput them back, or begin another run with its weights: plumb train MODEL --init ", run,
      " --out RUN"));
}

}  // namespace plumb
