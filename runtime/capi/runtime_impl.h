// SPDX-License-Identifier: Apache-2.0
// What plumb::Runtime owns. Private to runtime/capi.
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
  // So that handles on this runtime come and go without stopping the workers of other threads.
  const PoolUser pool;
  OpRegistry ops;
  PluginRegistry plugins;
  ResolveOptions resolve;
  int threads = 1;
  std::string threads_because;  // "OMP_NUM_THREADS", "as asked for", or "": all that there are
  bool use_environment = true;
  // Of directories that are searched for plugins: what named them.
  std::map<std::string, std::string> directory_from;
  GemmPolicy gemm;
  ProgramCache cache;
  std::vector<std::string> warnings;
  std::set<std::string> warned;  // all that were ever added by Warn
  size_t plugin_warnings_taken = 0;

  void AddPluginDirectory(const std::string& path, const char* from);

  // Why fewer threads work than there should; "" if none was refused.
  std::string ThreadsProblem() const;

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);

  // Resolves a description and lists its tensors. The model's warnings are the caller's to pass on.
  absl::StatusOr<std::unique_ptr<ModelContext>> MakeContext(const ModelSpec& spec);
};

// The version of plumb itself: "0.1.0".
const char* PlumbVersion();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_IMPL_H_
