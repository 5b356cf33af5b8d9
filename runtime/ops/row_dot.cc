// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/sum_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/row_dot.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/broadcast-inl.h"

#ifndef PLUMB_ROW_DOT_TYPES
#define PLUMB_ROW_DOT_TYPES
namespace plumb {
namespace {

// A row of d channels and what it is multiplied with; b.elements null: with 1.
struct RowPair {
  const void* a;
  RowFactor b;
  int64_t d;
};

struct RowDotFns {
  // The sum over channels [begin, end) of a b.
  float (*dot)(const RowPair& row, int64_t begin, int64_t end);
  // y[j] += a_j b_j.
  void (*add)(const RowPair& row, float* y);
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
float Dot(const RowPair& row, int64_t begin, int64_t end) {
  const hn::ScalableTag<float> tag;
  using V = hn::Vec<decltype(tag)>;
  const T* a = static_cast<const T*>(row.a);
  const RowPair r = row;
  V newer = hn::Zero(tag), older = newer;  // two sums, so that one need not wait for the other
  ForVectors(tag, begin, end, [&, tag, a, r, end](const auto& io, int64_t e) HWY_ATTR {
    V x = io.Load(tag, a + e);  // 0 past the end
    const V sum = r.b.elements == nullptr ? hn::Add(x, older)
                                          : hn::MulAdd(x, LoadFactor(tag, io, r.b, e, end), older);
    older = newer;
    newer = sum;
  });
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(newer, older)));
}

template <class T>
void AddRow(const RowPair& row, float* y) {
  const hn::ScalableTag<float> tag;
  const T* a = static_cast<const T*>(row.a);
  const RowPair r = row;
  ForVectors(tag, 0, row.d, [=](const auto& io, int64_t e) HWY_ATTR {
    auto product = io.Load(tag, a + e);
    if (r.b.elements != nullptr) product = hn::Mul(product, LoadFactor(tag, io, r.b, e, r.d));
    io.Store(hn::Add(io.Load(tag, y + e), product), tag, y + e);
  });
}

RowDotFns Select(DType dtype) {
  if (dtype == DType::kBF16) return {&Dot<uint16_t>, &AddRow<uint16_t>};
  return {&Dot<float>, &AddRow<float>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

// a and, if there is one, b, row by row.
class RowPairs {
 public:
  RowPairs(const TensorType& a, const TensorType* b)
      : d_(a.shape.last()), row_bytes_(d_ * SizeOf(a.dtype)) {
    if (b != nullptr) b_ = BroadcastOperand(*b, d_);
  }
  RowPair Row(const KernelArgs& args, const void* b, int64_t row) const {
    const RowFactor none = {nullptr, 1, false};
    return {static_cast<const char*>(args.in[0]) + row * row_bytes_,
            b == nullptr ? none : FactorOfRow(b_, b, row), d_};
  }

 private:
  int64_t d_, row_bytes_;
  BroadcastOperand b_;
};

class RowDotKernel : public Kernel {
 public:
  RowDotKernel(const TensorType& a, const TensorType* b, int64_t size)
      : pairs_(a, b),
        rows_(a.shape.rows()),
        size_(size),
        group_(a.shape.last() / size),
        tasks_(TaskCount(rows_, rows_ * a.shape.last())),
        bf16_(a.dtype == DType::kBF16),
        fns_(HWY_DYNAMIC_DISPATCH(Select)(a.dtype)) {}

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range rows = TaskRange(rows_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        const RowPair pair = pairs_.Row(args, args.in[1], row);
        for (int64_t l = 0; l < size_; ++l) {
          const float y = fns_.dot(pair, l * group_, (l + 1) * group_);
          if (bf16_) {
            args.out_bf16(0)[row * size_ + l] = Bf16FromFloat(y);
          } else {
            args.out_f32(0)[row * size_ + l] = y;
          }
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  RowPairs pairs_;
  int64_t rows_, size_, group_, tasks_;
  bool bf16_;
  RowDotFns fns_;
};

// Blocks of rows make partial sums, which are added in order.
class BroadcastReduceKernel : public Kernel {
 public:
  BroadcastReduceKernel(const TensorType& a, const TensorType* b, int64_t size)
      : pairs_(a, b),
        rows_(a.shape.rows()),
        size_(size),
        group_(a.shape.last() / size),
        tasks_(TaskCount(CeilDiv(rows_, 16), rows_ * a.shape.last())),
        fns_(HWY_DYNAMIC_DISPATCH(Select)(a.dtype)),
        sum_rows_(SelectSumRows(DType::kF32).sum) {}

  int64_t scratch_bytes() const override {
    return tasks_ == 1 ? 0 : tasks_ * size_ * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const void* b = args.in[1];
    if (tasks_ == 1) {
      Add(args, b, {0, rows_}, args.out_f32(0));
      return absl::OkStatus();
    }
    float* partial = static_cast<float*>(args.scratch);  // [tasks, size]
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      Add(args, b, TaskRange(rows_, tasks_, task), partial + task * size_);
    });
    sum_rows_(partial, tasks_, size_, size_, args.out_f32(0));
    return absl::OkStatus();
  }

 private:
  void Add(const KernelArgs& args, const void* b, Range rows, float* y) const {
    std::fill_n(y, size_, 0.0f);
    for (int64_t row = rows.begin; row < rows.end; ++row) {
      const RowPair pair = pairs_.Row(args, b, row);
      if (group_ == 1) {
        fns_.add(pair, y);
        continue;
      }
      for (int64_t l = 0; l < size_; ++l) {
        y[l] += fns_.dot(pair, l * group_, (l + 1) * group_);
      }
    }
  }

  RowPairs pairs_;
  int64_t rows_, size_, group_, tasks_;
  RowDotFns fns_;
  decltype(SumRowsFns::sum) sum_rows_;
};

// row_dot

absl::StatusOr<std::vector<TensorType>> InferRowDot(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType(types.inputs));
  if (type != types.in(0) || type.shape.rank() < 2) {
    return absl::InvalidArgumentError("a must have rows, and b must not be wider");
  }
  const int64_t size = types.attrs.GetInt("size");
  if (size < 1 || type.shape.last() % size != 0) {
    return absl::InvalidArgumentError(absl::StrCat("size must divide ", type.shape.last()));
  }
  std::vector<int64_t> dims(type.shape.dims().begin(), type.shape.dims().end());
  dims.back() = size;
  return std::vector<TensorType>{{type.dtype, Shape(dims)}};
}

// y_rl = sum over j in group l of a_rj b_rj, so
//   dL/da_rj = dL/dy_rl(j) b_rj,
//   dL/db_rj = dL/dy_rl(j) a_rj, summed over what b_rj stands for.
std::vector<ValueId> VjpRowDot(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId left = node.inputs[0], dy = d_outputs[0];
  const ValueId right = node.inputs.size() > 1 ? node.inputs[1] : kNoValue;
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    const ValueId product = right == kNoValue ? dy : b.Apply("mul", {dy, right});
    const bool whole = b.type(product).shape.last() == b.type(left).shape.last();
    d_inputs[0] = whole ? product : b.Apply("expand", {product, left});
  }
  if (right != kNoValue && wanted[1]) {
    const TensorType type = b.type(right);
    d_inputs[1] = ReduceTo(b, type, left, dy);
  }
  return d_inputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeRowDotKernel(const OpTypes& types) {
  return std::make_unique<RowDotKernel>(types.in(0), types.has(1) ? &types.in(1) : nullptr,
                                        types.attrs.GetInt("size"));
}

absl::Status ReferenceRowDot(const ReferenceArgs& args) {
  const int64_t size = args.attrs.GetInt("size"), d = args.shape(0).last();
  for (int64_t e = 0; e < args.shape(0).num_elements(); ++e) {
    double product = args.f(0)[static_cast<size_t>(e)];
    if (args.has(1)) {
      const BroadcastOperand b(args.inputs[1]->type, d);
      product *= args.f(1)[static_cast<size_t>(b.Index(e / d, e % d))];
    }
    args.out(0)[static_cast<size_t>(e / d * size + e % d * size / d)] += product;
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Kernel> MakeBroadcastReduceKernel(const TensorType& a, const TensorType* b,
                                                  int64_t size) {
  return std::make_unique<BroadcastReduceKernel>(a, b, size);
}

void RegisterRowDot(OpRegistry* registry) {
  OpDef op;
  op.name = "row_dot";
  op.min_inputs = 1;
  op.max_inputs = 2;
  op.infer = InferRowDot;
  op.vjp = VjpRowDot;
  op.make_kernel = MakeRowDotKernel;
  op.reference = ReferenceRowDot;
  op.token_wise = InputsWithRows;
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
