// SPDX-License-Identifier: Apache-2.0
// RuntimeReport: what a runtime runs on, what it found, and what would go wrong or slow with it:
// the content of Runtime::DescribeJson and `plumb doctor`. A value. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_
#define PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/memory.h"
#include "runtime/base/process.h"
#include "runtime/capi/runtime_impl.h"
#include "runtime/kernels/simd/cpu_features.h"

namespace plumb {

// Where a text is "" or a number -1 the system does not say, or there is no such limit.
struct RuntimeReport {
  struct Processor {
    std::string name;
    ProcessorModel model;
    std::vector<InstructionSet> instruction_sets;
    std::string kernels;    // "AVX3"
    std::string gemm;       // --gemm
    std::string f32, bf16;  // what multiplies matrices of these
  } processor;

  struct OneDnn {
    std::string wanted;  // "libdnnl.so.2"
    std::string state;   // "loaded", "not needed yet", "refused"
    std::string file, version, isa, problem;
  } onednn;
  struct Library {
    std::string name, version;
  };
  std::vector<Library> libraries;   // the others
  std::vector<std::string> openmp;  // the files of the OpenMP runtimes in the process

  struct Threads {
    ProcessorCounts processors;
    int available = 0, used = 0;
    std::string used_because;  // "OMP_NUM_THREADS"; "": one for each that is available, or as asked
  } threads;

  struct PluginDirectory {
    std::string path, from;
    std::string problem;            // why it cannot be searched
    std::vector<PluginFile> files;  // with their norms
  };
  std::vector<PluginDirectory> plugin_directories;  // in the order of the search
  std::vector<PluginFile> other_plugins;            // given by name, or linked in
  std::vector<std::string> dropped;                 // entries of PLUMB_PLUGIN_PATH, and why

  struct PlacementDirectory {
    std::string path, problem;
    std::vector<std::string> placements;
  };
  std::vector<PlacementDirectory> placement_directories;

  struct Variable {
    std::string name, value, problem;
  };
  std::vector<Variable> environment;  // of those that plumb and its libraries read, what is set

  MemoryLimits limits;
  MemoryLimit memory;  // the least of them
  int64_t stack = -1;
  std::string huge_pages;
  std::string directory;  // the current one
  int64_t free_disk = -1;
  FloatingPoint floating_point;

  struct Problem {
    bool fatal = false;  // plumb is of no use with it
    std::string what, remedy;
  };
  std::vector<Problem> problems;
};

// Looks at everything. Loads nothing, and runs no plugin's code.
RuntimeReport MakeRuntimeReport(const Runtime::Impl& impl, const FloatingPoint& mode);

// What it says that would go wrong or slow.
std::vector<RuntimeReport::Problem> FindProblems(const RuntimeReport& report);

// JSON text, indented.
std::string ToJson(const RuntimeReport& report);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_
