// SPDX-License-Identifier: Apache-2.0
// Evaluator: the loss of batches of token ids, and their logits if wanted, without training. Holds
// what a pass needs, so that the next one of the same length allocates nothing. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_EVALUATOR_H_
#define PLUMB_RUNTIME_SESSION_EVALUATOR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/batch_inputs.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/program.h"

namespace plumb {

class Evaluator {
 public:
  // The memory of one, in bytes, and of the program of its longest batch. Takes none of it.
  static absl::StatusOr<int64_t> Plan(const ModelContext* context, WeightFormat weights,
                                      int64_t rows, int64_t max_seq, bool logits);

  // Of [rows, seq] ids, seq <= max_seq. `context` and `weights` must outlive it; it computes in the
  // format of the weights, which it reads as they are when it runs.
  Evaluator(const ModelContext* context, const PackedWeights* weights, int64_t rows,
            int64_t max_seq, bool logits, int threads);

  // Compiles the longest batch, and returns the memory that Run takes besides this object's, in
  // bytes.
  absl::StatusOr<int64_t> Prepare();
  int64_t bytes() const;  // of this object's buffers

  // The mean loss over the targets that are not negative, in nats; not finite without any.
  absl::StatusOr<double> Run(const BatchIds& ids, int64_t seq);
  // [rows, seq, vocab_size] of the last Run. REQUIRES: they were wanted.
  const float* logits() const { return logits_.as<float>(); }

  int64_t rows() const { return rows_; }
  int64_t max_seq() const { return max_seq_; }

 private:
  const PackedWeights* const weights_;
  const int64_t rows_, max_seq_;
  const int threads_;
  BatchInputs inputs_;
  AlignedBuffer loss_, logits_;
  ExecutableCache executables_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_EVALUATOR_H_
