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
         "      train one; plumb sample DIR then writes with it\n\n"
         "All commands: plumb --help. One of them: plumb help COMMAND.\n"
         "docs/first-model.md goes from an empty file to a model that writes.\n";
}

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
