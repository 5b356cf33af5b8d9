// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/runtime_core.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"
#include "runtime/base/thread_pool.h"
#include "runtime/capi/build_tree.h"
#include "runtime/onednn/library.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// Returns OMP_NUM_THREADS, with which batch systems and containers limit the threads of a program
// (the first number if it is a list by nesting level), else the number of available processors.
int DefaultThreads(bool use_environment, std::string* because) {
  constexpr char kVariable[] = "OMP_NUM_THREADS";
  const char* text = use_environment ? std::getenv(kVariable) : nullptr;
  int threads = 0;
  if (text != nullptr) {
    const absl::string_view list(text);
    if (absl::SimpleAtoi(list.substr(0, list.find(',')), &threads) && threads > 0) {
      *because = kVariable;
      return threads;
    }
  }
  return AvailableProcessors();
}

}  // namespace

const char* PlumbVersion() { return PLUMB_VERSION; }

absl::StatusOr<std::unique_ptr<ModelContext>> Runtime::Impl::MakeContext(const ModelSpec& spec) {
  auto context = std::make_unique<ModelContext>();
  PLUMB_ASSIGN_OR_RETURN(context->model, Resolve(spec, &plugins, resolve));
  PLUMB_ASSIGN_OR_RETURN(ModelTensors tensors, ListTensors(context->model));
  context->parameters = std::move(tensors.parameters);
  context->states = std::move(tensors.states);
  context->ops = &ops;
  context->cache = &cache;
  return context;
}

std::string Runtime::Impl::ThreadsProblem() const {
  if (!ThreadsWereRefused()) return "";
  return absl::StrCat("the system refused a thread: fewer than ", threads,
                      " work, with the same results (limits: ulimit -u, processes; ulimit -v, "
                      "memory, of which each needs a stack)");
}

void Runtime::Impl::Warn(const std::string& warning) {
  if (warned.insert(warning).second) warnings.push_back(warning);
}

void Runtime::Impl::AddPluginDirectory(const std::string& path, const char* from, bool ships) {
  if (path.empty()) return;
  plugins.AddDirectory(path, ships);
  directory_from.emplace(path, from);
}

Runtime::Runtime() : impl_(std::make_unique<Impl>()) {}
Runtime::~Runtime() = default;

absl::StatusOr<std::unique_ptr<Runtime>> Runtime::Create(const RuntimeOptions& options) {
  auto runtime = std::unique_ptr<Runtime>(new Runtime);
  Impl& impl = *runtime->impl_;
  PLUMB_ASSIGN_OR_RETURN(const GemmChoice choice, ParseGemmChoice(options.gemm));
  impl.gemm = HostGemmPolicy(choice);
  if (choice == GemmChoice::kOneDnn && !impl.gemm.library().usable()) {
    const std::string why =
        absl::StrCat("the GEMM engine onednn cannot be used: ", impl.gemm.library().problem,
                     "; with auto plumb does without");
    return OneDnn().lacks_memory ? absl::ResourceExhaustedError(why) : absl::NotFoundError(why);
  }
  RegisterOps(&impl.ops, impl.gemm);
  impl.use_environment = options.use_environment;
  if (options.threads > 0) {
    impl.threads = options.threads;
    impl.threads_because = "as asked for";
  } else {
    impl.threads = DefaultThreads(options.use_environment, &impl.threads_because);
  }
  for (const std::string& directory : options.plugin_directories) {
    impl.AddPluginDirectory(directory, "given by the program");
  }
  if (options.use_environment) {
    for (const std::string& directory : PathFromEnvironment("PLUMB_PLUGIN_PATH", &impl.warnings)) {
      impl.AddPluginDirectory(directory, "PLUMB_PLUGIN_PATH");
    }
  }
  impl.resolve.placement_directories = options.placement_directories;
  if (options.use_environment) {
    for (std::string& directory : PathFromEnvironment("PLUMB_PLACEMENT_PATH", &impl.warnings)) {
      impl.resolve.placement_directories.push_back(std::move(directory));
    }
  }
  const std::string& prefix = options.install_prefix;
  if (!prefix.empty()) {
    impl.AddPluginDirectory(absl::StrCat(prefix, "/", PLUMB_PLUGIN_DIR), "installed",
                            /*ships=*/true);
    impl.resolve.placement_directories.push_back(absl::StrCat(prefix, "/", PLUMB_PLACEMENT_DIR));
  } else {
    impl.AddPluginDirectory(PLUMB_INSTALLED_PLUGIN_DIR, "installed", /*ships=*/true);
    impl.resolve.placement_directories.push_back(PLUMB_INSTALLED_PLACEMENT_DIR);
    if (&kBuildTree != nullptr) {
      impl.AddPluginDirectory(kBuildTree.plugin_directory, "the build", /*ships=*/true);
      impl.resolve.placement_directories.push_back(kBuildTree.placement_directory);
    }
  }
  return runtime;
}

absl::Status Runtime::LoadPlugin(const std::string& file) { return impl_->plugins.LoadFile(file); }

absl::Status Runtime::RegisterPlugin(const plumb_norm_plugin* plugin) {
  return impl_->plugins.Register(plugin);
}

std::vector<std::string> Runtime::TakeWarnings() {
  if (const std::string problem = impl_->ThreadsProblem(); !problem.empty()) impl_->Warn(problem);
  if (const std::string problem = impl_->gemm.Problem(); !problem.empty()) impl_->Warn(problem);
  std::vector<std::string> warnings = std::exchange(impl_->warnings, {});
  const std::vector<std::string>& from_plugins = impl_->plugins.warnings();
  warnings.insert(warnings.end(),
                  from_plugins.begin() + static_cast<std::ptrdiff_t>(impl_->plugin_warnings_taken),
                  from_plugins.end());
  impl_->plugin_warnings_taken = from_plugins.size();
  return warnings;
}

int Runtime::threads() const { return impl_->threads; }
std::string Runtime::matmul() const { return impl_->gemm.ToString(); }

}  // namespace plumb
