#include "runtime/tools/host_runtime.h"

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plumb.h"
#include "runtime/base/memory.h"
#include "runtime/base/status.h"
#include "runtime/tools/handles.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

std::string StringOf(const Json& value) {
  return value.is_string() ? value.get<std::string>() : "";
}

std::vector<std::string> StringsOf(const Json& values) {
  std::vector<std::string> texts;
  for (const Json& value : values) texts.push_back(StringOf(value));
  return texts;
}

std::vector<PluginParameter> Parameters(const Json& values) {
  std::vector<PluginParameter> parameters;
  for (const Json& value : values) {
    parameters.push_back({StringOf(value["name"]), StringOf(value["shape"]),
                          StringOf(value["init"]), StringOf(value["doc"]),
                          value["offset"].get<double>()});
  }
  return parameters;
}

PluginInfo ToInfo(const Json& plugin) {
  PluginInfo info;
  info.id = StringOf(plugin["id"]);
  info.version = StringOf(plugin["version"]);
  info.vendor = StringOf(plugin["vendor"]);
  info.license = StringOf(plugin["license"]);
  info.doc = StringOf(plugin["doc"]);
  info.path = StringOf(plugin["path"]);
  for (const Json& value : plugin["attributes"]) {
    info.attributes.push_back({StringOf(value["name"]), StringOf(value["type"]),
                               StringOf(value["range"]), StringOf(value["default"]),
                               StringOf(value["doc"]), value["required"].get<bool>()});
  }
  info.parameters = Parameters(plugin["parameters"]);
  info.buffers = Parameters(plugin["buffers"]);
  info.traits = StringsOf(plugin["traits"]);
  info.dtypes = StringsOf(plugin["dtypes"]);
  return info;
}

// What is to be said of libraries, with them loaded.
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

bool HasOneDnn(const Json& report) { return StringOf(report["onednn"]["state"]) == "loaded"; }

}  // namespace

struct HostRuntime::Impl {
  RuntimeHandle handle;
  std::mutex mutex;  // of what follows
  std::vector<std::string> warnings;
  std::set<std::string> warned;  // all that there ever were

  void Warn(const std::string& warning) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (warned.insert(warning).second) warnings.push_back(warning);
  }
};

HostRuntime::HostRuntime() : impl_(std::make_unique<Impl>()) {}
HostRuntime::~HostRuntime() = default;

absl::StatusOr<std::unique_ptr<HostRuntime>> HostRuntime::Create(
    const HostRuntimeOptions& options) {
  auto runtime = std::unique_ptr<HostRuntime>(new HostRuntime);
  Impl& impl = *runtime->impl_;
  const std::string plugins = absl::StrJoin(options.plugin_directories, ":");
  const std::string placements = absl::StrJoin(options.placement_directories, ":");
  auto given = Sized<plumb_runtime_options>();
  if (!options.use_environment) given.flags |= PLUMB_NO_ENVIRONMENT;
  if (options.guard_plugins) given.flags |= PLUMB_GUARD_PLUGINS;
  if (options.signal_stacks) given.flags |= PLUMB_SIGNAL_STACKS;
  given.threads = options.threads;
  given.gemm = options.gemm.c_str();
  given.plugin_path = plugins.c_str();
  given.placement_path = placements.c_str();
  if (!options.install_prefix.empty()) given.install_prefix = options.install_prefix.c_str();
  given.log = [](void* user, int32_t, const char* message) {
    static_cast<Impl*>(user)->Warn(message);
  };
  given.log_user = &impl;
  PLUMB_ASSIGN_OR_RETURN(impl.handle, MakeHandle<RuntimeHandle>(plumb_runtime_create, &given));
  for (const std::string& file : options.plugin_files) {
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_plugin_load, impl.handle.get(), file.c_str()));
  }
  return runtime;
}

std::vector<PluginFileInfo> HostRuntime::ListPlugins() const {
  const Json report = Json::parse(DescribeJson());
  std::vector<PluginFileInfo> loaded, files;
  const auto add = [&](const Json& norms) {
    for (const Json& norm : norms) {
      (norm["version"].is_null() ? files : loaded)
          .push_back({StringOf(norm["file"]), StringOf(norm["id"]), StringOf(norm["problem"])});
    }
  };
  add(report["plugins"]["others"]);
  for (const Json& directory : report["plugins"]["directories"]) add(directory["norms"]);
  std::sort(loaded.begin(), loaded.end(),
            [](const PluginFileInfo& a, const PluginFileInfo& b) { return a.id < b.id; });
  loaded.insert(loaded.end(), files.begin(), files.end());
  return loaded;
}

absl::StatusOr<PluginInfo> HostRuntime::DescribePlugin(const std::string& id) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text,
                         TextOf(plumb_plugin_describe, handle(), id.c_str()));
  return ToInfo(Json::parse(text));
}

absl::Status HostRuntime::RegisterPlugin(const void* plumb_norm_plugin) {
  return CallPlumb(plumb_plugin_register, handle(), plumb_norm_plugin);
}

void HostRuntime::Warn(const std::string& warning) { impl_->Warn(warning); }

void HostRuntime::ForgetWarningsAbout(const std::string& file) {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  std::vector<std::string>& warnings = impl_->warnings;
  const auto is_about = [&](const std::string& warning) {
    return absl::StartsWith(warning, file + ":");
  };
  warnings.erase(std::remove_if(warnings.begin(), warnings.end(), is_about), warnings.end());
}

std::vector<std::string> HostRuntime::TakeWarnings() {
  const std::lock_guard<std::mutex> lock(impl_->mutex);
  return std::exchange(impl_->warnings, {});
}

int HostRuntime::threads() const { return plumb_runtime_threads(handle()); }

// Neither of these can fail but for want of memory.
std::string HostRuntime::matmul() const { return *TextOf(plumb_runtime_gemm, handle()); }
std::string HostRuntime::DescribeJson() const { return *TextOf(plumb_runtime_describe, handle()); }

plumb_runtime* HostRuntime::handle() const { return impl_->handle.get(); }

MemoryRoom Memory() {
  const MemoryLimit limit = ProcessMemoryLimit();
  return {limit.bytes, limit.available, limit.by};
}

std::string VersionText() {
  const Json report = LoadLibraries().report;
  return absl::StrCat(
      "plumb ", plumb_version(),
      HasOneDnn(report) ? ", oneDNN " + StringOf(report["onednn"]["version"]) : ", no oneDNN",
      ", kernels ", StringOf(report["processor"]["kernels"]));
}

std::string MatmulText() {
  const Loaded loaded = LoadLibraries();
  const Json& report = loaded.report;
  if (!HasOneDnn(report)) {
    return absl::StrCat(loaded.gemm, "; no oneDNN: ", StringOf(report["onednn"]["problem"]));
  }
  // "in pairs: " and why.
  const std::string bf16 = StringOf(report["processor"]["gemm"]["bf16"]);
  return absl::StrCat(loaded.gemm, "; ", bf16.substr(bf16.find(": ") + 2));
}

}  // namespace plumb
