// SPDX-License-Identifier: Apache-2.0
// Vectors of the elements of broadcast operands. Included once per SIMD target.
#ifndef PLUMB_RUNTIME_OPS_ROW_FACTOR_
#define PLUMB_RUNTIME_OPS_ROW_FACTOR_
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "runtime/base/bf16.h"
#include "runtime/ops/broadcast.h"

namespace plumb {
namespace {

// An operand in one row: element i stands for channels [i * group, (i + 1) * group).
struct RowFactor {
  const void* elements;
  int64_t group;
  bool bf16;
};

inline RowFactor FactorOfRow(const BroadcastOperand& operand, const void* elements, int64_t row) {
  const int64_t size = operand.bf16 ? 2 : 4;
  return {static_cast<const char*>(elements) + row * operand.row_stride * size, operand.group,
          operand.bf16};
}

inline float ElementOf(const RowFactor& factor, int64_t i) {
  if (!factor.bf16) return static_cast<const float*>(factor.elements)[i];
  return FloatFromBf16(static_cast<const uint16_t*>(factor.elements)[i]);
}

}  // namespace
}  // namespace plumb
#endif

#if defined(PLUMB_RUNTIME_OPS_BROADCAST_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PLUMB_RUNTIME_OPS_BROADCAST_INL_H_
#undef PLUMB_RUNTIME_OPS_BROADCAST_INL_H_
#else
#define PLUMB_RUNTIME_OPS_BROADCAST_INL_H_
#endif

#include "hwy/highway.h"
#include "runtime/kernels/simd/bf16-inl.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {

// Channels e, e + 1, .. of a row of d; past the row's end, anything.
template <class D, class Io>
HWY_INLINE hn::Vec<D> LoadFactor(D tag, const Io& io, const RowFactor& factor, int64_t e,
                                 int64_t d) {
  if (factor.group == 1) {
    return factor.bf16 ? io.Load(tag, static_cast<const uint16_t*>(factor.elements) + e)
                       : io.Load(tag, static_cast<const float*>(factor.elements) + e);
  }
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(tag));
  const int64_t first = e / factor.group, last = std::min(e + lanes, d) - 1;
  if (first == last / factor.group) return hn::Set(tag, ElementOf(factor, first));
  HWY_ALIGN float elements[hn::MaxLanes(tag)];
  for (int64_t i = 0; i < lanes; ++i) {
    elements[i] = ElementOf(factor, std::min(e + i, last) / factor.group);
  }
  return hn::Load(tag, elements);
}

}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();
#endif
