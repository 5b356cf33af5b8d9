// SPDX-License-Identifier: Apache-2.0
// Elementwise operations on weights and gradients after a backward pass: AdamW, the global gradient
// norm, Muon's momentum and steps, averages of weights, normalization of rows and columns.
// Stateless; results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_OPTIMIZER_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_OPTIMIZER_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "runtime/kernels/simd/split_f32.h"

namespace plumb {

// Elements [begin, end) of the flat buffers that share hyperparameters. Segments are disjoint,
// ascending, and start at multiples of 16 elements; elements between two of them are padding (zero
// in all buffers) or belong to another update.
struct AdamWSegment {
  int64_t begin;
  int64_t end;
  float weight_decay;
  float lr_scale;
  // True if its parameters are SplitF32In(param + begin, end - begin) (split_f32.h); the update is
  // bit-identical. Such a segment, and the next one, start at multiples of 32 elements.
  bool is_split = false;
  float lr_offset = 0;   // its learning rate is lr_scale * learning_rate + lr_offset
  int32_t group = 0;     // index in AdamWStep::groups
  int64_t v_offset = 0;  // the second moment of element i is v[i + v_offset]
  // Its parameters, if they are not in `param`: `floats`, or `planes` if it is split.
  float* floats = nullptr;
  SplitF32 planes = {nullptr, nullptr};
};

// Hyperparameters that several segments share.
struct AdamWGroup {
  float beta1, beta2, eps;
  float grad_scale;  // multiplies every gradient first (clipping, accumulation)
};

struct AdamWStep {
  float learning_rate;
  int64_t step;  // for the bias corrections; 1 for the first update
  absl::Span<const AdamWGroup> groups;
};

// Flat buffers of an update; v may omit elements that AdamW does not update.
struct AdamWBuffers {
  const float* grad;
  float* param;
  float* m;
  float* v;
};

// Applies AdamW: Loshchilov & Hutter, "Decoupled weight decay regularization", algorithm 2 (the
// same as torch.optim.AdamW):
//   p *= 1 - lr*wd;  m = b1 m + (1-b1) g;  v = b2 v + (1-b2) g^2;
//   p -= lr * (m / (1 - b1^t)) / (sqrt(v / (1 - b2^t)) + eps)
void AdamWUpdate(absl::Span<const AdamWSegment> segments, const AdamWStep& step,
                 const AdamWBuffers& buffers, int threads);

// Returns the sum of squares in double; chunks of fixed size are added in index order.
double SumOfSquares(const float* x, int64_t n, int threads);

// Adds acc += x elementwise, and returns SumOfSquares of the new acc in the same pass over memory.
double Accumulate(const float* x, float* acc, int64_t n, int threads);

// Copies to = x elementwise.
void Copy(const float* x, float* to, int64_t n, int threads);

// Updates average += weight * (x - average) for n elements; floats and split have the same result.
void MoveTowards(const float* x, float weight, int64_t n, int threads, float* average);
void MoveTowards(const SplitF32& x, float weight, int64_t n, int threads, float* average);

// Parameters of Muon's momentum (Jordan et al. 2024, https://kellerjordan.github.io/posts/muon),
// before the orthogonalization; StepAlong updates the matrix after it.
struct MuonMomentum {
  float grad_scale;  // multiplies every gradient first (clipping, accumulation)
  float beta;
  bool nesterov;
};

// Computes, for n elements and g = grad * grad_scale:
//   m += (1 - beta) (g - m);  direction = nesterov ? g + beta (m - g) : m
void UpdateMomentum(const MuonMomentum& momentum, const float* grad, int64_t n, int threads,
                    float* m, float* direction);

// Scales x *= factor.
void Scale(float factor, int64_t n, int threads, float* x);

// Updates p = decay * p - step_size * direction for n elements; floats and split have the same
// result.
void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               float* p);
void StepAlong(const float* direction, float decay, float step_size, int64_t n, int threads,
               const SplitF32& p);

// A matrix [rows, columns] as floats, or split if `floats` is null.
struct MatrixInPlace {
  float* floats;
  SplitF32 split;
  int64_t rows, columns;
};

// Divides every row (column) by its L2 norm, summed in double; a zero row (column) stays.
void NormalizeRows(const MatrixInPlace& matrix, int threads);
void NormalizeColumns(const MatrixInPlace& matrix, int threads);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_OPTIMIZER_H_
