#include "cli/command.h"

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/installation.h"
#include "cli/output.h"
#include "runtime/base/status.h"

namespace plumb::cli {

absl::StatusOr<std::unique_ptr<HostRuntime>> Invocation::CreateRuntime() const {
  HostRuntimeOptions options;
  options.plugin_files = plugin_files;
  options.threads = static_cast<int>(threads);
  options.gemm = gemm;
  options.guard_plugins = guard_plugins;
  options.signal_stacks = true;  // of WatchPlugins
  options.install_prefix = InstallPrefix();
  return HostRuntime::Create(options);
}

void AddGlobalOptions(CLI::App* app, Invocation* invocation) {
  AddRepeated(app, "--plugin", "FILE", &invocation->plugin_files,
              "Load this norm plugin first; repeatable. It runs with all your rights")
      ->group("Options of every command");
  app->add_flag(
         "--plugin-guard", invocation->guard_plugins,
         "Give norm plugins guarded copies of their operands, and end with the plugin's name "
         "when one writes outside of them; slow, never changes results")
      ->group("Options of every command");
  AddInt(app, "--threads", &invocation->threads, 1, 1024,
         "Threads; never changes results; default: OMP_NUM_THREADS, or all available processors")
      ->group("Options of every command");
  SetChoices(
      app->add_option(
             "--gemm", invocation->gemm,
             "What multiplies matrices: onednn or small (plumb's own), all products; pairs or "
             "widen, how bf16 operands are; auto (the default), as a table of processors says "
             "(plumb --version). Changes rounding")
          ->type_name("NAME")
          ->group("Options of every command"),
      {"auto", "onednn", "small", "pairs", "widen"});
}

int64_t ContextLength(const ModelDescription& description) {
  for (const auto& [name, value] : description.dims) {
    if (name == "context_length") return value;
  }
  return 1;
}

absl::StatusOr<std::unique_ptr<Model>> OpenModel(const std::string& path,
                                                 const std::vector<std::string>& assignments,
                                                 HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(Spec spec, ReadSpec(path, assignments));
  if (spec.vocab_size() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": vocab_size is missing, and there is no data to take it from; say it "
                     "with --set model.vocab_size=N"));
  }
  return WithWarnings(runtime, Model::Create(runtime, spec));
}

}  // namespace plumb::cli
