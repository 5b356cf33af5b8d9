// SPDX-License-Identifier: Apache-2.0
// The loss of a split and the outputs of one batch, computed directly by the session module that
// plumb.h is built on. Tests compare the public interface with them.
#ifndef PLUMB_TESTS_APP_EVALUATE_H_
#define PLUMB_TESTS_APP_EVALUATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/data/batches.h"
#include "runtime/session/evaluator.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"

namespace plumb {

struct EvalResult {
  double loss = 0;  // mean over all targets, in nats
  int64_t targets = 0;
  int64_t sequences = 0;  // evaluated sequences
};

// Computes the loss of a split batch by batch. Thread-compatible.
class EvalSession {
 public:
  // Returns a session that computes in the format of `weights` and reads their values at each Run.
  // `stride` is that of EvalBatches::Options.
  // Requires: all three objects outlive the session.
  static absl::StatusOr<std::unique_ptr<EvalSession>> Create(const ModelContext* context,
                                                             const PackedWeights* weights,
                                                             const Dataset* dataset, Split split,
                                                             int64_t batch_size, int threads,
                                                             int64_t stride = 0);
  // Returns a session that computes in f32 and reads the values of `parameters` at each Run.
  static absl::StatusOr<std::unique_ptr<EvalSession>> Create(const ModelContext* context,
                                                             const ParameterStore* parameters,
                                                             const Dataset* dataset, Split split,
                                                             int64_t batch_size, int threads);

  // Compiles the longest batch. Returns the memory that Run will allocate, in bytes.
  absl::StatusOr<int64_t> Prepare();

  // Returns the exact loss of the whole split or, if `max_batches` is positive, of its first
  // `max_batches` batches.
  absl::StatusOr<EvalResult> Run(int64_t max_batches);

 private:
  EvalSession(const ModelContext* context, const PackedWeights* weights, EvalBatches batches,
              int threads);

  std::unique_ptr<PackedWeights> own_weights_;  // null if the weights are the caller's
  EvalBatches batches_;
  Batch batch_;
  Evaluator evaluator_;
};

// Outputs of a model for token ids [batch][seq], in which all rows have one length >= 2.
struct BatchOutputs {
  int64_t batch = 0, seq = 0;
  std::vector<float> logits;  // [batch, seq, vocab]; may be empty, see RunBatch
  double loss = 0;            // mean cross-entropy of logits[:, :-1] against tokens[:, 1:]
  // Gradients of the loss, in the layout of the parameters. Empty if they were not requested.
  std::vector<float> gradients;
};

// Runs one batch. With gradients, it runs the pass of a training step without dropout, in which
// norms with statistics over tokens use the statistics of `tokens`. Without, it runs an evaluation,
// which uses the running statistics. `parameters` are not changed. With gradients a `probe` of the
// same format may observe the pass, and a bf16 pass returns no logits, because they are f32 only if
// no op reads them.
// Errors: the rows differ in length or exceed the context, or an id is outside the vocabulary.
absl::StatusOr<BatchOutputs> RunBatch(const ModelContext& context, const ParameterStore& parameters,
                                      const std::vector<std::vector<int32_t>>& tokens,
                                      bool with_gradients, int threads, Probe* probe = nullptr,
                                      WeightFormat format = WeightFormat::kF32);

// Returns the probed statistics of the pass of one training step, recorded as step 0, for token ids
// [batch][seq] as in RunBatch. `parameters` are not changed.
absl::StatusOr<ProbeResult> ProbeBatch(const ModelContext& context,
                                       const ParameterStore& parameters,
                                       const std::vector<std::vector<int32_t>>& tokens,
                                       absl::Span<const std::string> globs, int threads);

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_EVALUATE_H_
