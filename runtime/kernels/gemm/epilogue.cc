// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/epilogue.h"

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

// Epilogues. Of() returns the output and, if kHasDerivative, sets the derivative; kReads is true if
// it uses the operand.
struct Store {
  static constexpr bool kReads = false, kHasDerivative = false;
  static HWY_INLINE V Of(V sum, V /*operand*/, V* /*derivative*/) { return sum; }
};
struct AddOperand {
  static constexpr bool kReads = true, kHasDerivative = false;
  static HWY_INLINE V Of(V sum, V operand, V* /*derivative*/) { return hn::Add(sum, operand); }
};
struct MulOperand {
  static constexpr bool kReads = true, kHasDerivative = false;
  static HWY_INLINE V Of(V sum, V operand, V* /*derivative*/) { return hn::Mul(sum, operand); }
};
template <class F>
struct Act {
  static constexpr bool kReads = false, kHasDerivative = true;
  static HWY_INLINE V Of(V sum, V /*operand*/, V* derivative) {
    V value;
    F::Both(D(), sum, &value, derivative);
    return value;
  }
};

template <class F, class T, bool kKeepDerivative>
void EpilogueRows(const EpilogueArgs& f) {
  const D d;
  for (int64_t i = 0; i < f.rows; ++i) {
    const float* sum = f.sum + i * f.ld_sum;
    const T* operand = F::kReads ? static_cast<const T*>(f.operand) + i * f.ld : nullptr;
    T* derivatives = kKeepDerivative ? static_cast<T*>(f.derivative) + i * f.ld : nullptr;
    T* out = static_cast<T*>(f.out) + i * f.ld;
    ForVectors(d, 0, f.columns, [=](const auto& io, int64_t j) HWY_ATTR {
      const V s = io.Load(d, sum + j);
      const V x = F::kReads ? io.Load(d, operand + j) : s;
      V derivative;
      io.Store(F::Of(s, x, &derivative), d, out + j);
      if (kKeepDerivative) io.Store(derivative, d, derivatives + j);
    });
  }
}

template <class F, class T>
void RunEpilogue(const EpilogueArgs& f) {
  if (F::kHasDerivative && f.derivative != nullptr) return EpilogueRows<F, T, F::kHasDerivative>(f);
  EpilogueRows<F, T, false>(f);
}

template <class F>
EpilogueFn ForType(DType out) {
#if HWY_TARGET == HWY_AVX3
  if (out == DType::kBF16 && UsesBf16Instructions()) return &RunEpilogue<F, FastBf16>;
#endif
  return out == DType::kBF16 ? &RunEpilogue<F, uint16_t> : &RunEpilogue<F, float>;
}

EpilogueFn Select(Epilogue epilogue, ActivationKind activation, DType out) {
  switch (epilogue) {
    case Epilogue::kStore:
      return ForType<Store>(out);
    case Epilogue::kAdd:
      return ForType<AddOperand>(out);
    case Epilogue::kMul:
      return ForType<MulOperand>(out);
    case Epilogue::kActivation:
      return WithActivation(activation, [out](auto f) { return ForType<Act<decltype(f)>>(out); });
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

EpilogueFn SelectEpilogue(Epilogue epilogue, ActivationKind activation, DType out) {
  return HWY_DYNAMIC_DISPATCH(Select)(epilogue, activation, out);
}

}  // namespace plumb
#endif  // HWY_ONCE
