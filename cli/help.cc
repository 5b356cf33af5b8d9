// plumb and plumb help: what someone needs who sees plumb for the first time.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/usage.h"

namespace plumb::cli {
namespace {

absl::StatusOr<int> Help(const CLI::App* program, const std::vector<std::string>& words) {
  const CLI::App* app = program;
  std::string path;  // "plumb plugin", for the usage line
  for (const std::string& word : words) {
    const std::vector<const CLI::App*> named = app->get_subcommands(
        [&word](const CLI::App* command) { return command->check_name(word); });
    if (named.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("plumb help: unknown command \"", word, "\"",
                                                     DidYouMean(word, CommandNames(*app)),
                                                     "\nplumb --help lists them."));
    }
    absl::StrAppend(&path, path.empty() ? "" : " ", app->get_name());
    app = named.front();
  }
  const absl::Status printed = PrintResult(words.empty() ? FirstHelp() : app->help(path));
  if (!printed.ok()) return printed;
  return kExitOk;
}

}  // namespace

void AddHelpCommand(CLI::App* program, Invocation* invocation) {
  const auto words = std::make_shared<std::vector<std::string>>();
  CLI::App* app = program->add_subcommand("help", "Show how to begin, or the help of a command");
  app->add_option("COMMAND", *words, "The command, as in plumb help plugin new")->type_name("");
  app->footer("Example:\n  plumb help compare");
  app->callback([program, words, invocation] {
    invocation->run = [program, words] { return Help(program, *words); };
  });
}

}  // namespace plumb::cli
