// SPDX-License-Identifier: Apache-2.0
// Problems that a report reveals, which would make plumb fail or slow, and their remedies.
#include <algorithm>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/capi/runtime_report.h"

namespace plumb {
namespace {

class Problems {
 public:
  // Adds a problem once, however many files have it.
  void Add(const std::string& what, const std::string& remedy, bool fatal = false) {
    if (seen_.insert(what).second) found_.push_back({fatal, what, remedy});
  }
  std::vector<RuntimeReport::Problem> Take() {
    // Fatal problems come first.
    std::stable_sort(found_.begin(), found_.end(),
                     [](const auto& a, const auto& b) { return a.fatal && !b.fatal; });
    return std::move(found_);
  }

 private:
  std::set<std::string> seen_;
  std::vector<RuntimeReport::Problem> found_;
};

std::string MiB(int64_t bytes) { return absl::StrCat(bytes >> 20, " MiB"); }

void AboutLibraries(const RuntimeReport& report, Problems* problems) {
  const RuntimeReport::OneDnn& onednn = report.onednn;
  if (onednn.state == "refused") {
    problems->Add(
        absl::StrCat("oneDNN cannot be used: ", onednn.problem),
        absl::StrCat("install the package that has ", onednn.wanted, " (Debian: libdnnl",
                     absl::StripPrefix(onednn.wanted, "libdnnl.so."),
                     "), or take what hides it from LD_LIBRARY_PATH; without it large matrix "
                     "products are slower, and rounded otherwise"));
  }
  if (report.openmp.size() > 1) {
    problems->Add(
        absl::StrCat("the process has ", report.openmp.size(),
                     " OpenMP runtimes: ", absl::StrJoin(report.openmp, ", ")),
        "each keeps threads of its own for the program that uses it, which cost time where "
        "both are busy; plumb's own threads are of neither. Build the program with the "
        "compiler that the others were built with, or set OMP_NUM_THREADS");
  }
  const std::vector<InstructionSet>& sets = report.processor.instruction_sets;
  const auto avx2 = std::find_if(sets.begin(), sets.end(), [](const InstructionSet& set) {
    return absl::string_view(set.name) == "AVX2";
  });
  if (avx2 != sets.end() && !avx2->has) {
    problems->Add(
        "the processor has no AVX2, or the system does not permit it",
        "plumb works, many times slower; an emulator or a virtual machine may hide it: give "
        "it the host's processor");
  }
}

void AboutThreads(const RuntimeReport& report, Problems* problems) {
  const RuntimeReport::Threads& threads = report.threads;
  const ProcessorCounts& has = threads.processors;
  if (has.affinity > 0 && has.machine > 1 && has.affinity == 1) {
    problems->Add(
        absl::StrCat("the process may run on 1 of ", has.machine, " processors"),
        "its affinity limits it (taskset, a batch system, a container): start it with more");
  }
  if (has.quota > 0 && has.affinity > has.quota) {
    problems->Add(absl::StrCat("the control group has processor time for ", has.quota, " of ",
                               has.affinity, " processors"),
                  "raise the quota of the container (docker --cpus) if it is to be faster");
  }
  if (threads.used > threads.available) {
    problems->Add(absl::StrCat("plumb uses ", threads.used, " threads on ", threads.available,
                               threads.available == 1 ? " processor" : " processors"),
                  "they wait for each other: lower --threads or OMP_NUM_THREADS");
  } else if (threads.used < threads.available && threads.used_because == "OMP_NUM_THREADS") {
    problems->Add(absl::StrCat("plumb uses ", threads.used, " of ", threads.available,
                               " processors, set by OMP_NUM_THREADS"),
                  "unset OMP_NUM_THREADS, or give --threads, if it was not meant for plumb");
  }
}

void AboutPlugins(const RuntimeReport& report, Problems* problems) {
  constexpr char kWhere[] =
      "plumb docs plugin-abi lists the directories of norms and the reasons to refuse one";
  for (const std::string& dropped : report.dropped) {
    problems->Add(dropped, "write the directory's whole path, from the first /");
  }
  size_t usable = 0;
  const auto look = [&](const std::vector<PluginFile>& files) {
    for (const PluginFile& file : files) {
      if (file.problem.empty()) {
        ++usable;
      } else if (!file.shadowed) {
        // A search ends at the first file that has the norm, even if the file is refused.
        const std::string norm =
            file.id.empty() ? "" : absl::StrCat(", and with it the norm \"", file.id, "\"");
        problems->Add(absl::StrCat("a plugin is refused", norm, ": ", file.problem), kWhere);
      }
    }
  };
  look(report.other_plugins);
  for (const RuntimeReport::PluginDirectory& directory : report.plugin_directories) {
    if (!directory.problem.empty() && directory.from == "PLUMB_PLUGIN_PATH") {
      problems->Add(absl::StrCat("PLUMB_PLUGIN_PATH: ", directory.path, ": ", directory.problem),
                    "make the directory, or take it from PLUMB_PLUGIN_PATH");
    }
    look(directory.files);
  }
  if (usable == 0) {
    problems->Add("there is no norm: a model with a norm cannot be built",
                  "install plumb's plugins, or name their directory in PLUMB_PLUGIN_PATH", true);
  }
  const auto& placements = report.placement_directories;
  const bool has_placements =
      std::any_of(placements.begin(), placements.end(),
                  [](const auto& each) { return !each.placements.empty(); });
  if (!has_placements) {
    problems->Add("there is no placement: a model must write its formulas itself",
                  "install plumb's placements, share/plumb/placements below its prefix", true);
  }
}

void AboutLimits(const RuntimeReport& report, Problems* problems) {
  constexpr int64_t kLittle = int64_t{512} << 20, kLittleDisk = int64_t{1} << 30,
                    kMinStack = int64_t{1} << 20;
  if (report.memory.available < kLittle) {
    problems->Add(
        absl::StrCat("little memory is left: ", MiB(report.memory.available), " of ",
                     MiB(report.memory.bytes), " (", report.memory.by, ")"),
        "plumb describe MODEL --train RECIPE prints what a model needs; raise the limit, or "
        "train with --dtype bf16 --recompute block");
  }
  if (report.stack >= 0 && report.stack < kMinStack) {
    problems->Add(absl::StrCat("threads have ", report.stack >> 10, " KiB of stack (ulimit -s)"),
                  "plumb needs 1024: ulimit -s 8192");
  }
  if (report.free_disk >= 0 && report.free_disk < kLittleDisk) {
    problems->Add(absl::StrCat(report.directory, " has ", MiB(report.free_disk), " of disk left"),
                  "checkpoints may not fit; plumb train --dry-run prints what a run needs");
  }
}

void AboutMode(const RuntimeReport& report, Problems* problems) {
  const FloatingPoint& mode = report.floating_point;
  if (mode.rounding != "nearest") {
    problems->Add(
        absl::StrCat("the calling thread rounds ", mode.rounding),
        "results differ from all others': fesetround(FE_TONEAREST) before plumb is called");
  }
  if (mode.flush_to_zero || mode.denormals_are_zero) {
    problems->Add(
        "the calling thread flushes denormals to zero",
        "a library that was linked with -ffast-math does that; results of plumb's calls may "
        "differ in the last bits from those of a program without");
  }
  for (const RuntimeReport::Variable& variable : report.environment) {
    const std::string set = absl::StrCat(variable.name, "=", variable.value, " is set");
    if (absl::StrContains(variable.problem, "did you mean")) {
      problems->Add(absl::StrCat(variable.name, ": ", variable.problem), "rename or unset it");
    } else if (absl::EndsWith(variable.name, "_MAX_CPU_ISA")) {
      problems->Add(set,
                    "oneDNN uses less of the processor, and rounds otherwise: unset it if that is "
                    "not what you want");
    } else if (absl::EndsWith(variable.name, "_VERBOSE") && variable.value != "0") {
      problems->Add(set,
                    "oneDNN prints a line for each product to stdout, among plumb's results: "
                    "unset it");
    }
  }
}

}  // namespace

std::vector<RuntimeReport::Problem> FindProblems(const RuntimeReport& report) {
  Problems problems;
  AboutPlugins(report, &problems);
  AboutLibraries(report, &problems);
  AboutThreads(report, &problems);
  AboutLimits(report, &problems);
  AboutMode(report, &problems);
  return problems.Take();
}

}  // namespace plumb
