// SPDX-License-Identifier: Apache-2.0
// plumb::HostRuntime: the api::Runtime of a program, with norm plugins, placements and threads for
// all models, and the library's warnings. Must outlive everything created with it.
// Thread-compatible; warnings may come from any thread. Also the placements that it finds by name:
// *.pbtxt in its directories of placements.
#ifndef PLUMB_RUNTIME_CLIENT_HOST_RUNTIME_H_
#define PLUMB_RUNTIME_CLIENT_HOST_RUNTIME_H_

#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"

namespace plumb {

class HostRuntime {
 public:
  // Creates a runtime and loads the norm plugins `plugin_files` (--plugin FILE). A plugin runs with
  // all rights of this process. Warnings are collected for TakeWarnings; options.log is ignored.
  // Errors: those of plumb_runtime_create and plumb_plugin_load.
  static absl::StatusOr<std::unique_ptr<HostRuntime>> Create(
      api::RuntimeOptions options, const std::vector<std::string>& plugin_files = {});
  // Creates a runtime from options of plumb.h; options.log is ignored. `norms` are linked into the
  // program. Errors: those of plumb_runtime_create and plumb_plugin_register.
  static absl::StatusOr<std::unique_ptr<HostRuntime>> Create(
      plumb_runtime_options options, const std::vector<const plumb_norm_plugin*>& norms);
  // Uses a runtime whose own log receives the library's warnings.
  static std::unique_ptr<HostRuntime> Adopt(api::Runtime runtime);
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  api::Runtime& api() { return *runtime_; }

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);
  // Removes the warnings about a file, for users of a trained run, who saw them at training time.
  void ForgetWarningsAbout(const std::string& file);
  // Returns the warnings since the last call: skipped files, duplicate ids, likely errors of a
  // model's author.
  std::vector<std::string> TakeWarnings();

  int threads() const { return runtime_->Threads(); }
  // Returns the GEMM engines of this runtime. Equal texts mean equal rounding. Loads oneDNN.
  std::string matmul() const { return runtime_->Gemm().value(); }
  // Returns the JSON of plumb_runtime_describe.
  std::string DescribeJson() const { return runtime_->Describe().value(); }

 private:
  HostRuntime() = default;

  std::optional<api::Runtime> runtime_;
  std::mutex mutex_;  // guards the fields below
  std::vector<std::string> warnings_;
  std::set<std::string> warned_;  // all warnings ever added
};

// Returns "plumb 0.3.0, oneDNN 2.6.3, kernels AVX3". Loads oneDNN.
std::string VersionText();

// Returns the GEMM engines that a runtime with gemm "auto" uses on this processor, and the reason:
// "oneDNN 2.6.3 avx512_core_bf16, bf16 in pairs; ...".
std::string MatmulText();

struct InstalledPlacement {
  std::string name, path;
  std::string text;  // content of the file
  std::string doc;   // "Post-norm: the sum of stream and sublayer is normalized."; may be empty
};

// Returns all placements, sorted by name. Errors: those of a file, with location.
absl::StatusOr<std::vector<InstalledPlacement>> ListPlacements(const HostRuntime& runtime);

// Returns one placement. Errors: kNotFound with a suggestion.
absl::StatusOr<InstalledPlacement> FindPlacement(const HostRuntime& runtime,
                                                 const std::string& name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_HOST_RUNTIME_H_
