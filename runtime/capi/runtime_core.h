// SPDX-License-Identifier: Apache-2.0
// plumb::Runtime: norm plugins, shipped placements and threads, for all models of a program.
//
// The root object; there are no globals. It must outlive the objects created with it.
// Thread-compatible: loading plugins and creating models from several threads needs the caller's
// lock.
#ifndef PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_
#define PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/process.h"

namespace plumb {

struct RuntimeOptions {
  // Directories to search for plugins; searched before the built-in ones.
  std::vector<std::string> plugin_directories;
  // Directories of placements, "<name>.pbtxt" each; searched before the built-in ones.
  std::vector<std::string> placement_directories;
  // Where plumb is installed, if not where it was built to be: the shipped plugins and placements
  // are then looked for below this prefix. "": where it was built to be.
  std::string install_prefix;
  // Whether PLUMB_PLUGIN_PATH and OMP_NUM_THREADS are read.
  bool use_environment = true;
  // Whether plugins get their operands between canaries and unreadable pages: one that writes
  // outside of them is then an error, kFailedPrecondition, with its call, its file and the operand;
  // or, far outside, a fault, which plumb_plugin_call_here tells about. Slow; never changes
  // results.
  bool guard_plugins = false;
  // Threads that a session may use; 0: OMP_NUM_THREADS, or one for each processor that this process
  // may run on. Sessions share the threads of the process. Never changes results.
  int threads = 0;
  // The GEMM engine: "auto", by a table of processors; "onednn" or "small" (plumb's own), for all
  // products; "pairs" or "widen", how bf16 operands are multiplied. Changes rounding.
  std::string gemm = "auto";
};

class Runtime {
 public:
  // Errors: kInvalidArgument for an unknown `gemm`, kNotFound for "onednn" where oneDNN cannot be
  // loaded; else it is loaded by the first product that is to be oneDNN's, and done without, with a
  // warning.
  static absl::StatusOr<std::unique_ptr<Runtime>> Create(const RuntimeOptions& options);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  // A norm as it describes itself: JSON, whose fields plumb.h lists (plumb_plugin_describe). Loads
  // the plugin if need be. kNotFound with a suggestion for an unknown id.
  absl::StatusOr<std::string> DescribePluginJson(const std::string& id);
  // Registers the norms of a plugin's file, which runs with all rights of this process. Errors:
  // kNotFound when it is not there, kFailedPrecondition when it is not usable.
  absl::Status LoadPlugin(const std::string& file);
  // Registers a norm that is linked into the program: a `const plumb_norm_plugin*`
  // (plumb/norm_plugin.h).
  absl::Status RegisterPlugin(const void* plumb_norm_plugin_v1);

  // The warnings since the last call: skipped files, duplicate ids.
  std::vector<std::string> TakeWarnings();

  int threads() const;
  // The GEMM engines of this runtime. Equal texts: equal rounding. Loads oneDNN.
  std::string matmul() const;

  // What this runtime runs on, what it found and refused, and what would go wrong or slow, with
  // what to do about it: JSON, whose fields plumb.h lists (plumb_runtime_describe). Loads nothing:
  // what no product has needed yet is said to be so.
  // `mode`: the floating-point mode that the calling thread has, or had when it called plumb.
  std::string DescribeJson(const FloatingPoint& mode = CallersFloatingPoint()) const;

  struct Impl;
  Impl& impl() { return *impl_; }

 private:
  Runtime();
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_CORE_H_
