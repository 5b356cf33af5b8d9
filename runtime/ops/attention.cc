// SPDX-License-Identifier: Apache-2.0
// attention, attention_grad and attention_sink_grad: softmax attention over whole sequences, causal
// or, given the sequences' lengths, over all of their tokens. Vaswani et al., "Attention is all you
// need" (2017), eq. 1; query heads that share keys: Ainslie et al., "GQA" (2023); capped scores:
// Gemma Team, "Gemma 2" (2024); a window: Beltagy et al., "Longformer" (2020); slopes: Press et
// al., "ALiBi" (2021); sinks: Miller, "Attention is off by one" (2023), learned as in gpt-oss;
// biases of keys: Lin et al., "Forgetting Transformer" (2025), eq. 5.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/bf16.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/attention/few_tokens.h"
#include "runtime/ops/attention_shape.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

constexpr size_t kSink = 3;         // operand of attention
constexpr size_t kLengths = 4;      // operand of attention
constexpr size_t kKeyBias = 5;      // operand of attention
constexpr size_t kGradLengths = 6;  // operand of attention_grad
constexpr size_t kGradKeyBias = 7;  // operand of attention_grad

// -- Shape rules

TensorType LseType(const AttentionShape& shape) {
  return F32({shape.batch, shape.heads, shape.tokens});
}

absl::StatusOr<std::vector<TensorType>> InferAttention(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionShape(types));
  PLUMB_RETURN_IF_ERROR(CheckSinks(types, kSink, shape));
  PLUMB_RETURN_IF_ERROR(CheckLengths(types, kLengths, shape));
  PLUMB_RETURN_IF_ERROR(
      CheckKeyBias(types, kKeyBias, shape, types.has(kSink) || types.has(kLengths)));
  return std::vector<TensorType>{types.in(0), LseType(shape)};
}

absl::StatusOr<std::vector<TensorType>> InferAttentionGrad(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionShape(types));
  if (types.in(3) != types.in(0) || types.in(5) != types.in(0) || types.in(4) != LseType(shape)) {
    return absl::InvalidArgumentError(
        absl::StrCat("context ", types.in(3).ToString(), " and dcontext ", types.in(5).ToString(),
                     " must be like q ", types.in(0).ToString(), ", and lse ",
                     types.in(4).ToString(), " must be ", LseType(shape).ToString()));
  }
  PLUMB_RETURN_IF_ERROR(CheckLengths(types, kGradLengths, shape));
  PLUMB_RETURN_IF_ERROR(CheckKeyBias(types, kGradKeyBias, shape, types.has(kGradLengths)));
  std::vector<TensorType> outputs = {types.in(0), types.in(1), types.in(2)};
  if (types.has(kGradKeyBias)) outputs.push_back(types.in(kGradKeyBias));
  return outputs;
}

absl::StatusOr<std::vector<TensorType>> InferAttentionSinkGrad(const OpTypes& types) {
  const TensorType &sink = types.in(0), &context = types.in(1), &lse = types.in(2);
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "context"));
  if (sink.shape.rank() != 1 || context.shape.rank() != 3 ||
      context.shape.last() % sink.shape[0] != 0 || types.in(3) != context ||
      lse != F32({context.shape[0], sink.shape[0], context.shape[1]})) {
    return absl::InvalidArgumentError(
        absl::StrCat("sinks ", sink.ToString(), ", context ", context.ToString(), ", lse ",
                     lse.ToString(), " and dcontext ", types.in(3).ToString(), " do not match"));
  }
  return std::vector<TensorType>{sink};
}

// -- VJP
//
// With p = softmax(s), s_ij = scale q_i . k_j and o_i = sum_j p_ij v_j:
//   dp_ij = do_i . v_j,  ds_ij = p_ij (dp_ij - sum_l p_il dp_il) = p_ij (dp_ij - do_i . o_i),
//   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i,  dv_j = sum_i p_ij do_i.
// The derivative of a capped score is 1 - tanh^2, by which ds_ij is multiplied. ALiBi's bias
// depends on no operand; that of a key j has the gradient sum_i ds_ij. A sink is a key with the
// value 0 and its own score; its gradient is ds_i = -p_i do_i . o_i for every query i. p is
// recomputed from lse. lse exists for this purpose only and has no gradient.
std::vector<ValueId> VjpAttention(GraphBuilder& b, const Node& node,
                                  absl::Span<const ValueId> d_outputs,
                                  const std::vector<bool>& wanted) {
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  if (d_outputs[0] == kNoValue) return gradients;
  std::vector<ValueId> inputs = {node.inputs[0],  node.inputs[1],  node.inputs[2],
                                 node.outputs[0], node.outputs[1], d_outputs[0]};
  inputs.insert(inputs.end(), node.inputs.begin() + std::min(kLengths, node.inputs.size()),
                node.inputs.end());
  const std::vector<ValueId> d = b.ApplyAll("attention_grad", std::move(inputs), node.attrs);
  std::copy_n(d.begin(), 3, gradients.begin());
  if (d.size() > 3) gradients[kKeyBias] = d[3];
  if (gradients.size() > kSink && node.inputs[kSink] != kNoValue && wanted[kSink]) {
    gradients[kSink] = b.Apply("attention_sink_grad", {node.inputs[kSink], node.outputs[0],
                                                       node.outputs[1], d_outputs[0]});
  }
  return gradients;
}

// -- Kernels

// Returns the slots for `items` items of `work` scalar operations; one if there is little work.
int SlotsFor(int64_t items, int64_t work) { return PlannedSlots(TaskCount(items, work)); }

float* Scratch(const KernelArgs& args, int slot, int64_t slot_bytes) {
  return reinterpret_cast<float*>(static_cast<char*>(args.scratch) + slot * slot_bytes);
}

template <class T>
const T* Operand(const KernelArgs& args, size_t i) {
  return static_cast<const T*>(args.in[i]);
}
template <class T>
T* Result(const KernelArgs& args, size_t i) {
  return static_cast<T*>(args.out[i]);
}

// Reads the lengths of the sequences; sets null if attention is causal.
absl::Status ReadLengths(const KernelArgs& args, size_t i, const AttentionShape& shape,
                         bool has_lengths, const int32_t** lengths) {
  *lengths = has_lengths ? args.i32(i) : nullptr;
  return has_lengths ? CheckLengthValues(*lengths, shape) : absl::OkStatus();
}

// Returns the functions for a few tokens if this attention is of their kind, else nulls.
template <class T>
FewTokensFns ChooseFewTokensFor(const AttentionShape& shape, bool is_plain) {
  if (!std::is_same<T, float>::value || !is_plain || shape.heads != shape.kv_heads ||
      shape.cap != 0 || shape.window != 0 || shape.alibi != 0) {
    return {nullptr, nullptr};
  }
  return ChooseFewTokens(shape.tokens, shape.heads, shape.head_dim);
}

// One item is a block of queries of one head, or a sequence of a few tokens.
template <class T>
class AttentionKernel : public Kernel {
 public:
  explicit AttentionKernel(const OpTypes& types)
      : shape_(ReadAttentionShape(types).value()),
        has_sinks_(types.has(kSink)),
        has_lengths_(types.has(kLengths)),
        has_key_bias_(types.has(kKeyBias)),
        attend_few_(
            ChooseFewTokensFor<T>(shape_, !has_sinks_ && !has_lengths_ && !has_key_bias_).attend),
        attend_(ChooseAttend<T>()),
        heads_(shape_.batch * shape_.heads),
        blocks_(CeilDiv(shape_.tokens, kQueryRows)),
        slots_(SlotsFor(heads_ * blocks_,
                        2 * heads_ * shape_.tokens * shape_.tokens * shape_.head_dim)),
        slot_bytes_(AlignUp(AttendScratchBytes(shape_.tokens, shape_.head_dim))) {}

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    if (attend_few_ != nullptr) {
      ParallelFor(shape_.batch, std::min(args.threads, slots_),
                  [&](int64_t row) { attend_few_(FewCall(args, row)); });
      return absl::OkStatus();
    }
    const int32_t* lengths = nullptr;
    PLUMB_RETURN_IF_ERROR(ReadLengths(args, kLengths, shape_, has_lengths_, &lengths));
    ParallelFor(heads_ * blocks_, std::min(args.threads, slots_), [&](int64_t item, int slot) {
      AttendArgs<T> call = Call(args, lengths, item);
      if (lengths != nullptr && shape_.window > 0) DropPadding(&call);
      if (call.queries > 0) attend_(call, Scratch(args, slot, slot_bytes_));
    });
    return absl::OkStatus();
  }

 private:
  FewTokensArgs FewCall(const KernelArgs& args, int64_t row) const {
    const int64_t at = row * shape_.tokens * shape_.q_stride();
    return {args.f32(0) + at,
            args.f32(1) + at,
            args.f32(2) + at,
            args.out_f32(0) + at,
            args.out_f32(1) + row * shape_.heads * shape_.tokens,
            shape_.tokens,
            shape_.heads,
            shape_.head_dim,
            static_cast<float>(shape_.scale)};
  }

  // Sets the results of queries behind the end of the sequence, whose windows may have no key, to
  // 0.
  static void DropPadding(AttendArgs<T>* call) {
    const int64_t left = std::max<int64_t>(0, call->keys - call->offset);
    for (int64_t i = left; i < call->queries; ++i) {
      std::fill_n(call->context + i * call->context_stride, call->head_dim, T{});
      call->lse[i] = 0;
    }
    call->queries = std::min(call->queries, left);
  }

  // Items are ordered by row of the batch, head and block. The last blocks of a head see the most
  // keys: they run first, and small ones balance the load at the end.
  AttendArgs<T> Call(const KernelArgs& args, const int32_t* lengths, int64_t item) const {
    const int64_t index = item / blocks_, block = blocks_ - 1 - item % blocks_;
    const int64_t row = index / shape_.heads, head = index % shape_.heads;
    const int64_t first = block * kQueryRows;
    const int64_t at = (row * shape_.tokens + first) * shape_.q_stride() + head * shape_.head_dim;
    const int64_t kv_at =
        row * shape_.tokens * shape_.kv_stride() + head / shape_.group() * shape_.head_dim;
    AttendArgs<T> call;
    call.q = Operand<T>(args, 0) + at;
    call.q_stride = shape_.q_stride();
    call.k = Operand<T>(args, 1) + kv_at;
    call.v = Operand<T>(args, 2) + kv_at;
    call.kv_stride = shape_.kv_stride();
    call.context = Result<T>(args, 0) + at;
    call.context_stride = shape_.q_stride();
    call.lse = args.out_f32(1) + index * shape_.tokens + first;
    call.queries = std::min(kQueryRows, shape_.tokens - first);
    call.offset = first;
    if (lengths != nullptr) call.keys = lengths[row];
    call.head_dim = shape_.head_dim;
    call.scale = static_cast<float>(shape_.scale);
    const float* const biases =
        has_key_bias_ ? args.f32(kKeyBias) + row * shape_.tokens * shape_.heads + head : nullptr;
    call.variant = shape_.Variant(head, has_sinks_ ? args.f32(kSink) + head : nullptr, biases);
    return call;
  }

  const AttentionShape shape_;
  const bool has_sinks_, has_lengths_, has_key_bias_;
  void (*const attend_few_)(const FewTokensArgs& args);  // or null
  const AttendFn<T> attend_;
  const int64_t heads_;
  const int64_t blocks_;
  const int slots_;
  const int64_t slot_bytes_;
};

// One item is a key head with all its query heads, so only one task writes its dk and dv, or a
// sequence of a few tokens.
template <class T>
class AttentionGradKernel : public Kernel {
 public:
  explicit AttentionGradKernel(const OpTypes& types)
      : shape_(ReadAttentionShape(types).value()),
        has_lengths_(types.has(kGradLengths)),
        has_key_bias_(types.has(kGradKeyBias)),
        attend_few_(ChooseFewTokensFor<T>(shape_, !has_lengths_ && !has_key_bias_).attend_grad),
        attend_grad_(ChooseAttendGrad<T>()),
        kv_heads_(shape_.batch * shape_.kv_heads),
        slots_(SlotsFor(kv_heads_, 5 * shape_.batch * shape_.heads * shape_.tokens * shape_.tokens *
                                       shape_.head_dim)),
        slot_bytes_(AlignUp(AttendGradScratchBytes(shape_.tokens, shape_.head_dim, sizeof(T)))) {
    for (int64_t head = 0; shape_.alibi > 0 && head < shape_.heads; ++head) {
      slopes_.push_back(static_cast<float>(shape_.Slope(head)));
    }
  }

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    if (attend_few_ != nullptr) {
      ParallelFor(shape_.batch, std::min(args.threads, slots_),
                  [&](int64_t row) { attend_few_(FewCall(args, row)); });
      return absl::OkStatus();
    }
    const int32_t* lengths = nullptr;
    PLUMB_RETURN_IF_ERROR(ReadLengths(args, kGradLengths, shape_, has_lengths_, &lengths));
    ParallelFor(kv_heads_, std::min(args.threads, slots_), [&](int64_t item, int slot) {
      attend_grad_(Call(args, lengths, item), Scratch(args, slot, slot_bytes_));
    });
    return absl::OkStatus();
  }

 private:
  FewTokensGradArgs FewCall(const KernelArgs& args, int64_t row) const {
    const int64_t at = row * shape_.tokens * shape_.q_stride();
    return {args.f32(0) + at,
            args.f32(1) + at,
            args.f32(2) + at,
            args.f32(3) + at,
            args.f32(5) + at,
            args.f32(4) + row * shape_.heads * shape_.tokens,
            args.out_f32(0) + at,
            args.out_f32(1) + at,
            args.out_f32(2) + at,
            shape_.tokens,
            shape_.heads,
            shape_.head_dim,
            static_cast<float>(shape_.scale)};
  }

  AttendGradArgs<T> Call(const KernelArgs& args, const int32_t* lengths, int64_t item) const {
    const int64_t row = item / shape_.kv_heads, kv_head = item % shape_.kv_heads;
    const int64_t head = kv_head * shape_.group();
    const int64_t at = row * shape_.tokens * shape_.q_stride() + head * shape_.head_dim;
    const int64_t kv_at = row * shape_.tokens * shape_.kv_stride() + kv_head * shape_.head_dim;
    AttendGradArgs<T> call;
    call.q = Operand<T>(args, 0) + at;
    call.context = Operand<T>(args, 3) + at;
    call.dcontext = Operand<T>(args, 5) + at;
    call.dq = Result<T>(args, 0) + at;
    call.q_stride = shape_.q_stride();
    call.k = Operand<T>(args, 1) + kv_at;
    call.v = Operand<T>(args, 2) + kv_at;
    call.dk = Result<T>(args, 1) + kv_at;
    call.dv = Result<T>(args, 2) + kv_at;
    call.kv_stride = shape_.kv_stride();
    call.lse = args.f32(4) + (row * shape_.heads + head) * shape_.tokens;
    call.tokens = shape_.tokens;
    if (lengths != nullptr) call.keys = lengths[row];
    call.group = shape_.group();
    call.head_dim = shape_.head_dim;
    call.scale = static_cast<float>(shape_.scale);
    const int64_t bias = row * shape_.tokens * shape_.heads + head;
    if (has_key_bias_) call.dkey_bias = args.out_f32(3) + bias;
    call.variant =
        shape_.Variant(head, nullptr, has_key_bias_ ? args.f32(kGradKeyBias) + bias : nullptr);
    call.slopes = slopes_.empty() ? nullptr : slopes_.data() + head;
    return call;
  }

  const AttentionShape shape_;
  const bool has_lengths_, has_key_bias_;
  std::vector<float> slopes_;                                // indexed by head; empty: none
  void (*const attend_few_)(const FewTokensGradArgs& args);  // or null
  const AttendGradFn<T> attend_grad_;
  const int64_t kv_heads_;
  const int slots_;
  const int64_t slot_bytes_;
};

// One item is a head. The contributions of its queries are added in order, in double.
template <class T>
class AttentionSinkGradKernel : public Kernel {
 public:
  explicit AttentionSinkGradKernel(const OpTypes& types)
      : batch_(types.in(1).shape[0]),
        tokens_(types.in(1).shape[1]),
        heads_(types.in(0).shape[0]),
        head_dim_(types.in(1).shape.last() / heads_) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t tasks = TaskCount(heads_, batch_ * tokens_ * heads_ * head_dim_);
    ParallelFor(tasks, args.threads, [&](int64_t task) {
      const Range range = TaskRange(heads_, tasks, task);
      for (int64_t head = range.begin; head < range.end; ++head) {
        args.out_f32(0)[head] = static_cast<float>(ComputeHead(args, head));
      }
    });
    return absl::OkStatus();
  }

 private:
  static float Element(const float* x) { return *x; }
  static float Element(const uint16_t* x) { return FloatFromBf16(*x); }

  double ComputeHead(const KernelArgs& args, int64_t head) const {
    const float sink = args.f32(0)[head];
    double sum = 0;
    for (int64_t row = 0; row < batch_; ++row) {
      const float* lse = args.f32(2) + (row * heads_ + head) * tokens_;
      for (int64_t t = 0; t < tokens_; ++t) {
        const int64_t at = ((row * tokens_ + t) * heads_ + head) * head_dim_;
        const T *context = Operand<T>(args, 1) + at, *dcontext = Operand<T>(args, 3) + at;
        float dot = 0;
        for (int64_t e = 0; e < head_dim_; ++e) dot += Element(context + e) * Element(dcontext + e);
        sum -= static_cast<double>(std::exp(sink - lse[t]) * dot);
      }
    }
    return sum;
  }

  const int64_t batch_, tokens_, heads_, head_dim_;
};

// -- References

// Offsets of element 0 of token t of a head.
struct Places {
  const AttentionShape& shape;
  size_t q(int64_t row, int64_t head, int64_t t) const {
    return static_cast<size_t>(((row * shape.tokens + t) * shape.heads + head) * shape.head_dim);
  }
  size_t kv(int64_t row, int64_t head, int64_t t) const {
    return static_cast<size_t>(((row * shape.tokens + t) * shape.kv_heads + head / shape.group()) *
                               shape.head_dim);
  }
  size_t bias(int64_t row, int64_t head, int64_t t) const {
    return q(row, head, t) / static_cast<size_t>(shape.head_dim);
  }
};

// Returns the bias of the key minus that of the query's own key; 0 if operand i is absent.
double KeyBias(const ReferenceArgs& args, size_t i, const Places& at, int64_t row, int64_t head,
               int64_t query, int64_t key) {
  if (!args.has(i)) return 0;
  return args.f(i)[at.bias(row, head, key)] - args.f(i)[at.bias(row, head, query)];
}

// Keys [begin, end), visible to a query.
struct Keys {
  int64_t begin, end;
};
Keys SelectKeys(const ReferenceArgs& args, size_t lengths, const AttentionShape& shape, int64_t row,
                int64_t query) {
  if (!args.has(lengths)) return {shape.first_key(query), query + 1};
  return {shape.first_key(query), shape.end_key(query, args.i(lengths)[static_cast<size_t>(row)])};
}

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Calls body(row, head, query) for all of them.
template <class Body>
void ForEachQuery(const AttentionShape& shape, const Body& body) {
  for (int64_t row = 0; row < shape.batch; ++row) {
    for (int64_t head = 0; head < shape.heads; ++head) {
      for (int64_t i = 0; i < shape.tokens; ++i) body(row, head, i);
    }
  }
}

absl::Status ReferenceAttention(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape,
                         ReadAttentionShape({GetTypes(args), {}, args.attrs}));
  if (args.has(kLengths)) {
    PLUMB_RETURN_IF_ERROR(CheckLengthValues(args.i(kLengths).data(), shape));
  }
  const Places at{shape};
  const int64_t c = shape.head_dim;
  ForEachQuery(shape, [&](int64_t row, int64_t head, int64_t i) {
    const Keys keys = SelectKeys(args, kLengths, shape, row, i);
    if (keys.begin >= keys.end) return;
    std::vector<double> score;  // scores of the visible keys, and of a sink
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const double dot = Dot(&args.f(0)[at.q(row, head, i)], &args.f(1)[at.kv(row, head, j)], c);
      score.push_back(shape.Capped(shape.scale * dot) + shape.DistanceBias(head, i, j) +
                      KeyBias(args, kKeyBias, at, row, head, i, j));
    }
    if (args.has(kSink)) score.push_back(args.f(kSink)[static_cast<size_t>(head)]);
    const double top = *std::max_element(score.begin(), score.end());
    double total = 0;
    for (const double s : score) total += std::exp(s - top);
    const double lse = top + std::log(total);
    args.out(1)[static_cast<size_t>((row * shape.heads + head) * shape.tokens + i)] = lse;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const double p = std::exp(score[static_cast<size_t>(j - keys.begin)] - lse);
      for (int64_t e = 0; e < c; ++e) {
        args.out(0)[at.q(row, head, i) + static_cast<size_t>(e)] +=
            p * args.f(2)[at.kv(row, head, j) + static_cast<size_t>(e)];
      }
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceAttentionGrad(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape,
                         ReadAttentionShape({GetTypes(args), {}, args.attrs}));
  if (args.has(kGradLengths)) {
    PLUMB_RETURN_IF_ERROR(CheckLengthValues(args.i(kGradLengths).data(), shape));
  }
  const Places at{shape};
  const int64_t c = shape.head_dim;
  ForEachQuery(shape, [&](int64_t row, int64_t head, int64_t i) {
    const Keys keys = SelectKeys(args, kGradLengths, shape, row, i);
    const size_t qi = at.q(row, head, i);
    const double lse =
        args.f(4)[static_cast<size_t>((row * shape.heads + head) * shape.tokens + i)];
    const double dot = Dot(&args.f(5)[qi], &args.f(3)[qi], c);
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const size_t kj = at.kv(row, head, j);
      const double score = shape.Capped(shape.scale * Dot(&args.f(0)[qi], &args.f(1)[kj], c));
      const double derivative = shape.cap == 0 ? 1 : 1 - std::pow(score / shape.cap, 2);
      const double bias =
          shape.DistanceBias(head, i, j) + KeyBias(args, kGradKeyBias, at, row, head, i, j);
      const double p = std::exp(score + bias - lse);
      const double ds = p * (Dot(&args.f(5)[qi], &args.f(2)[kj], c) - dot) * derivative;
      for (size_t e = 0; e < static_cast<size_t>(c); ++e) {
        args.out(0)[qi + e] += shape.scale * ds * args.f(1)[kj + e];
        args.out(1)[kj + e] += shape.scale * ds * args.f(0)[qi + e];
        args.out(2)[kj + e] += p * args.f(5)[qi + e];
      }
      if (args.has(kGradKeyBias)) args.out(3)[at.bias(row, head, j)] += ds;
    }
  });
  return absl::OkStatus();
}

absl::Status ReferenceAttentionSinkGrad(const ReferenceArgs& args) {
  const size_t heads = args.f(0).size(), tokens = static_cast<size_t>(args.shape(1)[1]);
  const size_t width = static_cast<size_t>(args.shape(1).last()), c = width / heads;
  for (size_t i = 0; i < args.f(1).size(); ++i) {
    const size_t head = i % width / c, t = i / width % tokens, row = i / width / tokens;
    const double p = std::exp(args.f(0)[head] - args.f(2)[(row * heads + head) * tokens + t]);
    args.out(0)[head] -= p * args.f(1)[i] * args.f(3)[i];
  }
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterAttention(OpRegistry* registry) {
  OpDef op;
  op.name = "attention";
  op.min_inputs = 3;
  op.max_inputs = 6;
  op.infer = InferAttention;
  op.vjp = VjpAttention;
  op.make_kernel = MakeTypedKernel<AttentionKernel>;
  op.reference = ReferenceAttention;
  op.flops = AttentionFlops;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "attention_grad";
  grad.min_inputs = 6;
  grad.max_inputs = 8;
  grad.infer = InferAttentionGrad;
  grad.make_kernel = MakeTypedKernel<AttentionGradKernel>;
  grad.reference = ReferenceAttentionGrad;
  grad.flops = AttentionGradFlops;
  registry->Add(std::move(grad));

  OpDef sink;
  sink.name = "attention_sink_grad";
  sink.min_inputs = sink.max_inputs = 4;
  sink.infer = InferAttentionSinkGrad;
  sink.make_kernel = MakeTypedKernel<AttentionSinkGradKernel, 1>;
  sink.reference = ReferenceAttentionSinkGrad;
  registry->Add(std::move(sink));
}

}  // namespace plumb
