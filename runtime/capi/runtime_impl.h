// SPDX-License-Identifier: Apache-2.0
// The members of plumb::Runtime. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_RUNTIME_IMPL_H_
#define PLUMB_RUNTIME_CAPI_RUNTIME_IMPL_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/base/thread_pool.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/plugin/registry.h"
#include "runtime/session/program.h"
#include "runtime/spec/model_spec.h"
#include "runtime/spec/resolve.h"

namespace plumb {

struct Runtime::Impl {
  // Keeps the worker threads alive, so that freeing handles does not stop those of other threads.
  const PoolUser pool;
  OpRegistry ops;
  PluginRegistry plugins;
  ResolveOptions resolve;
  int threads = 1;
  std::string threads_because;  // "OMP_NUM_THREADS", "as asked for", or "": all processors
  bool use_environment = true;
  // Source of each directory that is searched for plugins: "PLUMB_PLUGIN_PATH", "installed", ...
  std::map<std::string, std::string> directory_from;
  GemmPolicy gemm;
  ProgramCache cache;
  std::vector<std::string> warnings;
  std::set<std::string> warned;  // all warnings ever added by Warn
  size_t plugin_warnings_taken = 0;

  // Adds a directory to search for plugins; `from` is its source, for reports.
  void AddPluginDirectory(const std::string& path, const char* from);

  // Returns why fewer threads work than configured; "" if none was refused.
  std::string ThreadsProblem() const;

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);

  // Resolves a description and lists its tensors. The caller passes on the model's warnings.
  absl::StatusOr<std::unique_ptr<ModelContext>> MakeContext(const ModelSpec& spec);
};

// Returns the version of plumb: "0.2.0".
const char* PlumbVersion();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_IMPL_H_
