// The elementwise parts of Muon (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon):
// the momentum before its orthogonalization, and the update of a matrix after it. Stateless;
// results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_MUON_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_MUON_H_

#include <cstdint>

#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

struct MuonMomentum {
  float grad_scale;  // multiplies every gradient first (clipping, accumulation)
  float beta;
  bool nesterov;
};

// With g = grad * grad_scale, of n elements:
//   m += (1 - beta) (g - m);  direction = nesterov ? g + beta (m - g) : m
void UpdateMomentum(const MuonMomentum& momentum, const float* grad, int64_t n, int threads,
                    float* m, float* direction);

// x *= factor.
void Scale(float factor, int64_t n, int threads, float* x);

// p = decay * p - step_size * direction, of n elements, floats or split (to the same bits).
void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               float* p);
void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               const SplitF32& p);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_MUON_H_
