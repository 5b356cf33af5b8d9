// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/runtime_report.h"

#include <algorithm>
#include <utility>

#include "absl/base/config.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

constexpr char kPluginPath[] = "PLUMB_PLUGIN_PATH", kPlacementPath[] = "PLUMB_PLACEMENT_PATH";

// Returns why a directory cannot be searched, without its name; "" if it can.
std::string Why(const absl::Status& status, const std::string& path) {
  absl::string_view message = status.message();
  absl::ConsumePrefix(&message, absl::StrCat(path, ": "));
  return std::string(message);
}

std::string BaseName(const std::string& path) { return path.substr(path.rfind('/') + 1); }

RuntimeReport::OneDnn ReportOneDnn() {
  RuntimeReport::OneDnn report;
  report.wanted = OneDnnFileName();
  const OneDnnLibrary* const library = OneDnnIfLoaded();
  if (library == nullptr) {
    report.state = "not needed yet";
    return report;
  }
  report.state = library->usable() ? "loaded" : "refused";
  report.file = library->file;
  report.version = library->version;
  report.isa = library->isa;
  report.problem = library->problem;
  return report;
}

RuntimeReport::Processor ReportProcessor(const GemmPolicy& gemm) {
  RuntimeReport::Processor report;
  report.name = ProcessorName();
  report.model = HostProcessorModel();
  report.instruction_sets = InstructionSets();
  report.kernels = gemm.processor.kernel_target;
  report.gemm = std::string(GemmChoiceName(gemm.choice));
  const OneDnnLibrary* const library = OneDnnIfLoaded();
  if (gemm.choice == GemmChoice::kSmall || (library != nullptr && !library->usable())) {
    report.f32 = "plumb's own engine";
  } else if (gemm.choice == GemmChoice::kOneDnn) {
    report.f32 = "oneDNN";
  } else {
    report.f32 = "oneDNN where they are large, else plumb's own engine";
  }
  const bool depends_on_library = gemm.processor.has_bf16 && !gemm.UsesTiles() &&
                                  gemm.choice != GemmChoice::kSmall &&
                                  gemm.choice != GemmChoice::kWiden;
  if (depends_on_library && library == nullptr) {
    report.bf16 = "known when oneDNN is loaded";
  } else if (library == nullptr && !gemm.UsesTiles()) {
    report.bf16 = "widened to f32";
  } else {
    report.bf16 = absl::StrCat(gemm.Bf16Products(), ": ", gemm.Bf16Reason());
  }
  return report;
}

std::vector<RuntimeReport::Library> ReportLibraries(const std::vector<std::string>& mapped) {
  std::vector<RuntimeReport::Library> libraries = {
#ifdef ABSL_LTS_RELEASE_VERSION
    {"Abseil", absl::StrCat(ABSL_LTS_RELEASE_VERSION)},
#endif
    {"Highway", HighwayVersion()},
    {"C library", LibcVersion()},
#if defined(__clang__)
    {"compiler", "clang " __clang_version__},
#else
    {"compiler", "gcc " __VERSION__},
#endif
  };
  for (const char* name : {"libprotobuf.so", "libstdc++.so"}) {
    for (const std::string& file : mapped) {
      if (absl::StartsWith(BaseName(file), name)) libraries.push_back({BaseName(file), file});
    }
  }
  return libraries;
}

std::vector<std::string> OpenMpRuntimes(const std::vector<std::string>& mapped) {
  std::vector<std::string> found;
  for (const std::string& file : mapped) {
    const std::string name = BaseName(file);
    for (const char* start : {"libgomp.so", "libgomp-", "libomp.so", "libomp-", "libiomp5"}) {
      if (!absl::StartsWith(name, start)) continue;
      found.push_back(file);
      break;
    }
  }
  return found;
}

// Returns the directories with their plugin files; `others` get the files outside of all
// directories.
std::vector<RuntimeReport::PluginDirectory> ReportPlugins(const Runtime::Impl& impl,
                                                          std::vector<PluginFile>* others) {
  std::vector<RuntimeReport::PluginDirectory> directories;
  for (const std::string& path : impl.plugins.directories()) {
    RuntimeReport::PluginDirectory directory;
    directory.path = path;
    const auto from = impl.directory_from.find(path);
    if (from != impl.directory_from.end()) directory.from = from->second;
    directory.problem = Why(ListDirectory(path).status(), path);
    directories.push_back(std::move(directory));
  }
  for (PluginFile& file : impl.plugins.Scan()) {
    const auto holds = [&file](const RuntimeReport::PluginDirectory& directory) {
      return JoinPath(directory.path, BaseName(file.path)) == file.path;
    };
    const auto found = std::find_if(directories.begin(), directories.end(), holds);
    (found != directories.end() ? &found->files : others)->push_back(std::move(file));
  }
  return directories;
}

std::vector<RuntimeReport::PlacementDirectory> ReportPlacements(const Runtime::Impl& impl) {
  std::vector<RuntimeReport::PlacementDirectory> directories;
  for (const std::string& path : impl.resolve.placement_directories) {
    RuntimeReport::PlacementDirectory directory{path, "", {}};
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(path);
    directory.problem = Why(names.status(), path);
    if (names.ok()) {
      for (absl::string_view name : *names) {
        if (absl::ConsumeSuffix(&name, ".pbtxt")) directory.placements.emplace_back(name);
      }
    }
    directories.push_back(std::move(directory));
  }
  return directories;
}

std::vector<RuntimeReport::Variable> ReportEnvironment(bool used) {
  const std::vector<std::string> known = {
      kPluginPath,        kPlacementPath,   "OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA",
      "DNNL_MAX_CPU_ISA", "ONEDNN_VERBOSE", "DNNL_VERBOSE",    "LD_LIBRARY_PATH",
      "LD_PRELOAD",       "PLUMB_LIBRARY"};  // runtime/python reads the last one
  std::vector<RuntimeReport::Variable> variables;
  for (auto& [name, value] : Environment()) {
    const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
    if (!is_known && !absl::StartsWith(name, "PLUMB_")) continue;
    std::string problem;
    if (!is_known) {
      problem = absl::StrCat("plumb reads no such variable", DidYouMean(name, known));
    } else if (!used &&
               (name == kPluginPath || name == kPlacementPath || name == "OMP_NUM_THREADS")) {
      problem = "not read: the host disables it (PLUMB_RUNTIME_NO_ENVIRONMENT)";
    }
    variables.push_back({name, value, std::move(problem)});
  }
  std::sort(variables.begin(), variables.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return variables;
}

}  // namespace

RuntimeReport MakeRuntimeReport(const Runtime::Impl& impl, const FloatingPoint& mode) {
  RuntimeReport report;
  report.floating_point = mode;
  const std::vector<std::string> mapped = MappedLibraries();
  report.processor = ReportProcessor(impl.gemm);
  report.onednn = ReportOneDnn();
  report.libraries = ReportLibraries(mapped);
  report.openmp = OpenMpRuntimes(mapped);
  report.threads.processors = CountProcessors();
  report.threads.available = AvailableProcessors();
  report.threads.used = impl.threads;
  report.threads.used_because = impl.threads_because;
  report.plugin_directories = ReportPlugins(impl, &report.other_plugins);
  if (impl.use_environment) {
    PathFromEnvironment(kPluginPath, &report.dropped);
    PathFromEnvironment(kPlacementPath, &report.dropped);
  }
  report.placement_directories = ReportPlacements(impl);
  report.environment = ReportEnvironment(impl.use_environment);
  report.limits = ReadMemoryLimits();
  report.memory = ProcessMemoryLimit();
  report.stack = StackLimit();
  report.huge_pages = HugePages();
  report.directory = CurrentDirectory();
  if (!report.directory.empty()) report.free_disk = FreeSpace(report.directory);
  report.problems = FindProblems(report);
  return report;
}

std::string Runtime::DescribeJson(const FloatingPoint& mode) const {
  return ToJson(MakeRuntimeReport(*impl_, mode));
}

}  // namespace plumb
