// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>

#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/process.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/kernels/gemv/read_speed.h"

namespace plumb::capi {
namespace {

// Returns the prefix under which libplumb.so is installed, even if it was moved there, or that of a
// build tree, which has the same layout; "" if it is in neither.
std::string InstallPrefix() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&plumb_version), &info) == 0) return "";
  std::error_code error;
  const std::string directory =
      std::filesystem::canonical(info.dli_fname, error).parent_path().string();
  const std::string below = "/" PLUMB_LIB_DIR;
  if (error || !absl::EndsWith(directory, below)) return "";
  const std::string prefix = directory.substr(0, directory.size() - below.size());
  return std::filesystem::is_directory(prefix + "/" PLUMB_DATA_DIR, error) ? prefix : "";
}

// Sets the host's executor and allocator in `state`. Errors name the field.
absl::Status TakeHost(const plumb_runtime_options& options, RuntimeState* state) {
  if (options.executor != nullptr) {
    PLUMB_ASSIGN_OR_RETURN(const plumb_executor executor, Complete(options.executor));
    if (executor.run == nullptr) return NullArgument("options: executor->run");
    state->executor = {executor.context, executor.run};
    state->host.executor = &state->executor;
  }
  if (options.allocator != nullptr) {
    PLUMB_ASSIGN_OR_RETURN(const plumb_allocator allocator, Complete(options.allocator));
    if (allocator.allocate == nullptr) return NullArgument("options: allocator->allocate");
    if (allocator.release == nullptr) return NullArgument("options: allocator->release");
    state->allocator = {allocator.context, allocator.allocate, allocator.release};
    state->host.allocator = &state->allocator;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> Directories(absl::string_view field, const char* path) {
  std::vector<std::string> directories;
  if (path == nullptr) return directories;
  for (const absl::string_view entry : absl::StrSplit(path, ':', absl::SkipEmpty())) {
    if (!absl::StartsWith(entry, "/")) {
      return absl::InvalidArgumentError(
          absl::StrCat("options: ", field, ": \"", entry, "\" is not an absolute path"));
    }
    directories.emplace_back(entry);
  }
  return directories;
}

static_assert(PLUMB_ABI_VERSION == PLUMB_VERSION_MINOR, "plumb.h is of another version");

absl::StatusOr<plumb_runtime*> CreateRuntime(uint32_t abi_version,
                                             const plumb_runtime_options* given) {
  if (abi_version != PLUMB_ABI_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("this program was built with plumb.h of version 0.", abi_version,
                     ", and libplumb is ", PlumbVersion(), ": build it again with its headers"));
  }
  absl::StatusOr<plumb_runtime_options> options = Complete(given);
  if (!options.ok()) return options.status();
  constexpr uint32_t kFlags = PLUMB_RUNTIME_NO_ENVIRONMENT;
  if ((options->flags & ~kFlags) != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: flags has unknown bits: ", options->flags & ~kFlags));
  }
  constexpr int32_t kMaxThreads = 4096;
  if (options->threads < 0 || options->threads > kMaxThreads) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: threads must be in 0..", kMaxThreads, ", is ", options->threads));
  }
  RuntimeOptions made;
  made.use_environment = (options->flags & PLUMB_RUNTIME_NO_ENVIRONMENT) == 0;
  made.threads = options->threads;
  made.install_prefix =
      options->install_prefix != nullptr ? options->install_prefix : InstallPrefix();
  if (options->gemm != nullptr) made.gemm = options->gemm;
  PLUMB_ASSIGN_OR_RETURN(made.plugin_directories, Directories("plugin_path", options->plugin_path));
  PLUMB_ASSIGN_OR_RETURN(made.placement_directories,
                         Directories("placement_path", options->placement_path));
  auto state = std::make_shared<RuntimeState>();
  PLUMB_RETURN_IF_ERROR(TakeHost(*options, state.get()));
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(made);
  if (!runtime.ok()) return runtime.status();
  state->runtime = *std::move(runtime);
  state->log = options->log;
  state->log_user = options->log_user;
  state->LogWarnings();
  return new plumb_runtime{std::move(state), {}};
}

}  // namespace

absl::StatusOr<double> MachineSpeed::Measure(int32_t what, int threads) {
  switch (what) {
    case PLUMB_SPEED_GEMM_F32:
      return gemm_.Measure(DType::kF32, threads);
    case PLUMB_SPEED_GEMM_BF16:
      return gemm_.Measure(DType::kBF16, threads);
    case PLUMB_SPEED_READ:
      return MeasureRead(threads);
    default:
      return absl::InvalidArgumentError(absl::StrCat("there is no speed ", what, " to measure"));
  }
}

absl::StatusOr<double> MachineSpeed::MeasureRead(int threads) {
  constexpr int64_t kReadBytes = int64_t{512} << 20;
  if (memory_.size() == 0) {
    PLUMB_RETURN_IF_ERROR(CheckMemoryBudget("reading memory", static_cast<double>(kReadBytes)));
    memory_ = AlignedBuffer(kReadBytes);
  }
  const size_t n = static_cast<size_t>(kReadBytes) / sizeof(float);
  return MeasureReadSpeed(absl::MakeConstSpan(memory_.as<float>(), n), threads);
}

}  // namespace plumb::capi

using plumb::capi::Call;
using plumb::capi::Guard;

const char* plumb_version(void) { return plumb::PlumbVersion(); }

plumb_status plumb_runtime_create(uint32_t abi_version, const plumb_runtime_options* options,
                                  plumb_runtime** runtime, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (runtime == nullptr) return plumb::capi::NullArgument("runtime");
    const plumb::ScopedDefaultFloatMode float_mode;
    absl::StatusOr<plumb_runtime*> made = plumb::capi::CreateRuntime(abi_version, options);
    if (made.ok()) *runtime = *made;
    return made.status();
  });
}

void plumb_runtime_free(plumb_runtime* runtime) { delete runtime; }

int32_t plumb_runtime_threads(const plumb_runtime* runtime) {
  return runtime == nullptr ? 0 : runtime->state->runtime->threads();
}

plumb_status plumb_plugin_register(plumb_runtime* runtime, const plumb_norm_plugin* plugin,
                                   plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (plugin == nullptr) return plumb::capi::NullArgument("plugin");
    absl::Status status = runtime->state->runtime->RegisterPlugin(plugin);
    runtime->state->LogWarnings();
    return status;
  });
}

plumb_status plumb_plugin_load(plumb_runtime* runtime, const char* path, plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (path == nullptr) return plumb::capi::NullArgument("path");
    absl::Status status = runtime->state->runtime->LoadPlugin(path);
    runtime->state->LogWarnings();
    return status;
  });
}

plumb_status plumb_runtime_gemm(plumb_runtime* runtime, char** text, plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    const std::string engines = runtime->state->runtime->matmul();
    runtime->state->LogProgramProblems();  // it loaded oneDNN, which may have failed
    return plumb::capi::WriteText(engines, text);
  });
}

plumb_status plumb_runtime_describe(plumb_runtime* runtime, char** text, plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    return plumb::capi::WriteText(runtime->state->runtime->DescribeJson(), text);
  });
}

plumb_status plumb_plugin_describe(plumb_runtime* runtime, const char* id, char** text,
                                   plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (id == nullptr) return plumb::capi::NullArgument("id");
    const absl::StatusOr<std::string> json = runtime->state->runtime->DescribePluginJson(id);
    runtime->state->LogWarnings();
    if (!json.ok()) return json.status();
    return plumb::capi::WriteText(*json, text);
  });
}

plumb_status plumb_runtime_measure_speed(plumb_runtime* runtime, int32_t what, double* per_second,
                                         plumb_error** error) {
  return Call(runtime, "runtime", error, [&]() -> absl::Status {
    if (per_second == nullptr) return plumb::capi::NullArgument("per_second");
    PLUMB_ASSIGN_OR_RETURN(*per_second,
                           runtime->speed.Measure(what, runtime->state->runtime->threads()));
    return absl::OkStatus();
  });
}
