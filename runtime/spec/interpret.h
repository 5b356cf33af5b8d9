// RunStack: walks a model's formulas, layer by layer, and tells a FormulaBackend what they compute.
//
// The walk is the one place that knows what a formula means: scopes, streams, slots, conditions,
// folded scalars. It finds every mistake that a formula can hold, so running it with a backend that
// computes nothing (NullBackend) is the checker; a backend that emits graph nodes is the compiler;
// others describe.
#ifndef PLUMB_RUNTIME_SPEC_INTERPRET_H_
#define PLUMB_RUNTIME_SPEC_INTERPRET_H_

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

// A backend's name for a tensor: [batch, seq, width], or a learned vector [width].
using TensorHandle = int32_t;

struct Term {
  double coefficient;
  TensorHandle tensor;
};

// One application of a norm slot.
struct NormSite {
  std::string name;  // unique: "layers.3.attention.norm", "end.norm", "layers.0.mlp.norm_2"
  const NormBinding* norm;
  int64_t dim;    // elements that are normalized together
  int64_t width;  // of the tensor: a multiple of dim
};

// One learned scalar or vector; the same site may be used again.
struct LearnedSite {
  std::string name;  // unique: "layers.3.attention.gamma"
  int64_t size;
  double init;
  bool weight_decay;
};

struct SublayerSite {
  std::string name;  // "layers.3.attention"
  const SublayerSpec* spec;
  int64_t layer_index;  // from 0
  ScalarScope scope;
};

// Runs the statements that a placement splices in at `point` on `tensor`, and returns what becomes
// of it. A sublayer must offer each of its points once, in the order of the data.
using AtPoint =
    absl::FunctionRef<absl::StatusOr<TensorHandle>(absl::string_view point, TensorHandle tensor)>;

class FormulaBackend {
 public:
  virtual ~FormulaBackend() = default;

  // The residual stream as it leaves the embedding, [.., d_model].
  virtual TensorHandle Embed() = 0;
  // sum of coefficient * tensor, plus a constant; equal types.
  virtual TensorHandle Combine(absl::Span<const Term> terms, double constant) = 0;
  // Elementwise; b is like a, or a learned vector whose size divides a's width.
  virtual TensorHandle Multiply(TensorHandle a, TensorHandle b) = 0;
  virtual TensorHandle Apply(const std::string& function, TensorHandle a) = 0;  // "tanh"
  virtual TensorHandle Learned(const LearnedSite& site) = 0;
  virtual absl::StatusOr<TensorHandle> Norm(const NormSite& site, TensorHandle a) = 0;
  virtual absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site, TensorHandle input,
                                                AtPoint at_point) = 0;
  // The head, on the residual stream as the last statement left it.
  virtual absl::Status Head(TensorHandle x, AtPoint at_point) = 0;

  // Told after each statement that sets a stream: "x", or one that "begin" has set. `place` is the
  // prefix of the names that the statement makes: "begin", "layers.3.attention" in "each",
  // "layers.3" in "block", "end". Returns the tensor that the stream is from there on: `value`, or
  // another name for it, by which a backend knows the stream again.
  virtual TensorHandle SetStream(const std::string& place, const std::string& stream,
                                 TensorHandle value) {
    static_cast<void>(place), static_cast<void>(stream);
    return value;
  }

  // Told around the statements of each layer, so that a backend can tell layers apart.
  virtual void BeginLayer(int64_t layer_index, TensorHandle x) {
    static_cast<void>(layer_index), static_cast<void>(x);
  }
  virtual void EndLayer(int64_t layer_index, TensorHandle x) {
    static_cast<void>(layer_index), static_cast<void>(x);
  }
};

// Computes nothing, offers every point.
class NullBackend : public FormulaBackend {
 public:
  TensorHandle Embed() override { return 0; }
  TensorHandle Combine(absl::Span<const Term>, double) override { return 0; }
  TensorHandle Multiply(TensorHandle, TensorHandle) override { return 0; }
  TensorHandle Apply(const std::string&, TensorHandle) override { return 0; }
  TensorHandle Learned(const LearnedSite&) override { return 0; }
  absl::StatusOr<TensorHandle> Norm(const NormSite&, TensorHandle) override { return 0; }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site, TensorHandle input,
                                        AtPoint at_point) override;
  absl::Status Head(TensorHandle x, AtPoint at_point) override;
};

// The points of a kind of sublayer, in the order of the data: "attention.q", ...
absl::Span<const char* const> PointsOf(SublayerSpec::Kind kind);
inline constexpr char kHeadPoint[] = "head.logits";

// Walks the whole model. Errors are the user's (or the backend's) and point into the formula.
absl::Status RunStack(const ResolvedModel& model, FormulaBackend* backend);

// Whether the formulas of a resolved model mean something: OK, or the first mistake.
absl::Status CheckFormulas(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_INTERPRET_H_
