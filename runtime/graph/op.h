// SPDX-License-Identifier: Apache-2.0
// OpDef: everything plumb knows about one op, in one place: its shape rule, its gradient, how to
// make a fast kernel for given shapes, and a naive reference in double that the kernel is held
// against. OpRegistry: the ops by name. It is built by main() or a facade and passed on; there is
// no global one.
#ifndef PLUMB_RUNTIME_GRAPH_OP_H_
#define PLUMB_RUNTIME_GRAPH_OP_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/graph/attrs.h"
#include "runtime/graph/graph.h"

namespace plumb {

class GraphBuilder;

// The types of a node's operands, for shape rules and kernel factories. An absent optional input is
// null.
struct OpTypes {
  absl::Span<const TensorType* const> inputs;
  absl::Span<const TensorType* const> outputs;  // empty for the shape rule
  const Attrs& attrs;

  const TensorType& in(size_t i) const { return *inputs[i]; }
  const TensorType& out(size_t i) const { return *outputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};

// The operands of one run. Pointers are 64-byte aligned; null where an optional input is absent.
struct KernelArgs {
  const void* const* in;
  void* const* out;
  void* scratch;  // at least scratch_bytes() of uninitialised memory, private to this call
  int threads;    // how many the kernel may use

  const float* f32(size_t i) const { return static_cast<const float*>(in[i]); }
  const int32_t* i32(size_t i) const { return static_cast<const int32_t*>(in[i]); }
  const uint16_t* bf16(size_t i) const { return static_cast<const uint16_t*>(in[i]); }
  float* out_f32(size_t i) const { return static_cast<float*>(out[i]); }
  uint16_t* out_bf16(size_t i) const { return static_cast<uint16_t*>(out[i]); }
};

// An op for given types and attributes, ready to run. Immutable after creation; Run allocates
// nothing, gives bit-identical results for any number of threads, and may be called from one thread
// at a time per set of operands.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual absl::Status Run(const KernelArgs& args) const = 0;

  // How it computes, for people: the engine and blocks of a matrix product. Empty where there is
  // nothing to choose.
  virtual std::string ToString() const { return ""; }
};

// A tensor of the reference: floating-point elements as double, whatever the graph's dtype.
struct ReferenceTensor {
  TensorType type;
  std::vector<double> f;   // when the dtype is floating
  std::vector<int32_t> i;  // when it is i32 or i8
};

struct ReferenceArgs {
  absl::Span<const ReferenceTensor* const> inputs;  // null where absent
  absl::Span<ReferenceTensor* const> outputs;       // typed and sized; zero-filled, or, for an
                                                    // updated input, holding that input
  const Attrs& attrs;

  const std::vector<double>& f(size_t i) const { return inputs[i]->f; }
  const std::vector<int32_t>& i(size_t i) const { return inputs[i]->i; }
  std::vector<double>& out(size_t i) const { return outputs[i]->f; }
  const Shape& shape(size_t i) const { return inputs[i]->type.shape; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};

struct OpDef {
  std::string name;
  int min_inputs = 0;
  int max_inputs = 0;  // inputs beyond min_inputs are optional; kVariadic = any number
  static constexpr int kVariadic = -1;

  // output index -> input index that it overwrites: the two share memory, always (KV cache).
  std::vector<std::pair<int, int>> updates;
  // output index -> input index whose memory it may take when that input is read no more.
  std::vector<std::pair<int, int>> may_alias;

  // Types of the outputs; an error says which operand does not fit and why.
  absl::StatusOr<std::vector<TensorType>> (*infer)(const OpTypes& types) = nullptr;

  // Vector-Jacobian product: adds to `b` the nodes that turn the gradients of `node`'s outputs
  // (kNoValue where the loss does not depend on one) into the gradients of its inputs, and returns
  // one id per input, kNoValue for "none". A gradient has the GradientType of its value.
  // `wanted[i]` says whether input i's gradient is of use. Null for ops that are not differentiated
  // (gradients themselves, decode-time ops).
  std::vector<ValueId> (*vjp)(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs,
                              const std::vector<bool>& wanted) = nullptr;

  std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const OpTypes& types)> make_kernel;

  absl::Status (*reference)(const ReferenceArgs& args) = nullptr;

  // The inputs, among those of shape [batch, tokens, ..], in which the op is token-wise: given the
  // last n tokens of each of them, and all of its other inputs, it computes the last n tokens of
  // the outputs that have `tokens` too, and its other outputs as before. May be empty, for types
  // and attributes with which the op mixes tokens; null for ops that always do. `types` are inputs.
  std::vector<size_t> (*token_wise)(const OpTypes& types) = nullptr;

  // Floating-point operations of one run (a multiply-add is two) that the algorithm needs, without
  // those that a causal mask hides. Null for memory-bound ops.
  double (*flops)(const OpTypes& types) = nullptr;
};

class OpRegistry {
 public:
  OpRegistry() = default;
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  void Add(OpDef op);  // the name must be new, infer/make_kernel/reference set
  const OpDef* Find(absl::string_view name) const;  // null if unknown; stable address
  std::vector<const OpDef*> All() const;            // by name

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
};

// Checks the number of `node`'s inputs, then runs its op's shape rule on their types.
absl::StatusOr<std::vector<TensorType>> InferTypes(const Graph& graph, const Node& node);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_OP_H_
