// SPDX-License-Identifier: Apache-2.0
// GradientPass: one forward and backward pass without a step: the loss, optionally the logits, and
// the gradient of every parameter. Weights, moments and norms' states do not change; a norm with
// statistics over tokens uses the batch's, and dropout is off. Owns the buffers of a pass, so the
// next pass of the same length allocates nothing. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_
#define PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_

#include <atomic>
#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/batch_inputs.h"
#include "runtime/session/packed_weights.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"

namespace plumb {

class GradientPass {
 public:
  // Returns the bytes that a GradientPass allocates, with the program of its longest batch.
  // Allocates none of them.
  static absl::StatusOr<int64_t> Plan(const ModelContext* context, WeightFormat weights,
                                      int64_t rows, int64_t max_seq, bool logits);

  // Creates a pass over [rows, seq] ids, seq <= max_seq. `context`, `parameters` and `weights` must
  // outlive it; `weights` are packed from `parameters`, and their format is the format of
  // computation. Each Run reads the current values, and ends with kCancelled once `*cancelled` is
  // true; null: it is not cancelled. Requires: no `logits` in bf16, where they are
  // f32 only as an output that nothing reads.
  GradientPass(const ModelContext* context, const ParameterStore* parameters,
               const PackedWeights* weights, int64_t rows, int64_t max_seq, bool logits,
               int threads, const std::atomic<bool>* cancelled = nullptr);

  // Returns the mean loss in nats over the targets that are not negative. `probe` has the same
  // context and format; it may be null.
  absl::StatusOr<double> Run(const BatchIds& ids, int64_t seq, Probe* probe);

  // Results of the last Run: logits [rows, seq, vocab_size] (requires: created with `logits`), the
  // losses [rows, seq] in nats, 0 where there is no target, and gradients in the layout of the
  // parameters.
  const float* logits() const { return logits_.as<float>(); }
  const float* losses() const { return losses_.as<float>(); }
  const float* gradients() const { return gradients_.as<float>(); }

 private:
  absl::Status Bind(Executable* executable);

  const ParameterStore* const parameters_;
  const PackedWeights* const weights_;
  const int threads_;
  const std::atomic<bool>* const cancelled_;
  BatchInputs inputs_;
  AlignedBuffer loss_, losses_, logits_, gradients_;
  AlignedBuffer states_;  // norm states that the program writes
  AlignedBuffer random_;  // an input of drop ops, here with p = 0
  ExecutableCache executables_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_
