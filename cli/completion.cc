// SPDX-License-Identifier: Apache-2.0
// Completion in shells: the candidates for the last word of a command line, from the command tree,
// the schema, and the norms, placements and families that are installed. The scripts in
// cli/completion call `plumb __complete`.

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/arguments.h"
#include "cli/catalog.h"
#include "cli/command.h"
#include "cli/doc_pages.h"
#include "cli/embedded_files.h"
#include "cli/help.h"
#include "cli/output.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/client/placements.h"
#include "runtime/client/settings.h"
#include "runtime/convert/zoo.h"

namespace plumb::cli {
namespace {

// Shortens a description to fit a list of candidates: up to the first stop.
std::string Short(const std::string& text) {
  size_t end = text.size();
  for (const char* stop : {"; ", ". ", ": ", ", ", " ("}) end = std::min(end, text.find(stop));
  return text.substr(0, end);
}

// State of a command line after all its words but the last.
struct CommandLine {
  CLI::App* app;
  std::vector<std::string> positional = {};  // words that no option takes
  std::vector<const CLI::Option*> given = {};
  CLI::Option* open = nullptr;  // the option that takes the next word
  std::string field = {};       // the setting whose value is next: "--set", "train.dtype", "="
  // The option and its value if the last word was the value of an option.
  CLI::Option* filled = nullptr;
  std::string value = {};
  bool options_end = false;  // "--" was seen
};

CLI::Option* FindOption(CLI::App* app, absl::string_view word) {
  for (CLI::Option* option : Options(app)) {
    if (option->check_name(std::string(word))) return option;
  }
  return nullptr;
}

void Read(const std::string& word, CommandLine* line) {
  CLI::Option* const filled = std::exchange(line->filled, nullptr);
  if (line->open != nullptr && word == "=") return;
  if (line->open != nullptr) {
    line->filled = std::exchange(line->open, nullptr);
    line->value = word;
    line->field.clear();
  } else if (word == "=" && filled != nullptr) {
    line->open = filled;
    line->field = line->value;
  } else if (word == "--" && !line->options_end) {
    line->options_end = true;
  } else if (absl::StartsWith(word, "-") && word.size() > 1 && !line->options_end) {
    const std::pair<std::string, std::string> parts = absl::StrSplit(word, absl::MaxSplits('=', 1));
    CLI::Option* option = FindOption(line->app, parts.first);
    if (option == nullptr) return;
    line->given.push_back(option);
    if (TakesValue(option) && !absl::StrContains(word, "=")) line->open = option;
  } else {
    for (CLI::App* command : Commands(line->app)) {
      if (command->get_name() != word || line->options_end) continue;
      *line = CommandLine{command};
      return;
    }
    line->positional.push_back(word);
  }
}

struct Completions {
  Takes takes = Takes::kText;  // the shell itself completes files and directories
  std::vector<std::pair<std::string, std::string>> words;  // word and description
};

class Collector {
 public:
  explicit Collector(const std::string& begun) : begun_(begun) {}

  void Add(const std::string& word, const std::string& text) {
    if (absl::StartsWith(word, begun_)) found_.words.emplace_back(word, Short(text));
  }
  void AddCommands(CLI::App* app) {
    for (CLI::App* command : Commands(app)) Add(command->get_name(), command->get_description());
  }
  void AddOptions(const CommandLine& line) {
    for (CLI::Option* option : Options(line.app)) {
      const bool is_given = std::count(line.given.begin(), line.given.end(), option) > 0;
      if (is_given && !IsRepeatable(option)) continue;
      for (const std::string& name : option->get_lnames()) {
        Add("--" + name, option->get_description());
      }
    }
  }
  void AddAll(const std::vector<std::string>& words) {
    for (const std::string& word : words) Add(word, "");
  }
  void SetTakes(Takes takes) { found_.takes = takes; }
  const std::string& begun() const { return begun_; }
  Completions Take() { return std::move(found_); }

 private:
  const std::string begun_;
  Completions found_;
};

// Returns names that a runtime knows; none if it cannot be created, because a shell has no use for
// the error.
template <class List>
std::vector<std::string> NamesFrom(const Invocation& invocation, List list) {
  const auto runtime = invocation.CreateRuntime();
  return runtime.ok() ? list(**runtime) : std::vector<std::string>();
}

std::vector<std::string> ValuesOf(const std::string& field, const Invocation& invocation) {
  if (absl::EndsWith(field, ".placement")) return NamesFrom(invocation, PlacementNames);
  if (absl::EndsWith(field, ".plugin")) return NamesFrom(invocation, NormIds);
  for (SettingField& setting : ListSettings()) {
    if (setting.path == field) return std::move(setting.values);
  }
  return {};
}

// Adds fields, "train.dtype=", or the values of `field`; of the field in the last word if it is "".
void AddSettings(const std::string& field, const Invocation& invocation, Collector* found) {
  if (!field.empty()) return found->AddAll(ValuesOf(field, invocation));
  const size_t equals = found->begun().find('=');
  if (equals == std::string::npos) {
    for (const SettingField& setting : ListSettings()) found->Add(setting.path + "=", "");
    return;
  }
  const std::string own_field = found->begun().substr(0, equals);
  for (const std::string& value : ValuesOf(own_field, invocation)) {
    found->Add(absl::StrCat(own_field, "=", value), "");
  }
}

// Adds the values of an option or a positional argument.
void AddValues(CLI::Option* option, const std::string& field, const Invocation& invocation,
               Collector* found) {
  found->AddAll(Choices(option));
  found->SetTakes(ArgumentKind(option));
  switch (ArgumentKind(option)) {
    case Takes::kSetting:
      return AddSettings(field, invocation, found);
    case Takes::kNorm:
      return found->AddAll(NamesFrom(invocation, NormIds));
    case Takes::kFamily:
      return found->AddAll(NamesFrom(invocation, ListFamilies));
    case Takes::kPage:
      for (const DocPage& page : ListDocPages()) found->Add(page.name, page.about);
      return;
    default:
      break;
  }
}

// Adds the commands and topics that `plumb help` can explain.
void AddHelpTopics(CLI::App* program, const std::vector<std::string>& words,
                   const Invocation& invocation, Collector* found) {
  if (words.size() == 1 && words[0] == kPlacementsTopic) {
    return found->AddAll(NamesFrom(invocation, PlacementNames));
  }
  if (words.size() == 1 && words[0] == kNormsTopic) {
    return found->AddAll(NamesFrom(invocation, NormIds));
  }
  if (words.empty()) {
    for (const std::string& topic : HelpTopics()) found->Add(topic, "");
  }
  CommandLine line{program};
  for (const std::string& word : words) Read(word, &line);
  if (line.positional.empty()) found->AddCommands(line.app);
}

// Returns the candidates for the last of `words`, which may be "" or incomplete. An option with its
// value in one word counts as three words, as in bash: "--dtype", "=", "bf". So may a setting:
// "--set", "train.dtype", "=", "B"; shells that do not split at "=" pass "train.dtype=B".
Completions Complete(CLI::App* program, const std::vector<std::string>& words,
                     const Invocation& invocation) {
  CommandLine line{program};
  for (size_t i = 0; i + 1 < words.size(); ++i) {
    Read(words[i], &line);
    // Another program parses the rest.
    if (line.app->get_prefix_command()) return {Takes::kFile, {}};
  }
  std::string last = words.empty() ? "" : words.back();
  if (last == "=" && (line.open != nullptr || line.filled != nullptr)) {
    Read(last, &line);
    last.clear();
  }
  Collector found(last);
  if (line.open != nullptr) {
    AddValues(line.open, line.field, invocation, &found);
    return found.Take();
  }
  if (absl::StartsWith(last, "-") && !line.options_end) {
    found.AddOptions(line);
    return found.Take();
  }
  found.AddCommands(line.app);
  const std::vector<CLI::Option*> positionals = Positionals(line.app);
  if (!positionals.empty()) {
    const size_t at = line.positional.size();
    CLI::Option* next = at < positionals.size()            ? positionals[at]
                        : IsRepeatable(positionals.back()) ? positionals.back()
                                                           : nullptr;
    if (next != nullptr && ArgumentKind(next) == Takes::kCommand) {
      AddHelpTopics(program, line.positional, invocation, &found);
    } else if (next != nullptr) {
      AddValues(next, "", invocation, &found);
    }
  }
  Completions result = found.Take();
  if (!result.words.empty() || result.takes != Takes::kText || !last.empty()) return result;
  Collector options("");
  options.AddOptions(line);
  return options.Take();
}

absl::StatusOr<int> Answer(CLI::App* program, const std::vector<std::string>& words,
                           const Invocation& invocation) {
  const Completions found = Complete(program, words, invocation);
  std::string text;
  switch (found.takes) {
    case Takes::kFile:
    case Takes::kFamily:
      text = "files\n";
      break;
    case Takes::kModelFile:
      text = "models\n";
      break;
    case Takes::kDirectory:
      text = "directories\n";
      break;
    case Takes::kText:
    case Takes::kCommand:
    case Takes::kSetting:
    case Takes::kNorm:
    case Takes::kPage:
      text = "words\n";
      break;
  }
  for (const auto& [word, about] : found.words) absl::StrAppend(&text, word, "\t", about, "\n");
  return ExitOk(PrintResult(text));
}

absl::StatusOr<int> PrintScript(const std::string& shell) {
  for (const EmbeddedFile& file : CompletionScripts()) {
    if (file.name != "plumb." + shell) continue;
    return ExitOk(PrintResult(file.content));
  }
  return absl::InternalError(absl::StrCat("no script for ", shell));
}

}  // namespace

void AddCompletionCommand(CLI::App* program, Invocation* invocation) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* app = program->add_subcommand("completion", "Print the completion script of a shell");
  const std::vector<std::string> shells = {"bash", "zsh", "fish"};
  SetChoices(app->add_option("SHELL", *shell, "bash, zsh or fish"), shells)
      ->required()
      ->type_name("")
      ->check([shells](const std::string& word) {
        if (std::count(shells.begin(), shells.end(), word) > 0) return std::string();
        return absl::StrCat("there is no script for \"", word, "\", but for ",
                            absl::StrJoin(shells, ", "), DidYouMean(word, shells));
      });
  app->footer(
      "An installed plumb has these scripts where the shells look for them. Otherwise:\n"
      "  bash   source <(plumb completion bash), in ~/.bashrc\n"
      "  zsh    plumb completion zsh > DIR/_plumb, DIR on the fpath before compinit\n"
      "  fish   plumb completion fish > ~/.config/fish/completions/plumb.fish\n\n"
      "Example:\n"
      "  source <(plumb completion bash)");
  RunWhenSelected(app, shell, PrintScript, invocation);

  // Used by the shell scripts only.
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* answer = program->add_subcommand("__complete", "What may stand for the last WORD");
  answer->group("");
  answer->add_option("WORD", *words, "The command line, without the program's name");
  answer->callback([program, words, invocation] {
    invocation->run = [program, words, invocation] { return Answer(program, *words, *invocation); };
  });
}

}  // namespace plumb::cli
