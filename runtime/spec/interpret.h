// SPDX-License-Identifier: Apache-2.0
// RunStack: walks a model's formulas, layer by layer, and tells a FormulaBackend what they compute.
//
// The walk is the one place that knows what a formula means: scopes, streams, slots, conditions,
// folded scalars. It finds every mistake that a formula can hold, so running it with a backend that
// computes nothing (NullBackend) is the checker; a backend that emits graph nodes is the compiler;
// others describe.
#ifndef PLUMB_RUNTIME_SPEC_INTERPRET_H_
#define PLUMB_RUNTIME_SPEC_INTERPRET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

// A backend's name for a tensor: per token, [batch, seq, width], or a vector [width] for all
// tokens.
//
// Operands of different widths are broadcast: each element of the narrower one, whose width divides
// the other's, stands for as many consecutive channels; a vector stands for each token.
using TensorHandle = int32_t;

struct Term {
  double coefficient;
  TensorHandle tensor;
};

// A function of tensors and numbers:
//   exp log sqrt abs tanh sigmoid erf reciprocal (a)   elementwise
//   pow (a) {exponent}; max, min (a) {number} or (a, b); < <= > >= == != (a) {number}, 1 or 0
//   dot (a, b)         the sum over channels, width 1; operands of one width
//   part (a) {i, n}    the i-th, from 0, of n equal parts of the channels
//   concat (a, ..)     along the channels
//   softmax (s, ..)    over the operands, of one width; concat of the results
//   constant () {c}    a vector of width 1
//   stop (a)           a, without a gradient
struct Function {
  std::string name;
  std::vector<double> numbers;
};

// One application of a norm slot.
struct NormSite {
  std::string name;  // unique: "layers.3.attention.norm", "end.norm", "layers.0.mlp.norm_2"
  std::string slot;  // as the formula calls it: "norm", "norm[2]"
  const NormBinding* norm;
  int64_t dim;         // elements that are normalized together
  int64_t width;       // of the tensor: a multiple of dim
  int64_t heads = 0;   // in the width, in a slot of heads; 0 in others
  bool again = false;  // the same place of the text once more, in a range: the same parameters
};

// A learned value at one place of the model: a tensor of `extents` values (none: one value), each a
// scalar (width 1) or a vector.
struct LearnedPlace {
  std::string name;                      // unique: "layers.3.attention.gamma"
  std::vector<int64_t> extents, firsts;  // of each range
  int64_t width = 1;
  std::vector<double> init;  // by value, the last range innermost
  bool weight_decay = false;

  int64_t count() const { return static_cast<int64_t>(init.size()); }
};

// One value of it; the same may be used again.
struct LearnedSite {
  std::shared_ptr<const LearnedPlace> place;
  int64_t index = 0;  // into init
};

// One application of a projection, y = W x + b.
struct LinearSite {
  std::string name;  // unique: "layers.3.attention.gate", "layers.3.attention.gate.2" of gate[2]
  const LinearSpec* spec;
  int64_t in, out;
  ScalarScope scope;
  bool again = false;  // as NormSite's
};

// Dropout, in training only.
struct DropSite {
  std::string name;   // unique, of the random stream: "layers.3.attention.drop"
  double p = 0;       // probability that an element is 0; the others are divided by 1 - p
  bool path = false;  // all elements of a sequence together (stochastic depth)
};

struct SublayerSite {
  std::string name;  // "layers.3.attention"
  const SublayerSpec* spec;
  int64_t layer_index;  // from 0
  ScalarScope scope;
};

// A table over tokens that a formula reads; the same site may be read again.
struct TokenEmbeddingSite {
  std::string table;  // "ve"
  std::string name;   // unique: "embedding.ve", or of a table a layer "embedding.ve.3"
  int64_t width;
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
  // sum of coefficient * tensor, plus a constant; broadcast.
  virtual TensorHandle Combine(absl::Span<const Term> terms, double constant) = 0;
  // Elementwise, broadcast; a is no narrower than b, and per token if one of them is, unless both
  // change.
  virtual TensorHandle Multiply(TensorHandle a, TensorHandle b) = 0;
  virtual TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) = 0;
  // The number of the training step, from 1, a vector of width 1; what it was last, outside
  // training.
  virtual TensorHandle Step() = 0;
  virtual TensorHandle Drop(const DropSite& site, TensorHandle a) = 0;
  virtual TensorHandle Learned(const LearnedSite& site) = 0;
  virtual absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) = 0;
  // `inputs`: one, or two of one width, of a norm of two inputs.
  virtual absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                            absl::Span<const TensorHandle> inputs) = 0;
  // `inputs`: one, or, of an attention, those of its queries, keys and values.
  virtual absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                                absl::Span<const TensorHandle> inputs,
                                                AtPoint at_point) = 0;
  // The head, on the residual stream as the last statement left it.
  virtual absl::Status Head(TensorHandle x, AtPoint at_point) = 0;

  // The rows of the batch's tokens, [.., width].
  virtual TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) = 0;

  // Told after each statement that sets a stream: "x", one that "begin" has set, or, as "h.3", an
  // indexed name of the stream's width. `place` is the
  // prefix of the names that the statement makes: "begin", "layers.3.attention" in "each",
  // "layers.3" in "block", "end".
  virtual void SetStream(const std::string& place, const std::string& stream, TensorHandle value) {
    static_cast<void>(place), static_cast<void>(stream), static_cast<void>(value);
  }

  // Told of each tensor that a stream, "x", or an indexed name, "h[3]", gets. Returns the tensor
  // that the name stands for from there on: `value`, or another name for it, by which a backend
  // knows the name again.
  virtual TensorHandle SetName(const std::string& name, TensorHandle value) {
    static_cast<void>(name);
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
  TensorHandle Apply(const Function&, absl::Span<const TensorHandle>) override { return 0; }
  TensorHandle Step() override { return 0; }
  TensorHandle Drop(const DropSite&, TensorHandle) override { return 0; }
  TensorHandle Learned(const LearnedSite&) override { return 0; }
  absl::StatusOr<TensorHandle> Linear(const LinearSite&, TensorHandle) override { return 0; }
  absl::StatusOr<TensorHandle> Norm(const NormSite&, absl::Span<const TensorHandle>) override {
    return 0;
  }
  absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                        absl::Span<const TensorHandle> inputs,
                                        AtPoint at_point) override;
  absl::Status Head(TensorHandle x, AtPoint at_point) override;
  TensorHandle TokenEmbedding(const TokenEmbeddingSite&) override { return 0; }
};

// The points of a sublayer, in the order of the data: "attention.q", ...
std::vector<const char*> PointsOf(const SublayerSpec& sublayer);
// Those of all kinds.
std::vector<const char*> AllSublayerPoints();
inline constexpr char kHeadPoint[] = "head.logits";

// Walks the whole model. Errors are the user's (or the backend's) and point into the formula.
absl::Status RunStack(const ResolvedModel& model, FormulaBackend* backend);

// Whether the formulas of a resolved model mean something: OK, or the first mistake.
absl::Status CheckFormulas(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_INTERPRET_H_
