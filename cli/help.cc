// plumb and plumb help: what someone needs who sees plumb for the first time, and the fields of the
// files that they write.
#include "cli/help.h"

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/man_page.h"
#include "cli/nearest.h"
#include "cli/output.h"
#include "cli/usage.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct HelpFlags {
  std::vector<std::string> words;
  bool man = false;
  std::string man_pages;
};

absl::Status UnknownWord(const std::string& word, const CLI::App& app, bool is_first) {
  std::vector<std::string> known = CommandNames(app);
  std::vector<std::string> files;
  for (const EmbeddedFile& file : SchemaHelp()) files.push_back(file.name);
  if (is_first) known.insert(known.end(), files.begin(), files.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "plumb help: unknown command \"", word, "\"", DidYouMean(word, known),
      "\nplumb --help lists them; of files there are ", absl::StrJoin(files, ", "), "."));
}

absl::StatusOr<int> Help(CLI::App* program, const HelpFlags& options) {
  if (!options.man_pages.empty()) {
    PLUMB_RETURN_IF_ERROR(WriteManPages(program, options.man_pages));
    return kExitOk;
  }
  const std::vector<std::string>& words = options.words;
  for (const EmbeddedFile& file : SchemaHelp()) {
    if (words.size() != 1 || words[0] != file.name) continue;
    if (options.man) {
      return absl::InvalidArgumentError(
          absl::StrCat("plumb help: ", file.name, " is no command and has no manual page"));
    }
    PLUMB_RETURN_IF_ERROR(PrintResult(file.content));
    return kExitOk;
  }
  CLI::App* app = program;
  std::string path;  // "plumb plugin", for the usage line
  for (const std::string& word : words) {
    const std::vector<CLI::App*> named =
        app->get_subcommands([&word](CLI::App* command) { return command->check_name(word); });
    if (named.empty()) return UnknownWord(word, *app, app == program);
    absl::StrAppend(&path, path.empty() ? "" : " ", app->get_name());
    app = named.front();
  }
  std::string text = words.empty() ? FirstHelp() : app->help(path);
  if (options.man) {
    PLUMB_ASSIGN_OR_RETURN(
        text, ManPage(app, absl::StrCat(path, path.empty() ? "" : " ", app->get_name())));
  }
  PLUMB_RETURN_IF_ERROR(PrintResult(text));
  return kExitOk;
}

}  // namespace

void AddHelpCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<HelpFlags>();
  CLI::App* app =
      program->add_subcommand("help", "Show how to begin, or the help of a command or file");
  app->add_option("COMMAND", options->words,
                  "The command, as in plumb help plugin new; or a file that is written by hand: "
                  "model, recipe, study, formula or family, whose fields are listed")
      ->type_name("");
  app->add_flag("--man", options->man, "Print it as a manual page, for man -l -");
  app->add_option("--man-pages", options->man_pages, "Write all manual pages into this directory")
      ->type_name("DIR")
      ->group("");  // for the build
  app->footer(
      "Example:\n"
      "  plumb help compare\n"
      "  plumb help recipe | less\n"
      "  plumb help --man train | man -l -");
  app->callback([program, options, invocation] {
    invocation->run = [program, options] { return Help(program, *options); };
  });
}

}  // namespace plumb::cli
