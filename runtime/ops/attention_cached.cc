// SPDX-License-Identifier: Apache-2.0
// attention_cached: appends new tokens to a cache of keys and values, and computes their causal
// attention to it. It serves prefill in chunks and decoding token by token, which differ in T only,
// and a prompt's chunk that only needs the contexts of its last tokens, with fewer queries.
//
// With a window the cache is a ring: position p has row p mod capacity, which may equal the window.
// One new token reads the ring in place. With several, the last may overwrite keys that the first
// still attends to, so the visible keys and values are first copied to scratch.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/ops/attention_shape.h"
#include "runtime/ops/flops.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

constexpr size_t kCachedSink = 6, kNewBias = 7, kBiasCache = 8;

// -- Shape rule

absl::StatusOr<std::vector<TensorType>> InferAttentionCached(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadCachedAttentionShape(types));
  const TensorType &k_cache = types.in(3), &v_cache = types.in(4), &positions = types.in(5);
  if (k_cache.dtype != types.in(0).dtype || k_cache.shape.rank() != 4 ||
      k_cache.shape[0] != shape.batch || k_cache.shape[1] != shape.kv_heads ||
      k_cache.shape.last() != shape.head_dim || v_cache != k_cache) {
    return absl::InvalidArgumentError(
        absl::StrCat("the caches are ", k_cache.ToString(), " and ", v_cache.ToString(),
                     ", both must be ", DTypeName(types.in(0).dtype), "[", shape.batch, ", ",
                     shape.kv_heads, ", capacity, ", shape.head_dim, "]"));
  }
  if (k_cache.shape[2] < shape.window) {
    return absl::InvalidArgumentError(absl::StrCat(
        "caches of ", k_cache.shape[2], " tokens do not hold a window of ", shape.window));
  }
  if (positions != I32({shape.batch, shape.tokens})) {
    return absl::InvalidArgumentError(absl::StrCat("positions are ", positions.ToString(),
                                                   ", must be i32[", shape.batch, ", ",
                                                   shape.tokens, "]"));
  }
  PLUMB_RETURN_IF_ERROR(CheckSinks(types, kCachedSink, shape));
  std::vector<TensorType> outputs = {types.in(0), k_cache, v_cache};
  if (!types.has(kNewBias)) return outputs;
  PLUMB_RETURN_IF_ERROR(CheckKeyBias(types, kNewBias, shape, types.has(kCachedSink)));
  outputs.push_back(F32({shape.batch, 1, k_cache.shape[2], shape.heads}));
  if (!types.has(kBiasCache) || types.in(kBiasCache) != outputs.back()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the cache of biases must be ", outputs.back().ToString()));
  }
  return outputs;
}

// No VJP: the op is used for sampling only.

// -- Kernel

// With this many new tokens, packing the cache for matrix products pays off.
constexpr int64_t kMinPackedQueries = 8;

// One item is one query head of one row of the batch; with enough new tokens, a block of them.
template <class T>
class AttentionCachedKernel : public Kernel {
 public:
  explicit AttentionCachedKernel(const OpTypes& types)
      : shape_(ReadCachedAttentionShape(types).value()),
        has_sinks_(types.has(kCachedSink)),
        has_key_bias_(types.has(kNewBias)),
        capacity_(types.in(3).shape[2]),
        packed_(shape_.queries >= kMinPackedQueries),
        attend_(ChooseAttend<T>()),
        attend_one_(ChooseAttendOne<T>(shape_.head_dim)),
        heads_(shape_.batch * shape_.heads),
        kv_heads_(shape_.batch * shape_.kv_heads),
        blocks_(packed_ ? CeilDiv(shape_.queries, kQueryRows) : 1),
        laid_out_(shape_.window > 0 && shape_.tokens > 1
                      ? kKeyBlock - 1 + shape_.window - 1 + shape_.queries
                      : 0),
        slots_(PlannedSlots(TaskCount(heads_ * blocks_, Work(capacity_)))),
        slot_bytes_(AlignUp(packed_ ? AttendScratchBytes(shape_.queries, shape_.head_dim)
                                    : AttendOneScratchBytes(capacity_))) {}

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_ + 2 * LaidOutBytes(); }

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* positions = args.i32(5);
    // A ring holds any position.
    const int64_t end = shape_.window > 0 ? std::numeric_limits<int32_t>::max() : capacity_;
    PLUMB_RETURN_IF_ERROR(CheckPositions(positions, shape_.batch, shape_.tokens, end));
    int64_t keys = 0;
    for (int64_t row = 0; row < shape_.batch; ++row) {
      keys = std::max<int64_t>(keys, positions[row * shape_.tokens] + shape_.tokens);
    }
    for (int64_t row = 0; has_key_bias_ && row < shape_.batch; ++row) {
      const int64_t elements = shape_.tokens * shape_.heads;
      const int64_t to = (row * capacity_ + FirstPosition(args, row)) * shape_.heads;
      std::copy_n(args.f32(kNewBias) + row * elements, elements, args.out_f32(3) + to);
    }
    const bool lays_out = shape_.tokens > 1 && keys > capacity_;
    const int64_t tasks = TaskCount(kv_heads_, kv_heads_ * shape_.tokens * shape_.head_dim);
    ParallelFor(tasks, args.threads, [&](int64_t i) {
      const Range range = TaskRange(kv_heads_, tasks, i);
      for (int64_t index = range.begin; index < range.end; ++index) {
        if (lays_out) LayOut(args, index);
        Join(args, index);
      }
    });

    const int64_t items = heads_ * blocks_;
    const int64_t seen = std::min(keys, capacity_ + shape_.tokens);
    const int64_t threads = std::min<int64_t>({args.threads, slots_, TaskCount(items, Work(seen))});
    ParallelFor(items, static_cast<int>(threads), [&](int64_t item, int slot) {
      char* scratch = static_cast<char*>(args.scratch) + slot * slot_bytes_;
      // The last blocks see the most keys, so they run first.
      const int64_t index = item % heads_, block = blocks_ - 1 - item / heads_;
      const Keys of_head = lays_out ? LaidOut(args, index) : InCache(args, index);
      RunHead(args, index, block, of_head, reinterpret_cast<float*>(scratch));
    });
    return absl::OkStatus();
  }

 private:
  // Keys and values of one head, from position `first` on.
  struct Keys {
    const T* k;
    const T* v;
    int64_t first;
  };

  int64_t Work(int64_t keys) const { return 4 * heads_ * shape_.queries * keys * shape_.head_dim; }
  static T* Cache(const KernelArgs& args, size_t i) { return static_cast<T*>(args.out[i]); }

  // Returns the bytes of the copied keys of all heads; 0 if they are never copied. They begin at a
  // block boundary, because a kernel reads whole blocks of keys.
  int64_t LaidOutBytes() const {
    return AlignUp(kv_heads_ * laid_out_ * shape_.head_dim * static_cast<int64_t>(sizeof(T)));
  }
  T* LaidOutRows(const KernelArgs& args, int64_t which) const {
    return reinterpret_cast<T*>(static_cast<char*>(args.scratch) + slots_ * slot_bytes_ +
                                which * LaidOutBytes());
  }
  int64_t FirstPosition(const KernelArgs& args, int64_t row) const {
    return args.i32(5)[row * shape_.tokens];
  }
  // Returns the position of the first query, and of the first copied key.
  int64_t FirstQuery(const KernelArgs& args, int64_t row) const {
    return FirstPosition(args, row) + shape_.tokens - shape_.queries;
  }
  int64_t FirstLaidOut(const KernelArgs& args, int64_t row) const {
    return shape_.first_key(FirstQuery(args, row)) / kKeyBlock * kKeyBlock;
  }

  // Returns the copied keys of a query head; `index` counts the heads of all batch rows.
  Keys LaidOut(const KernelArgs& args, int64_t index) const {
    const int64_t at = index / shape_.group() * laid_out_ * shape_.head_dim;
    return {LaidOutRows(args, 0) + at, LaidOutRows(args, 1) + at,
            FirstLaidOut(args, index / shape_.heads)};
  }
  Keys InCache(const KernelArgs& args, int64_t index) const {
    const int64_t at = index / shape_.group() * capacity_ * shape_.head_dim;
    return {Cache(args, 1) + at, Cache(args, 2) + at, 0};
  }

  // Returns the offset of a new token's keys or values in the operand; `index` counts the key heads
  // of all batch rows.
  int64_t NewRow(int64_t index, int64_t token) const {
    const int64_t row = index / shape_.kv_heads, head = index % shape_.kv_heads;
    return (row * shape_.tokens + token) * shape_.kv_stride() + head * shape_.head_dim;
  }
  int64_t RingRow(int64_t index, int64_t position) const {
    return (index * capacity_ + position % capacity_) * shape_.head_dim;
  }

  // Copies keys and values of a key head to scratch, old ones from the ring and new ones. Positions
  // before the window of the first query are in a block but not visible: they are zeroed.
  void LayOut(const KernelArgs& args, int64_t index) const {
    const int64_t row = index / shape_.kv_heads, c = shape_.head_dim;
    const int64_t first_new = FirstPosition(args, row), begin = FirstLaidOut(args, row);
    const int64_t seen = shape_.first_key(FirstQuery(args, row));
    for (const size_t which : {0, 1}) {
      const T* added = static_cast<const T*>(args.in[1 + which]);
      const T* cache = Cache(args, 1 + which);
      T* to = LaidOutRows(args, static_cast<int64_t>(which)) + index * laid_out_ * c;
      for (int64_t p = begin; p < first_new + shape_.tokens; ++p, to += c) {
        if (p < seen) {
          std::fill_n(to, c, T{0});
        } else if (p < first_new) {
          std::copy_n(cache + RingRow(index, p), c, to);
        } else {
          std::copy_n(added + NewRow(index, p - first_new), c, to);
        }
      }
    }
  }

  // Writes the new keys and values of a key head to the caches, except those overwritten later.
  void Join(const KernelArgs& args, int64_t index) const {
    const int64_t first = FirstPosition(args, index / shape_.kv_heads), c = shape_.head_dim;
    for (int64_t t = std::max<int64_t>(0, shape_.tokens - capacity_); t < shape_.tokens; ++t) {
      const int64_t from = NewRow(index, t), to = RingRow(index, first + t);
      std::copy_n(static_cast<const T*>(args.in[1]) + from, c, Cache(args, 1) + to);
      std::copy_n(static_cast<const T*>(args.in[2]) + from, c, Cache(args, 2) + to);
    }
  }

  void RunHead(const KernelArgs& args, int64_t index, int64_t block, const Keys& keys,
               float* scratch) const {
    const int64_t row = index / shape_.heads, head = index % shape_.heads;
    const int64_t skipped = block * kQueryRows, c = shape_.head_dim;
    const int64_t at = (row * shape_.queries + skipped) * shape_.q_stride() + head * c;
    const int64_t first = FirstQuery(args, row) + skipped;
    const float scale = static_cast<float>(shape_.scale);
    const SoftmaxVariant variant = shape_.Variant(
        head, has_sinks_ ? args.f32(kCachedSink) + head : nullptr,
        has_key_bias_ ? args.out_f32(3) + row * capacity_ * shape_.heads + head : nullptr);
    const T* q = static_cast<const T*>(args.in[0]) + at;
    T* context = static_cast<T*>(args.out[0]) + at;
    if (packed_) {
      AttendArgs<T> call;
      call.q = q;
      call.q_stride = shape_.q_stride();
      call.k = keys.k;
      call.v = keys.v;
      call.kv_stride = c;
      call.context = context;
      call.context_stride = shape_.q_stride();
      call.lse = nullptr;
      call.queries = std::min(kQueryRows, shape_.queries - skipped);
      call.offset = first - keys.first;
      call.head_dim = c;
      call.scale = scale;
      call.variant = variant;
      attend_(call, scratch);
      return;
    }
    for (int64_t t = 0; t < shape_.queries; ++t) {
      const int64_t first_key = shape_.first_key(first + t);
      AttendOneArgs<T> call;
      call.q = q + t * shape_.q_stride();
      call.keys = first + t + 1 - first_key;
      call.head_dim = c;
      call.scale = scale;
      call.variant = variant;
      call.context = context + t * shape_.q_stride();
      int64_t at_key = first_key - keys.first;
      if (shape_.tokens == 1 && shape_.window > 0) {
        at_key %= capacity_;
        call.ring = capacity_;
        call.straight = capacity_ - at_key;
      }
      call.k = keys.k + at_key * c;
      call.v = keys.v + at_key * c;
      attend_one_(call, scratch);
    }
  }

  const AttentionShape shape_;
  const bool has_sinks_, has_key_bias_;
  const int64_t capacity_;
  const bool packed_;
  const AttendFn<T> attend_;
  const AttendOneFn<T> attend_one_;
  const int64_t heads_;
  const int64_t kv_heads_;
  const int64_t blocks_;
  // Max number of copied keys and values of a head: those visible to the queries, from the
  // beginning of a block on.
  const int64_t laid_out_;
  const int slots_;
  const int64_t slot_bytes_;
};

// -- Reference

absl::Status ReferenceAttentionCached(const ReferenceArgs& args) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape,
                         ReadCachedAttentionShape({GetTypes(args), {}, args.attrs}));
  const int64_t capacity = args.shape(3)[2], c = shape.head_dim;
  const int64_t end = shape.window > 0 ? std::numeric_limits<int32_t>::max() : capacity;
  PLUMB_RETURN_IF_ERROR(CheckPositions(args.i(5).data(), shape.batch, shape.tokens, end));
  for (int64_t row = 0; row < shape.batch; ++row) {
    const int64_t first = args.i(5)[static_cast<size_t>(row * shape.tokens)];
    // Element 0 of a head's key (which = 0) or value (1) at a position: a new one, or one of the
    // cache before new tokens overwrite it in a ring.
    const auto old_row = [&](int64_t head, int64_t position) {
      const int64_t at = (row * shape.kv_heads + head) * capacity + position % capacity;
      return static_cast<size_t>(at * c);
    };
    const auto new_row = [&](int64_t head, int64_t position) {
      const int64_t at = row * shape.tokens + position - first;
      return static_cast<size_t>(at * shape.kv_stride() + head * c);
    };
    const auto row_of = [&](size_t which, int64_t head, int64_t position) {
      return position < first ? &args.f(3 + which)[old_row(head, position)]
                              : &args.f(1 + which)[new_row(head, position)];
    };
    // Bias of a head's key, a new one or one of the cache.
    const auto bias_of = [&](int64_t head, int64_t position) {
      const bool is_new = position >= first;
      const int64_t at = is_new ? row * shape.tokens + position - first : row * capacity + position;
      return args.f(is_new ? kNewBias : kBiasCache)[static_cast<size_t>(at * shape.heads + head)];
    };
    for (int64_t t = 0; t < shape.queries; ++t) {
      const int64_t position = first + shape.tokens - shape.queries + t;
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t q = ((row * shape.queries + t) * shape.heads + head) * c;
        const int64_t kv_head = head / shape.group(), first_key = shape.first_key(position);
        std::vector<double> weight;  // weights of the visible keys
        for (int64_t j = first_key; j <= position; ++j) {
          const double* key = row_of(0, kv_head, j);
          double dot = 0;
          for (int64_t e = 0; e < c; ++e) dot += args.f(0)[static_cast<size_t>(q + e)] * key[e];
          weight.push_back(shape.Capped(shape.scale * dot) + shape.DistanceBias(head, position, j));
          if (args.has(kNewBias)) weight.back() += bias_of(head, j) - bias_of(head, position);
        }
        double top = *std::max_element(weight.begin(), weight.end());
        double total = 0;
        if (args.has(kCachedSink)) {
          const double sink = args.f(kCachedSink)[static_cast<size_t>(head)];
          top = std::max(top, sink);
          total = std::exp(sink - top);
        }
        for (double& w : weight) total += w = std::exp(w - top);
        for (int64_t j = first_key; j <= position; ++j) {
          const double p = weight[static_cast<size_t>(j - first_key)] / total;
          const double* value = row_of(1, kv_head, j);
          for (int64_t e = 0; e < c; ++e) args.out(0)[static_cast<size_t>(q + e)] += p * value[e];
        }
      }
    }
    for (int64_t position = first; position < first + shape.tokens; ++position) {
      for (int64_t head = 0; head < shape.kv_heads; ++head) {
        for (const size_t which : {0, 1}) {
          std::copy_n(&args.f(1 + which)[new_row(head, position)], c,
                      &args.out(1 + which)[old_row(head, position)]);
        }
      }
      for (int64_t head = 0; args.has(kNewBias) && head < shape.heads; ++head) {
        const int64_t to = (row * capacity + position) * shape.heads + head;
        args.out(3)[static_cast<size_t>(to)] = bias_of(head, position);
      }
    }
  }
  return absl::OkStatus();
}

// -- Keys as values
//
// attention_cached_keys(q, k, k_cache, positions (, sink)) -> context, k_cache' is attention_cached
// with values that are the keys, and one cache for both.

// Returns the operands of attention_cached for those of attention_cached_keys.
template <class T>
std::vector<T> WithValues(absl::Span<const T> in) {
  std::vector<T> all = {in[0], in[1], in[1], in[2], in[2]};
  all.insert(all.end(), in.begin() + 3, in.end());
  return all;
}

absl::StatusOr<std::vector<TensorType>> InferAttentionCachedKeys(const OpTypes& types) {
  const std::vector<const TensorType*> inputs = WithValues(types.inputs);
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorType> outputs,
                         InferAttentionCached({inputs, {}, types.attrs}));
  outputs.pop_back();
  return outputs;
}

class AttentionCachedKeysKernel : public Kernel {
 public:
  AttentionCachedKeysKernel(std::unique_ptr<Kernel> attention, size_t inputs)
      : attention_(std::move(attention)), inputs_(inputs) {}

  int64_t scratch_bytes() const override { return attention_->scratch_bytes(); }
  absl::Status Run(const KernelArgs& args) const override {
    const void* in[kCachedSink + 1] = {args.in[0], args.in[1], args.in[1], args.in[2], args.in[2]};
    std::copy_n(args.in + 3, inputs_ - 3, in + 5);
    void* const out[] = {args.out[0], args.out[1], args.out[1]};
    return attention_->Run({in, out, args.scratch, args.threads});
  }

 private:
  const std::unique_ptr<Kernel> attention_;
  const size_t inputs_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeAttentionCachedKeysKernel(const OpTypes& types) {
  const std::vector<const TensorType*> inputs = WithValues(types.inputs);
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<Kernel> attention,
                         MakeTypedKernel<AttentionCachedKernel>({inputs, {}, types.attrs}));
  return std::make_unique<AttentionCachedKeysKernel>(std::move(attention), types.inputs.size());
}

absl::Status ReferenceAttentionCachedKeys(const ReferenceArgs& args) {
  const std::vector<const ReferenceTensor*> inputs = WithValues(args.inputs);
  const std::vector<ReferenceTensor*> outputs = {args.outputs[0], args.outputs[1], args.outputs[1]};
  return ReferenceAttentionCached({inputs, outputs, args.attrs});
}

}  // namespace

// -- Registration

void RegisterAttentionCached(OpRegistry* registry) {
  OpDef op;
  op.name = "attention_cached";
  op.min_inputs = 6;
  op.max_inputs = 7;
  op.updates = {{1, 3}, {2, 4}};
  op.infer = InferAttentionCached;
  op.make_kernel = MakeTypedKernel<AttentionCachedKernel>;
  op.reference = ReferenceAttentionCached;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  op.flops = AttentionCachedFlops;
  registry->Add(op);

  OpDef biased = op;
  biased.name = "attention_cached_bias";
  biased.max_inputs = 9;
  biased.updates = {{1, 3}, {2, 4}, {3, 8}};
  registry->Add(std::move(biased));

  op.name = "attention_cached_keys";
  op.min_inputs = 4;
  op.max_inputs = 5;
  op.updates = {{1, 2}};
  op.infer = InferAttentionCachedKeys;
  op.make_kernel = MakeAttentionCachedKeysKernel;
  op.reference = ReferenceAttentionCachedKeys;
  registry->Add(std::move(op));
}

}  // namespace plumb
