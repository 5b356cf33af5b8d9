// SPDX-License-Identifier: Apache-2.0
// FormulaBackend: receiver of the computations of a model's formulas, to which RunStack
// (spec/interpret.h) passes them; and the points inside sublayers at which statements may run.
#ifndef PLUMB_RUNTIME_SPEC_FORMULA_BACKEND_H_
#define PLUMB_RUNTIME_SPEC_FORMULA_BACKEND_H_

#include <cstdint>
#include <memory>
#include <optional>
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

// Backend's handle for a tensor: one value per token, [batch, seq, width], or a vector [width]
// shared by all tokens.
//
// Operands of different widths are broadcast. The narrower width must divide the wider one: each
// narrow element is repeated over as many consecutive channels. A vector is repeated for each
// token.
using TensorHandle = int32_t;

struct Term {
  double coefficient;
  TensorHandle tensor;
};

// Function of tensors and numbers:
//   exp log sqrt abs floor cos sin tanh sigmoid erf relu gelu gelu_tanh silu softplus
//   reciprocal (a)     elementwise
//   pow (a) {exponent}; max, min (a) {number} or (a, b); < <= > >= == != (a) {number}, 1 or 0
//   dot (a, b) {n}     sums over n (default 1) groups of channels, width n; operands of equal width
//   part (a) {i, n}    part i, from 0, of n equal parts of the channels
//   slice (a) {i, n}   n channels from channel i on, counted from 0
//   concat (a, ..)     along the channels
//   shift (a) {n}      of each token the value of a n tokens before, 0 before the first token
//   softmax (s, ..)    over the operands, of equal width; the results are concatenated
//   constant () {c}    vector of width 1
//   position ()        position of each token in its sequence, from 0, width 1
//   stop (a)           a without a gradient
struct Function {
  std::string name;
  std::vector<double> numbers;
};

// One application of a norm slot.
struct NormSite {
  std::string name;  // unique: "layers.3.attention.norm", "end.norm", "layers.0.mlp.norm_2"
  std::string slot;  // name used in the formula: "norm", "norm[2]"
  const NormBinding* norm;
  int64_t dim;         // number of elements that are normalized together
  int64_t width;       // width of the tensor, a multiple of dim
  int64_t heads = 0;   // number of heads in the width if the slot is per_head, otherwise 0
  bool again = false;  // true if a range evaluates the same call again, with the same parameters
  const SourceText* text = nullptr;  // formula that contains the call
  const Expr* call = nullptr;        // the call; its name is the slot's
};

// Learned value at one place of the model: a tensor of `extents` elements (none: one element), each
// a scalar (width 1) or a vector.
struct LearnedPlace {
  std::string name;                      // unique: "layers.3.attention.gamma"
  std::vector<int64_t> extents, firsts;  // one per range
  int64_t width = 1;
  std::vector<double> init;  // one per element; the last range varies fastest
  std::optional<bool> weight_decay;

  int64_t count() const { return static_cast<int64_t>(init.size()); }
};

// One element of a learned value. The same element may be used several times.
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
  bool again = false;  // see NormSite
};

// One dropout, active in training only.
struct DropSite {
  std::string name;   // unique; also names the random stream: "layers.3.attention.drop"
  double p = 0;       // probability that an element is 0; the others are divided by 1 - p
  bool path = false;  // true: drops whole sequences (stochastic depth)
};

struct SublayerSite {
  std::string name;  // "layers.3.attention"
  const SublayerSpec* spec;
  int64_t layer_index;  // from 0
  ScalarScope scope;
  // Points whose statements set the tensor before they read it: "attention.k". The sublayer has no
  // projection there, and passes at_point any tensor.
  std::vector<std::string> replaced = {};

  bool projects(absl::string_view point) const;
};

// Read of an extra token table. The same site may be read several times.
struct TokenEmbeddingSite {
  std::string table;  // "ve"
  std::string name;   // unique: "embedding.ve", or "embedding.ve.3" if there is one table per layer
  int64_t width;
};

// Callback that runs the placement's statements for `point` on `tensor` and returns the resulting
// tensor. A sublayer must call it once for each of its points, in the order of the data. Tensors of
// points "experts." have rows [tokens * top_k, width], sorted by expert.
using AtPoint =
    absl::FunctionRef<absl::StatusOr<TensorHandle>(absl::string_view point, TensorHandle tensor)>;

// Receiver of the walk's computations. An implementation need not be thread-safe.
class FormulaBackend {
 public:
  virtual ~FormulaBackend() = default;

  // Returns the residual stream after the embedding, [.., d_model].
  virtual TensorHandle Embed() = 0;
  // Returns the sum of coefficient * tensor over `terms`, plus `constant`, broadcast.
  virtual TensorHandle Combine(absl::Span<const Term> terms, double constant) = 0;
  // Returns the elementwise product, broadcast. If only one operand is per token, it is `a`;
  // otherwise `a` is at least as wide as `b`.
  virtual TensorHandle Multiply(TensorHandle a, TensorHandle b) = 0;
  virtual TensorHandle Apply(const Function& function, absl::Span<const TensorHandle> operands) = 0;
  // Returns the number of the training step, from 1, as a vector of width 1. Outside training it is
  // that of the last step.
  virtual TensorHandle Step() = 0;
  virtual TensorHandle Drop(const DropSite& site, TensorHandle a) = 0;
  virtual TensorHandle Learned(const LearnedSite& site) = 0;
  virtual absl::StatusOr<TensorHandle> Linear(const LinearSite& site, TensorHandle a) = 0;
  // Requires: one input, or two of equal width if the norm has two inputs.
  virtual absl::StatusOr<TensorHandle> Norm(const NormSite& site,
                                            absl::Span<const TensorHandle> inputs) = 0;
  // Requires: one input, or for attention also three: those of queries, keys and values.
  virtual absl::StatusOr<TensorHandle> Sublayer(const SublayerSite& site,
                                                absl::Span<const TensorHandle> inputs,
                                                AtPoint at_point) = 0;
  // Applies the head to `x`, the residual stream after the last statement.
  virtual absl::Status Head(TensorHandle x, AtPoint at_point) = 0;

  // Returns the table's rows for the tokens of the batch, [.., width].
  virtual TensorHandle TokenEmbedding(const TokenEmbeddingSite& site) = 0;

  // Called after each statement that sets a stream ("x" or a name set in "begin") or an indexed
  // name of the stream's width (then `stream` is "h.3"). `place` is the prefix of the statement's
  // names: "begin", "layers.3.attention" in "each", "layers.3" in "block", "end".
  virtual void SetStream(const std::string& place, const std::string& stream, TensorHandle value) {
    static_cast<void>(place), static_cast<void>(stream), static_cast<void>(value);
  }

  // Called for each tensor that is assigned to a stream, "x", or to an indexed name, "h[3]".
  // Returns the tensor that the name refers to from then on: `value`, or an alias of it by which
  // the backend can recognize the name.
  virtual TensorHandle SetName(const std::string& name, TensorHandle value) {
    static_cast<void>(name);
    return value;
  }

  // Does the same for every other name that a statement sets. The name is known until the end of
  // the section: that of `begin`, of a sublayer, of a block, of a point, of `end`.
  virtual TensorHandle SetLocal(const std::string& name, TensorHandle value) {
    static_cast<void>(name);
    return value;
  }

  // Called at the end of each point inside a sublayer, with the width of the resulting tensor.
  virtual void EndPoint(absl::string_view point, int64_t width) {
    static_cast<void>(point), static_cast<void>(width);
  }

  // Called before the adapter's statements at a point run on the result of projection `name`,
  // "layers.3.attention.q".
  virtual void Adapt(const std::string& name, const InsideSpec& inside, const ScalarScope& scope) {
    static_cast<void>(name), static_cast<void>(inside), static_cast<void>(scope);
  }

  // Called before and after the statements of each layer, so that a backend can separate layers.
  virtual void BeginLayer(int64_t layer_index, TensorHandle x) {
    static_cast<void>(layer_index), static_cast<void>(x);
  }
  virtual void EndLayer(int64_t layer_index, TensorHandle x) {
    static_cast<void>(layer_index), static_cast<void>(x);
  }
};

// Backend that computes nothing and calls `at_point` for every point.
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

// Returns the points of a sublayer, in the order of the data: "attention.q", ... Experts have
// "experts.up", ..., and "shared.up", ... for the shared expert.
std::vector<const char*> ListPoints(const SublayerSpec& sublayer);
inline constexpr char kHeadPoint[] = "head.logits";
// Returns "q" for "attention.q".
std::string LastName(absl::string_view point);
// Returns true if statements at `wanted`, a point by the sublayer's kind or name, run at `point` of
// the sublayer.
bool IsPointOf(const SublayerSpec& sublayer, absl::string_view point, absl::string_view wanted);

// Returns true if statements may name the point: "attention.q", or "NAME.q" for a sublayer's name.
bool MayBePoint(absl::string_view point);
// Returns the error for a point that does not exist. `own` are points by sublayers' own names.
absl::Status UnknownPoint(const InsideSpec& inside, const std::vector<std::string>& own);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_FORMULA_BACKEND_H_
