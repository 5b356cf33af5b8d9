// SPDX-License-Identifier: Apache-2.0
// Layout of the scratch of linear attention. Private to the folder.
#ifndef PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_SCRATCH_H_
#define PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_SCRATCH_H_

#include <cstdint>

#include "runtime/base/divide.h"

namespace plumb {

// Rows of a diagonal block of the triangular matrices, which is processed row by row.
inline constexpr int64_t kTriangle = 16;

// Returns `width` rounded up to whole vectors of any instruction set.
constexpr int64_t PaddedWidth(int64_t width) { return RoundUp(width, 16); }

// Hands out parts of a scratch buffer, or, made from null, measures it.
class RecurrenceScratch {
 public:
  explicit RecurrenceScratch(float* memory) : memory_(memory) {}
  float* Take(int64_t floats) {
    float* const part = memory_ == nullptr ? nullptr : memory_ + used_;
    used_ += RoundUp(floats, 16);
    return part;
  }
  int64_t used() const { return used_; }

 private:
  float* const memory_;
  int64_t used_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_LINEAR_ATTENTION_SCRATCH_H_
