// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/host_runtime.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

std::string JsonString(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

// Facts about libraries, which are loaded for them.
struct Loaded {
  std::string gemm;
  Json report;
};
Loaded LoadLibraries() {
  const auto runtime = HostRuntime::Create({});
  if (!runtime.ok()) return {};
  Loaded loaded;
  loaded.gemm = (*runtime)->matmul();
  loaded.report = Json::parse((*runtime)->DescribeJson());
  return loaded;
}

bool HasOneDnn(const Json& report) { return JsonString(report["onednn"]["state"]) == "loaded"; }

// Returns the path of each placement by name, from the first directory that has it.
std::map<std::string, std::string> PlacementFiles(const HostRuntime& runtime) {
  const auto report = nlohmann::json::parse(runtime.DescribeJson());
  std::map<std::string, std::string> files;
  for (const auto& directory : report["placements"]["directories"]) {
    for (const std::string name : directory["names"]) {
      files.emplace(name, JoinPath(directory["path"], absl::StrCat(name, ".pbtxt")));
    }
  }
  return files;
}

absl::StatusOr<InstalledPlacement> ReadPlacement(const std::string& name, const std::string& path) {
  InstalledPlacement placement = {name, path, "", ""};
  PLUMB_ASSIGN_OR_RETURN(placement.text, ReadFile(path, kMaxTextBytes));
  v1::Library library;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(placement.text, path, &library, &locations));
  for (int i = 0; i < library.placement_size(); ++i) {
    if (library.placement(i).name() == name) placement.doc = library.placement(i).doc();
  }
  return placement;
}

}  // namespace

absl::StatusOr<std::unique_ptr<HostRuntime>> HostRuntime::Create(
    api::RuntimeOptions options, const std::vector<std::string>& plugin_files) {
  auto host = std::unique_ptr<HostRuntime>(new HostRuntime);
  options.log = [self = host.get()](api::LogLevel, std::string_view message) {
    self->Warn(std::string(message));
  };
  PLUMB_ASSIGN_OR_RETURN(host->runtime_, ToStatus(api::Runtime::Create(std::move(options))));
  for (const std::string& file : plugin_files) {
    PLUMB_RETURN_IF_ERROR(ToStatus(host->runtime_->LoadPlugin(file)));
  }
  return host;
}

absl::StatusOr<std::unique_ptr<HostRuntime>> HostRuntime::Create(
    plumb_runtime_options options, const std::vector<const plumb_norm_plugin*>& norms) {
  auto host = std::unique_ptr<HostRuntime>(new HostRuntime);
  options.log_user = host.get();
  options.log = [](void* user, int32_t, const char* message) {
    static_cast<HostRuntime*>(user)->Warn(message);
  };
  plumb_runtime* runtime = nullptr;
  const auto call = [](auto&& function) { return ToStatus(api::internal::Call(function)); };
  PLUMB_RETURN_IF_ERROR(call([&](plumb_error** error) {
    return plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime, error);
  }));
  host->runtime_ = api::Runtime::Adopt(runtime);
  for (const plumb_norm_plugin* norm : norms) {
    PLUMB_RETURN_IF_ERROR(ToStatus(host->runtime_->RegisterPlugin(norm)));
  }
  return host;
}

std::unique_ptr<HostRuntime> HostRuntime::Adopt(api::Runtime runtime) {
  auto host = std::unique_ptr<HostRuntime>(new HostRuntime);
  host->runtime_ = std::move(runtime);
  return host;
}

void HostRuntime::Warn(const std::string& warning) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (warned_.insert(warning).second) warnings_.push_back(warning);
}

void HostRuntime::ForgetWarningsAbout(const std::string& file) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto is_about = [&](const std::string& warning) {
    return absl::StartsWith(warning, file + ":");
  };
  warnings_.erase(std::remove_if(warnings_.begin(), warnings_.end(), is_about), warnings_.end());
}

std::vector<std::string> HostRuntime::TakeWarnings() {
  const std::lock_guard<std::mutex> lock(mutex_);
  return std::exchange(warnings_, {});
}

std::string VersionText() {
  const Json report = LoadLibraries().report;
  return absl::StrCat(
      "plumb ", api::Version(),
      HasOneDnn(report) ? ", oneDNN " + JsonString(report["onednn"]["version"]) : ", no oneDNN",
      ", kernels ", JsonString(report["processor"]["kernels"]));
}

std::string MatmulText() {
  const Loaded loaded = LoadLibraries();
  const Json& report = loaded.report;
  if (!HasOneDnn(report)) {
    return absl::StrCat(loaded.gemm, "; no oneDNN: ", JsonString(report["onednn"]["problem"]));
  }
  // Drops the prefix "in pairs: " of the reason.
  const std::string bf16 = JsonString(report["processor"]["gemm"]["bf16"]);
  return absl::StrCat(loaded.gemm, "; ", bf16.substr(bf16.find(": ") + 2));
}

absl::StatusOr<std::vector<InstalledPlacement>> ListPlacements(const HostRuntime& runtime) {
  std::vector<InstalledPlacement> placements;
  for (const auto& [name, path] : PlacementFiles(runtime)) {
    PLUMB_ASSIGN_OR_RETURN(InstalledPlacement placement, ReadPlacement(name, path));
    placements.push_back(std::move(placement));
  }
  return placements;
}

absl::StatusOr<InstalledPlacement> FindPlacement(const HostRuntime& runtime,
                                                 const std::string& name) {
  const std::map<std::string, std::string> files = PlacementFiles(runtime);
  if (const auto file = files.find(name); file != files.end()) {
    return ReadPlacement(name, file->second);
  }
  std::vector<std::string> names;
  for (const auto& [known, path] : files) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat("there is no placement ", QuoteName(name), DidYouMean(name, names)));
}

}  // namespace plumb
