// SPDX-License-Identifier: Apache-2.0
// plumb::Study: models that are trained alike, with the same seeds, to be compared; and what can be
// said of such a training before it begins. Values and stateless functions, thread-safe.
#ifndef PLUMB_RUNTIME_APP_STUDY_STUDY_H_
#define PLUMB_RUNTIME_APP_STUDY_STUDY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/app/train/train.h"

namespace plumb {

// A field that is set in runs, with the place where that is said ("study.pbtxt:3:6", "--set").
struct StudySetting {
  std::string field, value;  // "model.n_layer", "4"
  std::string place;
};

struct StudyAxis {
  std::string field;
  std::vector<std::string> values;
  std::string place;
};

// Schema plumb.v1.Study. Paths are as a program in the current directory can open them.
struct Study {
  std::vector<std::string> models;
  std::string data, train;  // train "": defaults
  std::string init;         // as TrainRequest::init, of every run
  std::vector<StudySetting> settings;
  std::vector<StudyAxis> grid;
  std::vector<uint64_t> seeds;  // empty: not said
  int64_t samples = 8;          // from each trained model
  int64_t probe_every = 0;      // 0: none
  bool tensorboard = false;

  // Errors carry "file:line:column", all at once where possible.
  static absl::StatusOr<Study> FromFile(const std::string& path);
  std::string ToText() const;  // protobuf text; paths as they are here
};

// A recipe and its data.
struct TrainingPreview {
  std::string train_text;  // the recipe as resolved
  int64_t max_steps = 0;
  std::string data;        // "names.txt: 3,700 documents to train on ..."
  std::string data_hash;   // FNV-1a 64
  int64_t vocab_size = 0;  // that the data need
  bool has_validation = false;
};

// What training on `data_path` with a recipe would be; nothing is written. Errors: as
// TrainRun::Open for data and recipe.
absl::StatusOr<TrainingPreview> PreviewTraining(const std::string& data_path,
                                                const std::string& train_path,
                                                const Overrides& train_overrides);

// For each of the seeds the unigram entropy, in nats, of what the last `steps` steps of such a run
// have to predict: the least that the mean of their losses can be for a model that knows how often
// each token occurs there, and nothing else. The file as a whole may have another: a window is a
// sample of it, and with keep_order one that is not random. Errors: as PreviewTraining, and as
// TrainRun::Open for a context that is too long.
absl::StatusOr<std::vector<double>> UnigramEntropies(const std::string& data_path,
                                                     const std::string& train_path,
                                                     const Overrides& train_overrides,
                                                     int64_t context_length, int64_t steps,
                                                     const std::vector<uint64_t>& seeds);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_STUDY_STUDY_H_
