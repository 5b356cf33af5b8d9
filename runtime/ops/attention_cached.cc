// attention_cached: causal attention of new tokens to a cache of keys and values that they join
// first. Prefill in chunks and decoding token by token are the same op with other T, and so is a
// prompt of which only the last tokens' contexts are wanted, with fewer queries.
#include <algorithm>
#include <cmath>
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
#include "runtime/ops/ops.h"
#include "runtime/ops/token_positions.h"

namespace plumb {
namespace {

constexpr size_t kCachedSink = 6;

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
  if (positions != I32({shape.batch, shape.tokens})) {
    return absl::InvalidArgumentError(absl::StrCat("positions are ", positions.ToString(),
                                                   ", must be i32[", shape.batch, ", ",
                                                   shape.tokens, "]"));
  }
  PLUMB_RETURN_IF_ERROR(CheckSinks(types, kCachedSink, shape));
  return std::vector<TensorType>{types.in(0), k_cache, v_cache};
}

// No VJP: it belongs to sampling.

// -- Kernel

// From this many new tokens on, packing the cache for matrix products costs less than it saves.
constexpr int64_t kMinPackedQueries = 8;

// One item is one query head of one row of the batch: with enough new tokens, a block of them.
template <class T>
class AttentionCachedKernel : public Kernel {
 public:
  AttentionCachedKernel(const AttentionShape& shape, bool has_sinks, int64_t capacity)
      : shape_(shape),
        has_sinks_(has_sinks),
        capacity_(capacity),
        packed_(shape.queries >= kMinPackedQueries),
        attend_(ChooseAttend<T>()),
        attend_one_(ChooseAttendOne<T>(shape.head_dim)),
        heads_(shape.batch * shape.heads),
        blocks_(packed_ ? CeilDiv(shape.queries, kQueryRows) : 1),
        slots_(PlannedSlots(TaskCount(heads_ * blocks_, Work(capacity)))),
        slot_bytes_(AlignUp(packed_ ? AttendScratchBytes(shape.queries, shape.head_dim)
                                    : AttendOneScratchBytes(capacity))) {}

  int64_t scratch_bytes() const override { return slots_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* positions = args.i32(5);
    PLUMB_RETURN_IF_ERROR(CheckPositions(positions, shape_.batch, shape_.tokens, capacity_));
    int64_t keys = 0;
    for (int64_t row = 0; row < shape_.batch; ++row) {
      keys = std::max<int64_t>(keys, positions[row * shape_.tokens] + shape_.tokens);
    }
    const int64_t kv_heads = shape_.batch * shape_.kv_heads;
    const int64_t tasks = TaskCount(kv_heads, kv_heads * shape_.tokens * shape_.head_dim);
    ParallelFor(tasks, args.threads, [&](int64_t i) {
      const Range range = TaskRange(kv_heads, tasks, i);
      for (int64_t index = range.begin; index < range.end; ++index) Join(args, index);
    });

    const int64_t items = heads_ * blocks_;
    const int64_t threads = std::min<int64_t>({args.threads, slots_, TaskCount(items, Work(keys))});
    ParallelFor(items, static_cast<int>(threads), [&](int64_t item, int slot) {
      char* scratch = static_cast<char*>(args.scratch) + slot * slot_bytes_;
      // The last blocks see the most keys: they come first.
      RunHead(args, item % heads_, blocks_ - 1 - item / heads_, reinterpret_cast<float*>(scratch));
    });
    return absl::OkStatus();
  }

 private:
  int64_t Work(int64_t keys) const { return 4 * heads_ * shape_.queries * keys * shape_.head_dim; }
  static T* Cache(const KernelArgs& args, size_t i) { return static_cast<T*>(args.out[i]); }

  // Where the keys of query head `index` of all rows' begin in the cache.
  int64_t KeysAt(int64_t index) const {
    return index / shape_.group() * capacity_ * shape_.head_dim;
  }

  // Writes the new keys and values of head `index` of all rows' to the caches.
  void Join(const KernelArgs& args, int64_t index) const {
    const int64_t row = index / shape_.kv_heads, head = index % shape_.kv_heads;
    const int64_t first = args.i32(5)[row * shape_.tokens], c = shape_.head_dim;
    int64_t from = row * shape_.tokens * shape_.kv_stride() + head * c;
    int64_t to = (index * capacity_ + first) * c;
    for (int64_t t = 0; t < shape_.tokens; ++t, from += shape_.kv_stride(), to += c) {
      std::copy_n(static_cast<const T*>(args.in[1]) + from, c, Cache(args, 1) + to);
      std::copy_n(static_cast<const T*>(args.in[2]) + from, c, Cache(args, 2) + to);
    }
  }

  void RunHead(const KernelArgs& args, int64_t index, int64_t block, float* scratch) const {
    const int64_t row = index / shape_.heads, head = index % shape_.heads;
    const int64_t skipped = block * kQueryRows;
    const int64_t at =
        (row * shape_.queries + skipped) * shape_.q_stride() + head * shape_.head_dim;
    const int64_t kv_at = KeysAt(index);
    const int64_t first = args.i32(5)[(row + 1) * shape_.tokens - shape_.queries] + skipped;
    const float scale = static_cast<float>(shape_.scale);
    const SoftmaxVariant variant =
        shape_.Variant(head, has_sinks_ ? args.f32(kCachedSink) + head : nullptr);
    const T* q = static_cast<const T*>(args.in[0]) + at;
    T* context = static_cast<T*>(args.out[0]) + at;
    if (packed_) {
      AttendArgs<T> call;
      call.q = q;
      call.q_stride = shape_.q_stride();
      call.k = Cache(args, 1) + kv_at;
      call.v = Cache(args, 2) + kv_at;
      call.kv_stride = shape_.head_dim;
      call.context = context;
      call.context_stride = shape_.q_stride();
      call.lse = nullptr;
      call.queries = std::min(kQueryRows, shape_.queries - skipped);
      call.offset = first;
      call.head_dim = shape_.head_dim;
      call.scale = scale;
      call.variant = variant;
      attend_(call, scratch);
      return;
    }
    for (int64_t t = 0; t < shape_.queries; ++t) {
      const int64_t first_key = shape_.first_key(first + t);
      AttendOneArgs<T> call;
      call.q = q + t * shape_.q_stride();
      call.k = Cache(args, 1) + kv_at + first_key * shape_.head_dim;
      call.v = Cache(args, 2) + kv_at + first_key * shape_.head_dim;
      call.context = context + t * shape_.q_stride();
      call.keys = first + t + 1 - first_key;
      call.head_dim = shape_.head_dim;
      call.scale = scale;
      call.variant = variant;
      attend_one_(call, scratch);
    }
  }

  const AttentionShape shape_;
  const bool has_sinks_;
  const int64_t capacity_;
  const bool packed_;
  const AttendFn<T> attend_;
  const AttendOneFn<T> attend_one_;
  const int64_t heads_;
  const int64_t blocks_;
  const int slots_;
  const int64_t slot_bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeAttentionCachedKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadCachedAttentionShape(types));
  const int64_t capacity = types.in(3).shape[2];
  const bool has_sinks = types.has(kCachedSink);
  if (types.in(0).dtype == DType::kBF16) {
    return std::make_unique<AttentionCachedKernel<uint16_t>>(shape, has_sinks, capacity);
  }
  return std::make_unique<AttentionCachedKernel<float>>(shape, has_sinks, capacity);
}

// -- Reference

absl::Status ReferenceAttentionCached(const ReferenceArgs& args) {
  const std::vector<const TensorType*> inputs = {&args.inputs[0]->type, &args.inputs[1]->type,
                                                 &args.inputs[2]->type};
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape,
                         ReadCachedAttentionShape(OpTypes{inputs, {}, args.attrs}));
  const int64_t capacity = args.shape(3)[2], c = shape.head_dim;
  PLUMB_RETURN_IF_ERROR(CheckPositions(args.i(5).data(), shape.batch, shape.tokens, capacity));
  for (int64_t row = 0; row < shape.batch; ++row) {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const int64_t position = args.i(5)[static_cast<size_t>(row * shape.tokens + t)];
      for (int64_t e = 0; e < shape.kv_stride(); ++e) {
        const int64_t head = row * shape.kv_heads + e / c;
        const size_t from = static_cast<size_t>((row * shape.tokens + t) * shape.kv_stride() + e);
        const size_t to = static_cast<size_t>((head * capacity + position) * c + e % c);
        args.out(1)[to] = args.f(1)[from];
        args.out(2)[to] = args.f(2)[from];
      }
    }
    for (int64_t t = 0; t < shape.queries; ++t) {
      const int64_t token = (row + 1) * shape.tokens - shape.queries + t;
      const int64_t position = args.i(5)[static_cast<size_t>(token)];
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t q = ((row * shape.queries + t) * shape.heads + head) * c;
        const auto kv = [&](int64_t j) {
          return ((row * shape.kv_heads + head / shape.group()) * capacity + j) * c;
        };
        const int64_t first_key = shape.first_key(position);
        std::vector<double> weight;  // of the keys that the query sees
        for (int64_t j = first_key; j <= position; ++j) {
          double dot = 0;
          for (int64_t e = 0; e < c; ++e) {
            dot +=
                args.f(0)[static_cast<size_t>(q + e)] * args.out(1)[static_cast<size_t>(kv(j) + e)];
          }
          weight.push_back(shape.Capped(shape.scale * dot) -
                           shape.Slope(head) * static_cast<double>(position - j));
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
          for (int64_t e = 0; e < c; ++e) {
            args.out(0)[static_cast<size_t>(q + e)] +=
                p * args.out(2)[static_cast<size_t>(kv(j) + e)];
          }
        }
      }
    }
  }
  return absl::OkStatus();
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
  op.make_kernel = MakeAttentionCachedKernel;
  op.reference = ReferenceAttentionCached;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0}; };
  op.flops = AttentionCachedFlops;
  registry->Add(std::move(op));
}

}  // namespace plumb
