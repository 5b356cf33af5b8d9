// SPDX-License-Identifier: Apache-2.0
#include "runtime/schema/field_names.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"

namespace plumb::textproto {
namespace {

struct NameElsewhere {
  absl::string_view name;
  absl::string_view type, field;  // message and field of this schema
};

constexpr NameElsewhere kNamesElsewhere[] = {
    // nanoGPT.
    {"n_embd", "Model", "d_model"},
    {"block_size", "Model", "context_length"},
    {"lr", "Train", "learning_rate"},
    {"min_lr", "Train", "min_learning_rate"},
    {"max_iters", "Train", "max_steps"},
    {"warmup_iters", "Train", "warmup_steps"},
    {"lr_decay_iters", "Train", "decay_steps"},
    {"eval_iters", "Train", "eval_batches"},
    // config.json of Hugging Face.
    {"hidden_size", "Model", "d_model"},
    {"intermediate_size", "Model", "d_ff"},
    {"num_hidden_layers", "Model", "n_layer"},
    {"num_attention_heads", "Model", "n_head"},
    {"num_key_value_heads", "Model", "n_kv_head"},
    {"max_position_embeddings", "Model", "context_length"},
    // Fields of the recipe that other programs set next to the model.
    {"learning_rate", "Train", "learning_rate"},
    {"batch_size", "Train", "batch_size"},
    {"max_steps", "Train", "max_steps"},
    {"weight_decay", "Train", "weight_decay"},
    {"grad_clip", "Train", "grad_clip"},
    {"dtype", "Train", "dtype"},
};

constexpr RemovedName kRemovedNames[] = {
    {"Train", "shard", "NONE",
     "every rank stores all states; drop it, or start from the weights of such a run by --init "
     "RUN"},
    {"Train", "wire", "F32", "gradients are sent as they are, in f32; drop it"},
    {"Train", "step_back_learning_rate_scale", "1", "drop it, as STEP_BACK was removed too"},
    {"on_divergence", "STEP_BACK", "",
     "use SKIP, or STOP and resume from last_good with a lower learning_rate"},
    {"Study", "tensorboard", "false",
     "convert the runs with python -m plumb_runtime tensorboard RUN"},
};

const NameElsewhere* FindElsewhere(absl::string_view name) {
  for (const NameElsewhere& known : kNamesElsewhere) {
    if (known.name == name) return &known;
  }
  return nullptr;
}

}  // namespace

const RemovedName* FindRemoved(absl::string_view owner, absl::string_view name) {
  for (const RemovedName& removed : kRemovedNames) {
    if (removed.owner == owner && removed.name == name) return &removed;
  }
  return nullptr;
}

std::string RemovedAdvice(absl::string_view owner, absl::string_view name) {
  const RemovedName* const removed = FindRemoved(owner, name);
  return removed == nullptr ? "" : absl::StrCat("; it was removed: ", removed->advice);
}

std::string SettingNamedElsewhere(absl::string_view name) {
  const NameElsewhere* known = FindElsewhere(name);
  if (known == nullptr) return "";
  return absl::StrCat(known->type == "Model" ? "model." : "train.", known->field);
}

std::string SuggestField(const MessageType& type, absl::string_view name) {
  if (absl::StrContains(name, "drop")) {  // dropout, attn_pdrop
    return "; dropout belongs to the placement: placement: \"dropout\", or drop(..) in a formula "
           "(plumb docs placements)";
  }
  if (FindRemoved(type.name, name) != nullptr) return RemovedAdvice(type.name, name);
  const NameElsewhere* known = FindElsewhere(name);
  if (known == nullptr) return DidYouMean(name, type.FieldNames());
  if (known->type == type.name) return absl::StrCat("; did you mean \"", known->field, "\"?");
  return absl::StrCat("; it is a field of the ", known->type == "Model" ? "model" : "recipe", ": ",
                      SettingNamedElsewhere(name));
}

}  // namespace plumb::textproto
