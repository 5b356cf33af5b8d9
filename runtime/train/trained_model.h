// SPDX-License-Identifier: Apache-2.0
// plumb::TrainedModel: the newest checkpoint of a run, for sampling and evaluation.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_TRAIN_TRAINED_MODEL_H_
#define PLUMB_RUNTIME_TRAIN_TRAINED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/plumb_api.h"
#include "runtime/train/data_passes.h"

namespace plumb {

// Parses "f32", "bf16" or "int8". Errors: kInvalidArgument with a suggestion.
absl::StatusOr<api::Weights> ParseWeights(absl::string_view text);

struct GenerateOptions {
  std::string prompt;  // text; gets the begin token unless its own tokens begin with that
  // Replaces `prompt` unless empty. No begin token is added.
  std::vector<int32_t> prompt_tokens;
  double temperature = 1;  // 0: the token with the highest probability
  int top_k = 0;           // 0: all
  double top_p = 1;        // 1: all
  uint64_t seed = 1;
  // Index of the sample. Each (seed, index) has its own random stream.
  int64_t index = 0;
  int64_t max_tokens = 0;  // 0: until an end token, or the context is full
  // The text is cut before the first occurrence of one of these in the generated part. Requires:
  // none is empty.
  std::vector<std::string> stop_texts;
};

struct GenerateResult {
  std::string text;          // including the prompt; empty if the run has no tokenizer
  bool has_text = false;     // false: there is no tokenizer, only ids
  int64_t tokens = 0;        // number drawn, including an end token and those of a stop text
  std::vector<int32_t> ids;  // the drawn tokens
  bool ended = false;  // true: by an end token or stop text; false: by max_tokens or the context
  double seconds = 0;
  double first_seconds = 0;  // part of it until the first token was drawn
};

class TrainedModel {
 public:
  // Opens a run directory, trained or imported, or one of its checkpoints. The model borrows
  // `runtime`, which also takes warnings about prompts. `weights` is the storage
  // format for Generate. `average` selects the average of the weights (ema_decay). Errors:
  // kNotFound if there is no such run or no average.
  static absl::StatusOr<std::unique_ptr<TrainedModel>> Open(
      HostRuntime* runtime, const std::string& run, api::Weights weights = api::Weights::kF32,
      bool average = false);
  // Opens a run directory with other weights, the content of a safetensors file: those of a run
  // that need not have a checkpoint.
  static absl::StatusOr<std::unique_ptr<TrainedModel>> OpenWith(absl::string_view content,
                                                                HostRuntime* runtime,
                                                                const std::string& run);
  ~TrainedModel();
  TrainedModel(const TrainedModel&) = delete;
  TrainedModel& operator=(const TrainedModel&) = delete;

  int64_t step() const;                   // step of the checkpoint; 0 for an imported run
  const std::string& checkpoint() const;  // path; of an imported run: its directory

  // Returns false for a bidirectional model, which predicts masked tokens instead of the next one.
  bool can_generate() const;

  // Draws one continuation. `on_text`, if given, receives the text in pieces of whole characters:
  // the prompt's with the first token, then what each token completes, possibly "". A possible
  // beginning of a stop text is held back until it is decided. `on_text` returns false to stop.
  // Errors: options out of range, a prompt that is too long or has characters outside the
  // vocabulary.
  absl::StatusOr<GenerateResult> Generate(
      const GenerateOptions& options,
      const std::function<bool(absl::string_view piece)>& on_text = nullptr);

  // Draws `count` continuations with indices options.index, options.index + 1, ..., several at a
  // time, so that they share each pass over the weights. Each result is identical to that of
  // Generate with its index. `on_sample` receives them in the order of their indices, each as soon
  // as it and its predecessors are complete, and returns false to stop.
  absl::Status GenerateMany(const GenerateOptions& options, int64_t count,
                            const std::function<bool(GenerateResult sample)>& on_sample);

  // Returns the losses on a file in the run's format, with its tokenizer and split; empty splits
  // are omitted. Running text is read in adjacent windows of the context length, or, with a stride
  // in 1..context_length, in overlapping windows that predict `stride` new tokens each, from at
  // least context_length - stride tokens before them. Either way each token is predicted once.
  // Errors: kInvalidArgument for another stride, or a stride with documents.
  absl::StatusOr<std::vector<SplitLoss>> Evaluate(const std::string& data_path,
                                                  api::Weights weights = api::Weights::kF32,
                                                  int64_t stride = 0);

  struct Impl;

 private:
  TrainedModel();
  // Opens a run directory without its weights.
  static absl::StatusOr<std::unique_ptr<TrainedModel>> OpenFiles(HostRuntime* runtime,
                                                                 const std::string& run);
  std::unique_ptr<Impl> impl_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_TRAINED_MODEL_H_
