// SPDX-License-Identifier: Apache-2.0
// plumb plugin: lists norms and describes their parameters.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/plugin_new.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct PluginFlags {
  std::string id;
  std::string directory, name;  // `plugin new`: path and norm
  bool json = false;
};

// Returns the norms of a report of plumb_runtime_describe: the loaded ones sorted by id, then the
// files on the plugin path in search order.
std::vector<Json> ListPlugins(const Json& report) {
  std::vector<Json> loaded, files;
  const auto add = [&](const Json& norms) {
    for (const Json& norm : norms) {
      (norm["version"].is_null() ? files : loaded)
          .push_back({{"id", norm["id"].is_null() ? "" : norm["id"]},
                      {"path", norm["file"].is_null() ? "" : norm["file"]},
                      {"problem", norm["problem"].is_null() ? "" : norm["problem"]}});
    }
  };
  add(report["plugins"]["others"]);
  for (const Json& directory : report["plugins"]["directories"]) add(directory["norms"]);
  std::sort(loaded.begin(), loaded.end(),
            [](const Json& a, const Json& b) { return a["id"] < b["id"]; });
  loaded.insert(loaded.end(), files.begin(), files.end());
  return loaded;
}

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

void AppendParameters(const char* title, const Json& parameters, std::string* text) {
  if (!parameters.empty()) absl::StrAppend(text, title, "\n");
  for (const Json& parameter : parameters) {
    const std::string name = parameter["name"], doc = parameter["doc"];
    const double offset = parameter["offset"];
    absl::StrAppend(text, "  ", name, " ", parameter["shape"].get<std::string>(), ", initially ",
                    parameter["init"].get<std::string>());
    if (offset != 0) absl::StrAppend(text, ", used as ", offset, " + ", name);
    absl::StrAppend(text, doc.empty() ? "" : "\n    ", doc, "\n");
  }
}

std::string PluginText(const Json& plugin) {
  std::string text = absl::StrCat(plugin["id"].get<std::string>(), " ",
                                  plugin["version"].get<std::string>(), "\n");
  const std::string about = plugin["doc"], path = plugin["path"];
  if (!about.empty()) absl::StrAppend(&text, "  ", about, "\n");
  const auto field = [&text](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, "  ", name, ": ", value, "\n");
  };
  const auto list = [](const Json& words) {
    return absl::StrJoin(words.get<std::vector<std::string>>(), ", ");
  };
  field("vendor", plugin["vendor"]);
  field("license", plugin["license"]);
  field("file", path.empty() ? "(linked in)" : path);
  field("traits", list(plugin["traits"]));
  field("element types", list(plugin["dtypes"]));
  if (!plugin["attributes"].empty()) absl::StrAppend(&text, "attributes\n");
  for (const Json& attribute : plugin["attributes"]) {
    const std::string range = attribute["range"], doc = attribute["doc"];
    absl::StrAppend(&text, "  ", attribute["name"].get<std::string>(), ": ",
                    attribute["type"].get<std::string>());
    if (!range.empty()) absl::StrAppend(&text, " ", range);
    absl::StrAppend(&text, attribute["required"]
                               ? ", required"
                               : absl::StrCat(", default ", attribute["default"].get<std::string>()));
    absl::StrAppend(&text, doc.empty() ? "" : "\n    ", doc, "\n");
  }
  AppendParameters("parameters", plugin["parameters"], &text);
  AppendParameters("buffers (kept from training for evaluation, not trained)", plugin["buffers"],
                   &text);
  return text;
}

absl::StatusOr<int> List(const PluginFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  const Json report = WithWarnings(runtime.get(), Json::parse(runtime->DescribeJson()));
  return ExitOk(PrintList(ListPlugins(report), options.json));
}

absl::StatusOr<int> DescribeOne(const PluginFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(
      const std::string text,
      WithWarnings(runtime.get(), ToStatus(runtime->api().DescribePlugin(options.id))));
  const Json plugin = Json::parse(text);
  return ExitOk(options.json ? PrintJson(plugin) : PrintResult(PluginText(plugin)));
}

// Returns the last component of a path, ignoring trailing slashes.
std::string LastPart(std::string path) {
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  return path.substr(path.rfind('/') + 1);  // npos + 1 is 0
}

absl::StatusOr<int> New(const PluginFlags& options) {
  const std::string name = options.name.empty() ? LastPart(options.directory) : options.name;
  const std::string id = options.id.empty() ? absl::StrCat("org.example.", name) : options.id;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<EmbeddedFile> files, NewProject(name, id));
  PLUMB_RETURN_IF_ERROR(WriteProject(files, options.directory));
  Json names = Json::array();
  std::string text = absl::StrCat(options.directory, ": the norm ", id, "\n");
  for (const EmbeddedFile& file : files) {
    names.push_back(file.name);
    absl::StrAppend(&text, "  ", file.name, "\n");
  }
  absl::StrAppend(&text, "next: cd ", options.directory, " && make check\n",
                  "docs/first-norm.md goes on from there\n");
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
  CLI::App* app = program->add_subcommand("plugin", "Show norm plugins");
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

  CLI::App* describe = app->add_subcommand("describe", "Show a plugin's attributes and parameters");
  AddRequired(describe, "ID", &options->id, "The plugin's id");
  describe->add_flag("--json", options->json, "Print it as JSON");
  AddGlobalOptions(describe, invocation);
  describe->footer("Example:\n  plumb plugin describe rms_norm");
  RunWhenSelected(describe, options, DescribeOne, invocation);

  AddPluginCheckCommand(app, invocation);

  CLI::App* note =
      app->add_subcommand("note", "Print a norm's ELF note, for languages other than C");
  AddRequired(note, "ID", &options->id, "The norm's id");
  note->footer(
      "Writes to standard output the assembler text of what PLUMB_NORM_NOTE(ID) is in C and "
      "C++.\n\n"
      "Example:\n"
      "  plumb plugin note org.example.my_norm > note.s\n"
      "  cc -c note.s && ... link note.o into the norm's library");
  RunWhenSelected(note, options, Note, invocation);

  CLI::App* fresh = app->add_subcommand("new", "Begin a norm: write the project of a plugin");
  AddRequired(fresh, "DIR", &options->directory, "The project's directory, new or empty");
  fresh->add_option("--id", options->id, "The norm's id; default: org.example.NAME");
  fresh->add_option("--name", options->name, "The norm's name; default: the last part of DIR");
  fresh->add_flag("--json", options->json, "Print what was written as JSON");
  fresh->footer(
      "Writes a working norm in one C file, a CMake project and a Makefile that build it against\n"
      "the installed plumb, its test, and a model that uses it.\n\n"
      "Example:\n"
      "  plumb plugin new l1_norm --id org.example.l1_norm\n"
      "  cd l1_norm && make check");
  RunWhenSelected(fresh, options, New, invocation);
}

}  // namespace plumb::cli
