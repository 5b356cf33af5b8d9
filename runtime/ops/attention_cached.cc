// attention_cached: causal attention of new tokens to a cache of keys and values that they join
// first. Prefill in chunks and decoding token by token are the same op with other T.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/ops/attention_kernels.h"
#include "runtime/ops/attention_shape.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

// -- Shape rule

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionShape(types));
  const TensorType &k_cache = types.in(3), &v_cache = types.in(4), &positions = types.in(5);
  if (k_cache.dtype != DType::kF32 || k_cache.shape.rank() != 3 ||
      k_cache.shape[0] != shape.batch || k_cache.shape.last() != shape.kv_stride() ||
      v_cache != k_cache) {
    return absl::InvalidArgumentError(
        absl::StrCat("the caches are ", k_cache.ToString(), " and ", v_cache.ToString(),
                     ", both must be f32[", shape.batch, ", capacity, ", shape.kv_stride(), "]"));
  }
  if (positions != I32({shape.batch, shape.tokens})) {
    return absl::InvalidArgumentError(absl::StrCat("positions are ", positions.ToString(),
                                                   ", must be i32[", shape.batch, ", ",
                                                   shape.tokens, "]"));
  }
  return std::vector<TensorType>{types.in(0), k_cache, v_cache};
}

// No VJP: it belongs to sampling.

// What every run must find before it writes anything.
absl::Status CheckPositions(const int32_t* positions, const AttentionShape& shape,
                            int64_t capacity) {
  for (int64_t row = 0; row < shape.batch; ++row) {
    const int32_t* at = positions + row * shape.tokens;
    for (int64_t t = 0; t < shape.tokens; ++t) {
      if (at[t] < 0 || at[t] >= capacity) {
        return absl::OutOfRangeError(absl::StrCat("position ", at[t], " of row ", row,
                                                  " is outside the cache, which holds ", capacity,
                                                  " tokens"));
      }
      if (at[t] != at[0] + t) {
        return absl::InvalidArgumentError(absl::StrCat("position ", at[t], " of row ", row,
                                                       " does not follow position ", at[t - 1]));
      }
    }
  }
  return absl::OkStatus();
}

// -- Kernel

// From this many new tokens on, packing the cache for matrix products costs less than it saves.
constexpr int64_t kMinPackedQueries = 8;

class AttentionCachedKernel : public Kernel {
 public:
  AttentionCachedKernel(const AttentionShape& shape, int64_t capacity)
      : shape_(shape),
        capacity_(capacity),
        packed_(shape.tokens >= kMinPackedQueries),
        attend_(ChooseAttend()),
        attend_one_(ChooseAttendOne(shape.head_dim)),
        items_(shape.batch * shape.heads),
        max_tasks_(TaskCount(items_, Work(capacity))),
        slot_bytes_(AlignUp(packed_ ? AttendScratchBytes(capacity, shape.head_dim)
                                    : AttendOneScratchBytes(capacity))) {}

  int64_t scratch_bytes() const override { return max_tasks_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* positions = args.i32(5);
    PLUMB_RETURN_IF_ERROR(CheckPositions(positions, shape_, capacity_));
    const int64_t row_size = shape_.tokens * shape_.kv_stride();
    int64_t keys = 0;
    for (int64_t row = 0; row < shape_.batch; ++row) {
      const int64_t first = positions[row * shape_.tokens];
      const int64_t to = (row * capacity_ + first) * shape_.kv_stride();
      const size_t bytes = static_cast<size_t>(row_size) * sizeof(float);
      std::memcpy(args.out_f32(1) + to, args.f32(1) + row * row_size, bytes);
      std::memcpy(args.out_f32(2) + to, args.f32(2) + row * row_size, bytes);
      keys = std::max(keys, first + shape_.tokens);
    }

    // Every head is computed on its own, so the number of tasks may depend on how full the cache
    // is.
    const int64_t tasks = std::min(max_tasks_, TaskCount(items_, Work(keys)));
    ParallelFor(tasks, args.threads, [&](int64_t task) {
      float* scratch =
          reinterpret_cast<float*>(static_cast<char*>(args.scratch) + task * slot_bytes_);
      const Range range = TaskRange(items_, tasks, task);
      for (int64_t item = range.begin; item < range.end; ++item) RunHead(args, item, scratch);
    });
    return absl::OkStatus();
  }

 private:
  int64_t Work(int64_t keys) const { return 4 * items_ * shape_.tokens * keys * shape_.head_dim; }

  void RunHead(const KernelArgs& args, int64_t item, float* scratch) const {
    const int64_t row = item / shape_.heads, head = item % shape_.heads;
    const int64_t at = row * shape_.tokens * shape_.q_stride() + head * shape_.head_dim;
    const int64_t kv_at =
        row * capacity_ * shape_.kv_stride() + head / shape_.group() * shape_.head_dim;
    const int64_t first = args.i32(5)[row * shape_.tokens];
    const float scale = static_cast<float>(shape_.scale);
    if (packed_) {
      AttendArgs call;
      call.q = args.f32(0) + at;
      call.q_stride = shape_.q_stride();
      call.k = args.out_f32(1) + kv_at;
      call.v = args.out_f32(2) + kv_at;
      call.kv_stride = shape_.kv_stride();
      call.context = args.out_f32(0) + at;
      call.context_stride = shape_.q_stride();
      call.lse = nullptr;
      call.queries = shape_.tokens;
      call.offset = first;
      call.head_dim = shape_.head_dim;
      call.scale = scale;
      attend_(call, scratch);
      return;
    }
    for (int64_t t = 0; t < shape_.tokens; ++t) {
      AttendOneArgs call;
      call.q = args.f32(0) + at + t * shape_.q_stride();
      call.k = args.out_f32(1) + kv_at;
      call.v = args.out_f32(2) + kv_at;
      call.kv_stride = shape_.kv_stride();
      call.context = args.out_f32(0) + at + t * shape_.q_stride();
      call.keys = first + t + 1;
      call.head_dim = shape_.head_dim;
      call.scale = scale;
      attend_one_(call, scratch);
    }
  }

  const AttentionShape shape_;
  const int64_t capacity_;
  const bool packed_;
  const AttendFn attend_;
  const AttendOneFn attend_one_;
  const int64_t items_;
  const int64_t max_tasks_;
  const int64_t slot_bytes_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadAttentionShape(types));
  return std::make_unique<AttentionCachedKernel>(shape, types.in(3).shape[1]);
}

// -- Reference

absl::Status Reference(const ReferenceArgs& args) {
  const std::vector<const TensorType*> inputs = {&args.inputs[0]->type, &args.inputs[1]->type,
                                                 &args.inputs[2]->type};
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape,
                         ReadAttentionShape(OpTypes{inputs, {}, args.attrs}));
  const int64_t capacity = args.shape(3)[1], c = shape.head_dim;
  PLUMB_RETURN_IF_ERROR(CheckPositions(args.i(5).data(), shape, capacity));
  for (int64_t row = 0; row < shape.batch; ++row) {
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const int64_t position = args.i(5)[static_cast<size_t>(row * shape.tokens + t)];
      for (int64_t e = 0; e < shape.kv_stride(); ++e) {
        const size_t from = static_cast<size_t>((row * shape.tokens + t) * shape.kv_stride() + e);
        const size_t to = static_cast<size_t>((row * capacity + position) * shape.kv_stride() + e);
        args.out(1)[to] = args.f(1)[from];
        args.out(2)[to] = args.f(2)[from];
      }
    }
    for (int64_t t = 0; t < shape.tokens; ++t) {
      const int64_t position = args.i(5)[static_cast<size_t>(row * shape.tokens + t)];
      for (int64_t head = 0; head < shape.heads; ++head) {
        const int64_t q = ((row * shape.tokens + t) * shape.heads + head) * c;
        const auto kv = [&](int64_t j) {
          return ((row * capacity + j) * shape.kv_heads + head / shape.group()) * c;
        };
        std::vector<double> weight;
        for (int64_t j = 0; j <= position; ++j) {
          double dot = 0;
          for (int64_t e = 0; e < c; ++e) {
            dot +=
                args.f(0)[static_cast<size_t>(q + e)] * args.out(1)[static_cast<size_t>(kv(j) + e)];
          }
          weight.push_back(shape.scale * dot);
        }
        const double top = *std::max_element(weight.begin(), weight.end());
        double total = 0;
        for (double& w : weight) total += w = std::exp(w - top);
        for (int64_t j = 0; j <= position; ++j) {
          for (int64_t e = 0; e < c; ++e) {
            args.out(0)[static_cast<size_t>(q + e)] += weight[static_cast<size_t>(j)] / total *
                                                       args.out(2)[static_cast<size_t>(kv(j) + e)];
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
  op.min_inputs = op.max_inputs = 6;
  op.updates = {{1, 3}, {2, 4}};
  op.infer = Infer;
  op.make_kernel = MakeKernel;
  op.reference = Reference;
  registry->Add(std::move(op));
}

}  // namespace plumb
