// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/broadcast.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/weighted_sum.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/broadcast-inl.h"

#ifndef PLUMB_WEIGHTED_SUM_TYPES
#define PLUMB_WEIGHTED_SUM_TYPES
namespace plumb {
namespace {

// A term of a row: scale * factors[0] * factors[1], of which the first `count` are there.
struct RowTerm {
  float scale;
  int count;
  RowFactor factors[2];
};

// y[0 .. d) = sum of the terms + constant.
using SumRowFn = void (*)(const RowTerm* terms, int64_t count, float constant, void* y, int64_t d);

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

template <class T>
void SumRow(const RowTerm* terms, int64_t count, float constant, void* to, int64_t d) {
  const hn::ScalableTag<float> tag;
  using V = hn::Vec<decltype(tag)>;
  T* y = static_cast<T*>(to);
  ForVectors(tag, 0, d, [=](const auto& io, int64_t e) HWY_ATTR {
    V sum = hn::Set(tag, constant);
    for (int64_t i = 0; i < count; ++i) {
      const RowTerm& term = terms[i];
      V scale = hn::Set(tag, term.scale);
      if (term.count == 0) {
        sum = hn::Add(sum, scale);
        continue;
      }
      if (term.count == 2) scale = hn::Mul(scale, LoadFactor(tag, io, term.factors[1], e, d));
      sum = hn::MulAdd(scale, LoadFactor(tag, io, term.factors[0], e, d), sum);
    }
    io.Store(sum, tag, y + e);
  });
}

SumRowFn Select(DType dtype) { return dtype == DType::kBF16 ? &SumRow<uint16_t> : &SumRow<float>; }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

class WeightedSumKernel : public Kernel {
 public:
  WeightedSumKernel(absl::Span<const TensorType* const> operands, const TensorType& out,
                    absl::Span<const double> coefs, double constant)
      : rows_(out.shape.rows()),
        d_(out.shape.last()),
        tasks_(TaskCount(rows_, rows_ * d_ * static_cast<int64_t>(2 * coefs.size()))),
        size_of_(SizeOf(out.dtype)),
        coefs_(coefs.begin(), coefs.end()),
        constant_(static_cast<float>(constant)),
        sum_(HWY_DYNAMIC_DISPATCH(Select)(out.dtype)) {
    for (const TensorType* operand : operands) {
      present_.push_back(operand != nullptr);
      operands_.push_back(operand == nullptr ? BroadcastOperand() : BroadcastOperand(*operand, d_));
    }
  }

  // The terms of a row, by task.
  int64_t scratch_bytes() const override {
    return tasks_ * static_cast<int64_t>(coefs_.size() * sizeof(RowTerm));
  }

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      RowTerm* terms =
          static_cast<RowTerm*>(args.scratch) + task * static_cast<int64_t>(coefs_.size());
      const Range rows = TaskRange(rows_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end; ++row) {
        for (size_t i = 0; i < coefs_.size(); ++i) terms[i] = Term(args, i, row);
        sum_(terms, static_cast<int64_t>(coefs_.size()), constant_,
             static_cast<char*>(args.out[0]) + row * d_ * size_of_, d_);
      }
    });
    return absl::OkStatus();
  }

 private:
  RowTerm Term(const KernelArgs& args, size_t i, int64_t row) const {
    RowTerm term = {coefs_[i], 0, {}};
    for (size_t k = 2 * i; k < 2 * i + 2; ++k) {
      if (k >= present_.size() || !present_[k]) continue;
      const RowFactor factor = FactorOfRow(operands_[k], args.in[k], row);
      if (operands_[k].group == d_) {
        term.scale *= ElementOf(factor, 0);
      } else {
        term.factors[term.count++] = factor;
      }
    }
    return term;
  }

  int64_t rows_, d_, tasks_, size_of_;
  std::vector<BroadcastOperand> operands_;
  std::vector<bool> present_;
  std::vector<float> coefs_;
  float constant_;
  SumRowFn sum_;
};

// weighted_sum

absl::StatusOr<std::vector<TensorType>> InferWeightedSum(const OpTypes& types) {
  const size_t coefs = types.attrs.GetDoubles("coefs").size();
  if (coefs == 0 || (types.inputs.size() != 2 * coefs && types.inputs.size() + 1 != 2 * coefs)) {
    return absl::InvalidArgumentError(
        absl::StrCat(types.inputs.size(), " operands are no ", coefs, " pairs, one a coefficient"));
  }
  for (size_t i = 0; i < types.inputs.size(); i += 2) {
    if (!types.has(i)) {
      return absl::InvalidArgumentError("only the second factor of a term may be absent");
    }
  }
  PLUMB_ASSIGN_OR_RETURN(TensorType type, BroadcastType(types.inputs));
  return std::vector<TensorType>{std::move(type)};
}

ValueId Scaled(GraphBuilder& b, ValueId x, double coef) {
  if (coef == 1) return x;
  return b.Apply("combine", {x}, Attrs({{"coefs", std::vector<double>{coef}}, {"constant", 0.0}}));
}

// y = sum_i c_i a_i b_i + constant, so
//   dL/da_i = c_i dL/dy b_i, summed over what each element of a_i stands for, and the same for b_i.
std::vector<ValueId> VjpWeightedSum(GraphBuilder& b, const Node& node,
                                    absl::Span<const ValueId> d_outputs,
                                    const std::vector<bool>& wanted) {
  const std::vector<double> coefs = node.attrs.GetDoubles("coefs");
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (!wanted[i]) continue;
    const size_t other = i ^ 1;
    const ValueId factor = other < node.inputs.size() ? node.inputs[other] : kNoValue;
    const TensorType type = b.type(node.inputs[i]);
    d_inputs[i] = Scaled(b, ReduceTo(b, type, d_outputs[0], factor), coefs[i / 2]);
  }
  return d_inputs;
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return MakeWeightedSumKernel(types.inputs, types.out(0), types.attrs.GetDoubles("coefs"),
                               types.attrs.GetDouble("constant", 0));
}

absl::Status ReferenceWeightedSum(const ReferenceArgs& args) {
  const std::vector<double>& coefs = args.attrs.GetDoubles("coefs");
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    double y = args.attrs.GetDouble("constant", 0);
    for (size_t i = 0; i < coefs.size(); ++i) {
      double term = coefs[i];
      for (size_t k = 2 * i; k < 2 * i + 2; ++k) {
        if (!args.has(k)) continue;
        const BroadcastOperand operand(args.inputs[k]->type, d);
        term *= args.f(k)[static_cast<size_t>(operand.Index(e / d, e % d))];
      }
      y += term;
    }
    args.out(0)[static_cast<size_t>(e)] = y;
  }
  return absl::OkStatus();
}

// expand

absl::StatusOr<std::vector<TensorType>> InferExpand(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "like"));
  TensorType target = types.in(1);
  std::vector<int64_t> dims(target.shape.dims().begin(), target.shape.dims().end());
  if (types.attrs.Has("width")) dims.back() = types.attrs.GetInt("width");
  target.shape = Shape(dims);
  PLUMB_ASSIGN_OR_RETURN(const TensorType type, BroadcastType({&types.in(0), &target}));
  if (type == target) return std::vector<TensorType>{type};
  return absl::InvalidArgumentError("x must not be wider than the result");
}

// y_rj = x_r,l(j), so dL/dx is the sum of dL/dy over what each element stands for.
std::vector<ValueId> VjpExpand(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const TensorType type = b.type(node.inputs[0]);
  return {wanted[0] ? ReduceTo(b, type, d_outputs[0], kNoValue) : kNoValue, kNoValue};
}

absl::StatusOr<std::unique_ptr<Kernel>> MakeExpandKernel(const OpTypes& types) {
  const TensorType* operands[] = {&types.in(0)};
  return MakeWeightedSumKernel(operands, types.out(0), {1.0}, 0);
}

absl::Status ReferenceExpand(const ReferenceArgs& args) {
  const Shape& out = args.outputs[0]->type.shape;
  const int64_t d = out.last();
  const BroadcastOperand operand(args.inputs[0]->type, d);
  for (int64_t e = 0; e < out.num_elements(); ++e) {
    args.out(0)[static_cast<size_t>(e)] =
        args.f(0)[static_cast<size_t>(operand.Index(e / d, e % d))];
  }
  return absl::OkStatus();
}

}  // namespace

std::unique_ptr<Kernel> MakeWeightedSumKernel(absl::Span<const TensorType* const> operands,
                                              const TensorType& out, absl::Span<const double> coefs,
                                              double constant) {
  return std::make_unique<WeightedSumKernel>(operands, out, coefs, constant);
}

void RegisterWeightedSum(OpRegistry* registry) {
  OpDef sum;
  sum.name = "weighted_sum";
  sum.min_inputs = 1;
  sum.max_inputs = OpDef::kVariadic;
  sum.infer = InferWeightedSum;
  sum.vjp = VjpWeightedSum;
  sum.make_kernel = MakeKernel;
  sum.reference = ReferenceWeightedSum;
  sum.token_wise = InputsWithRows;
  registry->Add(std::move(sum));

  OpDef expand;
  expand.name = "expand";
  expand.min_inputs = expand.max_inputs = 2;
  expand.infer = InferExpand;
  expand.vjp = VjpExpand;
  expand.make_kernel = MakeExpandKernel;
  expand.reference = ReferenceExpand;
  expand.token_wise = InputsWithRows;
  registry->Add(std::move(expand));
}

}  // namespace plumb
#endif  // HWY_ONCE
