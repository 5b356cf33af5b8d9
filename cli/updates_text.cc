#include "cli/updates_text.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/tensor_table.h"

namespace plumb::cli {
namespace {

bool IsMuon(const UpdateInfo& update) { return update.optimizer == "Muon"; }

std::string OwnText(const UpdateInfo& update) {
  if (IsMuon(update)) return absl::StrCat("momentum ", update.momentum);
  return absl::StrCat("betas ", update.beta1, " ", update.beta2, ", eps ", update.eps);
}

// "0.0001 (0.1 lr)", "0.001", "0.0005 (constant)".
std::string RateText(const UpdateInfo& update) {
  if (update.lr_scale == 1 && update.lr_offset == 0) return absl::StrCat(update.learning_rate);
  if (update.lr_scale == 0) return absl::StrCat(update.learning_rate, " (constant)");
  return absl::StrCat(update.learning_rate, " (", update.lr_scale, " lr",
                      update.lr_offset == 0 ? "" : absl::StrCat(" + ", update.lr_offset), ")");
}

std::string ClipText(const UpdateInfo& update) {
  if (update.clip == 0) return "not clipped";
  return absl::StrCat("clip ", update.clip, update.clips_apart ? " of the rule's own norm" : "");
}

}  // namespace

std::string UpdatesText(const std::vector<UpdateInfo>& updates) {
  std::string text = "updates, at the peak of the schedule\n";
  for (const UpdateInfo& update : updates) {
    absl::StrAppend(
        &text, "  ",
        update.place.empty() && update.rule.empty() ? "no rule"
        : update.place.empty()                      ? absl::StrCat("rule \"", update.rule, "\"")
                               : absl::StrCat("rule \"", update.rule, "\" (", update.place, ")"),
        "\n    ", update.optimizer, ", learning rate ", RateText(update), ", weight decay ",
        update.weight_decay, ", ", OwnText(update), ", ", ClipText(update),
        update.unit_length.empty() ? "" : absl::StrCat(", ", update.unit_length, " of length 1"),
        "\n");
    for (const std::string& name : NamesByLayers(update.tensors)) {
      absl::StrAppend(&text, "      ", name, "\n");
    }
  }
  return text;
}

Json UpdatesJson(const std::vector<UpdateInfo>& updates) {
  Json json = Json::array();
  for (const UpdateInfo& update : updates) {
    Json group = {{"rule", update.rule},
                  {"place", update.place},
                  {"optimizer", update.optimizer},
                  {"learning_rate", update.learning_rate},
                  {"lr_scale", update.lr_scale},
                  {"lr_offset", update.lr_offset},
                  {"weight_decay", update.weight_decay}};
    if (IsMuon(update)) {
      group["momentum"] = update.momentum;
    } else {
      group["beta1"] = update.beta1;
      group["beta2"] = update.beta2;
      group["eps"] = update.eps;
    }
    group["clip"] = update.clip;
    group["clips_apart"] = update.clips_apart;
    group["unit_length"] = update.unit_length;
    group["tensors"] = update.tensors;
    json.push_back(std::move(group));
  }
  return json;
}

}  // namespace plumb::cli
