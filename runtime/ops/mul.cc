#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/element_tasks.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/sum_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/mul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/simd_tail-inl.h"

#ifndef PLUMB_MUL_TYPES
#define PLUMB_MUL_TYPES
namespace plumb {
namespace {

// The functions for one thread. `d` is the width of a row, `size` the length of b or of the result;
// group l of a row is the d / size elements that share element l.
struct MulFns {
  // y[i] = a[i] b[i], i < n. y may be a.
  void (*elementwise)(const float* a, const float* b, float* y, int64_t n);
  // y[i] = a[i] b[l(i)] for `rows` rows. y may be a.
  void (*grouped)(const float* a, const float* b, float* y, int64_t rows, int64_t d, int64_t size);
  // y[l] = sum over rows and group l of a b.
  void (*reduce)(const float* a, const float* b, float* y, int64_t rows, int64_t d, int64_t size);
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

void Elementwise(const float* a, const float* b, float* y, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    tail.Store(hn::Mul(tail.Load(d, a + i), tail.Load(d, b + i)), d, y + i);
  }
}

void Scaled(const float* a, float b, float* y, int64_t n) {
  const D d;
  const V factor = hn::Set(d, b);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::Mul(hn::LoadU(d, a + i), factor), d, y + i);
  }
  if (i < n) {
    const Tail<D> tail(d, n - i);
    tail.Store(hn::Mul(tail.Load(d, a + i), factor), d, y + i);
  }
}

void Grouped(const float* a, const float* b, float* y, int64_t rows, int64_t d, int64_t size) {
  if (size == 1) return Scaled(a, b[0], y, rows * d);
  for (int64_t r = 0; r < rows; ++r, a += d, y += d) {
    if (size == d) {
      Elementwise(a, b, y, d);
    } else {
      const int64_t group = d / size;
      for (int64_t l = 0; l < size; ++l) Scaled(a + l * group, b[l], y + l * group, group);
    }
  }
}

// sum_j a[i, j] b[i, j] over `rows` rows of `n` elements, `stride` apart.
float Dot(const float* a, const float* b, int64_t rows, int64_t n, int64_t stride) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n / lanes * lanes;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t r = 0; r < rows; ++r, a += stride, b += stride) {
    int64_t j = 0;
    for (; j + 4 * lanes <= whole; j += 4 * lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), s0);
      s1 = hn::MulAdd(hn::LoadU(d, a + j + lanes), hn::LoadU(d, b + j + lanes), s1);
      s2 = hn::MulAdd(hn::LoadU(d, a + j + 2 * lanes), hn::LoadU(d, b + j + 2 * lanes), s2);
      s3 = hn::MulAdd(hn::LoadU(d, a + j + 3 * lanes), hn::LoadU(d, b + j + 3 * lanes), s3);
    }
    for (; j < whole; j += lanes) {
      s0 = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), s0);
    }
    if (whole < n) {
      const Tail<D> tail(d, n - whole);
      s1 = hn::MulAdd(tail.Load(d, a + whole), tail.Load(d, b + whole), s1);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

void ReduceColumns(const float* a, const float* b, float* y, int64_t rows, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    V s0 = hn::Zero(d), s1 = s0;
    for (int64_t at = j, r = 0; r < rows; ++r, at += n) {
      s0 = hn::MulAdd(hn::LoadU(d, a + at), hn::LoadU(d, b + at), s0);
      s1 = hn::MulAdd(hn::LoadU(d, a + at + lanes), hn::LoadU(d, b + at + lanes), s1);
    }
    hn::StoreU(s0, d, y + j);
    hn::StoreU(s1, d, y + j + lanes);
  }
  for (; j < n; j += lanes) {
    const Tail<D> tail(d, std::min(lanes, n - j));
    V s = hn::Zero(d);
    for (int64_t at = j, r = 0; r < rows; ++r, at += n) {
      s = hn::MulAdd(tail.Load(d, a + at), tail.Load(d, b + at), s);
    }
    tail.Store(s, d, y + j);
  }
}

void Reduce(const float* a, const float* b, float* y, int64_t rows, int64_t d, int64_t size) {
  if (size == d) return ReduceColumns(a, b, y, rows, d);
  if (size == 1) {
    y[0] = Dot(a, b, 1, rows * d, 0);
    return;
  }
  const int64_t group = d / size;
  for (int64_t l = 0; l < size; ++l) y[l] = Dot(a + l * group, b + l * group, rows, group, d);
}

MulFns Select() { return {&Elementwise, &Grouped, &Reduce}; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

// mul

absl::StatusOr<std::vector<TensorType>> Infer(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 1, "b"));
  const Shape& b = types.in(1).shape;
  const int64_t d = types.in(0).shape.last();
  if (b != types.in(0).shape && (b.rank() != 1 || d % b[0] != 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("b must be like a, or a vector whose length divides ", d));
  }
  return std::vector<TensorType>{types.in(0)};
}

// y_rj = a_rj b_l(j), so
//   dL/da_rj = dL/dy_rj b_l(j),
//   dL/db_l  = sum over rows r and j in group l of dL/dy_rj a_rj.
std::vector<ValueId> Vjp(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                         const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], right = node.inputs[1], dy = d_outputs[0];
  std::vector<ValueId> d_inputs = {kNoValue, kNoValue};
  if (wanted[0]) d_inputs[0] = b.Apply("mul", {dy, right});
  if (wanted[1]) {
    const bool alike = b.type(left) == b.type(right);
    const int64_t size = b.type(right).num_elements();
    d_inputs[1] = alike ? b.Apply("mul", {dy, left})
                        : b.Apply("mul_reduce", {dy, left}, Attrs({{"size", size}}));
  }
  return d_inputs;
}

class MulAlikeKernel : public Kernel {
 public:
  explicit MulAlikeKernel(int64_t n)
      : tasks_(n, 1), elementwise_(HWY_DYNAMIC_DISPATCH(Select)().elementwise) {}

  absl::Status Run(const KernelArgs& args) const override {
    const float *a = args.f32(0), *b = args.f32(1);
    float* y = args.out_f32(0);
    tasks_.Run(args.threads, [&](int64_t begin, int64_t end) {
      elementwise_(a + begin, b + begin, y + begin, end - begin);
    });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  decltype(MulFns::elementwise) elementwise_;
};

class MulGroupedKernel : public Kernel {
 public:
  MulGroupedKernel(const Shape& a, int64_t size)
      : rows_(a.rows()),
        d_(a.last()),
        size_(size),
        tasks_(TaskCount(rows_, rows_ * d_)),
        grouped_(HWY_DYNAMIC_DISPATCH(Select)().grouped) {}

  absl::Status Run(const KernelArgs& args) const override {
    const float *a = args.f32(0), *b = args.f32(1);
    float* y = args.out_f32(0);
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      grouped_(a + rows.begin * d_, b, y + rows.begin * d_, rows.end - rows.begin, d_, size_);
    });
    return absl::OkStatus();
  }

 private:
  int64_t rows_, d_, size_, tasks_;
  decltype(MulFns::grouped) grouped_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  const Shape& a = types.in(0).shape;
  if (types.in(1).shape == a) return std::make_unique<MulAlikeKernel>(a.num_elements());
  return std::make_unique<MulGroupedKernel>(a, types.in(1).num_elements());
}

absl::Status Reference(const ReferenceArgs& args) {
  const int64_t n = args.shape(0).num_elements(), d = args.shape(0).last();
  const int64_t size = args.shape(1).num_elements();
  const bool alike = args.shape(0) == args.shape(1);
  for (int64_t e = 0; e < n; ++e) {
    args.out(0)[e] = args.f(0)[e] * args.f(1)[alike ? e : e % d * size / d];
  }
  return absl::OkStatus();
}

// mul_reduce

absl::StatusOr<std::vector<TensorType>> InferReduce(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 1, "b"));
  PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "a", 1, "b"));
  const int64_t size = types.attrs.GetInt("size"), d = types.in(0).shape.last();
  if (size < 1 || d % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", d));
  }
  return std::vector<TensorType>{F32({size})};
}

// y_l = sum over rows r and j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_l(j) b_rj,
//   dL/db_rj = dL/dy_l(j) a_rj.
std::vector<ValueId> VjpReduce(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  std::vector<ValueId> d_inputs = {kNoValue, kNoValue};
  for (size_t i = 0; i < 2; ++i) {
    if (wanted[i]) d_inputs[i] = b.Apply("mul", {node.inputs[1 - i], d_outputs[0]});
  }
  return d_inputs;
}

// Blocks of rows make partial sums, which are added in order.
class MulReduceKernel : public Kernel {
 public:
  MulReduceKernel(const Shape& a, int64_t size)
      : rows_(a.rows()),
        d_(a.last()),
        size_(size),
        tasks_(TaskCount(rows_, rows_ * d_)),
        reduce_(HWY_DYNAMIC_DISPATCH(Select)().reduce),
        sum_rows_(SelectSumRows()) {}

  int64_t scratch_bytes() const override {
    return tasks_ == 1 ? 0 : tasks_ * size_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const float *a = args.f32(0), *b = args.f32(1);
    if (tasks_ == 1) {
      reduce_(a, b, args.out_f32(0), rows_, d_, size_);
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(args.scratch);  // [tasks, size]
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      reduce_(a + rows.begin * d_, b + rows.begin * d_, partial + i * size_, rows.end - rows.begin,
              d_, size_);
    });
    sum_rows_(partial, tasks_, size_, args.out_f32(0));
    return absl::OkStatus();
  }

 private:
  int64_t rows_, d_, size_, tasks_;
  decltype(MulFns::reduce) reduce_;
  SumRowsFn sum_rows_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeReduceKernel(const OpTypes& types) {
  return std::make_unique<MulReduceKernel>(types.in(0).shape, types.attrs.GetInt("size"));
}

absl::Status ReferenceReduce(const ReferenceArgs& args) {
  const int64_t n = args.shape(0).num_elements(), d = args.shape(0).last();
  const int64_t size = args.attrs.GetInt("size");
  for (int64_t e = 0; e < n; ++e) args.out(0)[e % d * size / d] += args.f(0)[e] * args.f(1)[e];
  return absl::OkStatus();
}

}  // namespace

void RegisterMul(OpRegistry* registry) {
  OpDef mul;
  mul.name = "mul";
  mul.min_inputs = mul.max_inputs = 2;
  mul.may_alias = {{0, 0}};  // not b, which may be shorter than y
  mul.infer = Infer;
  mul.vjp = Vjp;
  mul.make_kernel = MakeKernel;
  mul.reference = Reference;
  registry->Add(std::move(mul));

  OpDef reduce;
  reduce.name = "mul_reduce";
  reduce.min_inputs = reduce.max_inputs = 2;
  reduce.infer = InferReduce;
  reduce.vjp = VjpReduce;
  reduce.make_kernel = MakeReduceKernel;
  reduce.reference = ReferenceReduce;
  registry->Add(std::move(reduce));
}

}  // namespace plumb
#endif  // HWY_ONCE
