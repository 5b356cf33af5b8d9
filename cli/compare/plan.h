// SPDX-License-Identifier: Apache-2.0
// Plan: the expansion of a study: its models, its groups (a model with one combination of the
// grid's values) and their runs (a group with a seed). A value; making it opens everything that the
// runs will open, so that mistakes are found before anything is trained or written.
#ifndef PLUMB_CLI_COMPARE_PLAN_H_
#define PLUMB_CLI_COMPARE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/output.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"
#include "runtime/app/study/study.h"
#include "runtime/app/train/train.h"
#include "runtime/base/memory.h"

namespace plumb::cli {

struct PlanModel {
  std::string name, file;
  Json description;     // of its first group: DescribeModel
  std::string text;     // the same, as protobuf text
  std::string picture;  // SVG; "" where there is none
};

struct PlanGroup {
  std::string name;       // "pre, n_layer=4"
  std::string directory;  // "pre-n_layer=4"
  size_t model = 0;
  Overrides settings;  // of the grid: ("model.n_layer", "4")
  Overrides model_overrides, train_overrides;
  int64_t parameters = 0;
  TrainingPreview training;
  std::vector<double> unigram_entropies;  // of the last 100 steps, by the study's seeds
  TrainingMemory memory;                  // of one run
  TrainingDisk disk;                      // of one run
  std::string fingerprint;                // of the model as resolved
  std::string norms;                      // NormFiles
};

struct PlanRun {
  size_t group = 0;
  uint64_t seed = 0;
  std::string directory;  // "OUT/runs/pre-n_layer=4-seed1"
};

// Of a study that several jobs train, each into a directory of its own: the runs whose index leaves
// this remainder.
struct Shard {
  size_t index = 0, count = 1;
  bool Has(size_t run) const { return run % count == index; }
};

struct Plan {
  Study study;
  std::string out;
  std::vector<PlanModel> models;
  std::vector<PlanGroup> groups;
  std::vector<PlanRun> runs;  // group by group, each in the order of the seeds
  Shard shard;                // of them, those to train here

  TrainRequest Request(const PlanRun& run) const;
  // The content of OUT/study.pbtxt: the study, and the hashes of its files.
  std::string StudyText() const;
};

// Errors: files that are not there or not right, fields that are unknown, values out of range.
absl::StatusOr<Plan> MakePlan(const Study& study, const std::string& out, HostRuntime* runtime);

// A path that means the same in any working directory.
std::string AbsolutePath(const std::string& path);

// A run of a group with the study's first seed that writes nothing.
absl::StatusOr<std::unique_ptr<TrainRun>> OpenWithoutFiles(const Plan& plan, size_t group,
                                                           HostRuntime* runtime);

// Fields of the models' texts that differ: by field one value a model, "" where one has none.
std::vector<std::pair<std::string, std::vector<std::string>>> Differences(
    const std::vector<std::string>& texts);

struct Division {
  int workers = 1, threads = 1;  // runs at a time, and the threads of each
};

// For `runs` runs that take up to `memory` bytes each, of `available`. Runs side by side are faster
// than one on all threads (measured up to 25 million parameters). Some memory is left
// for their data, samples and threads.
Division Divide(int threads, size_t runs, int64_t memory, int64_t available);

struct Requirements {
  size_t runs = 0, ended = 0;  // of the shard; those that have a result
  Division division;
  int64_t memory = 0;      // bytes, of the runs at a time
  int64_t disk = 0;        // bytes, of the runs that have not ended
  int64_t free_disk = -1;  // -1: not known
  MemoryLimit room;
};

// Errors: of the system.
absl::StatusOr<Requirements> RequirementsOf(const Plan& plan, int threads);

// kResourceExhausted when the disk has no room. (That a run's memory is there, MakePlan has seen.)
absl::Status CheckFits(const Requirements& requirements, const Plan& plan);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPARE_PLAN_H_
