// SPDX-License-Identifier: Apache-2.0
// causal_conv and its gradients: a causal depthwise convolution over tokens, as in Allen-Zhu,
// "Canon layers" (2025); with width 2 it is a token shift (Peng et al., "RWKV", 2023).
// causal_conv_cached: the same for new tokens, after those in a cache, which may be a ring.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/causal_conv_rows.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

constexpr size_t kConvBias = 2;        // operand of causal_conv
constexpr size_t kConvCachedBias = 4;  // operand of causal_conv_cached

// -- Shape rules

// Fails unless input 0 is [batch, tokens, channels], and input 1 the weight f32[channels, width].
absl::Status CheckConv(const OpTypes& types, absl::string_view name) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, name));
  PLUMB_RETURN_IF_ERROR(CheckF32(types, 1, "weight"));
  const Shape &x = types.in(0).shape, &weight = types.in(1).shape;
  if (x.rank() == 3 && weight.rank() == 2 && weight[0] == x.last()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", types.in(0).ToString(), " and the weight ", types.in(1).ToString(),
                   ", must be [batch, tokens, channels] and ", "f32[channels, width]"));
}

absl::Status CheckConvBias(const OpTypes& types, size_t i) {
  const int64_t channels = types.in(0).shape.last();
  if (!types.has(i) || types.in(i) == F32({channels})) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the bias is ", types.in(i).ToString(), ", must be f32[", channels, "]"));
}

absl::StatusOr<std::vector<TensorType>> InferCausalConv(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckConv(types, "x"));
  PLUMB_RETURN_IF_ERROR(CheckConvBias(types, kConvBias));
  return std::vector<TensorType>{types.in(0)};
}

absl::StatusOr<std::vector<TensorType>> InferCausalConvGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckConv(types, "dy"));
  return std::vector<TensorType>{types.in(0)};
}

absl::StatusOr<std::vector<TensorType>> InferCausalConvWeightGrad(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckMatching(types, 0, "x", 1, "dy"));
  const Shape& x = types.in(0).shape;
  const int64_t width = types.attrs.GetInt("width");
  if (x.rank() != 3 || width < 1) {
    return absl::InvalidArgumentError(absl::StrCat("x is ", types.in(0).ToString(), " and width ",
                                                   width,
                                                   ", must be [batch, tokens, channels] and 1 or "
                                                   "more"));
  }
  return std::vector<TensorType>{F32({x.last(), width})};
}

absl::StatusOr<std::vector<TensorType>> InferCausalConvCached(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckConv(types, "x"));
  PLUMB_RETURN_IF_ERROR(CheckConvBias(types, kConvCachedBias));
  const TensorType &x = types.in(0), &cache = types.in(2), &positions = types.in(3);
  if (cache.dtype != x.dtype || cache.shape.rank() != 4 || cache.shape[0] != x.shape[0] ||
      cache.shape[1] != 1 || cache.shape.last() != x.shape.last()) {
    return absl::InvalidArgumentError(absl::StrCat("the cache is ", cache.ToString(), ", must be ",
                                                   DTypeName(x.dtype), "[", x.shape[0],
                                                   ", 1, capacity, ", x.shape.last(), "]"));
  }
  const int64_t width = types.in(1).shape.last();
  if (types.attrs.GetBool("ring", false) && cache.shape[2] < width) {
    return absl::InvalidArgumentError(
        absl::StrCat("a ring of ", cache.shape[2], " tokens does not hold those of width ", width));
  }
  if (positions != I32({x.shape[0], x.shape[1]})) {
    return absl::InvalidArgumentError(absl::StrCat("positions are ", positions.ToString(),
                                                   ", must be i32[", x.shape[0], ", ", x.shape[1],
                                                   "]"));
  }
  return std::vector<TensorType>{x, cache};
}

// -- VJP
//
// With y_t = b + sum_i w_i x_{t-i}, channel by channel:
//   dx_t = sum_i w_i dy_{t+i},  dw_i = sum_t x_{t-i} dy_t,  db = sum_t dy_t.
std::vector<ValueId> VjpCausalConv(GraphBuilder& b, const Node& node,
                                   absl::Span<const ValueId> d_outputs,
                                   const std::vector<bool>& wanted) {
  std::vector<ValueId> gradients(node.inputs.size(), kNoValue);
  const ValueId dy = d_outputs[0];
  if (dy == kNoValue) return gradients;
  if (wanted[0]) gradients[0] = b.Apply("causal_conv_grad", {dy, node.inputs[1]});
  if (wanted[1]) {
    const int64_t width = b.type(node.inputs[1]).shape.last();
    gradients[1] = b.Apply("causal_conv_weight_grad", {node.inputs[0], dy}, {{"width", width}});
  }
  if (node.inputs.size() > kConvBias && node.inputs[kConvBias] != kNoValue && wanted[kConvBias]) {
    gradients[kConvBias] = b.Apply("mul_reduce", {dy});
  }
  return gradients;
}

// -- Kernels

// Returns the weight [channels, width], transposed to [width, channels] in scratch.
const float* Taps(const float* weight, int64_t channels, int64_t width, void* scratch) {
  float* taps = static_cast<float*>(scratch);
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < width; ++i) taps[i * channels + c] = weight[c * width + i];
  }
  return taps;
}

const void* AtElement(const void* data, DType dtype, int64_t i) {
  return static_cast<const char*>(data) + i * SizeOf(dtype);
}
void* AtElement(void* data, DType dtype, int64_t i) {
  return static_cast<char*>(data) + i * SizeOf(dtype);
}

// causal_conv (step -1) and causal_conv_grad (step 1), which has no bias.
template <int64_t kStep>
class CausalConvKernel : public Kernel {
 public:
  explicit CausalConvKernel(const OpTypes& types)
      : dtype_(types.in(0).dtype),
        tokens_(types.in(0).shape[1]),
        rows_(types.in(0).shape.rows()),
        channels_(types.in(0).shape.last()),
        width_(types.in(1).shape.last()),
        has_bias_(types.has(kConvBias)),
        tasks_(TaskCount(rows_, 2 * rows_ * channels_ * width_)),
        convolve_(ChooseConvolve(dtype_)) {}

  int64_t scratch_bytes() const override {
    return width_ * channels_ * static_cast<int64_t>(sizeof(float));
  }

  absl::Status Run(const KernelArgs& args) const override {
    const float* taps = Taps(args.f32(1), channels_, width_, args.scratch);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range rows = TaskRange(rows_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end;) {
        const int64_t start = row / tokens_ * tokens_;
        const int64_t end = std::min(rows.end, start + tokens_);
        ConvolveArgs call;
        call.x = AtElement(args.in[0], dtype_, start * channels_);
        call.y = AtElement(args.out[0], dtype_, start * channels_);
        call.rows = tokens_;
        call.first = 0;
        call.channels = channels_;
        call.width = width_;
        call.step = kStep;
        call.taps = taps;
        call.bias = has_bias_ ? args.f32(kConvBias) : nullptr;
        convolve_(call, row - start, end - start);
        row = end;
      }
    });
    return absl::OkStatus();
  }

 private:
  const DType dtype_;
  const int64_t tokens_, rows_, channels_, width_;
  const bool has_bias_;
  const int64_t tasks_;
  const ConvolveFn convolve_;
};

// One item is a range of channels, over all rows.
class CausalConvWeightGradKernel : public Kernel {
 public:
  explicit CausalConvWeightGradKernel(const OpTypes& types)
      : sequences_(types.in(0).shape[0]),
        tokens_(types.in(0).shape[1]),
        channels_(types.in(0).shape.last()),
        width_(types.attrs.GetInt("width")),
        items_(CeilDiv(channels_, kConvChannels)),
        tasks_(TaskCount(items_, 2 * types.in(0).num_elements() * width_)),
        add_up_(ChooseConvolveGrad(types.in(0).dtype)) {}

  absl::Status Run(const KernelArgs& args) const override {
    ConvolveGradArgs call;
    call.x = args.in[0];
    call.dy = args.in[1];
    call.sequences = sequences_;
    call.rows = tokens_;
    call.channels = channels_;
    call.width = width_;
    call.dweight = args.out_f32(0);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range items = TaskRange(items_, tasks_, task);
      add_up_(call, items.begin * kConvChannels, std::min(channels_, items.end * kConvChannels));
    });
    return absl::OkStatus();
  }

 private:
  const int64_t sequences_, tokens_, channels_, width_, items_, tasks_;
  const ConvolveGradFn add_up_;
};

// The new rows are written to the cache first, which then contains all rows that they read. Rows of
// a ring would overwrite some of these, so there they are copied to scratch, behind the rows before
// them.
class CausalConvCachedKernel : public Kernel {
 public:
  explicit CausalConvCachedKernel(const OpTypes& types)
      : dtype_(types.in(0).dtype),
        batch_(types.in(0).shape[0]),
        tokens_(types.in(0).shape[1]),
        channels_(types.in(0).shape.last()),
        width_(types.in(1).shape.last()),
        capacity_(types.in(2).shape[2]),
        is_ring_(types.attrs.GetBool("ring", false)),
        has_bias_(types.has(kConvCachedBias)),
        tasks_(TaskCount(batch_ * tokens_, 2 * types.in(0).num_elements() * width_)),
        convolve_(ChooseConvolve(dtype_)) {}

  int64_t scratch_bytes() const override {
    return TapBytes() + (is_ring_ ? batch_ * laid_out() * channels_ * SizeOf(dtype_) : 0);
  }

  absl::Status Run(const KernelArgs& args) const override {
    const int32_t* positions = args.i32(3);
    const int64_t end = is_ring_ ? std::numeric_limits<int32_t>::max() : capacity_;
    PLUMB_RETURN_IF_ERROR(CheckPositions(positions, batch_, tokens_, end));
    for (int64_t b = 0; b < batch_; ++b) {
      if (is_ring_) LayOut(args, b, positions[b * tokens_]);
      for (int64_t t = is_ring_ ? std::max<int64_t>(0, tokens_ - capacity_) : 0; t < tokens_; ++t) {
        const int64_t row = positions[b * tokens_] + t;
        Copy(In(args, b, t), 1, At(args.out[1], b * capacity_ + row % capacity_));
      }
    }
    const float* taps = Taps(args.f32(1), channels_, width_, args.scratch);
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range rows = TaskRange(batch_ * tokens_, tasks_, task);
      for (int64_t row = rows.begin; row < rows.end;) {
        const int64_t b = row / tokens_, first = is_ring_ ? width_ - 1 : positions[b * tokens_];
        const int64_t task_end = std::min(rows.end, (b + 1) * tokens_);
        ConvolveArgs call;
        call.x = is_ring_ ? At(LaidOut(args), b * laid_out()) : At(args.out[1], b * capacity_);
        call.y = At(args.out[0], b * tokens_);
        call.rows = is_ring_ ? laid_out() : capacity_;
        call.first = first;
        call.channels = channels_;
        call.width = width_;
        call.step = -1;
        call.taps = taps;
        call.bias = has_bias_ ? args.f32(kConvCachedBias) : nullptr;
        convolve_(call, first + row - b * tokens_, first + task_end - b * tokens_);
        row = task_end;
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t TapBytes() const {
    return AlignUp(width_ * channels_ * static_cast<int64_t>(sizeof(float)));
  }
  int64_t laid_out() const { return width_ - 1 + tokens_; }  // rows of a sequence in scratch
  void* LaidOut(const KernelArgs& args) const {
    return static_cast<char*>(args.scratch) + TapBytes();
  }
  void* At(void* rows, int64_t row) const { return AtElement(rows, dtype_, row * channels_); }
  const void* In(const KernelArgs& args, int64_t b, int64_t t) const {
    return AtElement(args.in[0], dtype_, (b * tokens_ + t) * channels_);
  }
  void Copy(const void* from, int64_t rows, void* to) const {
    std::memcpy(to, from, static_cast<size_t>(rows * channels_ * SizeOf(dtype_)));
  }

  // Copies the rows before position `first` and the new ones; rows before the sequence are 0.
  void LayOut(const KernelArgs& args, int64_t b, int64_t first) const {
    for (int64_t i = 0; i < width_ - 1; ++i) {
      const int64_t position = first - (width_ - 1) + i;
      void* const to = At(LaidOut(args), b * laid_out() + i);
      if (position < 0) {
        std::memset(to, 0, static_cast<size_t>(channels_ * SizeOf(dtype_)));
      } else {
        Copy(At(args.out[1], b * capacity_ + position % capacity_), 1, to);
      }
    }
    Copy(In(args, b, 0), tokens_, At(LaidOut(args), b * laid_out() + width_ - 1));
  }

  const DType dtype_;
  const int64_t batch_, tokens_, channels_, width_, capacity_;
  const bool is_ring_, has_bias_;
  const int64_t tasks_;
  const ConvolveFn convolve_;
};

// -- References

// Calls body(element of x, element of y, element of the weight) for all products of the convolution
// of [batch, tokens, channels].
template <class Body>
void ForEachProduct(const Shape& x, int64_t width, const Body& body) {
  const int64_t tokens = x[1], channels = x.last();
  for (int64_t row = 0; row < x.rows(); ++row) {
    for (int64_t i = 0; i < std::min(width, row % tokens + 1); ++i) {
      for (int64_t c = 0; c < channels; ++c) {
        body(static_cast<size_t>((row - i) * channels + c), static_cast<size_t>(row * channels + c),
             static_cast<size_t>(c * width + i));
      }
    }
  }
}

absl::Status ReferenceCausalConv(const ReferenceArgs& args) {
  const size_t channels = static_cast<size_t>(args.shape(0).last());
  if (args.has(kConvBias)) {
    for (size_t e = 0; e < args.out(0).size(); ++e)
      args.out(0)[e] = args.f(kConvBias)[e % channels];
  }
  ForEachProduct(args.shape(0), args.shape(1).last(), [&](size_t x, size_t y, size_t w) {
    args.out(0)[y] += args.f(1)[w] * args.f(0)[x];
  });
  return absl::OkStatus();
}

absl::Status ReferenceCausalConvGrad(const ReferenceArgs& args) {
  ForEachProduct(args.shape(0), args.shape(1).last(), [&](size_t x, size_t y, size_t w) {
    args.out(0)[x] += args.f(1)[w] * args.f(0)[y];
  });
  return absl::OkStatus();
}

absl::Status ReferenceCausalConvWeightGrad(const ReferenceArgs& args) {
  ForEachProduct(args.shape(0), args.attrs.GetInt("width"), [&](size_t x, size_t y, size_t w) {
    args.out(0)[w] += args.f(0)[x] * args.f(1)[y];
  });
  return absl::OkStatus();
}

absl::Status ReferenceCausalConvCached(const ReferenceArgs& args) {
  const Shape& x = args.shape(0);
  const int64_t tokens = x[1], channels = x.last(), width = args.shape(1).last();
  const int64_t capacity = args.shape(2)[2];
  const int64_t end =
      args.attrs.GetBool("ring", false) ? std::numeric_limits<int32_t>::max() : capacity;
  PLUMB_RETURN_IF_ERROR(CheckPositions(args.i(3).data(), x[0], tokens, end));
  for (int64_t row = 0; row < x.rows(); ++row) {
    const int64_t position = args.i(3)[static_cast<size_t>(row)];
    for (int64_t c = 0; c < channels; ++c) {
      const auto cached = [&](int64_t at) -> double& {
        const int64_t token = row / tokens * capacity + at % capacity;
        return args.out(1)[static_cast<size_t>(token * channels + c)];
      };
      const size_t e = static_cast<size_t>(row * channels + c);
      cached(position) = args.f(0)[e];
      double sum = args.has(kConvCachedBias) ? args.f(kConvCachedBias)[static_cast<size_t>(c)] : 0;
      for (int64_t i = 0; i < std::min(width, position + 1); ++i) {
        sum += args.f(1)[static_cast<size_t>(c * width + i)] * cached(position - i);
      }
      args.out(0)[e] = sum;
    }
  }
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterCausalConv(OpRegistry* registry) {
  OpDef op;
  op.name = "causal_conv";
  op.min_inputs = 2;
  op.max_inputs = 3;
  op.infer = InferCausalConv;
  op.vjp = VjpCausalConv;
  op.make_kernel = MakeKernel<CausalConvKernel<-1>>;
  op.reference = ReferenceCausalConv;
  registry->Add(std::move(op));

  OpDef grad;
  grad.name = "causal_conv_grad";
  grad.min_inputs = grad.max_inputs = 2;
  grad.infer = InferCausalConvGrad;
  grad.make_kernel = MakeKernel<CausalConvKernel<1>>;
  grad.reference = ReferenceCausalConvGrad;
  registry->Add(std::move(grad));

  OpDef weight_grad;
  weight_grad.name = "causal_conv_weight_grad";
  weight_grad.min_inputs = weight_grad.max_inputs = 2;
  weight_grad.infer = InferCausalConvWeightGrad;
  weight_grad.make_kernel = MakeKernel<CausalConvWeightGradKernel>;
  weight_grad.reference = ReferenceCausalConvWeightGrad;
  registry->Add(std::move(weight_grad));

  OpDef cached;
  cached.name = "causal_conv_cached";
  cached.min_inputs = 4;
  cached.max_inputs = 5;
  cached.updates = {{1, 2}};
  cached.infer = InferCausalConvCached;
  cached.make_kernel = MakeKernel<CausalConvCachedKernel>;
  cached.reference = ReferenceCausalConvCached;
  registry->Add(std::move(cached));
}

}  // namespace plumb
