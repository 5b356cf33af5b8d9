// SPDX-License-Identifier: Apache-2.0
// GradientPass: one pass of a training step, forward and backward, without the step: loss, logits
// if wanted, and the gradient of every parameter. Weights, moments and norms' states stay as they
// are; a norm with statistics over tokens takes those of the batch, and nothing is dropped. Holds
// what a pass needs, so that the next one of the same length allocates nothing. Thread-compatible.
#ifndef PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_
#define PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_

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
  // The memory of one, in bytes, and of the program of its longest batch. Takes none of it.
  static absl::StatusOr<int64_t> Plan(const ModelContext* context, WeightFormat weights,
                                      int64_t rows, int64_t max_seq, bool logits);

  // Of [rows, seq] ids, seq <= max_seq. `context`, `parameters` and `weights`, which are packed
  // from them and whose format is computed in, must outlive it; they are read as they are when it
  // runs. REQUIRES: logits are not wanted in bf16, where they are f32 only as an output that
  // nothing reads.
  GradientPass(const ModelContext* context, const ParameterStore* parameters,
               const PackedWeights* weights, int64_t rows, int64_t max_seq, bool logits,
               int threads);

  // The mean loss over the targets that are not negative, in nats. `probe`, of the same context and
  // format, may be null.
  absl::StatusOr<double> Run(const BatchIds& ids, int64_t seq, Probe* probe);

  // Of the last Run: [rows, seq, vocab_size], REQUIRES: they were wanted; and in the layout of the
  // parameters.
  const float* logits() const { return logits_.as<float>(); }
  const float* gradients() const { return gradients_.as<float>(); }

 private:
  absl::Status Bind(Executable* executable);

  const ParameterStore* const parameters_;
  const PackedWeights* const weights_;
  const int threads_;
  BatchInputs inputs_;
  AlignedBuffer loss_, logits_, gradients_;
  AlignedBuffer states_;  // of norms, into which the program writes
  AlignedBuffer random_;  // an input of drop ops, here with p = 0
  ExecutableCache executables_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_GRADIENT_PASS_H_
