// SPDX-License-Identifier: Apache-2.0
// Functions on models: descriptions of models (api::Spec) and models (api::Model) as the command
// line opens, explains and runs them.
#ifndef PLUMB_RUNTIME_APP_MODEL_H_
#define PLUMB_RUNTIME_APP_MODEL_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/plumb_api.h"
#include "runtime/app/probe.h"

namespace plumb {

// ("n_layer", "8") pairs, applied in order.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// A description of a model as a user gives it. A value.
struct ModelSource {
  std::string text, name;  // name: of the file, for messages
  Overrides settings;      // ("n_layer", "8"), ("norm[0].attr[0].number", "1e-6")

  // Errors carry "file:line:column"; all syntax errors at once. Those of settings begin with
  // "model." and the field.
  absl::StatusOr<api::Spec> Parse() const;
};
absl::StatusOr<ModelSource> ReadModelSource(const std::string& path, Overrides settings = {});
// Reads and parses the file.
absl::StatusOr<api::Spec> ReadSpec(const std::string& path, Overrides settings = {});

// An error begins with "model." and the field.
absl::Status SetField(const std::string& field, const std::string& value, api::Spec* spec);
int64_t VocabSizeOf(const api::Spec& spec);  // 0: not said

// Resolves every name, checks the formulas. Errors are the author's mistakes, with places.
absl::StatusOr<api::Model> CreateModel(HostRuntime* runtime, const api::Spec& spec);

// Returns what plumb_model_describe says.
absl::StatusOr<nlohmann::ordered_json> DescribeModel(const api::Model& model);

// Returns which norm plugins a model has, to the byte: a line for each with its version and, where
// it comes from a file, the hash of that. Equal texts: equal plugins. Errors: a file that is gone.
absl::StatusOr<std::string> NormFiles(HostRuntime* runtime, const api::Model& model);

// Returns the data flow of the blocks as an SVG file: of each kind of layer, or of the one layer,
// from 0. Errors: kInvalidArgument for a layer that is not there and a block too large to be drawn.
absl::StatusOr<std::string> DrawModel(const api::Model& model,
                                      std::optional<int64_t> layer = std::nullopt);

// The memory of training, in bytes; all of it is allocated from the first step to the last, so that
// the total is the peak of a step. Text and its tokens, and the program, are not counted.
struct TrainingMemory : api::TrainerMemory {
  int64_t batch = 0, seq = 0;  // of a unit; seq is the model's context_length
  std::string dtype;           // "f32", "bf16"
  bool recompute_blocks = false;
  int64_t validation = 0;  // of a run: evaluating what is held out; is part of the total
};

// Returns the memory that training with a recipe takes: the file `train_path` ("": the schema's
// defaults), then the overrides; on each of `ranks` ranks, or the one that takes most. Errors: as
// TrainRun::Open for the recipe, and programs too large to be addressed.
absl::StatusOr<TrainingMemory> PlanTraining(const api::Model& model, const std::string& train_path,
                                            const Overrides& train_overrides, int32_t ranks = 1);

// Returns how a recipe updates each tensor, by its rules, as text for people: plumb_model_explain's
// stage "updates". Errors: as PlanTraining, and rules that match nothing or cannot be evaluated.
absl::StatusOr<std::string> ExplainUpdates(const api::Model& model, const std::string& train_path,
                                           const Overrides& train_overrides);

// Returns the output of a compiler stage, as plumb_model_explain has it; batch and seq of 0 are its
// defaults. Of the overrides, as for PlanTraining, `dtype` and `recompute` matter.
absl::StatusOr<std::string> ExplainModel(const api::Model& model, const std::string& stage,
                                         int64_t batch, int64_t seq,
                                         const Overrides& train_overrides = {});

// Sequences of token ids to compute something of, with the target of each token, -1: none, and its
// type.
struct TokenBatch {
  std::vector<std::vector<int32_t>> sequences = {};
  // Empty: the next tokens; of bidirectional models none.
  std::vector<std::vector<int32_t>> targets = {};
  std::vector<std::vector<int32_t>> types = {};  // empty: 0
};

// Logits [batch, seq, vocab], the mean cross-entropy of the targets and, if wanted, its gradients
// and their L2 norms for every parameter.
struct ModelOutputs {
  struct Gradient {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> data;
    double l2 = 0;
  };
  int64_t batch = 0, seq = 0, vocab = 0;
  std::vector<float> logits;
  std::optional<double> loss;  // none without a target
  std::vector<Gradient> gradients;

  // Writes the logits as the tensor "logits", a safetensors file; and the gradients, each by the
  // name of its parameter.
  absl::Status WriteLogits(const std::string& path) const;
  absl::Status WriteGradients(const std::string& path) const;
};

// With gradients it is the pass of a training step, in which a norm with statistics over tokens
// takes those of the batch, but nothing is dropped; without, that of an evaluation, in which it
// uses its buffers. Neither changes the model.
//
// Sequences of a bidirectional model may be of different lengths; logits beyond the end of one
// mean nothing. Errors name the sequence and the token.
absl::StatusOr<ModelOutputs> RunTokens(api::Model* model, const TokenBatch& batch,
                                       bool with_gradients = true);

// Probes one pass of a training step, as RunTokens takes it; without the step. `points` as
// ProbeOptions::points.
absl::StatusOr<ProbeFigures> ProbeTokens(api::Model* model, const TokenBatch& batch,
                                         const std::vector<std::string>& points = {});
// Returns the points that can be probed, in the order of the data, and those of them that are by
// default.
absl::StatusOr<std::vector<std::string>> ProbePoints(const api::Model& model);
absl::StatusOr<std::vector<std::string>> DefaultProbePoints(const api::Model& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_MODEL_H_
