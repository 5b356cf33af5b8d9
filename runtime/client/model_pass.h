// SPDX-License-Identifier: Apache-2.0
// Passes of a model over given tokens: outputs, gradients and probes. Stateless functions.
#ifndef PLUMB_RUNTIME_CLIENT_MODEL_PASS_H_
#define PLUMB_RUNTIME_CLIENT_MODEL_PASS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"
#include "runtime/client/probe.h"

namespace plumb {

// Sequences of token ids to run, with the target of each token (-1: none) and its type.
struct TokenBatch {
  std::vector<std::vector<int32_t>> sequences = {};
  // Empty: the next tokens, or none for a bidirectional model.
  std::vector<std::vector<int32_t>> targets = {};
  std::vector<std::vector<int32_t>> types = {};  // empty: 0
};

// Logits [batch, seq, vocab], the mean cross-entropy over the targets and, on request, its gradient
// with respect to every parameter, with L2 norm.
struct ModelOutputs {
  struct Gradient {
    std::string name;
    std::vector<int64_t> shape;
    std::vector<float> data;
    double l2 = 0;
  };
  int64_t batch = 0, seq = 0, vocab = 0;
  std::vector<float> logits;
  std::optional<double> loss;  // nullopt without a target
  std::vector<Gradient> gradients;

  // Writes a safetensors file: the logits as the tensor "logits", or the gradients under the names
  // of their parameters.
  absl::Status WriteLogits(const std::string& path) const;
  absl::Status WriteGradients(const std::string& path) const;
};

// Runs a batch without changing the model. With gradients it runs the pass of a training step
// without dropout, in which a norm with statistics over tokens uses those of the batch; without
// gradients it runs an evaluation, in which such a norm uses its buffers. Sequences of a
// bidirectional model may differ in length; logits after the end of a sequence are undefined.
// Errors name the sequence and the token.
absl::StatusOr<ModelOutputs> RunTokens(api::Model* model, const TokenBatch& batch,
                                       bool with_gradients = true);

// Probes the pass that RunTokens takes with gradients. `points` is as in ProbeOptions::points.
absl::StatusOr<ProbeFigures> ProbeTokens(api::Model* model, const TokenBatch& batch,
                                         const std::vector<std::string>& points = {});

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_MODEL_PASS_H_
