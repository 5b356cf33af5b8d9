// SPDX-License-Identifier: Apache-2.0
// RuntimeReport: facts about the machine and the runtime, and problems: the content of
// Runtime::DescribeJson and `plumb doctor`. A value. Private to runtime/capi.
#ifndef PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_
#define PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/memory.h"
#include "runtime/base/process.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/kernels/simd/cpu_features.h"

namespace plumb {

// "" or -1 in a field means that the system has no such information, or no such limit.
struct RuntimeReport {
  struct Processor {
    std::string name;
    ProcessorModel model;
    std::vector<InstructionSet> instruction_sets;
    std::string kernels;    // "AVX3"
    std::string gemm;       // the --gemm option
    std::string f32, bf16;  // engine for products of f32, and of bf16
  } processor;

  struct OneDnn {
    std::string wanted;  // "libdnnl.so.2"
    std::string state;   // "loaded", "not needed yet", "refused"
    std::string file, version, isa, problem;
  } onednn;
  struct Library {
    std::string name, version;
  };
  std::vector<Library> libraries;   // other libraries
  std::vector<std::string> openmp;  // files of the OpenMP runtimes in the process

  struct Threads {
    ProcessorCounts processors;
    int available = 0, used = 0;
    std::string used_because;  // "OMP_NUM_THREADS", "as asked for"; "": all that are available
  } threads;

  struct PluginDirectory {
    std::string path, from;
    std::string problem;            // why it cannot be searched
    std::vector<PluginFile> files;  // files with their norms
  };
  std::vector<PluginDirectory> plugin_directories;  // in search order
  std::vector<PluginFile> other_plugins;            // loaded by name, or linked in
  std::vector<std::string> dropped;                 // entries of PLUMB_PLUGIN_PATH, and why

  struct PlacementDirectory {
    std::string path, problem;
    std::vector<std::string> placements;
  };
  std::vector<PlacementDirectory> placement_directories;

  struct Variable {
    std::string name, value, problem;
  };
  std::vector<Variable> environment;  // set variables that plumb and its libraries read

  MemoryLimits limits;
  MemoryLimit memory;  // the tightest limit
  int64_t stack = -1;
  std::string huge_pages;
  std::string directory;  // the current directory
  int64_t free_disk = -1;
  FloatingPoint floating_point;

  struct Problem {
    bool fatal = false;  // plumb cannot be used
    std::string what, remedy;
  };
  std::vector<Problem> problems;
};

// Collects the report. Loads nothing, and runs no plugin's code.
RuntimeReport MakeRuntimeReport(const Runtime::Impl& impl, const FloatingPoint& mode);

// Returns the problems that a report reveals.
std::vector<RuntimeReport::Problem> FindProblems(const RuntimeReport& report);

// Returns the report as indented JSON.
std::string ToJson(const RuntimeReport& report);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_RUNTIME_REPORT_H_
