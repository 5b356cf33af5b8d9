// SPDX-License-Identifier: Apache-2.0
// plumb zoo: shows the models of published sizes that ship with plumb, and their components.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/convert/zoo.h"

namespace plumb::cli {
namespace {

struct ZooFlags {
  std::string name;
  bool json = false;
};

// Returns the different texts of the items.
template <class Text>
std::string JoinDifferent(const Json& items, const char* separator, const Text& text) {
  std::vector<std::string> texts;
  for (const Json& item : items) {
    texts.push_back(text(item));
    if (std::count(texts.begin(), texts.end(), texts.back()) > 1) texts.pop_back();
  }
  return absl::StrJoin(texts, separator);
}

// Returns "layer_norm" for "slot norm: layer_norm(affine=true, ..)[768]".
std::string NormName(const Json& json) {
  const std::string slot = json;
  const size_t colon = slot.find(": ");
  const std::string norm = colon == std::string::npos ? slot : slot.substr(colon + 2);
  return norm.substr(0, norm.find('('));
}

Json ToJson(const ZooModel& model) {
  const Json& layers = model.description["layers"];
  const auto placement = [](const Json& group) -> std::string { return group["placement"]; };
  const auto norms = [](const Json& group) {
    return JoinDifferent(group["norms"], ", ", NormName);
  };
  const auto equations = [](const Json& group) {
    return absl::StrJoin(group["equations"].get<std::vector<std::string>>(), "; ");
  };
  return {{"name", model.name},
          {"file", model.path},
          {"parameters", model.description["totals"]["parameters"]},
          {"dims", model.description["dims"]},
          {"placement", JoinDifferent(layers, ", ", placement)},
          {"norm", JoinDifferent(layers, ", ", norms)},
          {"equations", JoinDifferent(layers, " | ", equations)},
          {"positions", model.description["positions"]}};
}

absl::StatusOr<int> List(const ZooFlags& flags, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const std::vector<ZooModel> models,
                         WithWarnings(runtime.get(), ListZoo(runtime.get())));
  Json list = Json::array();
  for (const ZooModel& model : models) list.push_back(ToJson(model));
  if (flags.json) {
    return ExitOk(PrintJson({{"models", list}, {"families", ListFamilies(*runtime)}}));
  }
  std::vector<std::vector<std::string>> rows = {
      {"model", "parameters", "placement", "norm", "equations"}};
  for (const Json& model : list) {
    rows.push_back({model["name"], WithCommas(model["parameters"]), model["placement"],
                    model["norm"], model["equations"]});
  }
  std::string text = AlignColumns(rows, "lrlll", "");
  absl::StrAppend(&text, "\nfamilies that plumb import reads: ",
                  absl::StrJoin(ListFamilies(*runtime), ", "), "\n");
  return ExitOk(PrintResult(text));
}

absl::StatusOr<int> Show(const ZooFlags& flags, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const ZooModel model,
                         WithWarnings(runtime.get(), FindZooModel(runtime.get(), flags.name)));
  if (flags.json) {
    Json json = ToJson(model);
    json["text"] = model.text;
    return ExitOk(PrintJson(json));
  }
  return ExitOk(PrintResult(absl::StrCat("# ", model.path, "\n# ",
                                         WithCommas(model.description["totals"]["parameters"]),
                                         " parameters\n", model.text)));
}

constexpr char kKeysTitle[] =
    "# Keys of config.json\n\n"
    "What `plumb import` makes of each key, by family. An object is entered by dots, and * is any\n"
    "text. A key is *refused* by a family that does not know it where another family reads it, "
    "unless\n"
    "its value has no effect: null, false, empty, or a multiplier of 1. Objects that are not here\n"
    "are refused too, other keys that are not here are named in a warning. `--allow-unread KEY`\n"
    "imports without a key. `plumb docs zoo` explains it.\n";

std::string FamilyList(const std::vector<std::string>& families, size_t all) {
  if (families.size() == all) return "all";
  return absl::StrJoin(families, ", ");
}

// Returns a Markdown page: the keys that some family reads, then those that none reads.
std::string KeysText(const std::vector<KeyUses>& keys, size_t families) {
  std::string read = "\n| key | read by | irrelevant to | refused by |\n|---|---|---|---|\n";
  std::string unread =
      "\nKeys that no family reads:\n\n| key | irrelevant to | because |\n|---|---|---|\n";
  for (const KeyUses& key : keys) {
    std::vector<std::string> irrelevant;
    for (const auto& [reason, names] : key.irrelevant) {
      irrelevant.push_back(absl::StrCat(FamilyList(names, families), ": ", reason));
      if (!key.read.empty()) continue;
      absl::StrAppend(&unread, "| `", key.key, "` | ", FamilyList(names, families), " | ", reason,
                      " |\n");
    }
    if (key.read.empty()) continue;
    const bool most = key.refused.size() > key.read.size() && key.refused.size() > 1;
    absl::StrAppend(&read, "| `", key.key, "` | ", FamilyList(key.read, families), " | ",
                    absl::StrJoin(irrelevant, "; "), " | ",
                    most ? "the others" : absl::StrJoin(key.refused, ", "), " |\n");
  }
  return absl::StrCat(kKeysTitle, read, unread);
}

absl::StatusOr<int> Keys(const ZooFlags& flags, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const std::vector<KeyUses> keys,
                         WithWarnings(runtime.get(), ListZooKeys(*runtime)));
  if (flags.json) {
    Json list = Json::array();
    for (const KeyUses& key : keys) {
      Json uses = Json::object();
      for (const std::string& family : key.read) uses[family] = {{"use", "read"}};
      for (const std::string& family : key.refused) uses[family] = {{"use", "refused"}};
      for (const auto& [reason, names] : key.irrelevant) {
        for (const std::string& family : names) {
          uses[family] = {{"use", "irrelevant"}, {"reason", reason}};
        }
      }
      list.push_back({{"key", key.key}, {"families", std::move(uses)}});
    }
    return ExitOk(PrintJson({{"keys", std::move(list)}}));
  }
  return ExitOk(PrintResult(KeysText(keys, ListFamilies(*runtime).size())));
}

}  // namespace

void AddZooCommand(CLI::App* program, Invocation* invocation) {
  CLI::App* app = program->add_subcommand("zoo", "Show models of published sizes");
  app->require_subcommand(1);
  AddGlobalOptions(app, invocation);

  const auto listed = std::make_shared<ZooFlags>();
  CLI::App* list = app->add_subcommand("list",
                                       "List all models with parameters, placement, norm and "
                                       "equations, and the families of checkpoints");
  list->add_flag("--json", listed->json, "Print the list as JSON");
  AddGlobalOptions(list, invocation);
  list->footer("Example:\n  plumb zoo list");
  RunWhenSelected(list, listed, List, invocation);

  const auto keyed = std::make_shared<ZooFlags>();
  CLI::App* keys = app->add_subcommand("keys",
                                       "List the keys of config.json, and the families that read, "
                                       "ignore or refuse them, as Markdown");
  keys->add_flag("--json", keyed->json, "Print the list as JSON");
  AddGlobalOptions(keys, invocation);
  keys->footer("Example:\n  plumb zoo keys > keys.md");
  RunWhenSelected(keys, keyed, Keys, invocation);

  const auto shown = std::make_shared<ZooFlags>();
  CLI::App* show = app->add_subcommand("show", "Print the file of one model, to copy and change");
  AddRequired(show, "NAME", &shown->name, "Name of the model in plumb zoo list");
  show->add_flag("--json", shown->json, "Print the model as JSON");
  AddGlobalOptions(show, invocation);
  show->footer("Example:\n  plumb zoo show gpt2 > mine.pbtxt");
  RunWhenSelected(show, shown, Show, invocation);

  app->footer(
      "Example:\n"
      "  plumb zoo list\n"
      "  plumb zoo show gpt2 > mine.pbtxt");
}

}  // namespace plumb::cli
