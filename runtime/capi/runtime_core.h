// SPDX-License-Identifier: Apache-2.0
// plumb::Runtime: norm plugins, placements and threads, shared by all models of a program.
//
// It is the root object; there are no globals. It must outlive the objects created with it.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_
#define PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/process.h"
#include "runtime/base/thread_pool.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/plugin/registry.h"
#include "runtime/session/program.h"
#include "runtime/spec/model_spec.h"
#include "runtime/spec/resolve.h"

struct plumb_norm_plugin;  // plumb/norm_plugin.h

namespace plumb {

struct RuntimeOptions {
  // Directories with plugins, searched before the built-in ones.
  std::vector<std::string> plugin_directories;
  // Directories with placements, "<name>.pbtxt" each, searched before the built-in ones.
  std::vector<std::string> placement_directories;
  // Prefix under which the shipped plugins and placements are installed. "": the prefix set at
  // build time.
  std::string install_prefix;
  // True if PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH and OMP_NUM_THREADS are read.
  bool use_environment = true;
  // Max threads of a session; 0: OMP_NUM_THREADS, else one for each available processor. Sessions
  // share the threads of the process. Results are the same for any number.
  int threads = 0;
  // GEMM engine: "auto", by a table of processors; "onednn" or "small" (built in), for all
  // products; "pairs" (bf16 multiply) or "widen" (bf16 to f32). Affects rounding.
  std::string gemm = "auto";
};

class Runtime {
 public:
  // Creates a runtime. Errors: kInvalidArgument for an unknown `gemm`; kNotFound for "onednn" if
  // oneDNN cannot be loaded. With other engines oneDNN is loaded on demand, and a failure is only a
  // warning.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // Describes a norm as JSON, with the fields of plugin.schema.json (plumb_plugin_describe), and
  // loads its plugin if necessary. Errors: kNotFound with a suggestion for an unknown id.
  absl::StatusOr<std::string> DescribePluginJson(const std::string& id);
  // Registers the norms of a plugin file, whose code runs with all rights of this process. Errors:
  // kNotFound; kFailedPrecondition if it is not a valid plugin.
  absl::Status LoadPlugin(const std::string& file);
  // Registers a norm that is linked into the program.
  absl::Status RegisterPlugin(const plumb_norm_plugin* plugin);

  // Returns the warnings since the last call: skipped files, duplicate ids.
  std::vector<std::string> TakeWarnings();

  int threads() const;
  // Names the GEMM engines of this runtime. Runtimes with equal strings round equally. Loads
  // oneDNN.
  std::string matmul() const;

  // Reports the machine, what was found and refused, and problems with their remedies: JSON, with
  // the fields of runtime.schema.json (plumb_runtime_describe). Loads nothing: libraries that no
  // product has needed yet are reported as such.
  std::string DescribeJson() const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  Runtime();
  std::unique_ptr<Impl> impl_;
};

// The members of a runtime, for this module.
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
  void AddPluginDirectory(const std::string& path, const char* from, bool ships = false);

  // Returns why fewer threads work than configured; "" if none was refused.
  std::string ThreadsProblem() const;

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);

  // Resolves a description and lists its tensors. The caller passes on the model's warnings.
  absl::StatusOr<std::unique_ptr<ModelContext>> MakeContext(const ModelSpec& spec);
};

// Returns the version of plumb: "0.3.0".
const char* PlumbVersion();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_
