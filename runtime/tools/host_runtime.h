// plumb::HostRuntime: the plumb_runtime of a program that is a host of plumb.h: norm plugins,
// placements and threads for all models, and what the library warned of. It outlives what is
// created with it. Thread-compatible, as the handle is; warnings may come from any thread.
#ifndef PLUMB_RUNTIME_TOOLS_HOST_RUNTIME_H_
#define PLUMB_RUNTIME_TOOLS_HOST_RUNTIME_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

struct plumb_runtime;

namespace plumb {

struct HostRuntimeOptions {
  // Norm plugins to load at once (--plugin FILE). A plugin runs with all rights of this process.
  std::vector<std::string> plugin_files;
  // Absolute directories to search for plugins and placements before all others.
  std::vector<std::string> plugin_directories, placement_directories;
  // Where plumb is installed, if not where it was built to be. "": where it was built to be.
  std::string install_prefix;
  bool use_environment = true;  // PLUMB_PLUGIN_PATH, PLUMB_PLACEMENT_PATH, OMP_NUM_THREADS
  bool guard_plugins = false;   // PLUMB_GUARD_PLUGINS
  bool signal_stacks = false;   // PLUMB_SIGNAL_STACKS
  int threads = 0;              // 0: OMP_NUM_THREADS, or one for each processor
  std::string gemm = "auto";
};

// The memory of this process: the least of the machine's, of its control groups' limits and of its
// resource limits.
struct MemoryRoom {
  int64_t limit = 0;       // bytes in all
  int64_t available = 0;   // that can still be taken
  std::string limited_by;  // "this machine's memory", "ulimit -v", ...
};
MemoryRoom Memory();

// A norm as it describes itself: the fields of plumb_plugin_describe.
struct PluginAttribute {
  std::string name, type, range, default_value, doc;
  bool required = false;
};
struct PluginParameter {
  std::string name, shape, init, doc;
  double offset = 0;
};
struct PluginInfo {
  std::string id, version, vendor, license, doc, path;  // path "": linked into the program
  std::vector<PluginAttribute> attributes;
  std::vector<PluginParameter> parameters, buffers;
  std::vector<std::string> traits, dtypes;
};

// A file on the plugin path.
struct PluginFileInfo {
  std::string path;
  std::string id;       // "" if the file does not say
  std::string problem;  // why it cannot be used; "" if it can
};

class HostRuntime {
 public:
  // Errors: as plumb_runtime_create and plumb_plugin_load.
  static absl::StatusOr<std::unique_ptr<HostRuntime>> Create(const HostRuntimeOptions& options);
  ~HostRuntime();
  HostRuntime(const HostRuntime&) = delete;
  HostRuntime& operator=(const HostRuntime&) = delete;

  // What is loaded, then the plugin path, file by file, without running any plugin's code.
  std::vector<PluginFileInfo> ListPlugins() const;
  // Loads the plugin if need be. kNotFound with a suggestion for an unknown id.
  absl::StatusOr<PluginInfo> DescribePlugin(const std::string& id);
  // Registers a norm that is linked into the program: a `const plumb_norm_plugin*`.
  absl::Status RegisterPlugin(const void* plumb_norm_plugin);

  // Adds a warning for TakeWarnings, unless it was added before.
  void Warn(const std::string& warning);
  // Takes back the warnings about a file: whoever looks at what was trained long ago was told then.
  void ForgetWarningsAbout(const std::string& file);
  // The warnings since the last call: skipped files, duplicate ids, what a model's author should
  // know.
  std::vector<std::string> TakeWarnings();

  int threads() const;
  // The GEMM engines of this runtime. Equal texts: equal rounding. Loads oneDNN.
  std::string matmul() const;
  // plumb_runtime_describe.
  std::string DescribeJson() const;

  plumb_runtime* handle() const;

 private:
  HostRuntime();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// "plumb 0.1.0, oneDNN 2.6.3, kernels AVX3". Loads oneDNN.
std::string VersionText();

// The GEMM engines of this processor, as a runtime with gemm "auto" has them, and why: "oneDNN
// 2.6.3 avx512_core_bf16, bf16 in pairs; ...".
std::string MatmulText();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOOLS_HOST_RUNTIME_H_
