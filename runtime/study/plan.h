// SPDX-License-Identifier: Apache-2.0
// StudyPlan: the expansion of a study into its models, its cells (combinations of the settings that
// every model is trained with), its groups (a model in a cell) and their runs (a group with a
// seed). A value. Making a plan opens everything that the runs will open, so that errors are found
// before anything is trained or written.
#ifndef PLUMB_RUNTIME_STUDY_PLAN_H_
#define PLUMB_RUNTIME_STUDY_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/memory.h"
#include "runtime/client/dataset_cache.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/study/study.h"
#include "runtime/study/training_preview.h"
#include "runtime/train/run_identity.h"
#include "runtime/train/train_run.h"

namespace plumb {

// A file, or a file with values of the grid's fields that make a model (IsSetting).
struct PlanModel {
  std::string name, file;
  Overrides values;                    // ("model.block.placement", "post")
  nlohmann::ordered_json description;  // DescribeModel of its first group
  std::string text;                    // the same as protobuf text
  std::string picture;                 // SVG; "" if it cannot be drawn
};

// Facts about the model of a group.
struct ModelFacts {
  int64_t parameters = 0, context_length = 0;
  double flops_per_token = 0;                // of training, at the full context: plumb_model_work
  std::string fingerprint;                   // fingerprint of the resolved model
  std::string text;                          // self-contained, as in model.pbtxt of a run
  std::map<std::string, std::string> norms;  // from IdentifyNorms()
};

struct PlanGroup : ModelFacts {
  std::string name;       // "pre, n_layer=4"
  std::string directory;  // "pre-n_layer=4"
  size_t model = 0, cell = 0;
  Overrides settings;  // the grid's values, of the model and of the cell, in the grid's order
  Overrides model_overrides, train_overrides;
  TrainingPreview training;
  std::vector<double> unigram_entropies;  // one per seed of the study, over the last 100 steps
  TrainingMemory memory = {};             // for one run
  TrainingDisk disk = {};                 // for one run
};

struct PlanRun {
  size_t group = 0;
  uint64_t seed = 0;
  std::string directory;  // "OUT/runs/pre-n_layer=4-seed1"
  RunIdentity identity;   // without parts for a found run that did not record it

  // Returns 16 digits of the identity's hash; "" if it is not known.
  std::string ShortHash() const {
    return identity.parts().empty() ? "" : identity.Hash().substr(0, 16);
  }
};

// Cells with consecutive indices that a model is trained in.
struct CellRange {
  size_t first = 0, last = 0;
};

struct StudyPlan {
  v1::Study study;              // a range of the grid has all its values
  std::vector<uint64_t> seeds;  // GetSeeds(study)
  std::string out;
  std::vector<PlanModel> models;
  std::vector<Overrides> cells;   // values of the grid's settings; one empty cell without any
  std::vector<PlanGroup> groups;  // model by model, each in the order of the cells
  std::vector<PlanRun> runs;      // group by group, each in seed order
  // Learning rates of a range of the grid, "0.005..0.02", which a model leaves for lower and higher
  // ones while its best one is the first or the last that it was trained with; "" without a range.
  std::string range;
  std::vector<CellRange> tried;       // one per model
  std::vector<bool> is_skipped;       // runs that are not trained (SkipExcept); empty: none
  std::vector<std::string> warnings;  // oddities of the study, for the user
  std::shared_ptr<DatasetCache> datasets = std::make_shared<DatasetCache>();  // of all runs

  // Returns true if a run is to be trained.
  bool Has(size_t run) const { return is_skipped.empty() || !is_skipped[run]; }
  // Returns true if the first seeds choose the cells in which the others are trained.
  bool chooses() const { return study.choosing_seeds() > 0 && cells.size() > 1; }
  // Skips the cells that are not tried and, if seeds choose, the other seeds except in one cell of
  // each model.
  void SkipExcept(const std::vector<size_t>& cell_of_model);
  // Tries the next cell of each model whose best cell is the first or the last that it was tried
  // in. Returns false if there is none.
  bool ExtendTried(const std::vector<size_t>& best_cells);
  // Removes the cells of a range that no model was tried in.
  void DropUntriedCells();

  TrainRequest Request(const PlanRun& run) const;
  // Returns the content of OUT/study.pbtxt: the study with absolute paths and its range.
  std::string StudyText() const;
};

// Expands `study`. Errors: missing or malformed files, unknown fields, values out of range, values
// of the grid that are equal (0.001 and 1e-3), not enough memory for a run.
absl::StatusOr<StudyPlan> MakePlan(const Study& study, const std::string& out,
                                   HostRuntime* runtime);

// Model of a group while a plan is made.
struct GroupModel {
  api::Model model;
  nlohmann::ordered_json description;  // DescribeModel
  std::string text;                    // protobuf text
  std::string resolved;  // hash of `description` and graph, however `text` spells them
  ModelFacts facts;
};

// Makes the model of `spec`. Errors: those of CreateModel.
absl::StatusOr<GroupModel> MakeGroupModel(const api::Spec& spec, HostRuntime* runtime);
// Sets the group's FLOPs to those without what its recipe, training.train_text, freezes.
absl::Status CountFrozen(const api::Model& model, PlanGroup* group);

// Returns the name of a cell, "n_layer=4, learning_rate=0.01"; "" without settings.
std::string CellName(const Overrides& cell);

// Returns the name of a model of a study: `name`, that in the description, and the values of the
// grid that make the model. If the study has one file, the values alone are the name: "pre".
std::string ModelName(const v1::Study& study, const std::string& name, const Overrides& values);

// Returns `path` as an absolute, normalized path; "" stays "".
std::string AbsolutePath(const std::string& path);

// Returns the name of a model or a group as one component of a path, of at most 200 bytes: letters
// and digits stay, and others become "-".
std::string DirectoryName(const std::string& name);

// Opens a run of `group` with the study's first seed that writes no files.
absl::StatusOr<std::unique_ptr<TrainRun>> OpenWithoutFiles(const StudyPlan& plan, size_t group,
                                                           HostRuntime* runtime);

struct StudyDivision {
  int workers = 1, threads = 1;  // concurrent runs, and threads of each
};

// Returns how to divide `threads` among `runs` runs that use up to `memory` bytes each out of
// `available`. Concurrent runs are faster than one run on all threads (measured up to 25 million
// parameters). Reserves some memory for each run's data, samples and threads.
StudyDivision Divide(int threads, size_t runs, int64_t memory, int64_t available);

struct StudyRequirements {
  size_t runs = 0, ended = 0;  // runs to train; those that have a result
  StudyDivision division;
  int64_t memory = 0;      // bytes, for the concurrent runs
  int64_t disk = 0;        // bytes, for the runs that have not ended
  int64_t free_disk = -1;  // bytes; -1: unknown
  MemoryLimit memory_limit;
};

// Returns what the runs that have not ended need. Errors: failures of the file system.
absl::StatusOr<StudyRequirements> ComputeRequirements(const StudyPlan& plan, int threads);

// Fails with kResourceExhausted if the disk is too small. MakePlan has already checked the memory.
absl::Status CheckFits(const StudyRequirements& requirements, const StudyPlan& plan);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_PLAN_H_
