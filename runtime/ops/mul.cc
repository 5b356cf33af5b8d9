// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/elementwise_kernel.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/sum_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/mul.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_MUL_TYPES
#define PLUMB_MUL_TYPES
namespace plumb {
namespace {

// Rows [begin, end) of a, each of `width` elements. `size` is the length of b or of the result;
// group l of a row is the width / size elements that share element l.
struct MulRows {
  int64_t begin, end;
  int64_t width;
  int64_t size;
};

// The functions for one thread. Tensors are all f32 or all bf16; vectors are f32.
struct MulFns {
  ElementwiseFn elementwise;  // y[i] = a[i] b[i]
  // y[i] = a[i] b[l(i)]. y may be a.
  void (*grouped)(const void* a, const float* b, void* y, const MulRows& rows);
  // y[l] = sum over rows and group l of a b.
  void (*reduce)(const void* a, const void* b, float* y, const MulRows& rows);
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

// y[i] = a[i] b[i], i < n.
template <class T, class B>
void Products(const T* a, const B* b, T* y, int64_t n) {
  const D d;
  ForVectors(d, 0, n, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(hn::Mul(io.Load(d, a + i), io.Load(d, b + i)), d, y + i);
  });
}

template <class T>
void Elementwise(const void* const* in, void* const* out, int64_t begin, int64_t end) {
  Products(static_cast<const T*>(in[0]) + begin, static_cast<const T*>(in[1]) + begin,
           static_cast<T*>(out[0]) + begin, end - begin);
}

template <class T>
void Scaled(const T* a, float b, T* y, int64_t n) {
  const D d;
  const V factor = hn::Set(d, b);
  ForVectors(d, 0, n, [=](const auto& io, int64_t i) HWY_ATTR {
    io.Store(hn::Mul(io.Load(d, a + i), factor), d, y + i);
  });
}

template <class T>
void Grouped(const void* from, const float* b, void* to, const MulRows& rows) {
  const int64_t width = rows.width, size = rows.size, group = width / size;
  const T* a = static_cast<const T*>(from) + rows.begin * width;
  T* y = static_cast<T*>(to) + rows.begin * width;
  if (size == 1) return Scaled(a, b[0], y, (rows.end - rows.begin) * width);
  for (int64_t r = rows.begin; r < rows.end; ++r, a += width, y += width) {
    if (group == 1) {
      Products(a, b, y, width);
    } else {
      for (int64_t l = 0; l < size; ++l) Scaled(a + l * group, b[l], y + l * group, group);
    }
  }
}

// sum_j a[i, j] b[i, j] over `rows` rows of `n` elements, `stride` apart.
template <class T>
float Dot(const T* a, const T* b, int64_t rows, int64_t n, int64_t stride) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = n / lanes * lanes;
  V s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (int64_t r = 0; r < rows; ++r, a += stride, b += stride) {
    int64_t j = 0;
    for (; j + 4 * lanes <= whole; j += 4 * lanes) {
      s0 = hn::MulAdd(LoadFloats(d, a + j), LoadFloats(d, b + j), s0);
      s1 = hn::MulAdd(LoadFloats(d, a + j + lanes), LoadFloats(d, b + j + lanes), s1);
      s2 = hn::MulAdd(LoadFloats(d, a + j + 2 * lanes), LoadFloats(d, b + j + 2 * lanes), s2);
      s3 = hn::MulAdd(LoadFloats(d, a + j + 3 * lanes), LoadFloats(d, b + j + 3 * lanes), s3);
    }
    for (; j < whole; j += lanes) {
      s0 = hn::MulAdd(LoadFloats(d, a + j), LoadFloats(d, b + j), s0);
    }
    if (whole < n) {
      const FloatTail<D> tail(d, n - whole);
      s1 = hn::MulAdd(tail.Load(d, a + whole), tail.Load(d, b + whole), s1);
    }
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// y[j] = the sum of kRows rows' products, or with kAdd, += it: some rows at a time, so that memory
// is read in a few long runs.
template <int kRows, bool kAdd, class T>
void AddProducts(const T* a, const T* b, int64_t n, float* y) {
  const D d;
  ForVectors(d, 0, n, [=](const auto& io, int64_t j) HWY_ATTR {
    V sum = kAdd ? io.Load(d, y + j) : hn::Zero(d);
    for (int k = 0; k < kRows; ++k) {
      sum = hn::MulAdd(io.Load(d, a + k * n + j), io.Load(d, b + k * n + j), sum);
    }
    io.Store(sum, d, y + j);
  });
}

template <class T>
void ReduceColumns(const T* a, const T* b, float* y, int64_t rows, int64_t n) {
  constexpr int kTogether = 2;
  int64_t i = 1;
  if (rows >= kTogether) {
    AddProducts<kTogether, false>(a, b, n, y);
    i = kTogether;
  } else {
    AddProducts<1, false>(a, b, n, y);
  }
  for (; i + kTogether <= rows; i += kTogether) {
    AddProducts<kTogether, true>(a + i * n, b + i * n, n, y);
  }
  for (; i < rows; ++i) AddProducts<1, true>(a + i * n, b + i * n, n, y);
}

template <class T>
void Reduce(const void* left, const void* right, float* y, const MulRows& rows) {
  const int64_t width = rows.width, size = rows.size, group = width / size;
  const int64_t count = rows.end - rows.begin;
  const T* a = static_cast<const T*>(left) + rows.begin * width;
  const T* b = static_cast<const T*>(right) + rows.begin * width;
  if (group == 1) return ReduceColumns(a, b, y, count, width);
  if (size == 1) {
    y[0] = Dot(a, b, 1, count * width, 0);
    return;
  }
  for (int64_t l = 0; l < size; ++l) {
    y[l] = Dot(a + l * group, b + l * group, count, group, width);
  }
}

template <class T>
MulFns Fns() {
  return {&Elementwise<T>, &Grouped<T>, &Reduce<T>};
}

MulFns Select(DType dtype) { return dtype == DType::kBF16 ? Fns<uint16_t>() : Fns<float>(); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

// mul

// A vector by an f32 one that is no wider: bf16 vectors are scaled too.
bool IsScaledVector(const OpTypes& types) {
  const TensorType& b = types.in(1);
  return b.dtype == DType::kF32 && b.shape.rank() == 1 &&
         types.in(0).shape.last() % b.shape[0] == 0;
}

absl::StatusOr<std::vector<TensorType>> InferMul(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "a"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "b"));
  if (types.in(1) == types.in(0)) return std::vector<TensorType>{types.in(0)};
  if (IsScaledVector(types)) return std::vector<TensorType>{types.in(0)};
  PLUMB_ASSIGN_OR_RETURN(TensorType type, BroadcastType(types.inputs));
  return std::vector<TensorType>{std::move(type)};
}

// y_rj = a_rj b_rj, broadcast, so
//   dL/da_rj = dL/dy_rj b_rj, summed over what a_rj stands for, and the same for b.
std::vector<ValueId> VjpMul(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                            const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], right = node.inputs[1], dy = d_outputs[0];
  std::vector<ValueId> d_inputs = {kNoValue, kNoValue};
  const TensorType left_type = b.type(left), right_type = b.type(right);
  if (wanted[0]) d_inputs[0] = ReduceTo(b, left_type, dy, right);
  if (wanted[1]) d_inputs[1] = ReduceTo(b, right_type, dy, left);
  return d_inputs;
}

class MulGroupedKernel : public Kernel {
 public:
  MulGroupedKernel(const TensorType& a, int64_t size)
      : rows_(a.shape.rows()),
        width_(a.shape.last()),
        size_(size),
        tasks_(TaskCount(rows_, rows_ * width_)),
        grouped_(HWY_DYNAMIC_DISPATCH(Select)(a.dtype).grouped) {}

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      grouped_(args.in[0], args.f32(1), args.out[0], {rows.begin, rows.end, width_, size_});
    });
    return absl::OkStatus();
  }

 private:
  int64_t rows_, width_, size_, tasks_;
  decltype(MulFns::grouped) grouped_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeMulKernel(const OpTypes& types) {
  const TensorType& a = types.in(0);
  if (types.in(1) == a) {
    return std::make_unique<ElementwiseKernel>(a.num_elements(), 1,
                                               HWY_DYNAMIC_DISPATCH(Select)(a.dtype).elementwise);
  }
  if (IsScaledVector(types)) {
    return std::make_unique<MulGroupedKernel>(a, types.in(1).num_elements());
  }
  return MakeWeightedSumKernel(types.inputs, types.out(0), {1.0}, 0);
}

absl::Status ReferenceMul(const ReferenceArgs& args) {
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  const BroadcastOperand a(args.inputs[0]->type, d), b(args.inputs[1]->type, d);
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    args.out(0)[static_cast<size_t>(e)] = args.f(0)[static_cast<size_t>(a.Index(e / d, e % d))] *
                                          args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
  }
  return absl::OkStatus();
}

// mul_reduce

absl::StatusOr<std::vector<TensorType>> InferReduce(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "a"));
  const bool alike = types.has(1) && types.in(1) == types.in(0);
  if (!alike) {
    PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType(types.inputs));
    if (type != types.in(0)) return absl::InvalidArgumentError("b must not be wider than a");
  }
  const int64_t size = types.attrs.GetInt("size"), d = types.in(0).shape.last();
  if (size < 1 || d % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", d));
  }
  return std::vector<TensorType>{F32({size})};
}

// y_l = sum over rows r and j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_l(j) b_rj,
//   dL/db_rj = dL/dy_l(j) a_rj, summed over what b_rj stands for.
std::vector<ValueId> VjpReduce(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], dy = d_outputs[0];
  const ValueId right = node.inputs.size() > 1 ? node.inputs[1] : kNoValue;
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    const ValueId product = right == kNoValue ? dy : b.Apply("mul", {right, dy});
    const bool whole = b.type(product) == b.type(left);
    d_inputs[0] = whole ? product : b.Apply("expand", {product, left});
  }
  if (right != kNoValue && wanted[1]) {
    const TensorType type = b.type(right);
    d_inputs[1] = type == b.type(left) ? b.Apply("mul", {left, dy}) : ReduceTo(b, type, left, dy);
  }
  return d_inputs;
}

// Blocks of rows make partial sums, which are added in order.
class MulReduceKernel : public Kernel {
 public:
  MulReduceKernel(const TensorType& a, int64_t size)
      : rows_(a.shape.rows()),
        width_(a.shape.last()),
        size_(size),
        // Enough rows a task that its partial sums are small compared with its input.
        tasks_(TaskCount(CeilDiv(rows_, 16), rows_ * width_)),
        reduce_(HWY_DYNAMIC_DISPATCH(Select)(a.dtype).reduce),
        sum_rows_(SelectSumRows(DType::kF32).sum) {}

  int64_t scratch_bytes() const override {
    return tasks_ == 1 ? 0 : tasks_ * size_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const void *a = args.in[0], *b = args.in[1];
    if (tasks_ == 1) {
      reduce_(a, b, args.out_f32(0), {0, rows_, width_, size_});
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(args.scratch);  // [tasks, size]
    ParallelFor(tasks_, args.threads, [&](int64_t i) {
      const Range rows = TaskRange(rows_, tasks_, i);
      reduce_(a, b, partial + i * size_, {rows.begin, rows.end, width_, size_});
    });
    sum_rows_(partial, tasks_, size_, size_, args.out_f32(0));
    return absl::OkStatus();
  }

 private:
  int64_t rows_, width_, size_, tasks_;
  decltype(MulFns::reduce) reduce_;
  decltype(SumRowsFns::sum) sum_rows_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeReduceKernel(const OpTypes& types) {
  const int64_t size = types.attrs.GetInt("size");
  if (types.has(1) && types.in(1) == types.in(0)) {
    return std::make_unique<MulReduceKernel>(types.in(0), size);
  }
  return MakeBroadcastReduceKernel(types.in(0), types.has(1) ? &types.in(1) : nullptr, size);
}

absl::Status ReferenceReduce(const ReferenceArgs& args) {
  const int64_t n = args.shape(0).num_elements(), d = args.shape(0).last();
  const int64_t size = args.attrs.GetInt("size");
  for (int64_t e = 0; e < n; ++e) {
    double product = args.f(0)[static_cast<size_t>(e)];
    if (args.has(1)) {
      const BroadcastOperand b(args.inputs[1]->type, d);
      product *= args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
    }
    args.out(0)[static_cast<size_t>(e % d * size / d)] += product;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterMul(OpRegistry* registry) {
  OpDef mul;
  mul.name = "mul";
  mul.min_inputs = mul.max_inputs = 2;
  mul.may_alias = {{0, 0}};  // not b
  mul.infer = InferMul;
  mul.vjp = VjpMul;
  mul.make_kernel = MakeMulKernel;
  mul.reference = ReferenceMul;
  mul.token_wise = InputsWithRows;
  registry->Add(std::move(mul));

  OpDef reduce;
  reduce.name = "mul_reduce";
  reduce.min_inputs = 1;
  reduce.max_inputs = 2;
  reduce.infer = InferReduce;
  reduce.vjp = VjpReduce;
  reduce.make_kernel = MakeReduceKernel;
  reduce.reference = ReferenceReduce;
  registry->Add(std::move(reduce));
}

}  // namespace plumb
#endif  // HWY_ONCE
