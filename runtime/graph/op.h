// SPDX-License-Identifier: Apache-2.0
// OpDef: everything plumb knows about one op: its shape rule, its gradient, the factory of its fast
// kernel for given shapes, and the naive reference in double that the kernel is compared with.
// OpRegistry: the ops by name. It is built by main() or a facade and passed on; there is no global
// one. Immutable once it is filled.
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

namespace plumb {

class GraphBuilder;
struct Node;

using ValueId = int32_t;                 // number of a value in its graph
inline constexpr ValueId kNoValue = -1;  // an optional input or output that is absent

// Types of a node's operands, for shape rules and kernel factories; null for an absent optional
// input.
struct OpTypes {
  absl::Span<const TensorType* const> inputs;
  absl::Span<const TensorType* const> outputs;  // empty for the shape rule
  const Attrs& attrs;

  const TensorType& in(size_t i) const { return *inputs[i]; }
  const TensorType& out(size_t i) const { return *outputs[i]; }
  bool has(size_t i) const { return i < inputs.size() && inputs[i] != nullptr; }
};

// Operands of one run. Pointers are 64-byte aligned; null for an absent optional input.
struct KernelArgs {
  const void* const* in;
  void* const* out;
  void* scratch;  // at least scratch_bytes() of uninitialised memory, private to this call
  int threads;    // max number of threads

  const float* f32(size_t i) const { return static_cast<const float*>(in[i]); }
  const int32_t* i32(size_t i) const { return static_cast<const int32_t*>(in[i]); }
  const uint16_t* bf16(size_t i) const { return static_cast<const uint16_t*>(in[i]); }
  float* out_f32(size_t i) const { return static_cast<float*>(out[i]); }
  uint16_t* out_bf16(size_t i) const { return static_cast<uint16_t*>(out[i]); }
};

// An op for given types and attributes, ready to run. Immutable after creation. Run allocates
// nothing, and its bits do not depend on the number of threads. Concurrent calls are allowed on
// different operands.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual int64_t scratch_bytes() const { return 0; }
  virtual absl::Status Run(const KernelArgs& args) const = 0;

  // Describes the algorithm for people: the engine and blocks of a matrix product. Empty if there
  // is nothing to choose.
  virtual std::string ToString() const { return ""; }
};

// A tensor of the reference: floating-point elements as double, for any dtype of the graph.
struct ReferenceTensor {
  TensorType type;
  std::vector<double> f;   // if the dtype is floating-point
  std::vector<int32_t> i;  // if it is i32 or i8
};

struct ReferenceArgs {
  absl::Span<const ReferenceTensor* const> inputs;  // null for absent inputs
  absl::Span<ReferenceTensor* const> outputs;       // typed and sized; zero-filled, or, for an
                                                    // updated input, a copy of it
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

  // Output index -> index of the input that it overwrites: they always share memory (KV cache).
  std::vector<std::pair<int, int>> updates;
  // Output index -> index of the input whose memory it may take if this is the input's last read.
  std::vector<std::pair<int, int>> may_alias;

  // Returns the types of the outputs. An error names the operand that does not fit, and why.
  absl::StatusOr<std::vector<TensorType>> (*infer)(const OpTypes& types) = nullptr;

  // Adds the vector-Jacobian product to `b`: the nodes that turn the gradients of `node`'s outputs
  // (kNoValue if the loss does not depend on one) into the gradients of its inputs. Returns one id
  // per input, kNoValue for no gradient. A gradient has the GradientType of its value. `wanted[i]`
  // is true if input i's gradient is needed. Null for ops that are not differentiated (gradients
  // themselves, decode-time ops).
  std::vector<ValueId> (*vjp)(GraphBuilder& b, const Node& node,
                              absl::Span<const ValueId> d_outputs,
                              const std::vector<bool>& wanted) = nullptr;

  std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const OpTypes& types)> make_kernel;

  absl::Status (*reference)(const ReferenceArgs& args) = nullptr;

  // Returns the inputs, among those of shape [batch, tokens, ..], in which the op is token-wise:
  // given the last n tokens of each of them, and all of its other inputs, it computes the last n
  // tokens of the outputs that have `tokens` too, and the same other outputs. May be empty, for
  // types and attributes with which the op mixes tokens; null for ops that always do. `types` has
  // the inputs.
  std::vector<size_t> (*token_wise)(const OpTypes& types) = nullptr;

  // Returns the floating-point operations of one run (a multiply-add is two) that the algorithm
  // needs, without those that a causal mask skips. Null for memory-bound ops.
  double (*flops)(const OpTypes& types) = nullptr;
};

class OpRegistry {
 public:
  OpRegistry() = default;
  OpRegistry(const OpRegistry&) = delete;
  OpRegistry& operator=(const OpRegistry&) = delete;

  void Add(OpDef op);  // the name must be new, infer/make_kernel/reference set
  const OpDef* Find(absl::string_view name) const;  // null if unknown; the address is stable
  std::vector<const OpDef*> All() const;            // ordered by name

 private:
  std::map<std::string, std::unique_ptr<OpDef>, std::less<>> ops_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_GRAPH_OP_H_
