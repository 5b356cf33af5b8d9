// SPDX-License-Identifier: Apache-2.0
// plumb::TrainedModel: the newest checkpoint of a run, to sample from and to measure.
#ifndef PLUMB_RUNTIME_APP_GENERATE_H_
#define PLUMB_RUNTIME_APP_GENERATE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/plumb_api.h"

namespace plumb {

// "f32", "bf16", "int8"; kInvalidArgument with a suggestion for anything else.
absl::StatusOr<api::Weights> ParseWeights(absl::string_view text);

struct GenerateOptions {
  std::string prompt;
  // In place of `prompt`, if there are any: taken as they are, without a begin token before them.
  std::vector<int32_t> prompt_tokens;
  double temperature = 1;  // 0: the most likely token
  int top_k = 0;           // 0: all
  double top_p = 1;        // 1: all
  uint64_t seed = 1;
  // The index of the sample among those of this seed: each has a random stream of its own.
  int64_t index = 0;
  int64_t max_tokens = 0;  // 0: until an end token, or the context is full
  // The sample ends before the first of these in the text that was drawn. None is empty.
  std::vector<std::string> stop_texts;
};

struct GenerateResult {
  std::string text;          // prompt included; of a run without a tokenizer of plumb's: empty
  bool has_text = false;     // false: there is no tokenizer, and the sample is its ids
  int64_t tokens = 0;        // that were drawn, an end token and those of a stop text included
  std::vector<int32_t> ids;  // they
  bool ended = false;        // by an end token or a stop text; else by max_tokens or the context
  double seconds = 0;
  double first_seconds = 0;  // of them, until the first token was drawn
};

struct SplitLoss {
  std::string split;  // "training", "validation"
  double loss = 0;    // mean over all targets, nats
  int64_t targets = 0;
  int64_t sequences = 0;
};

class TrainedModel {
 public:
  // `run`: a run directory, trained or imported, or one of its checkpoints. `weights`: the format
  // that Generate decodes with. `average`: with the average of the weights (ema_decay); kNotFound
  // where none was kept.
  static absl::StatusOr<std::unique_ptr<TrainedModel>> Open(
      HostRuntime* runtime, const std::string& run, api::Weights weights = api::Weights::kF32,
      bool average = false);
  ~TrainedModel();
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  int64_t step() const;                   // of the checkpoint; 0 of an imported run
  const std::string& checkpoint() const;  // of an imported run: its directory

  // Whether it predicts the next token, and not, being bidirectional, those that are hidden.
  bool can_generate() const;

  // Draws one continuation. `on_text`, when given, gets the text piece by piece, whole characters
  // of it: the prompt's with the first token, and then what each token completes, which may be
  // nothing; what may be the beginning of a stop text it gets once that is known. Return false to
  // stop. Errors: options out of range, a prompt with characters outside the vocabulary or too
  // long.
  absl::StatusOr<GenerateResult> Generate(
      const GenerateOptions& options,
      const std::function<bool(absl::string_view piece)>& on_text = nullptr);

  // Draws `count` continuations, of the indices options.index, options.index + 1, ..., several at a
  // time: every pass over the weights then serves all of them. Each is, to the letter, what
  // Generate draws for its index. `on_sample` gets them in the order of their indices, each as soon
  // as it and those before it are complete; return false to stop.
  absl::Status GenerateMany(const GenerateOptions& options, int64_t count,
                            const std::function<bool(GenerateResult sample)>& on_sample);

  // Loss on a file in the run's own format, tokenizer and split; a split that is empty is left out.
  // Running text is read in windows of the context's length, side by side, or, with a stride of 1
  // to that length, overlapping: each predicts as many new tokens, from at least context_length -
  // stride before them. Every token is predicted once either way. kInvalidArgument for another
  // stride, or one of documents.
  absl::StatusOr<std::vector<SplitLoss>> Evaluate(const std::string& data_path,
                                                  api::Weights weights = api::Weights::kF32,
                                                  int64_t stride = 0);

  struct Impl;

 private:
  TrainedModel();
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_GENERATE_H_
