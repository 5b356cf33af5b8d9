// SPDX-License-Identifier: Apache-2.0
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/simd/element_tasks.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/combine.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_COMBINE_TYPES
#define PLUMB_COMBINE_TYPES
namespace plumb {
namespace {

struct Sum {
  const void* const* x;  // the inputs
  const float* coefs;
  int64_t inputs;
  float constant;
  void* y;  // may be one of the inputs
};
// Elements [begin, end) of operands that are all f32 or all bf16.
using CombineFn = void (*)(const Sum& sum, int64_t begin, int64_t end);

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// One block of lanes: every input is read before y is written, so y may be an input.
// kInputs 0: as many as there are. kPlain: all coefficients are 1 and the constant is 0.
template <class T, int kInputs, bool kPlain, class Io>
HWY_INLINE V Combined(const Sum& sum, const Io& io, int64_t e) {
  const D d;
  V y = io.Load(d, static_cast<const T*>(sum.x[0]) + e);
  if (!kPlain) y = hn::MulAdd(hn::Set(d, sum.coefs[0]), y, hn::Set(d, sum.constant));
  const int64_t inputs = kInputs == 0 ? sum.inputs : kInputs;
  for (int64_t i = 1; i < inputs; ++i) {
    const V x = io.Load(d, static_cast<const T*>(sum.x[i]) + e);
    y = kPlain ? hn::Add(y, x) : hn::MulAdd(hn::Set(d, sum.coefs[i]), x, y);
  }
  return y;
}

template <class T, int kInputs, bool kPlain>
void Combine(const Sum& sum, int64_t begin, int64_t end) {
  const D d;
  T* y = static_cast<T*>(sum.y);
  ForVectors(d, begin, end, [&sum, d, y](const auto& io, int64_t e) HWY_ATTR {
    io.Store(Combined<T, kInputs, kPlain>(sum, io, e), d, y + e);
  });
}

template <class T>
CombineFn SelectFor(int64_t inputs, bool plain) {
  switch (inputs) {
    case 1:
      return plain ? &Combine<T, 1, true> : &Combine<T, 1, false>;
    case 2:
      return plain ? &Combine<T, 2, true> : &Combine<T, 2, false>;
    case 3:
      return plain ? &Combine<T, 3, true> : &Combine<T, 3, false>;
    default:
      return plain ? &Combine<T, 0, true> : &Combine<T, 0, false>;
  }
}

CombineFn Select(DType dtype, int64_t inputs, bool plain) {
  return dtype == DType::kBF16 ? SelectFor<uint16_t>(inputs, plain)
                               : SelectFor<float>(inputs, plain);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

namespace {

absl::StatusOr<std::vector<TensorType>> InferCombine(const OpTypes& types) {
  for (size_t i = 0; i < types.inputs.size(); ++i) {
    PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, absl::StrCat("term ", i)));
    PLUMB_RETURN_IF_ERROR(CheckAlike(types, 0, "term 0", i, absl::StrCat("term ", i)));
  }
  const size_t coefs = types.attrs.GetDoubles("coefs").size();
  if (coefs != types.inputs.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(types.inputs.size(), " terms need as many coefficients, not ", coefs));
  }
  return std::vector<TensorType>{types.in(0)};
}

// y = sum_i c_i x_i + constant, so
//   dL/dx_i = c_i dL/dy.
std::vector<ValueId> VjpCombine(GraphBuilder& b, const Node& node,
                                absl::Span<const ValueId> d_outputs,
                                const std::vector<bool>& wanted) {
  const std::vector<double>& coefs = node.attrs.GetDoubles("coefs");
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  for (size_t i = 0; i < d_inputs.size(); ++i) {
    if (!wanted[i]) continue;
    d_inputs[i] =
        coefs[i] == 1
            ? d_outputs[0]
            : b.Apply("combine", {d_outputs[0]},
                      Attrs({{"coefs", std::vector<double>{coefs[i]}}, {"constant", 0.0}}));
  }
  return d_inputs;
}

class CombineKernel : public Kernel {
 public:
  CombineKernel(const TensorType& x, const std::vector<double>& coefs, double constant)
      : tasks_(x.num_elements(), static_cast<int64_t>(coefs.size())),
        coefs_(coefs.begin(), coefs.end()),
        constant_(static_cast<float>(constant)) {
    bool plain = constant == 0;
    for (const double coef : coefs) plain = plain && coef == 1;
    combine_ = HWY_DYNAMIC_DISPATCH(Select)(x.dtype, static_cast<int64_t>(coefs.size()), plain);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const Sum sum = {args.in, coefs_.data(), static_cast<int64_t>(coefs_.size()), constant_,
                     args.out[0]};
    tasks_.Run(args.threads, [&](int64_t begin, int64_t end) { combine_(sum, begin, end); });
    return absl::OkStatus();
  }

 private:
  ElementTasks tasks_;
  std::vector<float> coefs_;
  float constant_;
  CombineFn combine_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeCombineKernel(const OpTypes& types) {
  return std::make_unique<CombineKernel>(types.out(0), types.attrs.GetDoubles("coefs"),
                                         types.attrs.GetDouble("constant", 0));
}

absl::Status ReferenceCombine(const ReferenceArgs& args) {
  const std::vector<double>& coefs = args.attrs.GetDoubles("coefs");
  for (size_t e = 0; e < args.out(0).size(); ++e) {
    double y = args.attrs.GetDouble("constant", 0);
    for (size_t i = 0; i < coefs.size(); ++i) y += coefs[i] * args.f(i)[e];
    args.out(0)[e] = y;
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterCombine(OpRegistry* registry) {
  OpDef op;
  op.name = "combine";
  op.min_inputs = 1;
  op.max_inputs = OpDef::kVariadic;
  op.may_alias = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
  op.infer = InferCombine;
  op.vjp = VjpCombine;
  op.make_kernel = MakeCombineKernel;
  op.reference = ReferenceCombine;
  op.token_wise = [](const OpTypes& types) {
    std::vector<size_t> terms(types.inputs.size());
    std::iota(terms.begin(), terms.end(), 0);
    return terms;
  };
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
