// SPDX-License-Identifier: Apache-2.0
// plumb::HostRuntime: the api::Runtime of a program: norm plugins, placements and threads for all
// models, and what the library warned of. It outlives what is created with it. Thread-compatible,
// as the runtime is; warnings may come from any thread.
#ifndef PLUMB_RUNTIME_APP_HOST_RUNTIME_H_
#define PLUMB_RUNTIME_APP_HOST_RUNTIME_H_

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/plumb_api.h"

namespace plumb {

class HostRuntime {
 public:
  // `plugin_files`: norm plugins to load at once (--plugin FILE). A plugin runs with all rights of
  // this process. Warnings go to TakeWarnings, not to options.log. Errors: as plumb_runtime_create
  // and plumb_plugin_load.
  static absl::StatusOr<std::unique_ptr<HostRuntime>> Create(
      api::RuntimeOptions options, const std::vector<std::string>& plugin_files = {});
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  api::Runtime& api() { return *runtime_; }

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);
  // Takes back the warnings about a file: whoever looks at what was trained long ago was told then.
  void ForgetWarningsAbout(const std::string& file);
  // Returns the warnings since the last call: skipped files, duplicate ids, what a model's author
  // should know.
  std::vector<std::string> TakeWarnings();

  int threads() const { return runtime_->Threads(); }
  // The GEMM engines of this runtime. Equal texts: equal rounding. Loads oneDNN.
  std::string matmul() const { return runtime_->Gemm().value(); }
  // plumb_runtime_describe.
  std::string DescribeJson() const { return runtime_->Describe().value(); }

 private:
  HostRuntime() = default;

  std::optional<api::Runtime> runtime_;
  std::mutex mutex_;  // of what follows
  std::vector<std::string> warnings_;
  std::set<std::string> warned_;  // all that there ever were
};

// "plumb 0.1.0, oneDNN 2.6.3, kernels AVX3". Loads oneDNN.
std::string VersionText();

// The GEMM engines of this processor, as a runtime with gemm "auto" has them, and why: "oneDNN
// 2.6.3 avx512_core_bf16, bf16 in pairs; ...".
std::string MatmulText();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_HOST_RUNTIME_H_
