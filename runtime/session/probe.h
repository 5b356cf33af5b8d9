// SPDX-License-Identifier: Apache-2.0
// Probe: figures of a training program's tensors, taken while it runs: activations, the gradients
// of the same values, parameters and their gradients.
//
// A point is a named tensor. Activations have the names of the graph ("layers.3.attention.q",
// "logits") and, where the residual stream passes, those of StreamPoint
// ("layers.3.attention.residual"). "grad.NAME" is the gradient of the loss by an activation,
// "param.NAME" a parameter with its gradient. Points are of the optimized graph: a value that a
// pass has folded into its reader is never made, and no point.
#ifndef PLUMB_RUNTIME_SESSION_PROBE_H_
#define PLUMB_RUNTIME_SESSION_PROBE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/compile/executable.h"
#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"

namespace plumb {

struct ProbePoint {
  enum class Kind { kActivation, kGradient, kParameter } kind;
  std::string name;   // without "grad." and "param."
  std::string value;  // of the graph, or the parameter

  std::string FullName() const;
};

// All points of a model's training program in a format, in the order of the data.
absl::StatusOr<std::vector<ProbePoint>> ListProbePoints(const ModelContext& context,
                                                        WeightFormat format = WeightFormat::kF32);

// The points that match one of `globs`, in which * is any text and ? any character. A glob is about
// activations unless it begins with "grad." or "param.". kInvalidArgument for one that matches no
// point.
absl::StatusOr<std::vector<ProbePoint>> SelectProbePoints(std::vector<ProbePoint> points,
                                                          absl::Span<const std::string> globs);

// Where a placement shows: residual streams, norms' outputs, what attention mixes, logits, the
// gradients of streams and logits, parameters.
std::vector<ProbePoint> DefaultProbePoints(std::vector<ProbePoint> points);

// One probed step. Over all tokens of the step, padding included.
struct ProbeResult {
  struct Tensor {
    std::string name;
    TensorStats stats;
  };
  struct Parameter {
    std::string name;
    TensorStats value, gradient;  // before the step's update; before clipping
  };
  int64_t step = 0;       // from 1
  bool diverged = false;  // the step had a number that is not finite, and changed no weight
  std::vector<Tensor> activations, gradients;
  std::vector<Parameter> parameters;
};

// A probed tensor while it is there.
struct ObservedTensor {
  enum class Kind { kActivation, kGradient, kParameter, kParameterGradient } kind;
  const std::string* name;
  TensorStats stats;
  TensorType type;
  const void* data;  // of `type`; null: a parameter that is split (ParameterStore)
};
using ProbeObserver = std::function<void(const ObservedTensor& tensor)>;

// Thread-compatible. Once it has seen an executable it allocates nothing.
class Probe {
 public:
  // No globs: the default ones. `context` need not outlive the probe.
  static absl::StatusOr<std::unique_ptr<Probe>> Create(const ModelContext& context,
                                                       absl::Span<const std::string> globs,
                                                       WeightFormat format = WeightFormat::kF32);

  // From now on `observer` sees activations and their gradients in each micro-batch, right after
  // what makes them, and parameters and their gradients, as End takes them, at the end of the step.
  void SetObserver(ProbeObserver observer);

  // Begins a step: forgets the figures of the one before.
  void Begin();
  // Runs one micro-batch of the step like Executable::Run, to the same bits. The executable must be
  // of the context's training program in the probe's format, and is told from others by its
  // address.
  absl::Status Run(const Executable& executable, int threads);
  // Ends the step. `gradients` are those of its loss, in the layout of the parameters. `weights`:
  // figures of the parameters; empty: they are found here, and are those of bf16 where the f32 lie
  // on another rank.
  const ProbeResult& End(int64_t step, const ParameterStore& parameters, const float* gradients,
                         int threads, absl::Span<const TensorStats> weights = {});

  void set_diverged() { result_.diverged = true; }  // until Begin
  const ProbeResult& result() const { return result_; }

 private:
  // The values of one executable that are looked at, sorted by producer, and their slots.
  struct Watch {
    std::vector<ValueId> values;
    std::vector<size_t> slots;
  };
  explicit Probe(const std::vector<ProbePoint>& points);
  const Watch& WatchOf(const Executable& executable);
  void Observe(size_t slot, const TensorType& type, const void* data, const TensorStats& stats);

  // A value under two names is looked at once: a slot is a value's name and its sums.
  std::vector<std::string> slot_values_;
  std::vector<TensorStats> slot_stats_;
  std::vector<size_t> activation_slots_, gradient_slots_;  // by index in the result
  absl::flat_hash_map<const Executable*, std::unique_ptr<Watch>> watches_;
  ProbeObserver observer_;  // null: none
  ProbeResult result_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROBE_H_
