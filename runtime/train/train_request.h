// SPDX-License-Identifier: Apache-2.0
// Request for a training run, and reports of it: of the whole run and of a step. Values.
#ifndef PLUMB_RUNTIME_TRAIN_TRAIN_REQUEST_H_
#define PLUMB_RUNTIME_TRAIN_TRAIN_REQUEST_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/memory.h"
#include "runtime/client/dataset_cache.h"
#include "runtime/client/model.h"
#include "runtime/client/probe.h"
#include "runtime/client/recipe.h"
#include "runtime/ranks/launch.h"
#include "runtime/train/init_from_run.h"
#include "runtime/train/metrics.h"
#include "runtime/train/run_incidents.h"

namespace plumb {

// Checkpoint that remains when all steps of a run are done.
enum class LastCheckpoint {
  kResumable,  // one of the last step, and older ones as the recipe says
  kWeights,    // one without optimizer state, for sampling and as initial weights
  kNone,
};

struct TrainRequest {
  std::string model_path;  // may be empty when resuming
  std::string data_path;
  std::string train_path;  // may be empty: defaults
  Overrides model_overrides, train_overrides;
  std::optional<uint64_t> seed;  // takes precedence over train.seed
  // A run, trained or imported, or a checkpoint. Weights that it has with the same name and shape
  // are the initial weights; the others are drawn. "": all are drawn. When resuming, it must be the
  // one that the run began with, or empty.
  std::string init;
  std::string out;  // "": no files are written
  // Resumes the run from its last checkpoint. Begins it if it was killed before its first
  // checkpoint, or if `out` holds no run and model_path is set. Errors: kNotFound if there is no
  // run and no model_path; kInvalidArgument if model.pbtxt or train.pbtxt was edited since the
  // checkpoint, or if plumb, a norm or the tokenizer is another one (RunIdentity), unless
  // accept_edits.
  bool resume = false;
  bool accept_edits = false;
  ProbeOptions probe;   // written to probes.jsonl
  int64_t samples = 0;  // number that a study draws after the training, for the run's identity
  LastCheckpoint last_checkpoint = LastCheckpoint::kResumable;
  // Performs all checks, including `out` and its free disk space, but writes nothing. Cannot be
  // combined with resume.
  bool dry_run = false;
  // Data that the runs of a study share; must outlive Open. null: the run reads its own.
  DatasetCache* datasets = nullptr;
  // Ranks that train this run together; must outlive the run. Every rank opens the run with the
  // same request. Rank 0 owns the directory and takes steps; the others call Follow. null: this
  // process alone.
  Launch* launch = nullptr;
  // If processors of the ranks round differently: kInvalidArgument instead of a warning.
  bool require_same_bits = false;
};

// Disk space that a run takes, in bytes.
struct TrainingDisk {
  int64_t checkpoint = 0;   // size of one
  int64_t checkpoints = 0;  // max number at the same time, without those triggered by time
  int64_t total = 0;        // checkpoints and metrics
  int64_t available = -1;   // free on the disk of `out`; -1: unknown
};

struct TrainInfo {
  std::string model_name, out, data;  // data: "3,700 documents, 26 characters ..."
  std::string data_advice;            // FormatAdvice
  int64_t parameters = 0;
  int64_t first_step = 0;  // steps completed before a resume
  int64_t max_steps = 0;
  uint64_t seed = 0;
  std::string dtype;      // "f32" or "bf16", the type of computation
  std::string optimizer;  // optimizers and their peak learning rates, for users
  int threads = 1;
  int64_t cropped_documents = 0;  // training documents longer than the context
  int64_t skipped_documents = 0;  // training documents whose prompt fills the context
  int64_t context_length = 0;
  int64_t probe_every = 0;   // interval of probes; 0: none
  int64_t chosen_units = 0;  // units per step if they were chosen for the ranks, else 0
  TrainingMemory memory;     // for the longest step
  MemoryLimit memory_limit;  // before allocating any of it
  TrainingDisk disk;         // for the whole run
  InitialWeights initial;    // set for a new run
};

struct StepReport : StepMetrics {
  const ProbeFigures* probe = nullptr;   // valid until the next one; null: not probed
  std::string checkpoint;                // path of the checkpoint written after this step, or ""
  std::vector<TrainIncident> incidents;  // since the previous step
  bool stop_wanted = false;              // another rank has received a signal
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAIN_REQUEST_H_
