// rope: rotary position embedding. Su et al., "RoFormer" (2021), eq. 34, with the two components of
// a pair half a head apart, as in GPT-NeoX and LLaMA.
#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_ROPE_TYPES
#define PLUMB_ROPE_TYPES
namespace plumb {
namespace {

// Sines and cosines are made for this many angles at a time, of several tokens when heads are
// narrow.
constexpr int64_t kAngles = 64;
constexpr int64_t kSlack = 16;

struct Rotation {
  const void* x;  // [tokens, heads, 2 * half], f32 or bf16
  void* y;        // like x, may be x
  const int32_t* positions;
  int64_t heads;
  int64_t half;
  const double* frequencies;  // [half], followed by kSlack readable elements
  double sign;                // -1 rotates back
};
// Tokens [begin, end). `scratch` holds RotateScratchBytes(half).
using RotateFn = void (*)(const Rotation& rotation, int64_t begin, int64_t end, void* scratch);

// The angles of one round, padded so that a whole vector can be read from any of them.
constexpr int64_t AnglesOfRound(int64_t half) {
  return (std::max(kAngles, half) + 15) / 16 * 16 + kSlack;
}
constexpr int64_t RotateScratchBytes(int64_t half) {
  return AnglesOfRound(half) * static_cast<int64_t>(sizeof(double) + 2 * sizeof(float));
}

}  // namespace
}  // namespace plumb
#endif

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// cos and sin of `n` angles, up to whole vectors. They are brought into [-pi, pi] in double: a
// position of some thousands has no digits left for it in float.
void CosAndSin(const double* angles, int64_t n, float* cosines, float* sines) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> to;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto turn = hn::Set(d, 6.283185307179586476925);
  const auto per_turn = hn::Set(d, 0.159154943091895335769);
  for (int64_t i = 0; i < n; i += lanes) {
    const auto angle = hn::Load(d, angles + i);
    const auto turns = hn::Round(hn::Mul(angle, per_turn));
    const auto rest = hn::DemoteTo(to, hn::NegMulAdd(turns, turn, angle));
    hn::Store(hn::Cos(to, rest), to, cosines + i);
    hn::Store(hn::Sin(to, rest), to, sines + i);
  }
}

template <class T>
void Rotate(const Rotation& rotation, int64_t begin, int64_t end, void* scratch) {
  const D d;
  const int64_t half = rotation.half;
  const hn::ScalableTag<double> wide;
  const int64_t wide_lanes = static_cast<int64_t>(hn::Lanes(wide));
  double* angles = static_cast<double*>(scratch);
  float* cosines = reinterpret_cast<float*>(angles + AnglesOfRound(half));
  float* sines = cosines + AnglesOfRound(half);
  const int64_t round = std::max<int64_t>(1, kAngles / half);  // tokens
  const int64_t width = rotation.heads * 2 * half;
  for (int64_t first = begin; first < end; first += round) {
    const int64_t tokens = std::min(round, end - first);
    for (int64_t t = 0; t < tokens; ++t) {
      const auto position = hn::Set(wide, rotation.sign * rotation.positions[first + t]);
      // The next token overwrites the slack behind this one's angles.
      for (int64_t i = 0; i < half; i += wide_lanes) {
        hn::StoreU(hn::Mul(position, hn::LoadU(wide, rotation.frequencies + i)), wide,
                   angles + t * half + i);
      }
    }
    CosAndSin(angles, tokens * half, cosines, sines);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* cosine = cosines + t * half;
      const float* sine = sines + t * half;
      for (int64_t head = 0; head < rotation.heads; ++head) {
        const int64_t at = (first + t) * width + head * 2 * half;
        const T* x = static_cast<const T*>(rotation.x) + at;
        T* y = static_cast<T*>(rotation.y) + at;
        ForVectors(d, 0, half, [=](const auto& io, int64_t i) HWY_ATTR {
          const V c = io.Load(d, cosine + i), s = io.Load(d, sine + i);
          const V a = io.Load(d, x + i), b = io.Load(d, x + half + i);
          io.Store(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + i);
          io.Store(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half + i);
        });
      }
    }
  }
}

RotateFn SelectRotate(DType dtype) {
  return dtype == DType::kBF16 ? &Rotate<uint16_t> : &Rotate<float>;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(SelectRotate);

namespace {

// -- Shape rule

absl::StatusOr<std::vector<TensorType>> InferRope(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "positions"));
  const Shape &x = types.in(0).shape, &positions = types.in(1).shape;
  const int64_t head_dim = types.attrs.GetInt("head_dim");
  if (head_dim < 2 || head_dim % 2 != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("head_dim = ", head_dim, " is odd: rotation needs pairs"));
  }
  if (x.last() % head_dim != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the last dimension of x, ", x.last(),
                                                   ", is not a multiple of head_dim = ", head_dim));
  }
  if (positions.num_elements() != x.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("positions ", positions.ToString(),
                                                   " do not match the tokens of x ", x.ToString()));
  }
  if (const double theta = types.attrs.GetDouble("theta"); !(theta > 0) || std::isinf(theta)) {
    return absl::InvalidArgumentError(absl::StrCat("theta = ", theta, " is not a positive number"));
  }
  return std::vector<TensorType>{types.in(0)};
}

// -- VJP
//
// y = R x with R a rotation, so dx = R^T dy = R^-1 dy.
std::vector<ValueId> VjpRope(GraphBuilder& b, const Node& node, absl::Span<const ValueId> d_outputs,
                             const std::vector<bool>& wanted) {
  if (!wanted[0] || d_outputs[0] == kNoValue) return {kNoValue, kNoValue};
  Attrs attrs = node.attrs;
  attrs.Set("inverse", !node.attrs.GetBool("inverse", false));
  return {b.Apply("rope", {d_outputs[0], node.inputs[1]}, attrs), kNoValue};
}

// -- Kernel

class RopeKernel : public Kernel {
 public:
  RopeKernel(DType dtype, int64_t tokens, int64_t heads, int64_t head_dim, double theta,
             bool inverse)
      : tokens_(tokens),
        heads_(heads),
        half_(head_dim / 2),
        // An element costs a few operations, the sine and cosine of a pair some fifty.
        tasks_(TaskCount(tokens, tokens * half_ * (6 * heads + 50))),
        sign_(inverse ? -1 : 1),
        slot_bytes_(AlignUp(RotateScratchBytes(half_))),
        rotate_(HWY_DYNAMIC_DISPATCH(SelectRotate)(dtype)) {
    frequencies_.reserve(static_cast<size_t>(half_ + kSlack));
    for (int64_t i = 0; i < half_; ++i) {
      frequencies_.push_back(
          std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim)));
    }
    frequencies_.resize(static_cast<size_t>(half_ + kSlack));
  }

  int64_t scratch_bytes() const override { return tasks_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    const Rotation rotation = {args.in[0], args.out[0],         args.i32(1), heads_,
                               half_,      frequencies_.data(), sign_};
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(tokens_, tasks_, task);
      rotate_(rotation, range.begin, range.end,
              static_cast<char*>(args.scratch) + task * slot_bytes_);
    });
    return absl::OkStatus();
  }

 private:
  const int64_t tokens_;
  const int64_t heads_;
  const int64_t half_;
  const int64_t tasks_;
  const double sign_;
  const int64_t slot_bytes_;
  std::vector<double> frequencies_;
  const RotateFn rotate_;
};

absl::StatusOr<std::unique_ptr<Kernel>> MakeRopeKernel(const OpTypes& types) {
  const Shape& x = types.in(0).shape;
  const int64_t head_dim = types.attrs.GetInt("head_dim");
  return std::make_unique<RopeKernel>(types.in(0).dtype, x.rows(), x.last() / head_dim, head_dim,
                                      types.attrs.GetDouble("theta"),
                                      types.attrs.GetBool("inverse", false));
}

// -- Reference

absl::Status ReferenceRope(const ReferenceArgs& args) {
  const int64_t c = args.attrs.GetInt("head_dim");
  const double theta = args.attrs.GetDouble("theta");
  const double sign = args.attrs.GetBool("inverse", false) ? -1 : 1;
  const int64_t width = args.shape(0).last();
  for (int64_t t = 0; t < args.shape(0).rows(); ++t) {
    for (int64_t head = 0; head < width / c; ++head) {
      for (int64_t i = 0; i < c / 2; ++i) {
        const double angle =
            sign * args.i(1)[static_cast<size_t>(t)] *
            std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(c));
        const size_t a = static_cast<size_t>(t * width + head * c + i);
        const size_t b = a + static_cast<size_t>(c / 2);
        const double xa = args.f(0)[a], xb = args.f(0)[b];
        args.out(0)[a] = xa * std::cos(angle) - xb * std::sin(angle);
        args.out(0)[b] = xb * std::cos(angle) + xa * std::sin(angle);
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

// -- Registration

void RegisterRope(OpRegistry* registry) {
  OpDef op;
  op.name = "rope";
  op.min_inputs = op.max_inputs = 2;
  op.may_alias = {{0, 0}};
  op.infer = InferRope;
  op.vjp = VjpRope;
  op.make_kernel = MakeRopeKernel;
  op.reference = ReferenceRope;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0, 1}; };
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
