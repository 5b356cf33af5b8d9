// SPDX-License-Identifier: Apache-2.0
// rope: rotary position embedding. Su et al., "RoFormer" (2021), eq. 34. The two components of a
// pair are half of the rotated elements apart, as in GPT-NeoX and LLaMA, or adjacent, as in GPT-J.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/op_checks.h"
#include "runtime/ops/ops.h"
#include "runtime/ops/rope.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/rope.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

#ifndef PLUMB_ROPE_TYPES
#define PLUMB_ROPE_TYPES
namespace plumb {
namespace {

// Number of angles whose sines and cosines are computed at a time; of several tokens if heads are
// narrow.
constexpr int64_t kAngles = 64;
constexpr int64_t kSlack = 16;

struct Rotation {
  const void* x;  // [tokens, heads, head_dim], f32 or bf16
  void* y;        // like x; may be x
  const int32_t* positions;
  int64_t heads;
  int64_t head_dim;
  int64_t half;               // pairs; the elements after them are copied
  bool interleaved;           // pairs are (2i, 2i + 1), not (i, half + i)
  const double* frequencies;  // [half], followed by kSlack readable elements
  double sign;                // -1 rotates back
  float magnitude;            // factor of the rotated elements
};
// Rotates tokens [begin, end). `scratch` has RotateScratchBytes(half) bytes.
using RotateFn = void (*)(const Rotation& rotation, int64_t begin, int64_t end, void* scratch);

// Returns the angles of one round, padded so that a whole vector can be read from any of them.
constexpr int64_t AnglesOfRound(int64_t half) {
  return (std::max(kAngles, half) + 15) / 16 * 16 + kSlack;
}
// Returns the bytes of angles, cosines and sines of a round, and of one token's cosines and sines,
// twice each.
constexpr int64_t RotateScratchBytes(int64_t half) {
  return AnglesOfRound(half) * static_cast<int64_t>(sizeof(double) + 6 * sizeof(float));
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

// Computes cos and sin of `n` angles, up to whole vectors. Reduces the angles to [-pi, pi] in
// double, because float has no digits left for the fraction at positions of some thousands.
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

// Rotates one head, with pairs (i, half + i).
template <class T>
HWY_INLINE void RotateHalves(const T* x, T* y, const float* cosine, const float* sine,
                             int64_t half) {
  const D d;
  ForVectors(d, 0, half, [=](const auto& io, int64_t i) HWY_ATTR {
    const V c = io.Load(d, cosine + i), s = io.Load(d, sine + i);
    const V a = io.Load(d, x + i), b = io.Load(d, x + half + i);
    io.Store(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + i);
    io.Store(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + half + i);
  });
}

// Rotates one head, with pairs (2i, 2i + 1). Element e is multiplied by cosine[e], and its partner
// by sine[e].
template <class T>
HWY_INLINE void RotatePairs(const T* x, T* y, const float* cosine, const float* sine,
                            int64_t half) {
#if HWY_TARGET == HWY_SCALAR
  const D d;
  for (int64_t e = 0; e < 2 * half; e += 2) {
    const V a = LoadFloats(d, x + e), b = LoadFloats(d, x + e + 1);
    const V c = hn::LoadU(d, cosine + e), s = hn::LoadU(d, sine + e + 1);
    StoreFloats(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, y + e);
    StoreFloats(hn::MulAdd(a, s, hn::Mul(b, c)), d, y + e + 1);
  }
#else
  const D d;
  ForVectors(d, 0, 2 * half, [=](const auto& io, int64_t e) HWY_ATTR {
    const V own = io.Load(d, x + e), partner = hn::Reverse2(d, own);
    const V turned = hn::Mul(own, io.Load(d, cosine + e));
    io.Store(hn::MulAdd(partner, io.Load(d, sine + e), turned), d, y + e);
  });
#endif
}

// Computes the operands of RotatePairs.
void SpreadOverPairs(const float* cosine, const float* sine, int64_t half, float* pair_cosine,
                     float* pair_sine) {
  for (int64_t i = 0; i < half; ++i) {
    pair_cosine[2 * i] = pair_cosine[2 * i + 1] = cosine[i];
    pair_sine[2 * i] = -sine[i];
    pair_sine[2 * i + 1] = sine[i];
  }
}

template <class T>
void RotateToken(const Rotation& rotation, int64_t token, const float* cosine, const float* sine) {
  const int64_t head_dim = rotation.head_dim, turning = 2 * rotation.half;
  const T* x = static_cast<const T*>(rotation.x) + token * rotation.heads * head_dim;
  T* y = static_cast<T*>(rotation.y) + token * rotation.heads * head_dim;
  for (int64_t head = 0; head < rotation.heads; ++head, x += head_dim, y += head_dim) {
    if (rotation.interleaved) {
      RotatePairs(x, y, cosine, sine, rotation.half);
    } else {
      RotateHalves(x, y, cosine, sine, rotation.half);
    }
    if (x != y) std::copy(x + turning, x + head_dim, y + turning);
  }
}

void Multiply(float magnitude, int64_t n, float* values) {
  for (int64_t i = 0; i < n; ++i) values[i] *= magnitude;
}

template <class T>
void Rotate(const Rotation& rotation, int64_t begin, int64_t end, void* scratch) {
  const int64_t half = rotation.half;
  const hn::ScalableTag<double> wide;
  const int64_t wide_lanes = static_cast<int64_t>(hn::Lanes(wide));
  double* angles = static_cast<double*>(scratch);
  float* cosines = reinterpret_cast<float*>(angles + AnglesOfRound(half));
  float* sines = cosines + AnglesOfRound(half);
  float* pair_cosines = sines + AnglesOfRound(half);
  float* pair_sines = pair_cosines + 2 * AnglesOfRound(half);
  const int64_t round = std::max<int64_t>(1, kAngles / half);  // tokens per round
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
    if (rotation.magnitude != 1) {
      Multiply(rotation.magnitude, tokens * half, cosines);
      Multiply(rotation.magnitude, tokens * half, sines);
    }
    for (int64_t t = 0; t < tokens; ++t) {
      const float *cosine = cosines + t * half, *sine = sines + t * half;
      if (rotation.interleaved) {
        SpreadOverPairs(cosine, sine, half, pair_cosines, pair_sines);
        RotateToken<T>(rotation, first + t, pair_cosines, pair_sines);
      } else {
        RotateToken<T>(rotation, first + t, cosine, sine);
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

// -- Frequencies of the pairs, and the attributes that define them

constexpr double kTurn = 6.283185307179586476925;

// Returns the number of rotated elements of each head: attribute dims, or all of head_dim.
int64_t RotatedElements(const Attrs& attrs) {
  return attrs.GetInt(attrs.Has("dims") ? "dims" : "head_dim");
}

absl::Status CheckPositive(const Attrs& attrs, const char* name) {
  const double value = attrs.GetDouble(name, 0);
  if (value > 0 && std::isfinite(value)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " = ", value, " is not a positive number"));
}

std::string GetScaling(const Attrs& attrs) {
  return attrs.Has("scaling") ? attrs.GetString("scaling") : "";
}

// Returns the unscaled share: 1 keeps the frequency, 0 divides it by the factor.
double Llama3Share(const Attrs& attrs, double frequency) {
  const double turns = attrs.GetDouble("original_context") * frequency / kTurn;
  const double low = attrs.GetDouble("low_freq_factor"), high = attrs.GetDouble("high_freq_factor");
  return std::clamp((turns - low) / (high - low), 0.0, 1.0);
}

// The ramp of YaRN, over the index of a pair.
class YarnRamp {
 public:
  explicit YarnRamp(const Attrs& attrs) {
    const double dims = static_cast<double>(RotatedElements(attrs));
    low_ = IndexOf(attrs.GetDouble("beta_fast"), dims, attrs);
    high_ = IndexOf(attrs.GetDouble("beta_slow"), dims, attrs);
    if (!attrs.GetBool("fractional", false)) {
      low_ = std::floor(low_);
      high_ = std::ceil(high_);
    }
    low_ = std::max(low_, 0.0);
    high_ = std::min(high_, dims - 1);
    if (low_ == high_) high_ += 0.001;  // a step function
  }

  // Returns a share like Llama3Share.
  double Share(double i) const { return 1 - std::clamp((i - low_) / (high_ - low_), 0.0, 1.0); }

 private:
  // Returns the index, between pairs, at which a pair turns `turns` times in the original context.
  static double IndexOf(double turns, double dims, const Attrs& attrs) {
    return dims * std::log(attrs.GetDouble("original_context") / (turns * kTurn)) /
           (2 * std::log(attrs.GetDouble("theta")));
  }

  double low_, high_;
};

// Fails if the attributes of op rope, except head_dim, are invalid.
absl::Status CheckRopeAttrs(const Attrs& attrs) {
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "theta"));
  const std::string scaling = GetScaling(attrs);
  if (scaling.empty()) return absl::OkStatus();
  if (scaling == "longrope") {
    const std::vector<double>& factors = attrs.GetDoubles("factors");
    const bool all_divide = std::all_of(factors.begin(), factors.end(), [](double factor) {
      return factor != 0 && std::isfinite(factor);
    });
    if (all_divide && static_cast<int64_t>(factors.size()) == RotatedElements(attrs) / 2) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError("factors must have a finite number, not 0, for each pair");
  }
  if (scaling == "linear") {
    const double factor = attrs.GetDouble("factor", 0);
    if (factor != 0 && std::isfinite(factor)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("factor = ", factor, " must be finite and not 0"));
  }
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "factor"));
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, "original_context"));
  const bool yarn = scaling == "yarn";
  if (!yarn && scaling != "llama3") {
    return absl::InvalidArgumentError(
        absl::StrCat("unknown scaling ", scaling, "; there are linear, llama3, yarn and longrope"));
  }
  const char* low = yarn ? "beta_slow" : "low_freq_factor";
  const char* high = yarn ? "beta_fast" : "high_freq_factor";
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, low));
  PLUMB_RETURN_IF_ERROR(CheckPositive(attrs, high));
  if (attrs.GetDouble(low) >= attrs.GetDouble(high)) {
    return absl::InvalidArgumentError(absl::StrCat(low, " must be less than ", high));
  }
  if (yarn && attrs.GetDouble("theta") <= 1) {
    return absl::InvalidArgumentError("theta must be above 1 for yarn");
  }
  return absl::OkStatus();
}

}  // namespace

// Returns the radians per position of each pair. With theta_i = theta^(-2i/dims):
//   linear  theta_i / factor                          Chen et al., "Extending context window of
//                                                     LLMs via position interpolation" (2023)
//   llama3  between theta_i / factor and theta_i, by the turns in the original context
//                                                     Llama Team, "Llama 3" (2024), and its code
//   yarn    the same, by the index of the pair        Peng et al., "YaRN" (2023), section 3.2
//   longrope  theta_i / factor_i                      Ding et al., "LongRoPE" (2024)
// Requires: CheckRopeAttrs.
std::vector<double> RopeFrequencies(const Attrs& attrs) {
  const std::string scaling = GetScaling(attrs);
  const int64_t dims = RotatedElements(attrs);
  const double theta = attrs.GetDouble("theta");
  std::vector<double> frequencies;
  for (int64_t i = 0; i < dims / 2; ++i) {
    frequencies.push_back(
        std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(dims)));
  }
  if (scaling.empty()) return frequencies;
  if (scaling == "longrope") {
    const std::vector<double>& factors = attrs.GetDoubles("factors");
    for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= factors[i];
    return frequencies;
  }
  const double factor = attrs.GetDouble("factor");
  for (size_t i = 0; i < frequencies.size(); ++i) {
    double& frequency = frequencies[i];
    const double kept = scaling == "linear"   ? 0
                        : scaling == "llama3" ? Llama3Share(attrs, frequency)
                                              : YarnRamp(attrs).Share(static_cast<double>(i));
    frequency = kept * frequency + (1 - kept) * frequency / factor;
  }
  return frequencies;
}

namespace {

// -- Shape rule

absl::StatusOr<std::vector<TensorType>> InferRope(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "x"));
  PLUMB_RETURN_IF_ERROR(CheckI32(types, 1, "positions"));
  const Shape &x = types.in(0).shape, &positions = types.in(1).shape;
  const int64_t head_dim = types.attrs.GetInt("head_dim"), dims = RotatedElements(types.attrs);
  if (dims < 2 || dims % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat(types.attrs.Has("dims") ? "dims" : "head_dim",
                                                   " = ", dims, " is odd: rotation needs pairs"));
  }
  if (dims > head_dim) {
    return absl::InvalidArgumentError(
        absl::StrCat("dims = ", dims, " are more than head_dim = ", head_dim));
  }
  if (x.last() % head_dim != 0) {
    return absl::InvalidArgumentError(absl::StrCat("the last dimension of x, ", x.last(),
                                                   ", is not a multiple of head_dim = ", head_dim));
  }
  if (positions.num_elements() != x.rows()) {
    return absl::InvalidArgumentError(absl::StrCat("positions ", positions.ToString(),
                                                   " do not match the tokens of x ", x.ToString()));
  }
  PLUMB_RETURN_IF_ERROR(CheckRopeAttrs(types.attrs));
  return std::vector<TensorType>{types.in(0)};
}

// -- VJP
//
// y = m R x with R a rotation and m a magnitude, so dx = m R^T dy = m R^-1 dy.
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
  explicit RopeKernel(const OpTypes& types)
      : tokens_(types.in(0).shape.rows()),
        head_dim_(types.attrs.GetInt("head_dim")),
        heads_(types.in(0).shape.last() / head_dim_),
        half_(RotatedElements(types.attrs) / 2),
        interleaved_(types.attrs.GetBool("interleaved", false)),
        // An element costs a few operations, the sine and cosine of a pair about fifty.
        tasks_(TaskCount(tokens_, tokens_ * half_ * (6 * heads_ + 50))),
        sign_(types.attrs.GetBool("inverse", false) ? -1 : 1),
        magnitude_(static_cast<float>(types.attrs.GetDouble("magnitude", 1))),
        slot_bytes_(AlignUp(RotateScratchBytes(half_))),
        frequencies_(RopeFrequencies(types.attrs)),
        rotate_(HWY_DYNAMIC_DISPATCH(SelectRotate)(types.in(0).dtype)) {
    frequencies_.resize(static_cast<size_t>(half_ + kSlack));
  }

  int64_t scratch_bytes() const override { return tasks_ * slot_bytes_; }

  absl::Status Run(const KernelArgs& args) const override {
    const Rotation rotation = {args.in[0], args.out[0],  args.i32(1),         heads_, head_dim_,
                               half_,      interleaved_, frequencies_.data(), sign_,  magnitude_};
    ParallelFor(tasks_, args.threads, [&](int64_t task) {
      const Range range = TaskRange(tokens_, tasks_, task);
      rotate_(rotation, range.begin, range.end,
              static_cast<char*>(args.scratch) + task * slot_bytes_);
    });
    return absl::OkStatus();
  }

 private:
  const int64_t tokens_;
  const int64_t head_dim_;
  const int64_t heads_;
  const int64_t half_;
  const bool interleaved_;
  const int64_t tasks_;
  const double sign_;
  const float magnitude_;
  const int64_t slot_bytes_;
  std::vector<double> frequencies_;
  const RotateFn rotate_;
};

// -- Reference

absl::Status ReferenceRope(const ReferenceArgs& args) {
  const int64_t c = args.attrs.GetInt("head_dim"), half = RotatedElements(args.attrs) / 2;
  const bool interleaved = args.attrs.GetBool("interleaved", false);
  const std::vector<double> frequencies = RopeFrequencies(args.attrs);
  const double sign = args.attrs.GetBool("inverse", false) ? -1 : 1;
  const double magnitude = args.attrs.GetDouble("magnitude", 1);
  const int64_t width = args.shape(0).last();
  args.out(0) = args.f(0);
  for (int64_t t = 0; t < args.shape(0).rows(); ++t) {
    for (int64_t head = 0; head < width / c; ++head) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            sign * args.i(1)[static_cast<size_t>(t)] * frequencies[static_cast<size_t>(i)];
        const size_t first = static_cast<size_t>(t * width + head * c);
        const size_t a = first + static_cast<size_t>(interleaved ? 2 * i : i);
        const size_t b = first + static_cast<size_t>(interleaved ? 2 * i + 1 : half + i);
        const double xa = args.f(0)[a], xb = args.f(0)[b];
        args.out(0)[a] = magnitude * (xa * std::cos(angle) - xb * std::sin(angle));
        args.out(0)[b] = magnitude * (xb * std::cos(angle) + xa * std::sin(angle));
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
  op.make_kernel = MakeKernel<RopeKernel>;
  op.reference = ReferenceRope;
  op.token_wise = [](const OpTypes&) { return std::vector<size_t>{0, 1}; };
  registry->Add(std::move(op));
}

}  // namespace plumb
#endif  // HWY_ONCE
