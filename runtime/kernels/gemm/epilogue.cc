#include "runtime/kernels/gemm/epilogue.h"

#include "runtime/base/read_ahead.h"
#include "runtime/kernels/simd/cpu_features.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/gemm/epilogue.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Each has y(sum, operand), says whether it reads the operand, and sets the slope there if it has
// one.
struct Store {
  static constexpr bool kReads = false, kHasSlope = false;
  static HWY_INLINE V Of(V sum, V /*operand*/, V* /*slope*/) { return sum; }
};
struct AddOperand {
  static constexpr bool kReads = true, kHasSlope = false;
  static HWY_INLINE V Of(V sum, V operand, V* /*slope*/) { return hn::Add(sum, operand); }
};
struct MulOperand {
  static constexpr bool kReads = true, kHasSlope = false;
  static HWY_INLINE V Of(V sum, V operand, V* /*slope*/) { return hn::Mul(sum, operand); }
};
template <class F>
struct Act {
  static constexpr bool kReads = false, kHasSlope = true;
  static HWY_INLINE V Of(V sum, V /*operand*/, V* slope) {
    V value;
    F::Both(D(), sum, &value, slope);
    return value;
  }
};

// Asks for what will be written, into the second-level cache: stores to memory that is further away
// would cost more than an activation.
template <class T>
HWY_INLINE void Fetch(const T* from, int64_t count) {
  for (int64_t j = 0; j < count; j += kCacheLine / static_cast<int64_t>(sizeof(T))) {
    __builtin_prefetch(from + j, 0, 2);
  }
}

template <class F, class T, bool kKeepSlope>
void FinishRows(const FinishArgs& f) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = f.columns / lanes * lanes;
  const FloatTail<D> tail(d, whole < f.columns ? f.columns - whole : 1);
  for (int64_t i = 0; i < f.rows; ++i) {
    const float* sum = f.sum + i * f.ld_sum;
    const T* operand = F::kReads ? static_cast<const T*>(f.operand) + i * f.ld : nullptr;
    T* slopes = kKeepSlope ? static_cast<T*>(f.slope) + i * f.ld : nullptr;
    T* out = static_cast<T*>(f.out) + i * f.ld;
    Fetch(out + f.columns, f.next);
    if (F::kReads && f.operand != f.out) Fetch(operand + f.columns, f.next);
    if (kKeepSlope) Fetch(slopes + f.columns, f.next);
    for (int64_t j = 0; j < whole; j += lanes) {
      const V s = hn::LoadU(d, sum + j);
      const V x = F::kReads ? LoadFloats(d, operand + j) : s;
      V slope;
      StoreFloats(F::Of(s, x, &slope), d, out + j);
      if (kKeepSlope) StoreFloats(slope, d, slopes + j);
    }
    if (whole < f.columns) {
      const V s = tail.Load(d, sum + whole);
      const V x = F::kReads ? tail.Load(d, operand + whole) : s;
      V slope;
      tail.Store(F::Of(s, x, &slope), d, out + whole);
      if (kKeepSlope) tail.Store(slope, d, slopes + whole);
    }
  }
}

template <class F, class T>
void Finish(const FinishArgs& f) {
  if (F::kHasSlope && f.slope != nullptr) return FinishRows<F, T, F::kHasSlope>(f);
  FinishRows<F, T, false>(f);
}

template <class F>
FinishFn ForType(DType out) {
#if HWY_TARGET == HWY_AVX3
  if (out == DType::kBF16 && UsesBf16Pairs()) return &Finish<F, FastBf16>;
#endif
  return out == DType::kBF16 ? &Finish<F, uint16_t> : &Finish<F, float>;
}

FinishFn ForActivation(ActivationKind activation, DType out) {
  switch (activation) {
    case ActivationKind::kRelu:
      return ForType<Act<Relu>>(out);
    case ActivationKind::kGelu:
      return ForType<Act<Gelu>>(out);
    case ActivationKind::kGeluTanh:
      return ForType<Act<GeluTanh>>(out);
    case ActivationKind::kSilu:
      return ForType<Act<Silu>>(out);
    case ActivationKind::kTanh:
      return ForType<Act<Tanh>>(out);
    case ActivationKind::kSigmoid:
      return ForType<Act<Sigmoid>>(out);
  }
  return ForType<Act<Relu>>(out);
}

FinishFn Select(FinishKind kind, ActivationKind activation, DType out) {
  switch (kind) {
    case FinishKind::kStore:
      return ForType<Store>(out);
    case FinishKind::kAdd:
      return ForType<AddOperand>(out);
    case FinishKind::kMul:
      return ForType<MulOperand>(out);
    case FinishKind::kAct:
      return ForActivation(activation, out);
  }
  return ForType<Store>(out);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Select);

FinishFn SelectFinish(FinishKind kind, ActivationKind activation, DType out) {
  return HWY_DYNAMIC_DISPATCH(Select)(kind, activation, out);
}

}  // namespace plumb
#endif  // HWY_ONCE
