// SPDX-License-Identifier: Apache-2.0
// Evaluator: computes the loss of batches of token ids, and optionally their logits, without
// training. Owns the buffers of a pass, so the next pass of the same length allocates nothing.
// Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_EVALUATOR_H_
#define PLUMB_RUNTIME_SESSION_EVALUATOR_H_

#include <atomic>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/batch_inputs.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"

namespace plumb {

class Evaluator {
 public:
  // Returns the bytes that an Evaluator allocates, with the program of its longest batch. Allocates
  // none of them.
  static absl::StatusOr<int64_t> Plan(const ModelContext* context, WeightFormat weights,
                                      int64_t rows, int64_t max_seq, bool logits);

  // Returns the options of an Evaluator's program.
  static BuildOptions ProgramOptions(int64_t rows, WeightFormat weights, bool logits);

  // Creates an evaluator of [rows, seq] ids, seq <= max_seq. `context` and `weights` must outlive
  // it, and so must `cancelled`, which ends a Run with kCancelled once it is true; null: no run is
  // cancelled. It computes in the format of the weights, whose current values each Run reads.
  Evaluator(const ModelContext* context, const PackedWeights* weights, int64_t rows,
            int64_t max_seq, bool logits, int threads,
            const std::atomic<bool>* cancelled = nullptr);

  // Compiles the program of the longest batch. Returns the bytes that Run allocates in addition to
  // bytes().
  absl::StatusOr<int64_t> Prepare();
  int64_t bytes() const;  // size of this object's buffers

  // Returns the mean loss in nats over the targets that are not negative; not finite without any.
  // `probe`, null or made for ProgramOptions(), observes the pass.
  absl::StatusOr<double> Run(const BatchIds& ids, int64_t seq, Probe* probe = nullptr);
  // Losses of the last Run, [rows, seq], in nats; 0 where there is no target.
  const float* losses() const { return losses_.as<float>(); }
  // Logits of the last Run, [rows, seq, vocab_size]. Requires: created with `logits`.
  const float* logits() const { return logits_.as<float>(); }

  int64_t rows() const { return rows_; }
  int64_t max_seq() const { return max_seq_; }

 private:
  const PackedWeights* const weights_;
  const int64_t rows_, max_seq_;
  const int threads_;
  const std::atomic<bool>* const cancelled_;
  BatchInputs inputs_;
  AlignedBuffer loss_, losses_, logits_;
  ExecutableCache executables_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_EVALUATOR_H_
