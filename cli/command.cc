// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <sys/auxv.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
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
  PLUMB_ASSIGN_OR_RETURN(Assignments settings, ParseSettings(assignments));
  if (!settings.train.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--set train.", settings.train.front().first,
                     ": this command does not train; set only model.*"));
  }
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(path, std::move(settings.model)));
  if (GetVocabSize(spec) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": vocab_size is missing, and there is no data to take it from; set it with "
                     "--set model.vocab_size=N"));
  }
  return WithWarnings(runtime, CreateModel(runtime, spec));
}

std::string OwnDirectory() {
  char path[PATH_MAX + 1] = "";
  std::string own;
  if (readlink("/proc/self/exe", path, PATH_MAX) >= 0) {
    own = path;
  } else if (const auto begun = getauxval(AT_EXECFN); begun != 0) {  // without /proc
    std::error_code error;
    own = std::filesystem::canonical(reinterpret_cast<const char*>(begun), error).string();
    if (error) return "";
  }
  if (own.empty()) return "";
  return own.substr(0, own.rfind('/'));
}

std::string InstallPrefix() {
  const std::string own = OwnDirectory(), below = "/" PLUMB_BIN_DIR;
  if (own.size() <= below.size() || own.compare(own.size() - below.size(), below.size(), below)) {
    return "";
  }
  const std::string prefix = own.substr(0, own.size() - below.size());
  std::error_code error;
  const bool installed = std::filesystem::is_directory(prefix + "/" PLUMB_DATA_DIR, error);
  return installed ? prefix : "";
}

std::string DocDirectory() {
  const std::string prefix = InstallPrefix();
  // PLUMB_DOC_DIR is relative, or absolute if the packager says so.
  return prefix.empty() ? "" : (std::filesystem::path(prefix) / PLUMB_DOC_DIR).string();
}

}  // namespace plumb::cli
