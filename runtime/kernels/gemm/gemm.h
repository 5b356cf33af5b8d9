// SPDX-License-Identifier: Apache-2.0
// Gemm: matrix products of f32 or bf16 operands with sums in f32: one product, several that share
// their left operand, sums of products, each with an epilogue (bias, addition, activation) on a
// block of sums while it is in the cache.
//
// One driver for all: PlanGemm (gemm_plan.h) partitions the results into blocks, each a task for
// one thread, and chooses the engine that multiplies a block (block_product.h): oneDNN, or
// small_gemm.h. The driver runs the epilogue.
//
// Rounding: an element is a function of shape, processor, engine and oneDNN's version. The number
// of threads never changes it. The small engine computes one ascending-k FMA chain per element,
// started from the bias; oneDNN sums k in blocks.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GEMM_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GEMM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "runtime/base/parallel.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemm/block_product.h"
#include "runtime/kernels/gemm/epilogue.h"
#include "runtime/kernels/gemm/gemm_plan.h"
#include "runtime/kernels/gemm/gemm_policy.h"

namespace plumb {

// op(a) op(b): indices into the operand tables of Run. Leading dimensions in elements.
struct GemmTerm {
  int a, b;
  int64_t k, lda, ldb;
};

// One result [m, n]; -1 where there is no such operand.
struct GemmResult {
  int64_t n;
  std::vector<GemmTerm> terms;  // the products that it sums
  int bias = -1;                // f32 [n]
  int operand = -1;             // of kAdd and kMul, [m, n]
  int out = 0;
  int derivative = -1;  // output that keeps the activation's derivative, of kActivation
};

struct GemmSpec {
  DType operands;  // of a and b: kF32 or kBF16
  DType out;       // of results, `operand` and `derivative`
  bool transpose_a, transpose_b;
  int64_t m;
  Epilogue epilogue = Epilogue::kStore;
  ActivationKind activation = ActivationKind::kRelu;  // of kActivation
  std::vector<GemmResult> results;
};

// Immutable; Run may be called from several threads at once with different operands and scratch.
class Gemm {
 public:
  Gemm(GemmSpec spec, const GemmPolicy& policy);

  int64_t scratch_bytes() const { return slots_ * slot_bytes(); }

  // `in` and `out` are indexed as the specification says. A result may have the memory of its
  // `operand`, and no other. kResourceExhausted where oneDNN finds no memory; results are then
  // undefined.
  absl::Status Run(const void* const* in, void* const* out, void* scratch, int threads) const;

  // The plans, one a result: "oneDNN f32 256x3072x768: 1x8 blocks of 256x384".
  std::string ToString() const;

 private:
  struct Task {
    size_t result;
    Range rows, columns;
  };
  // The accumulators of a task.
  struct Sums {
    float* at;  // [rows, columns], the first of them
    int64_t ld;
    bool initialized;   // products accumulate; else they overwrite
    const float* bias;  // the initial value, of the small engine, which reads it by itself
  };

  bool StoresDirectly(const GemmResult& result) const;
  int64_t slot_bytes() const { return sum_bytes_ + engine_bytes_; }
  absl::Status RunTask(const void* const* in, void* const* out, const Task& task,
                       char* scratch) const;
  Sums BeginSums(const void* const* in, const Task& task, bool direct, float* at, int64_t ld) const;
  absl::Status AddTerm(const void* const* in, const GemmTerm& term, const Task& task,
                       const Sums& sums, char* scratch) const;

  const GemmSpec spec_;
  std::vector<GemmPlan> plans_;         // of each result
  std::vector<BlockProduct> products_;  // of each result
  std::vector<Task> tasks_;
  EpilogueFn epilogue_;
  int slots_ = 1;
  int64_t sum_bytes_ = 0;     // of a slot: accumulators, if not in the result's own memory
  int64_t engine_bytes_ = 0;  // of a slot: widened operands, and the small engine's packed panel
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GEMM_H_
