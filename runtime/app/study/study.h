// SPDX-License-Identifier: Apache-2.0
// plumb::Study: models that are trained in the same way, with the same seeds, for comparison; and
// facts about such a training before it begins. Values and stateless functions, thread-safe.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/train/train.h"

namespace plumb {

// Field that is set in runs, and the location of the setting ("study.pbtxt:3:6", "--set").
struct StudySetting {
  std::string field, value;  // "model.n_layer", "4"
  std::string place;
};

struct StudyAxis {
  std::string field;
  std::vector<std::string> values;
  std::string place;
};

// Cost that models in one cell have in common with the first model.
enum class StudyMatch {
  kSteps,       // number of steps, and so of tokens
  kFlops,       // FLOPs of training (plumb_model_work), by the number of steps
  kParameters,  // number of parameters, by d_ff
  kTokens,      // number of tokens, by the number of steps
};

// Content of schema plumb.v1.Study. Paths are valid in the current directory.
struct Study {
  std::vector<std::string> models;
  std::string data, train;  // train "": defaults
  std::string init;         // TrainRequest::init of every run
  std::vector<StudySetting> settings;
  std::vector<StudyAxis> grid;
  StudyMatch match = StudyMatch::kSteps;
  std::vector<uint64_t> seeds;            // empty: not set
  int64_t choosing_seeds = 0;             // 0: half of the seeds, and all train in every cell
  int64_t samples = 8;                    // number of samples from each trained model
  int64_t probe_every = 0;                // 0: none
  std::vector<std::string> probe_points;  // ProbeOptions::points of every run

  // Reads a study. Errors: with "file:line:column", all at once if possible.
  static absl::StatusOr<Study> FromFile(const std::string& path);
  std::string ToText() const;  // protobuf text format, with the paths in this object
};

// Recipe together with its data.
struct TrainingPreview {
  std::string train_text;  // the recipe with defaults filled in
  int64_t max_steps = 0;
  std::string data;       // "names.txt: 3,700 documents to train on ..."
  std::string data_hash;  // Dataset::data_hash
  std::string tokenizer_hash;
  int64_t vocab_size = 0;  // needed by the data, and by masked_tokens
  bool has_validation = false;
  bool has_documents = false;  // a batch has documents, and not spans of a text
};

// Returns facts about training on `data_path` with a recipe, without writing files. Errors: those
// of TrainRun::Open for data and recipe.
absl::StatusOr<TrainingPreview> PreviewTraining(const std::string& data_path,
                                                const std::string& train_path,
                                                const Overrides& train_overrides);

// Returns for each seed the unigram entropy, in nats, of the targets in the last `steps` steps of
// such a run: a lower bound of their mean loss for a model that only knows how often each token
// occurs there. It can differ from that of the whole file, since the steps see a sample of it,
// which with keep_order is not random. Errors: those of PreviewTraining, and of TrainRun::Open for
// a context that is too long.
absl::StatusOr<std::vector<double>> UnigramEntropies(const std::string& data_path,
                                                     const std::string& train_path,
                                                     const Overrides& train_overrides,
                                                     int64_t context_length, int64_t steps,
                                                     const std::vector<uint64_t>& seeds);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_H_
