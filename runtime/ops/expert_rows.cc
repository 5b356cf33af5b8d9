// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/expert_rows.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_EXPERT_ROWS_TYPES
#define PLUMB_EXPERT_ROWS_TYPES
namespace plumb {
namespace {

// Functions on rows of d elements, f32 or bf16.
struct ExpertRowFns {
  // Computes y = weight x.
  void (*scale)(const void* x, float weight, int64_t d, void* y);
  // Computes x = sum over j, in order, of weights_j y[places_j]; null weights count as 1.
  void (*sum)(const void* y, const int32_t* places, const float* weights, int64_t count, int64_t d,
              void* x);
  float (*dot)(const void* x, const void* y, int64_t d);
};

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using ExpertTag = hn::ScalableTag<float>;

template <class T>
void ScaleExpertRow(const void* from, float weight, int64_t d, void* to) {
  const ExpertTag tag;
  const T* x = static_cast<const T*>(from);
  T* y = static_cast<T*>(to);
  const auto factor = hn::Set(tag, weight);
  ForVectors(tag, 0, d, [=](const auto& io, int64_t e) HWY_ATTR {
    io.Store(hn::Mul(factor, io.Load(tag, x + e)), tag, y + e);
  });
}

template <class T>
void SumExpertRows(const void* from, const int32_t* places, const float* weights, int64_t count,
                   int64_t d, void* to) {
  const ExpertTag tag;
  const T* y = static_cast<const T*>(from);
  T* x = static_cast<T*>(to);
  ForVectors(tag, 0, d, [=](const auto& io, int64_t e) HWY_ATTR {
    auto sum = hn::Zero(tag);
    for (int64_t j = 0; j < count; ++j) {
      const auto row = io.Load(tag, y + places[j] * d + e);
      sum = weights == nullptr ? hn::Add(sum, row) : hn::MulAdd(hn::Set(tag, weights[j]), row, sum);
    }
    io.Store(sum, tag, x + e);
  });
}

template <class T>
float DotExpertRows(const void* left, const void* right, int64_t d) {
  const ExpertTag tag;
  using V = hn::Vec<ExpertTag>;
  const T* x = static_cast<const T*>(left);
  const T* y = static_cast<const T*>(right);
  V newer = hn::Zero(tag), older = newer;  // two accumulators, to hide the latency
  ForVectors(tag, 0, d, [&, tag, x, y](const auto& io, int64_t e) HWY_ATTR {
    const V sum = hn::MulAdd(io.Load(tag, x + e), io.Load(tag, y + e), older);
    older = newer;
    newer = sum;
  });
  return hn::GetLane(hn::SumOfLanes(tag, hn::Add(newer, older)));
}

ExpertRowFns SelectExpertRows(DType dtype) {
  if (dtype == DType::kBF16) {
    return {&ScaleExpertRow<uint16_t>, &SumExpertRows<uint16_t>, &DotExpertRows<uint16_t>};
  }
  return {&ScaleExpertRow<float>, &SumExpertRows<float>, &DotExpertRows<float>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectExpertRows);

namespace {

// Token t's j-th expert reads and writes row places[t, j] of the rows grouped by expert.
Shape TokenRows(const Shape& places, int64_t d) {
  const absl::Span<const int64_t> tokens = places.dims().first(places.dims().size() - 1);
  std::vector<int64_t> dims(tokens.begin(), tokens.end());
  dims.push_back(d);
  return Shape(dims);
}

// Fails unless input `i` is places, and input i + 1 is absent or weights.
absl::Status CheckPlaces(const OpTypes& types, size_t i) {
  PLUMB_RETURN_IF_ERROR(CheckI32(types, i, "places"));
  if (types.in(i).shape.rank() < 2) {
    return absl::InvalidArgumentError("places must be [.., top_k]");
  }
  if (!types.has(i + 1) || types.in(i + 1) == F32(types.in(i).shape)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("weights must be ", F32(types.in(i).shape).ToString()));
}

// Fails unless input i is the rows of the experts, one for each place of input `places`.
absl::Status CheckGrouped(const OpTypes& types, size_t i, size_t places) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, "y"));
  const Shape& shape = types.in(i).shape;
  const int64_t rows = types.in(places).num_elements();
  if (shape.rank() == 2 && shape[0] == rows) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("y must have ", rows, " rows, one a place"));
}

absl::StatusOr<std::vector<TensorType>> InferToExperts(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckPlaces(types, 1));
  const TensorType& x = types.in(0);
  const Shape& places = types.in(1).shape;
  if (x.shape != TokenRows(places, x.shape.last())) {
    return absl::InvalidArgumentError("x and places must have the same tokens");
  }
  return std::vector<TensorType>{{x.dtype, Shape({places.num_elements(), x.shape.last()})}};
}

absl::StatusOr<std::vector<TensorType>> InferFromExperts(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckPlaces(types, 1));
  PLUMB_RETURN_IF_ERROR(CheckGrouped(types, 0, 1));
  const TensorType& y = types.in(0);
  return std::vector<TensorType>{{y.dtype, TokenRows(types.in(1).shape, y.shape.last())}};
}

absl::StatusOr<std::vector<TensorType>> InferExpertDot(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckPlaces(types, 2));
  PLUMB_RETURN_IF_ERROR(CheckGrouped(types, 0, 2));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "x"));
  const TensorType& y = types.in(0);
  const Shape& places = types.in(2).shape;
  if (types.in(1) == TensorType{y.dtype, TokenRows(places, y.shape.last())}) {
    return std::vector<TensorType>{F32(places)};
  }
  return absl::InvalidArgumentError("x must be like y, and have the tokens of places");
}

ValueId GetWeights(const Node& node) { return node.inputs.size() > 2 ? node.inputs[2] : kNoValue; }

// to_experts, y_{places(t, j)} = w_tj x_t, and from_experts, x_t = sum_j w_tj y_{places(t, j)}, are
// each other's transpose in x and y. For both, dL/dw_tj is the dot product of a row of y and a row
// of x, one of which is a gradient.
std::vector<ValueId> VjpOfRows(GraphBuilder& b, const Node& node,
                               absl::Span<const ValueId> d_outputs,
                               const std::vector<bool>& wanted) {
  const ValueId dy = d_outputs[0], places = node.inputs[1], weights = GetWeights(node);
  const bool to_experts = node.op->name == "to_experts";
  std::vector<ValueId> d_inputs(node.inputs.size(), kNoValue);
  if (wanted[0]) {
    std::vector<ValueId> inputs = {dy, places};
    if (weights != kNoValue) inputs.push_back(weights);
    d_inputs[0] = b.Apply(to_experts ? "from_experts" : "to_experts", std::move(inputs));
  }
  if (weights != kNoValue && wanted[2]) {
    const ValueId x = node.inputs[0];
    d_inputs[2] = b.Apply("expert_dot", {to_experts ? dy : x, to_experts ? x : dy, places});
  }
  return d_inputs;
}

enum class RowsOp { kTo, kFrom, kDot };

template <RowsOp kOp>
class ExpertRowsKernel : public Kernel {
 public:
  explicit ExpertRowsKernel(const OpTypes& types)
      : tokens_(types.in(kPlaces).shape.rows()),
        top_k_(types.in(kPlaces).shape.last()),
        d_(types.in(0).shape.last()),
        row_bytes_(d_ * SizeOf(types.in(0).dtype)),
        tasks_(TaskCount(tokens_, tokens_ * top_k_ * d_)),
        has_weights_(kOp != RowsOp::kDot && types.has(2)),
        fns_(HWY_DYNAMIC_DISPATCH(SelectExpertRows)(types.in(0).dtype)) {}

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* const places = args.i32(kPlaces);
    PLUMB_RETURN_IF_ERROR(CheckIds(places, tokens_ * top_k_, tokens_ * top_k_));
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range tokens = TaskRange(tokens_, tasks_, task);
      for (int64_t t = tokens.begin; t < tokens.end; ++t) RunToken(args, places + t * top_k_, t);
    });
    return absl::OkStatus();
  }

 private:
  static constexpr size_t kPlaces = kOp == RowsOp::kDot ? 2 : 1;

  const char* In(const KernelArgs& args, size_t i, int64_t row) const {
    return static_cast<const char*>(args.in[i]) + row * row_bytes_;
  }
  char* Out(const KernelArgs& args, int64_t row) const {
    return static_cast<char*>(args.out[0]) + row * row_bytes_;
  }

  void RunToken(const KernelArgs& args, const int32_t* places, int64_t t) const {
    if constexpr (kOp == RowsOp::kFrom) {
      const float* const weights = has_weights_ ? args.f32(2) + t * top_k_ : nullptr;
      fns_.sum(args.in[0], places, weights, top_k_, d_, Out(args, t));
    }
    for (int64_t j = 0; kOp != RowsOp::kFrom && j < top_k_; ++j) {
      if constexpr (kOp == RowsOp::kDot) {
        args.out_f32(0)[t * top_k_ + j] = fns_.dot(In(args, 1, t), In(args, 0, places[j]), d_);
      } else if (!has_weights_) {
        std::memcpy(Out(args, places[j]), In(args, 0, t), static_cast<size_t>(row_bytes_));
      } else {
        fns_.scale(In(args, 0, t), args.f32(2)[t * top_k_ + j], d_, Out(args, places[j]));
      }
    }
  }

  const int64_t tokens_, top_k_, d_, row_bytes_, tasks_;
  const bool has_weights_;
  const ExpertRowFns fns_;
};

template <RowsOp kOp>
absl::Status ReferenceExpertRows(const ReferenceArgs& args) {
  constexpr size_t kPlaces = kOp == RowsOp::kDot ? 2 : 1;
  const std::vector<int32_t>& places = args.i(kPlaces);
  const int64_t top_k = args.shape(kPlaces).last(), d = args.shape(0).last();
  for (size_t i = 0; i < places.size(); ++i) {
    const double weight = kOp != RowsOp::kDot && args.has(2) ? args.f(2)[i] : 1;
    for (int64_t c = 0; c < d; ++c) {
      const size_t token = static_cast<size_t>(static_cast<int64_t>(i) / top_k * d + c);
      const size_t place = static_cast<size_t>(places[i] * d + c);
      if (kOp == RowsOp::kTo) args.out(0)[place] = weight * args.f(0)[token];
      if (kOp == RowsOp::kFrom) args.out(0)[token] += weight * args.f(0)[place];
      if (kOp == RowsOp::kDot) args.out(0)[i] += args.f(0)[place] * args.f(1)[token];
    }
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterExpertRows(OpRegistry* registry) {
  OpDef to;
  to.name = "to_experts";
  to.min_inputs = 2;
  to.max_inputs = 3;
  to.infer = InferToExperts;
  to.vjp = VjpOfRows;
  to.make_kernel = MakeKernel<ExpertRowsKernel<RowsOp::kTo>>;
  to.reference = ReferenceExpertRows<RowsOp::kTo>;
  registry->Add(std::move(to));

  OpDef from;
  from.name = "from_experts";
  from.min_inputs = 2;
  from.max_inputs = 3;
  from.infer = InferFromExperts;
  from.vjp = VjpOfRows;
  from.make_kernel = MakeKernel<ExpertRowsKernel<RowsOp::kFrom>>;
  from.reference = ReferenceExpertRows<RowsOp::kFrom>;
  registry->Add(std::move(from));

  OpDef dot;
  dot.name = "expert_dot";
  dot.min_inputs = dot.max_inputs = 3;
  dot.infer = InferExpertDot;
  dot.make_kernel = MakeKernel<ExpertRowsKernel<RowsOp::kDot>>;
  dot.reference = ReferenceExpertRows<RowsOp::kDot>;
  registry->Add(std::move(dot));
}

}  // namespace plumb
#endif  // HWY_ONCE
