// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/program_instructions.h"

#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/program_instructions.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
#include "runtime/kernels/simd/activation_math-inl.h"
#include "runtime/kernels/simd/bf16-inl.h"
#include "runtime/ops/map_functions-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;
using In = const Instruction&;
using Registers = float* const*;

// Calls body(io, i) for the vectors of n elements.
template <bool kPadded, class Body>
HWY_INLINE void ForElements(int64_t n, const Body& body) {
  const D d;
  if constexpr (kPadded) {
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < n; i += lanes) body(WholeFloats<D>(), i);
  } else {
    ForVectors(d, 0, n, body);
  }
}

// Calls body(io, i, b) for the vectors of [rows, width] elements, with the matching vectors of b.
template <Operand kB, bool kPadded, class Body>
HWY_INLINE void ForOperand(In in, const float* b, int64_t rows, const Body& body) {
  const D d;
  const int64_t width = in.width;
  if constexpr (kB == Operand::kSameShape) {
    ForElements<kPadded>(
        rows * width, [&](const auto& io, int64_t i) HWY_ATTR { body(io, i, io.Load(d, b + i)); });
  } else if constexpr (kB == Operand::kScalar) {
    const V all = hn::Set(d, b[0]);
    ForElements<kPadded>(rows * width,
                         [&](const auto& io, int64_t i) HWY_ATTR { body(io, i, all); });
  } else {
    for (int64_t r = 0; r < rows; ++r) {
      const int64_t row = r * width;
      if constexpr (kB == Operand::kPerRow) {
        const V all = hn::Set(d, b[r]);
        ForVectors(d, 0, width,
                   [&](const auto& io, int64_t j) HWY_ATTR { body(io, row + j, all); });
      } else {
        ForVectors(d, 0, width, [&](const auto& io, int64_t j) HWY_ATTR {
          body(io, row + j, io.Load(d, b + j));
        });
      }
    }
  }
}

template <Operand kB, bool kPadded>
void Multiply(In in, Registers r, int64_t rows) {
  const D d;
  const float* a = r[in.a];
  float* out = r[in.out];
  const V scale = hn::Set(d, in.scale);
  ForOperand<kB, kPadded>(in, r[in.b], rows, [&](const auto& io, int64_t i, V b) HWY_ATTR {
    io.Store(hn::Mul(hn::Mul(scale, io.Load(d, a + i)), b), d, out + i);
  });
}

template <Operand kB, bool kPadded>
void MultiplyAdd(In in, Registers r, int64_t rows) {
  const D d;
  const float* a = r[in.a];
  const float* c = r[in.c];
  float* out = r[in.out];
  const V scale = hn::Set(d, in.scale);
  ForOperand<kB, kPadded>(in, r[in.b], rows, [&](const auto& io, int64_t i, V b) HWY_ATTR {
    io.Store(hn::MulAdd(hn::Mul(scale, io.Load(d, a + i)), b, io.Load(d, c + i)), d, out + i);
  });
}

template <Operand kB, bool kPadded>
void Add(In in, Registers r, int64_t rows) {
  const D d;
  const float* c = r[in.c];
  float* out = r[in.out];
  const V scale = hn::Set(d, in.scale);
  ForOperand<kB, kPadded>(in, r[in.b], rows, [&](const auto& io, int64_t i, V b) HWY_ATTR {
    io.Store(hn::MulAdd(scale, b, io.Load(d, c + i)), d, out + i);
  });
}

// Computes out = f(a, constant).
template <bool kPadded, class F>
HWY_INLINE void ForEach(In in, Registers r, int64_t rows, const F& f) {
  const D d;
  const float* a = r[in.a];
  float* out = r[in.out];
  ForElements<kPadded>(rows * in.width, [&](const auto& io, int64_t i) HWY_ATTR {
    io.Store(f(io.Load(d, a + i)), d, out + i);
  });
}

template <bool kPadded>
void Affine(In in, Registers r, int64_t rows) {
  const V scale = hn::Set(D(), in.scale), constant = hn::Set(D(), in.constant);
  ForEach<kPadded>(in, r, rows, [=](V a) HWY_ATTR { return hn::MulAdd(scale, a, constant); });
}

template <class F, bool kPadded>
void Map(In in, Registers r, int64_t rows) {
  const V c = hn::Set(D(), in.constant);
  ForEach<kPadded>(in, r, rows, [=](V a) HWY_ATTR { return F::Value(a, c); });
}

template <class F, bool kPadded>
void MapGrad(In in, Registers r, int64_t rows) {
  const D d;
  const V c = hn::Set(d, in.constant);
  const float* a = r[in.a];
  float* out = r[in.out];
  ForOperand<Operand::kSameShape, kPadded>(
      in, r[in.b], rows, [&](const auto& io, int64_t i, V dy) HWY_ATTR {
        io.Store(hn::Mul(dy, F::Slope(io.Load(d, a + i), c)), d, out + i);
      });
}

template <class F, bool kPadded>
void Act(In in, Registers r, int64_t rows) {
  ForEach<kPadded>(in, r, rows, [](V a) HWY_ATTR {
    V value, derivative;
    F::Both(D(), a, &value, &derivative);
    return value;
  });
}

template <class F, bool kPadded>
void ActGrad(In in, Registers r, int64_t rows) {
  const D d;
  const float* a = r[in.a];
  float* out = r[in.out];
  ForOperand<Operand::kSameShape, kPadded>(in, r[in.b], rows,
                                           [&](const auto& io, int64_t i, V dy) HWY_ATTR {
                                             V value, derivative;
                                             F::Both(d, io.Load(d, a + i), &value, &derivative);
                                             io.Store(hn::Mul(dy, derivative), d, out + i);
                                           });
}

template <bool kMax>
HWY_INLINE hn::Mask<D> Wins(V a, V b) {
  return kMax ? hn::Gt(a, b) : hn::Lt(a, b);
}

template <bool kMax, bool kPadded>
void Extremum(In in, Registers r, int64_t rows) {
  const D d;
  const float* a = r[in.a];
  float* out = r[in.out];
  ForOperand<Operand::kSameShape, kPadded>(
      in, r[in.b], rows, [&](const auto& io, int64_t i, V y) HWY_ATTR {
        const V x = io.Load(d, a + i);
        io.Store(hn::IfThenElse(Wins<kMax>(y, x), y, x), d, out + i);
      });
}

// Computes dy if a is the extremum, half of it if a = b, else 0.
template <bool kMax, bool kPadded>
void ExtremumGrad(In in, Registers r, int64_t rows) {
  const D d;
  const float *a = r[in.a], *dy = r[in.c];
  float* out = r[in.out];
  ForOperand<Operand::kSameShape, kPadded>(
      in, r[in.b], rows, [&](const auto& io, int64_t i, V y) HWY_ATTR {
        const V x = io.Load(d, a + i), g = io.Load(d, dy + i);
        const V half = hn::Mul(g, hn::Set(d, 0.5f));
        const V rest = hn::IfThenElse(Wins<kMax>(y, x), hn::Zero(d), half);
        io.Store(hn::IfThenElse(Wins<kMax>(x, y), g, rest), d, out + i);
      });
}

void Fill(In in, Registers r, int64_t rows) {
  float* out = r[in.out];
  for (int64_t i = 0; i < rows * in.width; ++i) out[i] = in.constant;
}

template <bool kVector>
void Expand(In in, Registers r, int64_t rows) {
  const int64_t width = in.width, narrow = in.other, group = width / narrow;
  float* out = r[in.out];
  for (int64_t row = 0; row < rows; ++row) {
    const float* a = r[in.a] + (kVector ? 0 : row * narrow);
    if (group == 1) {
      std::memcpy(out, a, static_cast<size_t>(width) * sizeof(float));
      out += width;
      continue;
    }
    for (int64_t l = 0; l < narrow; ++l) {
      for (int64_t j = 0; j < group; ++j) *out++ = a[l];
    }
  }
}

void Slice(In in, Registers r, int64_t rows) {
  const int64_t width = in.width, whole = in.other;
  const float* a = r[in.a] + in.offset;
  float* out = r[in.out];
  for (int64_t row = 0; row < rows; ++row, a += whole, out += width) {
    for (int64_t j = 0; j < width; ++j) out[j] = a[j];
  }
}

void Place(In in, Registers r, int64_t rows) {
  const int64_t width = in.width, whole = in.other;
  const float* a = r[in.a];
  float* out = r[in.out] + in.offset;
  for (int64_t row = 0; row < rows; ++row, a += width, out += whole) {
    for (int64_t j = 0; j < width; ++j) out[j] = a[j];
  }
}

HWY_INLINE float MakeSum(const float* a, int64_t n) {
  const D d;
  V sum = hn::Zero(d);
  ForVectors(d, 0, n,
             [&](const auto& io, int64_t i) HWY_ATTR { sum = hn::Add(sum, io.Load(d, a + i)); });
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

// Returns the dot product. Two accumulators hide the latency of an addition.
HWY_INLINE float ComputeDot(const float* a, const float* b, int64_t n) {
  const D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  V even = hn::Zero(d), odd = even;
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    even = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), even);
    odd = hn::MulAdd(hn::LoadU(d, a + i + lanes), hn::LoadU(d, b + i + lanes), odd);
  }
  ForVectors(d, i, n, [&](const auto& io, int64_t j) HWY_ATTR {
    even = hn::MulAdd(io.Load(d, a + j), io.Load(d, b + j), even);
  });
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

void SumChannels(In in, Registers r, int64_t rows) {
  const int64_t groups = in.other, group = in.width / groups;
  const float* a = r[in.a];
  float* out = r[in.out];
  for (int64_t i = 0; i < rows * groups; ++i, a += group) out[i] = MakeSum(a, group);
}

template <bool kVector>
void Dot(In in, Registers r, int64_t rows) {
  const int64_t width = in.width;
  const float *a = r[in.a], *b = r[in.b];
  float* out = r[in.out];
  for (int64_t row = 0; row < rows; ++row, a += width) {
    out[row] = ComputeDot(a, b + (kVector ? 0 : row * width), width);
  }
}

// Computes out[j] += sum over rows of f(io, row, j), four rows at a time, so that memory is read in
// a few sequential streams.
template <class F>
HWY_INLINE void AddColumns(In in, Registers r, int64_t rows, const F& f) {
  const D d;
  float* out = r[in.out];
  constexpr int64_t kTogether = 4;
  for (int64_t row = 0; row < rows; row += kTogether) {
    const int64_t end = row + kTogether < rows ? row + kTogether : rows;
    ForVectors(d, 0, in.width, [&](const auto& io, int64_t j) HWY_ATTR {
      V sum = io.Load(d, out + j);
      for (int64_t i = row; i < end; ++i) sum = f(io, i, j, sum);
      io.Store(sum, d, out + j);
    });
  }
}

void AddRows(In in, Registers r, int64_t rows) {
  const D d;
  const int64_t width = in.width;
  const float* a = r[in.a];
  AddColumns(in, r, rows, [=](const auto& io, int64_t row, int64_t j, V sum) HWY_ATTR {
    return hn::Add(sum, io.Load(d, a + row * width + j));
  });
}

template <bool kPerRow>
void AddProducts(In in, Registers r, int64_t rows) {
  const D d;
  const int64_t width = in.width;
  const float *a = r[in.a], *b = r[in.b];
  AddColumns(in, r, rows, [=](const auto& io, int64_t row, int64_t j, V sum) HWY_ATTR {
    const V y = kPerRow ? hn::Set(d, b[row]) : io.Load(d, b + row * width + j);
    return hn::MulAdd(io.Load(d, a + row * width + j), y, sum);
  });
}

void AddAll(In in, Registers r, int64_t rows) {
  const int64_t groups = in.other, group = in.width / groups;
  const float* a = r[in.a];
  float* out = r[in.out];
  if (groups == 1) {
    out[0] += MakeSum(a, rows * group);
    return;
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t l = 0; l < groups; ++l, a += group) out[l] += MakeSum(a, group);
  }
}

void AddDot(In in, Registers r, int64_t rows) {
  r[in.out][0] += ComputeDot(r[in.a], r[in.b], rows * in.width);
}

void LoadBf16(In in, Registers r, int64_t rows) {
  const D d;
  const uint16_t* a = reinterpret_cast<const uint16_t*>(r[in.a]);
  float* out = r[in.out];
  ForVectors(d, 0, rows * in.width,
             [&](const auto& io, int64_t i) HWY_ATTR { io.Store(io.Load(d, a + i), d, out + i); });
}

void StoreBf16(In in, Registers r, int64_t rows) {
  const D d;
  const float* a = r[in.a];
  uint16_t* out = reinterpret_cast<uint16_t*>(r[in.out]);
  ForVectors(d, 0, rows * in.width,
             [&](const auto& io, int64_t i) HWY_ATTR { io.Store(io.Load(d, a + i), d, out + i); });
}

// Instructions with a variant for padded registers, and those without.
#define PLUMB_PADDED(f, ...) \
  { &f<__VA_ARGS__, false>, &f<__VA_ARGS__, true> }
#define PLUMB_PLAIN(...) \
  { &__VA_ARGS__, &__VA_ARGS__ }

const InstructionFns& Fns() {
  static constexpr Operand kSameShape = Operand::kSameShape, kPerRow = Operand::kPerRow,
                           kVector = Operand::kVector, kScalar = Operand::kScalar;
  static const InstructionFns fns = {
      {PLUMB_PADDED(Multiply, kSameShape), PLUMB_PADDED(Multiply, kPerRow),
       PLUMB_PADDED(Multiply, kVector), PLUMB_PADDED(Multiply, kScalar)},
      {PLUMB_PADDED(MultiplyAdd, kSameShape), PLUMB_PADDED(MultiplyAdd, kPerRow),
       PLUMB_PADDED(MultiplyAdd, kVector), PLUMB_PADDED(MultiplyAdd, kScalar)},
      {PLUMB_PADDED(Add, kSameShape), PLUMB_PADDED(Add, kPerRow), PLUMB_PADDED(Add, kVector),
       PLUMB_PADDED(Add, kScalar)},
      {&Affine<false>, &Affine<true>},
      {PLUMB_PADDED(Extremum, false), PLUMB_PADDED(Extremum, true)},
      {PLUMB_PADDED(ExtremumGrad, false), PLUMB_PADDED(ExtremumGrad, true)},
      PLUMB_PLAIN(Fill),
      {PLUMB_PLAIN(Expand<false>), PLUMB_PLAIN(Expand<true>)},
      PLUMB_PLAIN(Slice),
      PLUMB_PLAIN(Place),
      PLUMB_PLAIN(SumChannels),
      {PLUMB_PLAIN(Dot<false>), PLUMB_PLAIN(Dot<true>)},
      PLUMB_PLAIN(AddRows),
      {PLUMB_PLAIN(AddProducts<false>), PLUMB_PLAIN(AddProducts<true>)},
      PLUMB_PLAIN(AddAll),
      PLUMB_PLAIN(AddDot),
      PLUMB_PLAIN(LoadBf16),
      PLUMB_PLAIN(StoreBf16)};
  return fns;
}

InstructionFn SelectMap(MapKind kind, bool grad) {
  return map_functions::WithMap(kind, [grad](auto f) -> InstructionFn {
    using F = decltype(f);
    if (grad) return PLUMB_PADDED(MapGrad, F);
    return PLUMB_PADDED(Map, F);
  });
}

InstructionFn SelectActivation(ActivationKind kind, bool grad) {
  return WithActivation(kind, [grad](auto f) -> InstructionFn {
    using F = decltype(f);
    if (grad) return PLUMB_PADDED(ActGrad, F);
    return PLUMB_PADDED(Act, F);
  });
}

#undef PLUMB_PADDED
#undef PLUMB_PLAIN

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {

HWY_EXPORT(Fns);
HWY_EXPORT(SelectMap);
HWY_EXPORT(SelectActivation);

const InstructionFns& ProgramInstructions() { return HWY_DYNAMIC_DISPATCH(Fns)(); }

InstructionFn MapInstruction(MapKind kind) { return HWY_DYNAMIC_DISPATCH(SelectMap)(kind, false); }
InstructionFn MapGradInstruction(MapKind kind) {
  return HWY_DYNAMIC_DISPATCH(SelectMap)(kind, true);
}
InstructionFn ActivationInstruction(ActivationKind kind) {
  return HWY_DYNAMIC_DISPATCH(SelectActivation)(kind, false);
}
InstructionFn ActivationGradInstruction(ActivationKind kind) {
  return HWY_DYNAMIC_DISPATCH(SelectActivation)(kind, true);
}

}  // namespace plumb
#endif  // HWY_ONCE
