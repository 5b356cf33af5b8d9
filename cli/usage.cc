#include "cli/usage.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/nearest.h"

namespace plumb::cli {
namespace {

// The innermost command that was reached, and its words: "plumb plugin list".
const CLI::App* Reached(const CLI::App& program, std::string* words) {
  const CLI::App* app = &program;
  *words = program.get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
    absl::StrAppend(words, " ", app->get_name());
  }
  return app;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// About the first word that nothing took.
std::string UnexpectedWord(const CLI::App& app, const std::string& word) {
  if (absl::StartsWith(word, "-")) {
    return absl::StrCat("unknown option ", word,
                        DidYouMean(word.substr(0, word.find('=')), OptionNames(app)));
  }
  const std::vector<std::string> commands = CommandNames(app);
  if (commands.empty()) return absl::StrCat("unexpected argument \"", word, "\"");
  return absl::StrCat("unknown command \"", word, "\"", DidYouMean(word, commands));
}

}  // namespace

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

std::string UsageError(const CLI::App& program, const CLI::ParseError& error) {
  std::string words;
  const CLI::App* app = Reached(program, &words);
  const bool is_about_leftovers = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                  dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::vector<std::string> left = app->remaining();
  const std::string message =
      is_about_leftovers && !left.empty() ? UnexpectedWord(*app, left.front()) : error.what();
  return absl::StrCat(message, "\n", "See ", words, " --help.");
}

std::string FirstHelp() {
  return "plumb trains and samples transformers whose norm placement is a formula.\n\n"
         "Usage: plumb COMMAND [ARGUMENTS]\n\n"
         "To begin with:\n"
         "  plumb demo\n"
         "      see pre-norm, post-norm and no norm compared, in seconds; needs no files\n"
         "  plumb describe MODEL.pbtxt\n"
         "      what a model computes: equations, tensors, memory\n"
         "  plumb compare A.pbtxt B.pbtxt --data TEXT --out DIR\n"
         "      train models alike, with the same seeds, and write a report\n"
         "  plumb train MODEL.pbtxt --data TEXT --out DIR\n"
         "      train one; plumb sample DIR then writes with it\n"
         "  plumb doctor\n"
         "      what plumb has here, and what would go wrong or slow\n\n"
         "All commands: plumb --help. One of them: plumb help COMMAND.\n"
         "The fields of files: plumb help model, recipe, study or formula.\n"
         "docs/first-model.md goes from an empty file to a model that writes.\n";
}

}  // namespace plumb::cli
