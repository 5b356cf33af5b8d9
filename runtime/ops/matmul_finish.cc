#include "runtime/ops/matmul_finish.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/matmul_finish.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/ops/activation_math-inl.h"
#include "runtime/ops/simd_bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// Each has y(sum, operand), and says whether it reads an operand and whether sums are of use to the
// gradient.
struct Store {
  static constexpr bool kReads = false, kKeeps = false;
  static HWY_INLINE V Of(V sum, V) { return sum; }
};
struct AddOperand {
  static constexpr bool kReads = true, kKeeps = false;
  static HWY_INLINE V Of(V sum, V operand) { return hn::Add(sum, operand); }
};
template <class F>
struct Act {
  static constexpr bool kReads = false, kKeeps = true;
  static HWY_INLINE V Of(V sum, V) {
    V value, slope;
    F::Both(D(), sum, &value, &slope);
    return value;
  }
};
template <class F>
struct ActGrad {
  static constexpr bool kReads = true, kKeeps = false;
  static HWY_INLINE V Of(V sum, V operand) {
    V value, slope;
    F::Both(D(), operand, &value, &slope);
    return hn::Mul(sum, slope);
  }
};

template <class F, class T>
void Finish(const FinishArgs& f) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t whole = f.columns / lanes * lanes;
  const FloatTail<D> tail(d, whole < f.columns ? f.columns - whole : 1);
  for (int64_t i = 0; i < f.rows; ++i) {
    const float* sum = f.sum + i * f.ld_sum;
    const T* operand = F::kReads ? static_cast<const T*>(f.operand) + i * f.ld : nullptr;
    T* pre = F::kKeeps && f.pre != nullptr ? static_cast<T*>(f.pre) + i * f.ld : nullptr;
    T* out = static_cast<T*>(f.out) + i * f.ld;
    for (int64_t j = 0; j < whole; j += lanes) {
      const V s = hn::LoadU(d, sum + j);
      const V x = F::kReads ? LoadFloats(d, operand + j) : s;
      if (pre != nullptr) StoreFloats(s, d, pre + j);
      StoreFloats(F::Of(s, x), d, out + j);
    }
    if (whole < f.columns) {
      const V s = tail.Load(d, sum + whole);
      const V x = F::kReads ? tail.Load(d, operand + whole) : s;
      if (pre != nullptr) tail.Store(s, d, pre + whole);
      tail.Store(F::Of(s, x), d, out + whole);
    }
  }
}

template <class F>
FinishFn ForType(DType out) {
  return out == DType::kBF16 ? &Finish<F, uint16_t> : &Finish<F, float>;
}

template <template <class> class G>
FinishFn ForActivation(ActivationKind activation, DType out) {
  switch (activation) {
    case ActivationKind::kRelu:
      return ForType<G<Relu>>(out);
    case ActivationKind::kGelu:
      return ForType<G<Gelu>>(out);
    case ActivationKind::kGeluTanh:
      return ForType<G<GeluTanh>>(out);
    case ActivationKind::kSilu:
      return ForType<G<Silu>>(out);
    case ActivationKind::kTanh:
      return ForType<G<Tanh>>(out);
    case ActivationKind::kSigmoid:
      return ForType<G<Sigmoid>>(out);
  }
  return ForType<G<Relu>>(out);
}

FinishFn Select(FinishKind kind, ActivationKind activation, DType out) {
  switch (kind) {
    case FinishKind::kStore:
      return ForType<Store>(out);
    case FinishKind::kAdd:
      return ForType<AddOperand>(out);
    case FinishKind::kAct:
      return ForActivation<Act>(activation, out);
    case FinishKind::kActGrad:
      return ForActivation<ActGrad>(activation, out);
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
