// SPDX-License-Identifier: Apache-2.0
// plumb plugin: lists norms and describes their parameters.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/catalog.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/plugin_new.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct PluginFlags {
  std::string id;
  std::string directory, name, language = "c";  // `plugin new`
  bool json = false;
};

absl::Status PrintList(const std::vector<Json>& plugins, bool json) {
  if (json) return PrintJson({{"plugins", plugins}});
  std::vector<std::vector<std::string>> rows;
  for (const Json& plugin : plugins) {
    const std::string id = plugin["id"], path = plugin["path"], problem = plugin["problem"];
    rows.push_back({id.empty() ? "?" : id, path.empty() ? "(linked in)" : path});
    if (!problem.empty()) absl::StrAppend(&rows.back().back(), "  not usable: ", problem);
  }
  return PrintResult(AlignColumns(rows, "ll", ""));
}

absl::StatusOr<int> List(const PluginFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  const Json report = WithWarnings(runtime.get(), Json::parse(runtime->DescribeJson()));
  return ExitOk(PrintList(ListNorms(report), options.json));
}

absl::StatusOr<int> DescribeOne(const PluginFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(
      const std::string text,
      WithWarnings(runtime.get(), ToStatus(runtime->api().DescribePlugin(options.id))));
  const Json plugin = Json::parse(text);
  return ExitOk(options.json ? PrintJson(plugin) : PrintResult(NormText(plugin)));
}

// Returns the last component of a path, ignoring trailing slashes.
std::string LastPart(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

absl::StatusOr<int> New(const PluginFlags& options) {
  const std::string name = options.name.empty() ? LastPart(options.directory) : options.name;
  const std::string id = options.id.empty() ? absl::StrCat("org.example.", name) : options.id;
  PLUMB_ASSIGN_OR_RETURN(const NormProject project, NewProject(name, id, options.language));
  PLUMB_RETURN_IF_ERROR(WriteProject(project.files, options.directory));
  Json names = Json::array();
  std::string text = absl::StrCat(options.directory, ": the norm ", id, "\n");
  for (const EmbeddedFile& file : project.files) {
    names.push_back(file.name);
    absl::StrAppend(&text, "  ", file.name, "\n");
  }
  absl::StrAppend(&text, "next: cd ", options.directory, " && ", project.check, "\n",
                  "README.md there has all commands, and plumb docs first-norm is a tutorial\n");
  return ExitOk(options.json
                    ? PrintJson({{"directory", options.directory}, {"id", id}, {"files", names}})
                    : PrintResult(text));
}

absl::StatusOr<int> Note(const PluginFlags& options) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, NoteAssembly(options.id));
  return ExitOk(PrintResult(text));
}

}  // namespace

void AddPluginCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<PluginFlags>();
  CLI::App* app =
      program->add_subcommand("plugin", "List, describe, check, measure and create norm plugins");
  app->require_subcommand(1);
  app->footer(
      "Example:\n"
      "  plumb plugin list\n"
      "  plumb plugin describe rms_norm\n"
      "  plumb plugin check ./my_norm.so");
  AddGlobalOptions(app, invocation);

  CLI::App* list = app->add_subcommand("list", "List the plugins that can be found");
  list->add_flag("--json", options->json, "Print the list as JSON");
  AddGlobalOptions(list, invocation);
  list->footer("Example:\n  plumb plugin list --plugin ./my_norm.so");
  RunWhenSelected(list, options, List, invocation);

  CLI::App* describe = app->add_subcommand(
      "describe", "Show a plugin's attributes and parameters, and how a model uses it");
  AddRequired(describe, "NORM", &options->id, "Id of the norm");
  describe->add_flag("--json", options->json, "Print the plugin as JSON");
  AddGlobalOptions(describe, invocation);
  describe->footer("Example:\n  plumb plugin describe rms_norm");
  RunWhenSelected(describe, options, DescribeOne, invocation);

  AddPluginCheckCommand(app, invocation);
  AddPluginBenchCommand(app, invocation);

  CLI::App* note =
      app->add_subcommand("note", "Print a norm's ELF note, for languages other than C");
  AddRequired(note, "ID", &options->id, "Id of the norm");
  note->footer(
      "Prints the assembler text that PLUMB_NORM_NOTE(ID) stands for in C and C++.\n\n"
      "Example:\n"
      "  plumb plugin note org.example.my_norm > note.s\n"
      "  cc -c note.s && ... link note.o into the norm's library");
  RunWhenSelected(note, options, Note, invocation);

  CLI::App* fresh = app->add_subcommand("new", "Create the project of a norm plugin");
  AddRequired(fresh, "DIR", &options->directory, "Directory of the project, new or empty");
  fresh->add_option("--id", options->id, "Id of the norm. Default: org.example.NAME");
  fresh->add_option("--name", options->name, "Name of the norm. Default: the last part of DIR");
  AddText(fresh, "--lang", "LANG", &options->language,
          "Language of the norm. Default: c. One of c, c++, rust");
  fresh->add_flag("--json", options->json, "Print the written files as JSON");
  fresh->footer(
      "Writes a working norm in one file, a project that builds and checks it (CMake and make for "
      "C,\n"
      "CMake for C++, Cargo for Rust), a model that uses it, and a README with the commands.\n\n"
      "Example:\n"
      "  plumb plugin new l1_norm --id org.example.l1_norm\n"
      "  cd l1_norm && make check\n"
      "  plumb plugin new l1_norm_rs --lang rust");
  RunWhenSelected(fresh, options, New, invocation);
}

}  // namespace plumb::cli
