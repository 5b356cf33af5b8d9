// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"
#include "runtime/base/parallel.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

// Dropout (Srivastava et al. 2014, inverted) and, for whole sequences, stochastic depth (Huang et
// al. 2016). A draw is a function of the run's seed, the step, the op's name, the row of the step,
// the position and the channel. So the backward pass repeats the forward pass's draws,
// and draws do not depend on threads, resuming, or the division of a step into passes.

namespace plumb {
namespace {

// Indices of the words of `random`.
constexpr int64_t kSeedLow = 0, kSeedHigh = 1, kStepLow = 2, kStepHigh = 3, kFirstRow = 4,
                  kPositions = 5, kWords = 6;

absl::StatusOr<std::vector<TensorType>> InferDrop(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "random"));
  if (types.in(1) != I32({kWords})) {
    return absl::InvalidArgumentError(
        absl::StrCat("random is ", types.in(1).ToString(), ", must be i32[", kWords, "]"));
  }
  const double p = types.attrs.GetDouble("p");
  if (!(p >= 0 && p < 1)) return absl::InvalidArgumentError("p must be in [0, 1)");
  return std::vector<TensorType>{types.in(0)};
}

// y = x m / (1 - p) with m 0 or 1, so dL/dx = dL/dy m / (1 - p).
std::vector<ValueId> VjpDrop(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                             const std::vector<bool>&) {
  return {b.Apply("drop", {d_outputs[0], node.inputs[1]}, node.attrs), kNoValue};
}

RngStream MakeStream(const Attrs& attrs, const int32_t* random) {
  const auto word = [random](int64_t low, int64_t high) {
    return uint64_t{static_cast<uint32_t>(random[high])} << 32 | static_cast<uint32_t>(random[low]);
  };
  return RngStream(word(kSeedLow, kSeedHigh), attrs.GetString("name"), word(kStepLow, kStepHigh));
}

// The indices of the draws of a tensor's elements.
class DrawNumbers {
 public:
  DrawNumbers(const Shape& shape, const Attrs& attrs)
      : of_row_(shape.num_elements() / shape[0]),
        positions_(shape.rank() > 1 ? shape[1] : 1),
        path_(attrs.GetBool("path", false)) {}

  int64_t of_row() const { return of_row_; }  // elements of a row
  bool path() const { return path_; }         // all elements of a row share one draw

  // Returns the index of a row's first element; the others follow it.
  uint64_t RowStart(int64_t row, const int32_t* random) const {
    const uint64_t row_of_step =
        uint64_t{static_cast<uint32_t>(random[kFirstRow])} + static_cast<uint64_t>(row);
    if (path_) return row_of_step;
    const int64_t positions = std::max<int64_t>(positions_, random[kPositions]);
    return row_of_step * static_cast<uint64_t>(of_row_ / positions_ * positions);
  }

 private:
  int64_t of_row_, positions_;
  bool path_;
};

class DropKernel : public Kernel {
 public:
  explicit DropKernel(const OpTypes& types)
      : attrs_(types.attrs),
        elements_(types.in(0).num_elements()),
        draws_(types.in(0).shape, types.attrs),
        p_(types.attrs.GetDouble("p")),
        bf16_(types.in(0).dtype == DType::kBF16),
        tasks_(TaskCount(elements_, elements_ * (draws_.path() ? 2 : 64))) {}

  absl::Status Run(const KernelArgs& args) const override {
    const RngStream stream = MakeStream(attrs_, args.i32(1));
    const float scale = static_cast<float>(1 / (1 - p_));
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(elements_, tasks_, task);
      const auto factor = [&](uint64_t draw) { return stream.Uniform(draw) < p_ ? 0.0f : scale; };
      int64_t i = range.begin;
      while (i < range.end) {
        const int64_t row = i / draws_.of_row(), begin = row * draws_.of_row();
        const int64_t end = std::min(range.end, begin + draws_.of_row());
        const uint64_t first = draws_.RowStart(row, args.i32(1));
        if (draws_.path()) {
          const float of_all = factor(first);
          for (; i < end; ++i) Write(args, i, of_all);
        }
        for (; i < end; ++i) Write(args, i, factor(first + static_cast<uint64_t>(i - begin)));
      }
    });
    return absl::OkStatus();
  }

 private:
  void Write(const KernelArgs& args, int64_t i, float factor) const {
    if (bf16_) {
      args.out_bf16(0)[i] =
          factor == 0 ? 0 : Bf16FromFloat(FloatFromBf16(args.bf16(0)[i]) * factor);
    } else {
      args.out_f32(0)[i] = factor == 0 ? 0 : args.f32(0)[i] * factor;
    }
  }

  const Attrs attrs_;
  int64_t elements_;
  DrawNumbers draws_;
  double p_;
  bool bf16_;
  int64_t tasks_;
};

absl::Status ReferenceDrop(const ReferenceArgs& args) {
  const RngStream stream = MakeStream(args.attrs, args.i(1).data());
  const double p = args.attrs.GetDouble("p");
  const DrawNumbers draws(args.shape(0), args.attrs);
  const auto of_row = static_cast<size_t>(draws.of_row());
  for (size_t i = 0; i < args.out(0).size(); ++i) {
    const uint64_t first = draws.RowStart(static_cast<int64_t>(i / of_row), args.i(1).data());
    const bool dropped = stream.Uniform(first + (draws.path() ? 0 : i % of_row)) < p;
    args.out(0)[i] = dropped ? 0 : args.f(0)[i] / (1 - p);
  }
  return absl::OkStatus();
}

}  // namespace

void RegisterDrop(OpRegistry* registry) {
  OpDef op;
  op.name = "drop";
  op.min_inputs = op.max_inputs = 2;
  op.may_alias = {{0, 0}};
  op.infer = InferDrop;
  op.vjp = VjpDrop;
  op.make_kernel = MakeKernel<DropKernel>;
  op.reference = ReferenceDrop;
  registry->Add(std::move(op));
}

}  // namespace plumb
