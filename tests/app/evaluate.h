// SPDX-License-Identifier: Apache-2.0
// The loss of a split, and the outputs of one batch, over the passes that plumb.h stands on: for
// tests to compare with.
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
  int64_t sequences = 0;  // that were evaluated
};

// The loss of a split, batch by batch. Thread-compatible.
class EvalSession {
 public:
  // All three must outlive the session, which computes in the format of `weights` and reads them
  // as they are when it runs. `stride`: EvalBatches::Options.
  static absl::StatusOr<std::unique_ptr<EvalSession>> Create(const ModelContext* context,
                                                             const PackedWeights* weights,
                                                             const Dataset* dataset, Split split,
                                                             int64_t batch_size, int threads,
                                                             int64_t stride = 0);
  // In f32, of the weights as they are when it runs.
  static absl::StatusOr<std::unique_ptr<EvalSession>> Create(const ModelContext* context,
                                                             const ParameterStore* parameters,
                                                             const Dataset* dataset, Split split,
                                                             int64_t batch_size, int threads);

  // Compiles the longest batch, and returns the memory that Run will allocate, in bytes.
  absl::StatusOr<int64_t> Prepare();

  // Exact over the whole split; or over its first `max_batches` batches when that is positive.
  absl::StatusOr<EvalResult> Run(int64_t max_batches);

 private:
  EvalSession(const ModelContext* context, const PackedWeights* weights, EvalBatches batches,
              int threads);

  std::unique_ptr<PackedWeights> own_weights_;  // null: the caller's
  EvalBatches batches_;
  Batch batch_;
  Evaluator evaluator_;
};

// The outputs of a model for token ids [batch][seq], all rows of one length >= 2.
struct BatchOutputs {
  int64_t batch = 0, seq = 0;
  std::vector<float> logits;  // [batch, seq, vocab]; may be empty, see RunBatch
  double loss = 0;            // mean cross-entropy of logits[:, :-1] against tokens[:, 1:]
  // Gradients of the loss, in the layout of the parameters; empty if they were not wanted.
  std::vector<float> gradients;
};

// With gradients it is the pass of a training step, in which a norm with statistics over tokens
// takes those of `tokens`, but nothing is dropped; without, that of an evaluation, which uses the
// running statistics.
// `parameters` are not changed. With gradients a `probe` of the same format may observe, and in
// bf16 there are no logits: they are f32 only as an output that nothing reads. Errors: ragged or
// too long rows, ids outside the vocabulary.
absl::StatusOr<BatchOutputs> RunBatch(const ModelContext& context, const ParameterStore& parameters,
                                      const std::vector<std::vector<int32_t>>& tokens,
                                      bool with_gradients, int threads, Probe* probe = nullptr,
                                      WeightFormat format = WeightFormat::kF32);

// The figures of one pass of a training step, without the step, for token ids [batch][seq] as
// RunBatch takes them. `parameters` stay as they are. The step is 0.
absl::StatusOr<ProbeResult> ProbeBatch(const ModelContext& context,
                                       const ParameterStore& parameters,
                                       const std::vector<std::vector<int32_t>>& tokens,
                                       absl::Span<const std::string> globs, int threads);

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_EVALUATE_H_
