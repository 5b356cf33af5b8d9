// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/run_plugins.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/run_directory.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kPluginFiles[] = "plugin_files";
// Returns what to do about a norm that is not found and was in this file.
std::string Advice(const PluginFileRecord& record) {
  if (!FileExists(record.path)) {
    return absl::StrCat(
        "was in ", record.path,
        ", which no longer exists; build it again, or name its file: --plugin FILE");
  }
  return absl::StrCat("was in ", record.path, ", which is in no directory of norms; ",
                      Sha256OfFile(record.path) == record.hash
                          ? ""
                          : "the file has changed since; if you trust "
                            "it, ",
                      "add --plugin ", record.path);
}

}  // namespace

absl::StatusOr<RunPlugins> GetPlugins(HostRuntime* runtime, const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const std::string norms, ToStatus(model.Norms()));
  const Json versions = Json::parse(norms);
  RunPlugins plugins;
  for (const auto& [id, version] : versions.items()) {
    if (id.find('.') == std::string::npos) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::string plugin, ToStatus(runtime->api().DescribePlugin(id)));
    const Json description = Json::parse(plugin);
    if (description["path"] == "") continue;
    plugins[id] = {description["path"], description["sha256"]};
  }
  return plugins;
}

std::string WithPlugins(const std::string& json, const RunPlugins& plugins) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object()) return json;
  object.erase(kPluginFiles);
  for (const auto& [id, record] : plugins) {
    object[kPluginFiles][id] = {{"path", record.path}, {"hash", record.hash}};
  }
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<RunPlugins> PluginsIn(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  RunPlugins plugins;
  if (!object.is_object() || !object.contains(kPluginFiles)) return plugins;
  const Json& files = object[kPluginFiles];
  const auto is_text = [](const Json& record, const char* key) {
    return record.is_object() && record.contains(key) && record[key].is_string();
  };
  for (const auto& [id, record] : files.items()) {
    if (!files.is_object() || !is_text(record, "path") || !is_text(record, "hash")) {
      return absl::DataLossError(
          "\"plugin_files\" must be {ID: {\"path\": text, \"hash\": text}, ..}");
    }
    plugins[id] = {record["path"], record["hash"]};
  }
  return plugins;
}

absl::Status NameMissingPlugins(HostRuntime* runtime, const std::string& run,
                                const absl::Status& error) {
  const absl::StatusOr<std::string> json = ReadFile(RunJsonPath(run), kMaxStateBytes);
  if (!json.ok()) return error;
  const absl::StatusOr<RunPlugins> plugins = PluginsIn(*json);
  if (!plugins.ok()) return error;
  std::vector<std::string> lines;
  for (const auto& [id, record] : *plugins) {
    if (!absl::IsNotFound(ToStatus(runtime->api().DescribePlugin(id)).status())) continue;
    lines.push_back(absl::StrCat(run, ": the norm ", id, " of this run ", Advice(record)));
  }
  if (lines.empty()) return error;
  return absl::Status(error.code(),
                      absl::StrCat(absl::StrJoin(lines, "\n"), "\n", error.message()));
}

}  // namespace plumb
