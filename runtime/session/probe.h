// SPDX-License-Identifier: Apache-2.0
// Probe: statistics of a training program's tensors, taken while it runs: of activations, their
// gradients, parameters, and the parameters' gradients.
//
// A point is a named tensor. Activations have the names of the graph ("layers.3.attention.q",
// "logits") and, on the residual stream, those of StreamPoint ("layers.3.attention.residual").
// "grad.NAME" is the gradient of the loss with respect to an activation; "param.NAME" is a
// parameter and its gradient. Points belong to the optimized graph: a value that a pass has fused
// into its reader is never computed, and is no point. There are points of values that are computed
// for the probe only: "layers.3.attention.entropy" and "layers.3.attention.max_logit"
// (attention_figures.h), and a product that is computed as part of a sum ("layers.3.attention.o",
// "layers.3.mlp.down").
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
  // Tensor that is read: the value, figures of the attention whose context it is, or the value
  // without the addend of the product that it is the sum of.
  enum class Reading { kValue, kEntropy, kMaxLogit, kProduct };

  std::string name;   // without "grad." and "param."
  std::string value;  // in the graph, or the parameter
  Reading reading = Reading::kValue;

  std::string FullName() const;
};

// Returns all points of a model's training program in a format, in execution order. Parameters that
// are frozen (UpdatePlan), and gradients that only they need, are no points.
absl::StatusOr<std::vector<ProbePoint>> ListProbePoints(
    const ModelContext& context, WeightFormat format = WeightFormat::kF32,
    const std::vector<std::string>& frozen = {});

// Returns the points that match one of `globs`, in which * is any text and ? any character. A glob
// is about activations unless it begins with "grad." or "param.". "default" is the default points,
// "attention" entropies and largest logits, "sublayers" the outputs of attention and MLPs. Errors:
// kInvalidArgument for a glob, other than these, that matches no point.
absl::StatusOr<std::vector<ProbePoint>> SelectProbePoints(std::vector<ProbePoint> points,
                                                          absl::Span<const std::string> globs);

// Returns the points at which placements differ: residual streams, norms' outputs, attention
// contexts, logits, the gradients of streams and logits, parameters.
std::vector<ProbePoint> DefaultProbePoints(std::vector<ProbePoint> points);

// Statistics of one probed step, over all its tokens, padding included.
struct ProbeResult {
  struct Tensor {
    std::string name;
    TensorStats stats;
  };
  struct Parameter {
    std::string name;
    TensorStats value, gradient;  // `value` is before the update, `gradient` before clipping
  };
  int64_t step = 0;       // from 1
  bool diverged = false;  // a number was not finite, so no weight has changed
  std::vector<Tensor> activations, gradients;
  std::vector<Parameter> parameters;
};

// A probed tensor, valid during the call of the observer.
struct ObservedTensor {
  enum class Kind { kActivation, kGradient, kParameter, kParameterGradient } kind;
  const std::string* name;
  TensorStats stats;
  TensorType type;
  const void* data;  // elements of `type`; null: a split parameter (ParameterStore)
};
using ProbeObserver = std::function<void(const ObservedTensor& tensor)>;

// Owns the statistics of a step. Allocates only for an executable's first run. Thread-compatible.
class Probe {
 public:
  // Creates a probe; no globs: the default points. `context` need not outlive the probe. `frozen`
  // as in ListProbePoints.
  static absl::StatusOr<std::unique_ptr<Probe>> Create(const ModelContext& context,
                                                       absl::Span<const std::string> globs,
                                                       WeightFormat format = WeightFormat::kF32,
                                                       const std::vector<std::string>& frozen = {});

  // Creates a probe of the activations of a program without a backward pass.
  static absl::StatusOr<std::unique_ptr<Probe>> CreateForward(const ModelContext& context,
                                                              const BuildOptions& program,
                                                              absl::Span<const std::string> globs);

  // Sets an observer, called for activations and their gradients in each micro-batch, right after
  // the node that computes them, and for parameters and their gradients by End.
  void SetObserver(ProbeObserver observer);

  // Begins a step: clears the statistics of the one before.
  void Begin();
  // Runs one micro-batch of the step like Executable::Run, with the same bits. `executable` is one
  // of the context's training programs in the probe's format, and is identified by its address.
  absl::Status Run(const Executable& executable, int threads);
  // Ends the step. `gradients` are those of its loss, in the layout `layout`.
  const ProbeResult& End(int64_t step, const ParameterStore& parameters,
                         const ParameterLayout& layout, const float* gradients, int threads);

  void set_diverged() { result_.diverged = true; }  // until Begin
  const ProbeResult& result() const { return result_; }

 private:
  // Tensor of a point.
  struct Slot {
    std::string value;  // in the graph
    ProbePoint::Reading reading;
  };
  // One reading of a value when it has been computed.
  struct Read {
    size_t slot = 0;
    // Elements that are computed, or null. The reads of an attention share them, the entropies
    // first; so do those of a product and of its addend, which is copied there.
    std::shared_ptr<std::vector<float>> computed;
    bool is_first = false;  // of those that share `computed`
  };
  // The probed values of one executable, sorted by producer, and their reads.
  struct Watch {
    std::vector<ValueId> values;
    std::vector<Read> reads;
  };
  explicit Probe(const std::vector<ProbePoint>& points);
  // Creates a probe of those points that `globs` select.
  static absl::StatusOr<std::unique_ptr<Probe>> Of(std::vector<ProbePoint> points,
                                                   absl::Span<const std::string> globs);
  const Watch& FindWatch(const Executable& executable);
  void ReadValue(const Executable& executable, ValueId id, const Read& read, int threads);
  void Observe(size_t slot, const TensorType& type, const void* data, const TensorStats& stats);

  // Tensors and their statistics, by slot. A value with two names has one slot.
  std::vector<Slot> slots_;
  std::vector<TensorStats> slot_stats_;
  std::vector<size_t> activation_slots_, gradient_slots_;  // indexed like the result
  absl::flat_hash_map<const Executable*, std::unique_ptr<Watch>> watches_;
  ProbeObserver observer_;  // null: no observer
  ProbeResult result_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROBE_H_
