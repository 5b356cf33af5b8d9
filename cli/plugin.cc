// plumb plugin: which norms there are, and what each wants.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

struct Options {
  std::string id;
  bool json = false;
};

absl::Status PrintList(const std::vector<PluginFileInfo>& plugins, bool json) {
  if (json) {
    Json list = Json::array();
    for (const PluginFileInfo& plugin : plugins) {
      list.push_back({{"id", plugin.id}, {"path", plugin.path}, {"problem", plugin.problem}});
    }
    return PrintJson({{"plugins", list}});
  }
  size_t width = 1;
  for (const PluginFileInfo& plugin : plugins) width = std::max(width, plugin.id.size());
  std::string text;
  for (const PluginFileInfo& plugin : plugins) {
    const std::string id = plugin.id.empty() ? "?" : plugin.id;
    absl::StrAppend(&text, id, std::string(width + 2 - id.size(), ' '),
                    plugin.path.empty() ? "(linked in)" : plugin.path);
    if (!plugin.problem.empty()) absl::StrAppend(&text, "  not usable: ", plugin.problem);
    absl::StrAppend(&text, "\n");
  }
  return PrintResult(text);
}

Json ToJson(const PluginInfo& plugin) {
  Json attributes = Json::array();
  for (const PluginAttribute& attribute : plugin.attributes) {
    attributes.push_back({{"name", attribute.name},
                          {"type", attribute.type},
                          {"range", attribute.range},
                          {"default", attribute.default_value},
                          {"required", attribute.required},
                          {"doc", attribute.doc}});
  }
  Json parameters = Json::array();
  for (const PluginParameter& parameter : plugin.parameters) {
    parameters.push_back({{"name", parameter.name},
                          {"shape", parameter.shape},
                          {"init", parameter.init},
                          {"doc", parameter.doc}});
  }
  return {{"id", plugin.id},           {"version", plugin.version}, {"vendor", plugin.vendor},
          {"license", plugin.license}, {"doc", plugin.doc},         {"path", plugin.path},
          {"attributes", attributes},  {"parameters", parameters},  {"traits", plugin.traits}};
}

std::string ToText(const PluginInfo& plugin) {
  std::string text = absl::StrCat(plugin.id, " ", plugin.version, "\n");
  if (!plugin.doc.empty()) absl::StrAppend(&text, "  ", plugin.doc, "\n");
  const auto field = [&text](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppend(&text, "  ", name, ": ", value, "\n");
  };
  field("vendor", plugin.vendor);
  field("license", plugin.license);
  field("file", plugin.path.empty() ? "(linked in)" : plugin.path);
  field("traits", absl::StrJoin(plugin.traits, ", "));
  if (!plugin.attributes.empty()) absl::StrAppend(&text, "attributes\n");
  for (const PluginAttribute& attribute : plugin.attributes) {
    absl::StrAppend(&text, "  ", attribute.name, ": ", attribute.type);
    if (!attribute.range.empty()) absl::StrAppend(&text, " ", attribute.range);
    absl::StrAppend(&text, attribute.required
                               ? ", required"
                               : absl::StrCat(", default ", attribute.default_value));
    absl::StrAppend(&text, attribute.doc.empty() ? "" : "\n    ", attribute.doc, "\n");
  }
  if (!plugin.parameters.empty()) absl::StrAppend(&text, "parameters\n");
  for (const PluginParameter& parameter : plugin.parameters) {
    absl::StrAppend(&text, "  ", parameter.name, " ", parameter.shape, ", initially ",
                    parameter.init, parameter.doc.empty() ? "" : "\n    ", parameter.doc, "\n");
  }
  return text;
}

absl::StatusOr<int> List(const Options& options, const Invocation& invocation) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = invocation.CreateRuntime();
  if (!runtime.ok()) return runtime.status();
  const std::vector<PluginFileInfo> plugins = (*runtime)->ListPlugins();
  PrintWarnings(runtime->get());
  const absl::Status printed = PrintList(plugins, options.json);
  if (!printed.ok()) return printed;
  return kExitOk;
}

absl::StatusOr<int> DescribeOne(const Options& options, const Invocation& invocation) {
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = invocation.CreateRuntime();
  if (!runtime.ok()) return runtime.status();
  const absl::StatusOr<PluginInfo> plugin = (*runtime)->DescribePlugin(options.id);
  PrintWarnings(runtime->get());
  if (!plugin.ok()) return plugin.status();
  const absl::Status printed =
      options.json ? PrintJson(ToJson(*plugin)) : PrintResult(ToText(*plugin));
  if (!printed.ok()) return printed;
  return kExitOk;
}

}  // namespace

void AddPluginCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<Options>();
  CLI::App* app = program->add_subcommand("plugin", "Show norm plugins");
  app->require_subcommand(1);
  app->footer(
      "Example:\n"
      "  plumb plugin list\n"
      "  plumb plugin describe rms_norm");
  AddGlobalOptions(app, invocation);

  CLI::App* list = app->add_subcommand("list", "List the plugins that can be found");
  list->add_flag("--json", options->json, "Print the list as JSON");
  AddGlobalOptions(list, invocation);
  list->footer("Example:\n  plumb plugin list --plugin ./my_norm.so");
  list->callback([options, invocation] {
    invocation->run = [options, invocation] { return List(*options, *invocation); };
  });

  CLI::App* describe = app->add_subcommand("describe", "Show a plugin's attributes and parameters");
  describe->add_option("ID", options->id, "The plugin's id")->required()->type_name("");
  describe->add_flag("--json", options->json, "Print it as JSON");
  AddGlobalOptions(describe, invocation);
  describe->footer("Example:\n  plumb plugin describe rms_norm");
  describe->callback([options, invocation] {
    invocation->run = [options, invocation] { return DescribeOne(*options, *invocation); };
  });
}

}  // namespace plumb::cli
