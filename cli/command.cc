// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/installation.h"
#include "cli/output.h"
#include "runtime/base/status.h"

namespace plumb::cli {

absl::StatusOr<std::unique_ptr<HostRuntime>> Invocation::CreateRuntime() const {
  api::RuntimeOptions options;
  options.threads = static_cast<int32_t>(threads);
  options.gemm = gemm;
  options.install_prefix = InstallPrefix();
  return HostRuntime::Create(std::move(options), plugin_files);
}

void AddGlobalOptions(CLI::App* app, Invocation* invocation) {
  static constexpr char kGroup[] = "Options of every command";
  // Adding --help again moves it from the first group to this one.
  app->set_help_flag("-h,--help", "Print this help and exit")->group(kGroup);
  AddRepeated(
      app, "--plugin", "FILE", &invocation->plugin_files,
      "Norm plugin to load before all others; repeatable. A plugin runs with all your rights")
      ->group(kGroup);
  AddRemoved(app, "--plugin-guard", "use plumb plugin check FILE");
  AddInt(app, "--threads", &invocation->threads, 1, 1024,
         "Number of threads; never changes results. Default: OMP_NUM_THREADS, or all available "
         "processors")
      ->group(kGroup);
  app->add_option("--gemm", invocation->gemm,
                  "GEMM engine: auto, onednn, small (built in), pairs (bf16 multiply), widen "
                  "(bf16 to f32). Changes rounding. Default: auto, which plumb --version shows")
      ->type_name("NAME")
      ->group(kGroup);
}

absl::StatusOr<api::Model> OpenModel(const std::string& path,
                                     const std::vector<std::string>& assignments,
                                     HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(Settings settings, ParseSettings(assignments));
  if (!settings.train.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set train.", settings.train.front().first,
                     ": this command does not train; set only model.*"));
  }
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(path, std::move(settings.model)));
  if (VocabSizeOf(spec) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": vocab_size is missing, and there is no data to take it from; set it with "
                     "--set model.vocab_size=N"));
  }
  return WithWarnings(runtime, CreateModel(runtime, spec));
}

}  // namespace plumb::cli
