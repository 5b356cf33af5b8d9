// SPDX-License-Identifier: Apache-2.0
// linear_attention, its gradient, and linear_attention_cached, which continues from a state: linear
// attention with decays and, optionally, the delta rule. Equations and papers:
// kernels/linear_attention/linear_attention.h.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/linear_attention/linear_attention.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// First of the operands decay and beta.
constexpr size_t kDecay = 3, kGradDecay = 5, kCachedDecay = 5;

// Sizes of the op, read from its operands.
struct RecurrenceShape {
  int64_t batch, tokens, heads, key_heads, key_dim, value_dim;
  bool has_decay, per_key, has_beta;

  int64_t group() const { return heads / key_heads; }
  int64_t chunks() const { return ChunkCount(tokens); }
  int64_t state_elements() const { return key_dim * value_dim; }
  int64_t decay_width() const { return per_key ? key_dim : 1; }  // of one head
  TensorType starts() const { return F32({batch, heads, chunks(), state_elements()}); }
  // Returns the scalar operations of all tokens, with about 8 for each element of the state.
  int64_t work() const { return 8 * batch * tokens * heads * state_elements(); }
};

// Reads the shape from q[B,T,HK*c], k, v[B,T,H*d], and decay and beta from operand `decay` on.
absl::StatusOr<RecurrenceShape> ReadRecurrence(const OpTypes& types, size_t decay) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "q"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 2, "v"));
  PLUMB_RETURN_IF_ERROR(CheckMatching(types, 0, "q", 1, "k"));
  const TensorType &q = types.in(0), &v = types.in(2);
  RecurrenceShape shape = {};
  shape.heads = types.attrs.GetInt("n_head");
  shape.key_heads = types.attrs.GetInt("n_key_head");
  const int64_t heads = shape.heads, key_heads = shape.key_heads;
  if (q.shape.rank() != 3 || v.shape.rank() != 3 || v.dtype != q.dtype || key_heads < 1 ||
      heads < 1 || heads % key_heads != 0 || q.shape.last() % key_heads != 0 ||
      v.shape.last() % heads != 0 || v.shape[0] != q.shape[0] || v.shape[1] != q.shape[1]) {
    return absl::InvalidArgumentError(absl::StrCat(
        "q is ", q.ToString(), " and v ", v.ToString(), ", must be [batch, tokens, ", key_heads,
        " heads of keys] and [batch, tokens, ", heads, " heads of values] of one type"));
  }
  shape.batch = q.shape[0];
  shape.tokens = q.shape[1];
  shape.key_dim = q.shape.last() / key_heads;
  shape.value_dim = v.shape.last() / heads;
  shape.has_decay = types.has(decay);
  shape.has_beta = types.has(decay + 1);
  const auto per_token = [&](int64_t width) {
    return TensorType{q.dtype, Shape({shape.batch, shape.tokens, width})};
  };
  shape.per_key = shape.has_decay && types.in(decay) != per_token(heads);
  if (shape.per_key && types.in(decay) != per_token(heads * shape.key_dim)) {
    return absl::InvalidArgumentError(absl::StrCat("the decay is ", types.in(decay).ToString(),
                                                   ", must be ", per_token(heads).ToString(),
                                                   " or have ", shape.key_dim, " times the width"));
  }
  if (shape.has_beta && types.in(decay + 1) != per_token(heads)) {
    return absl::InvalidArgumentError(absl::StrCat("beta is ", types.in(decay + 1).ToString(),
                                                   ", must be ", per_token(heads).ToString()));
  }
  return shape;
}

// -- Shape rules

absl::StatusOr<std::vector<TensorType>> InferLinearAttention(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape, ReadRecurrence(types, kDecay));
  std::vector<TensorType> outputs = {types.in(2)};
  if (types.attrs.GetBool("train", false)) outputs.push_back(shape.starts());
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferLinearAttentionGrad(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape, ReadRecurrence(types, kGradDecay));
  if (types.in(3) != shape.starts() || types.in(4) != types.in(2)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the states are ", types.in(3).ToString(), " and dcontext is ", types.in(4).ToString(),
        ", must be ", shape.starts().ToString(), " and ", types.in(2).ToString()));
  }
  std::vector<TensorType> outputs = {types.in(0), types.in(1), types.in(2)};
  if (shape.has_decay) outputs.push_back(types.in(kGradDecay));
  if (shape.has_beta) outputs.push_back(types.in(kGradDecay + 1));
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferLinearAttentionCached(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape, ReadRecurrence(types, kCachedDecay));
  const TensorType state = F32({shape.batch, shape.heads, shape.state_elements()});
  const TensorType positions = I32({shape.batch, shape.tokens});
  if (types.in(3) != state || types.in(4) != positions) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the state is ", types.in(3).ToString(), " and positions are ", types.in(4).ToString(),
        ", must be ", state.ToString(), " and ", positions.ToString()));
  }
  return std::vector<TensorType>{types.in(2), state};
}

// -- VJP: see kernels/linear_attention/backward.cc

std::vector<ValueId> VjpLinearAttention(GraphBuilder& b, const Node& node,
                                        absl::Span<const ValueId> d_outputs,
                                        const std::vector<bool>&) {
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  if (d_outputs[0] == kNoValue) return gradients;
  if (node.outputs.size() < 2) {
    b.Fail(absl::FailedPreconditionError("linear_attention was not built with train = true"));
    return gradients;
  }
  std::vector<ValueId> inputs = {node.inputs[0], node.inputs[1], node.inputs[2], node.outputs[1],
                                 d_outputs[0]};
  inputs.insert(inputs.end(), node.inputs.begin() + kDecay, node.inputs.end());
  const std::vector<ValueId> d = b.ApplyAll("linear_attention_grad", std::move(inputs), node.attrs);
  size_t next = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (node.inputs[i] != kNoValue) gradients[i] = d[next++];
  }
  return gradients;
}

// -- Kernels

template <class T>
const T* RecurIn(const KernelArgs& args, size_t i, int64_t at) {
  return static_cast<const T*>(args.in[i]) + at;
}
template <class T>
T* RecurOut(const KernelArgs& args, size_t i, int64_t at) {
  return static_cast<T*>(args.out[i]) + at;
}

// Returns the operands of a head of values, without context and state. `decay` is the index of
// operand decay.
template <class T>
RecurrenceArgs<T> HeadOperands(const RecurrenceShape& shape, const KernelArgs& args, size_t decay,
                               int64_t row, int64_t head) {
  const int64_t token = row * shape.tokens, key_head = head / shape.group();
  RecurrenceArgs<T> call;
  call.qk_stride = shape.key_heads * shape.key_dim;
  call.v_stride = shape.heads * shape.value_dim;
  call.q = RecurIn<T>(args, 0, token * call.qk_stride + key_head * shape.key_dim);
  call.k = RecurIn<T>(args, 1, token * call.qk_stride + key_head * shape.key_dim);
  call.v = RecurIn<T>(args, 2, token * call.v_stride + head * shape.value_dim);
  if (shape.has_decay) {
    const int64_t width = shape.decay_width();
    call.decay_stride = shape.heads * width;
    call.decay = RecurIn<T>(args, decay, token * call.decay_stride + head * width);
    call.decay_per_key = shape.per_key;
  }
  if (shape.has_beta) {
    call.beta_stride = shape.heads;
    call.beta = RecurIn<T>(args, decay + 1, token * shape.heads + head);
  }
  call.tokens = shape.tokens;
  call.key_dim = shape.key_dim;
  call.value_dim = shape.value_dim;
  return call;
}

// linear_attention and linear_attention_cached. One item is one head of values of one sequence.
template <class T>
class LinearAttentionKernel : public Kernel {
 public:
  explicit LinearAttentionKernel(const OpTypes& types, bool is_cached = false)
      : shape_(ReadRecurrence(types, is_cached ? kCachedDecay : kDecay).value()),
        is_cached_(is_cached),
        keeps_starts_(!is_cached && types.outputs.size() > 1),
        recur_(ChooseRecur<T>()),
        items_(shape_.batch * shape_.heads),
        tasks_(TaskCount(items_, shape_.work())),
        slots_(PlannedSlots(tasks_)),
        scratch_floats_(RecurScratch(shape_.key_dim, shape_.value_dim)),
        slot_bytes_(AlignUp((scratch_floats_ + shape_.state_elements()) *
                            static_cast<int64_t>(sizeof(float)))) {}

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    if (is_cached_) {
      PLUMB_RETURN_IF_ERROR(CheckPositions(args.i32(4), shape_.batch, shape_.tokens,
                                           std::numeric_limits<int32_t>::max()));
    }
    ParallelFor(tasks_, std::min(args.threads, slots_), [&](int64_t task, int slot) {
      const Range range = TaskRange(items_, tasks_, task);
      auto* scratch =
          reinterpret_cast<float*>(static_cast<char*>(args.scratch) + slot * slot_bytes_);
      for (int64_t item = range.begin; item < range.end; ++item) RunHead(args, item, scratch);
    });
    return absl::OkStatus();
  }

 private:
  void RunHead(const KernelArgs& args, int64_t item, float* scratch) const {
    const int64_t row = item / shape_.heads, head = item % shape_.heads;
    RecurrenceArgs<T> call =
        HeadOperands<T>(shape_, args, is_cached_ ? kCachedDecay : kDecay, row, head);
    call.context = RecurOut<T>(args, 0, call.v - RecurIn<T>(args, 2, 0));
    const int64_t elements = shape_.state_elements();
    call.state = is_cached_ ? args.out_f32(1) + item * elements : scratch + scratch_floats_;
    // The state before the first token is 0, whatever the memory holds.
    if (!is_cached_ || args.i32(4)[row * shape_.tokens] == 0) {
      std::fill_n(call.state, elements, 0.0f);
    }
    if (keeps_starts_) call.starts = args.out_f32(1) + item * shape_.chunks() * elements;
    recur_(call, scratch);
  }

  const RecurrenceShape shape_;
  const bool is_cached_, keeps_starts_;
  const RecurFn<T> recur_;
  const int64_t items_, tasks_;
  const int slots_;
  const int64_t scratch_floats_, slot_bytes_;
};

template <class T>
class LinearAttentionCachedKernel : public LinearAttentionKernel<T> {
 public:
  explicit LinearAttentionCachedKernel(const OpTypes& types)
      : LinearAttentionKernel<T>(types, /*is_cached=*/true) {}
};

// One item is a head of keys with the heads of values that share it, so that only one task writes
// its dq and dk.
template <class T>
class LinearAttentionGradKernel : public Kernel {
 public:
  explicit LinearAttentionGradKernel(const OpTypes& types)
      : shape_(ReadRecurrence(types, kGradDecay).value()),
        recur_grad_(ChooseRecurGrad<T>()),
        items_(shape_.batch * shape_.key_heads),
        slots_(PlannedSlots(TaskCount(items_, 3 * shape_.work()))),
        slot_bytes_(AlignUp(RecurGradScratch(shape_.key_dim, shape_.value_dim, shape_.group()) *
                            static_cast<int64_t>(sizeof(float)))) {}

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(items_, std::min(args.threads, slots_), [&](int64_t item, int slot) {
      const int64_t row = item / shape_.key_heads, key_head = item % shape_.key_heads;
      const int64_t head = key_head * shape_.group();
      RecurrenceGradArgs<T> call;
      call.head = HeadOperands<T>(shape_, args, kGradDecay, row, head);
      // The kernel only reads these states.
      call.head.starts = const_cast<float*>(args.f32(3)) +
                         (row * shape_.heads + head) * shape_.chunks() * shape_.state_elements();
      call.group = shape_.group();
      const int64_t of_k = call.head.k - RecurIn<T>(args, 1, 0);
      const int64_t of_v = call.head.v - RecurIn<T>(args, 2, 0);
      call.dcontext = RecurIn<T>(args, 4, of_v);
      call.dq = RecurOut<T>(args, 0, of_k);
      call.dk = RecurOut<T>(args, 1, of_k);
      call.dv = RecurOut<T>(args, 2, of_v);
      if (shape_.has_decay) {
        call.ddecay = RecurOut<T>(args, 3, call.head.decay - RecurIn<T>(args, kGradDecay, 0));
      }
      if (shape_.has_beta) {
        call.dbeta = RecurOut<T>(args, shape_.has_decay ? 4 : 3,
                                 call.head.beta - RecurIn<T>(args, kGradDecay + 1, 0));
      }
      recur_grad_(call,
                  reinterpret_cast<float*>(static_cast<char*>(args.scratch) + slot * slot_bytes_));
    });
    return absl::OkStatus();
  }

 private:
  const RecurrenceShape shape_;
  const RecurGradFn<T> recur_grad_;
  const int64_t items_;
  const int slots_;
  const int64_t slot_bytes_;
};

// -- References: token by token

// Operands of one head at one token, by elements.
class TokenOperands {
 public:
  TokenOperands(const ReferenceArgs& args, const RecurrenceShape& shape, size_t decay, int64_t row,
                int64_t head, int64_t t)
      : args_(args), shape_(shape), decay_(decay) {
    const int64_t token = row * shape.tokens + t;
    const auto at = [](int64_t i) { return static_cast<size_t>(i); };
    of_k = at((token * shape.key_heads + head / shape.group()) * shape.key_dim);
    of_v = at((token * shape.heads + head) * shape.value_dim);
    of_decay = at((token * shape.heads + head) * shape.decay_width());
    of_beta = at(token * shape.heads + head);
  }
  double q(size_t c) const { return args_.f(0)[of_k + c]; }
  double k(size_t c) const { return args_.f(1)[of_k + c]; }
  double v(size_t e) const { return args_.f(2)[of_v + e]; }
  double decay(size_t c) const {
    if (!shape_.has_decay) return 1;
    return std::exp(args_.f(decay_)[of_decay + (shape_.per_key ? c : 0)]);
  }
  double beta() const { return shape_.has_beta ? args_.f(decay_ + 1)[of_beta] : 1; }

  size_t of_k, of_v, of_decay, of_beta;  // offsets in the operands

 private:
  const ReferenceArgs& args_;
  const RecurrenceShape& shape_;
  const size_t decay_;
};

// Returns v - H' (a * k), or v without the delta rule.
std::vector<double> ResidualValue(const RecurrenceShape& shape, const TokenOperands& token,
                                  const std::vector<double>& h) {
  const size_t keys = static_cast<size_t>(shape.key_dim);
  std::vector<double> residual(static_cast<size_t>(shape.value_dim));
  for (size_t e = 0; e < residual.size(); ++e) {
    residual[e] = token.v(e);
    for (size_t c = 0; shape.has_beta && c < keys; ++c) {
      residual[e] -= h[c * residual.size() + e] * token.decay(c) * token.k(c);
    }
  }
  return residual;
}

// Advances the state by one token.
void AdvanceState(const RecurrenceShape& shape, const TokenOperands& token,
                  std::vector<double>* h) {
  const std::vector<double> residual = ResidualValue(shape, token, *h);
  for (size_t i = 0; i < h->size(); ++i) {
    const size_t c = i / residual.size(), e = i % residual.size();
    (*h)[i] = token.decay(c) * (*h)[i] + token.k(c) * token.beta() * residual[e];
  }
}

// Computes the contexts of one head from the state `h` on. Calls before(t, h) before each token.
template <class Before>
void ReferenceHead(const ReferenceArgs& args, const RecurrenceShape& shape, size_t decay,
                   int64_t row, int64_t head, std::vector<double>* h, const Before& before) {
  for (int64_t t = 0; t < shape.tokens; ++t) {
    before(t, *h);
    const TokenOperands token(args, shape, decay, row, head, t);
    AdvanceState(shape, token, h);
    for (size_t i = 0; i < h->size(); ++i) {
      const size_t values = static_cast<size_t>(shape.value_dim);
      args.out(0)[token.of_v + i % values] += token.q(i / values) * (*h)[i];
    }
  }
}

absl::Status ReferenceLinearAttention(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape,
                         ReadRecurrence({GetTypes(args), {}, args.attrs}, kDecay));
  const bool train = args.attrs.GetBool("train", false);
  for (int64_t item = 0; item < shape.batch * shape.heads; ++item) {
    std::vector<double> h(static_cast<size_t>(shape.state_elements()));
    ReferenceHead(args, shape, kDecay, item / shape.heads, item % shape.heads, &h,
                  [&](int64_t t, const std::vector<double>& before) {
                    if (!train || t % kRecurrenceChunk != 0) return;
                    const int64_t chunk = item * shape.chunks() + t / kRecurrenceChunk;
                    std::copy(before.begin(), before.end(),
                              args.out(1).begin() + chunk * shape.state_elements());
                  });
  }
  return absl::OkStatus();
}

absl::Status ReferenceLinearAttentionCached(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape,
                         ReadRecurrence({GetTypes(args), {}, args.attrs}, kCachedDecay));
  PLUMB_RETURN_IF_ERROR(CheckPositions(args.i(4).data(), shape.batch, shape.tokens,
                                       std::numeric_limits<int32_t>::max()));
  for (int64_t item = 0; item < shape.batch * shape.heads; ++item) {
    const int64_t row = item / shape.heads;
    const auto state = args.out(1).begin() + item * shape.state_elements();
    std::vector<double> h(state, state + shape.state_elements());
    if (args.i(4)[static_cast<size_t>(row * shape.tokens)] == 0) h.assign(h.size(), 0);
    ReferenceHead(args, shape, kCachedDecay, row, item % shape.heads, &h,
                  [](int64_t, const std::vector<double>&) {});
    std::copy(h.begin(), h.end(), state);
  }
  return absl::OkStatus();
}

// Adds the gradients of the operands of one token, given H before it and dH after it, and turns
// that into dH before it:
//   dq = H_t do, dH += q do'; du = dH' k; with y = b du: dk = dH u - a * (H y), da = H . dH - k *
//   (H y), db = du . (v - H'(a k)), dv = y; dH <- a * dH - (a * k) y'.
void BackToken(const ReferenceArgs& args, const RecurrenceShape& shape, const TokenOperands& token,
               const std::vector<double>& h, std::vector<double>* dh) {
  const size_t keys = static_cast<size_t>(shape.key_dim);
  const size_t values = static_cast<size_t>(shape.value_dim);
  const std::vector<double> residual = ResidualValue(shape, token, h);
  std::vector<double> after = h, y(values);
  AdvanceState(shape, token, &after);
  for (size_t c = 0; c < keys; ++c) {
    for (size_t e = 0; e < values; ++e) {
      const double dout = args.f(4)[token.of_v + e];
      args.out(0)[token.of_k + c] += after[c * values + e] * dout;
      (*dh)[c * values + e] += token.q(c) * dout;
    }
  }
  for (size_t e = 0; e < values; ++e) {
    double du = 0;
    for (size_t c = 0; c < keys; ++c) du += (*dh)[c * values + e] * token.k(c);
    y[e] = token.beta() * du;
    args.out(2)[token.of_v + e] += y[e];
    if (shape.has_beta) args.out(shape.has_decay ? 4 : 3)[token.of_beta] += du * residual[e];
  }
  for (size_t c = 0; c < keys; ++c) {
    const double a = token.decay(c);
    double of_k = 0, of_decay = 0;
    for (size_t e = 0; e < values; ++e) {
      double& d = (*dh)[c * values + e];
      const double hy = shape.has_beta ? h[c * values + e] * y[e] : 0;
      of_k += d * token.beta() * residual[e] - a * hy;
      of_decay += h[c * values + e] * d - token.k(c) * hy;
      d = a * (d - (shape.has_beta ? token.k(c) * y[e] : 0));
    }
    args.out(1)[token.of_k + c] += of_k;
    if (shape.has_decay) args.out(3)[token.of_decay + (shape.per_key ? c : 0)] += a * of_decay;
  }
}

absl::Status ReferenceLinearAttentionGrad(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const RecurrenceShape shape,
                         ReadRecurrence({GetTypes(args), {}, args.attrs}, kGradDecay));
  for (int64_t item = 0; item < shape.batch * shape.heads; ++item) {
    const auto token = [&](int64_t t) {
      return TokenOperands(args, shape, kGradDecay, item / shape.heads, item % shape.heads, t);
    };
    std::vector<std::vector<double>> before;  // states, indexed by token
    for (int64_t t = 0; t < shape.tokens; ++t) {
      if (t % kRecurrenceChunk == 0) {
        const int64_t chunk = item * shape.chunks() + t / kRecurrenceChunk;
        const auto start = args.f(3).begin() + chunk * shape.state_elements();
        before.emplace_back(start, start + shape.state_elements());
      } else {
        before.push_back(before.back());
        AdvanceState(shape, token(t - 1), &before.back());
      }
    }
    std::vector<double> dh(before[0].size());
    for (int64_t t = shape.tokens - 1; t >= 0; --t) {
      BackToken(args, shape, token(t), before[static_cast<size_t>(t)], &dh);
    }
  }
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterLinearAttention(OpRegistry* registry) {
  OpDef op;
  op.name = "linear_attention";
  op.min_inputs = 3;
  op.max_inputs = 5;
  op.infer = InferLinearAttention;
  op.vjp = VjpLinearAttention;
  op.make_kernel = MakeTypedKernel<LinearAttentionKernel>;
  op.reference = ReferenceLinearAttention;
  op.flops = LinearAttentionFlops;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "linear_attention_grad";
  grad.min_inputs = 5;
  grad.max_inputs = 7;
  grad.infer = InferLinearAttentionGrad;
  grad.make_kernel = MakeTypedKernel<LinearAttentionGradKernel>;
  grad.reference = ReferenceLinearAttentionGrad;
  grad.flops = LinearAttentionGradFlops;
  registry->Add(std::move(grad));

  OpDef cached;
  cached.name = "linear_attention_cached";
  cached.min_inputs = 5;
  cached.max_inputs = 7;
  cached.updates = {{1, 3}};
  cached.infer = InferLinearAttentionCached;
  cached.make_kernel = MakeTypedKernel<LinearAttentionCachedKernel>;
  cached.reference = ReferenceLinearAttentionCached;
  cached.flops = LinearAttentionCachedFlops;
  registry->Add(std::move(cached));
}

}  // namespace plumb
