// plumb and plumb help: what someone needs who sees plumb for the first time.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/man_page.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/usage.h"

namespace plumb::cli {
namespace {

struct HelpFlags {
  std::vector<std::string> words;
  bool man = false;
  std::string man_pages;
};

absl::StatusOr<int> Help(CLI::App* program, const HelpFlags& options) {
  if (!options.man_pages.empty()) {
    const absl::Status written = WriteManPages(program, options.man_pages);
    if (!written.ok()) return written;
    return kExitOk;
  }
  const std::vector<std::string>& words = options.words;
  CLI::App* app = program;
  std::string path;  // "plumb plugin", for the usage line
  for (const std::string& word : words) {
    const std::vector<CLI::App*> named =
        app->get_subcommands([&word](CLI::App* command) { return command->check_name(word); });
    if (named.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("plumb help: unknown command \"", word, "\"",
                                                     DidYouMean(word, CommandNames(*app)),
                                                     "\nplumb --help lists them."));
    }
    absl::StrAppend(&path, path.empty() ? "" : " ", app->get_name());
    app = named.front();
  }
  absl::StatusOr<std::string> text = words.empty() ? FirstHelp() : app->help(path);
  if (options.man) {
    text = ManPage(app, absl::StrCat(path, path.empty() ? "" : " ", app->get_name()));
    if (!text.ok()) return text.status();
  }
  const absl::Status printed = PrintResult(*text);
  if (!printed.ok()) return printed;
  return kExitOk;
}

}  // namespace

void AddHelpCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<HelpFlags>();
  CLI::App* app = program->add_subcommand("help", "Show how to begin, or the help of a command");
  app->add_option("COMMAND", options->words, "The command, as in plumb help plugin new")
      ->type_name("");
  app->add_flag("--man", options->man, "Print it as a manual page, for man -l -");
  app->add_option("--man-pages", options->man_pages, "Write all manual pages into this directory")
      ->type_name("DIR")
      ->group("");  // for the build
  app->footer("Example:\n  plumb help compare\n  plumb help --man train | man -l -");
  app->callback([program, options, invocation] {
    invocation->run = [program, options] { return Help(program, *options); };
  });
}

}  // namespace plumb::cli
