// SPDX-License-Identifier: Apache-2.0
// Facts about training with a recipe on some data, before it begins. Stateless.
#ifndef PLUMB_RUNTIME_STUDY_TRAINING_PREVIEW_H_
#define PLUMB_RUNTIME_STUDY_TRAINING_PREVIEW_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/dataset_cache.h"
#include "runtime/client/model.h"

namespace plumb {

// Recipe together with its data.
struct TrainingPreview {
  std::string train_text;  // the recipe with defaults filled in
  int64_t max_steps = 0;
  std::string data;         // "names.txt: 3,700 documents to train on ..."
  std::string data_advice;  // FormatAdvice
  std::string data_hash;    // Dataset::data_hash
  std::string tokenizer_hash;
  int64_t vocab_size = 0;  // needed by the data, and by masked_tokens
  bool has_validation = false;
  bool has_documents = false;  // a batch has documents, and not spans of a text
};

// Returns facts about training on `data_path` with a recipe, without writing files. Errors: those
// of TrainRun::Open for data and recipe.
absl::StatusOr<TrainingPreview> PreviewTraining(const std::string& data_path,
                                                const std::string& train_path,
                                                const Overrides& train_overrides,
                                                DatasetCache* datasets);

// Returns for each seed the unigram entropy, in nats, of the targets in the last `steps` steps of
// such a run: a lower bound of their mean loss for a model that only knows how often each token
// occurs there. It can differ from that of the whole file, since the steps see a sample of it,
// which with keep_order is not random. Errors: those of PreviewTraining, and of TrainRun::Open for
// a context that is too long.
absl::StatusOr<std::vector<double>> UnigramEntropies(const std::string& data_path,
                                                     const std::string& train_path,
                                                     const Overrides& train_overrides,
                                                     int64_t context_length, int64_t steps,
                                                     const std::vector<uint64_t>& seeds,
                                                     DatasetCache* datasets);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_TRAINING_PREVIEW_H_
