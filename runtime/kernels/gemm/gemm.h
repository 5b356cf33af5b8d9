// SPDX-License-Identifier: Apache-2.0
// Gemm: matrix products of f32 or bf16 operands with f32 sums: one product, several that share
// their left operand, or sums of products, each with an epilogue (bias, addition, activation) on a
// block of sums while it is in the cache.
//
// PlanGemm (gemm_plan.h) partitions the results into blocks, each a task for one thread, and
// chooses the engine that multiplies a block (block_product.h): oneDNN, small_gemm.h or
// tile_gemm.h. This driver distributes the tasks and runs the epilogue.
//
// Rounding: an element is a function of shape, processor, engine and oneDNN's version. The number
// of threads never changes it. The small engine computes one ascending-k FMA chain per element,
// started from the bias; oneDNN and tiles sum k in blocks.
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

// A product op(a) op(b): a and b index the operand table of Run. Leading dimensions in elements.
struct GemmTerm {
  int a, b;
  int64_t k, lda, ldb;
};

// One result [m, n]; an index of -1 means that there is no such operand.
struct GemmResult {
  int64_t n;
  std::vector<GemmTerm> terms;  // the products that are summed
  int bias = -1;                // f32 [n]
  int operand = -1;             // operand of kAdd and kMul, [m, n]
  int out = 0;
  int derivative = -1;  // output for the activation's derivative, for kActivation
};

struct GemmSpec {
  DType operands;  // dtype of a and b: kF32 or kBF16
  DType out;       // dtype of results, `operand` and `derivative`
  bool transpose_a, transpose_b;
  int64_t m;
  Epilogue epilogue = Epilogue::kStore;
  ActivationKind activation = ActivationKind::kRelu;  // used with kActivation
  std::vector<GemmResult> results;
};

// Immutable; thread-safe if concurrent calls of Run have different results and scratch.
class Gemm {
 public:
  Gemm(GemmSpec spec, const GemmPolicy& policy);

  int64_t scratch_bytes() const { return slots_ * slot_bytes(); }

  // Computes all results. The specification's indices refer to `in` and `out`. A result may share
  // memory with its `operand`, and with nothing else. Errors: kResourceExhausted if oneDNN cannot
  // allocate memory; the results are then undefined.
  absl::Status Run(const void* const* in, void* const* out, void* scratch, int threads) const;

  // Returns the plans, one per result: "oneDNN f32 256x3072x768: 1x4 blocks of 256x768, packed by
  // each task".
  std::string ToString() const;

 private:
  struct Task {
    size_t result;
    Range rows, columns;
  };
  // Accumulators of a task.
  struct Sums {
    float* at;  // the first element of [rows, columns]
    int64_t ld;
    bool initialized;  // true: products accumulate; false: they overwrite
    GemmStart start;   // initial values that the small engine reads
  };

  bool StoresDirectly(const GemmResult& result) const;
  int64_t slot_bytes() const { return sum_bytes_ + engine_bytes_; }
  absl::Status RunTask(const void* const* in, void* const* out, const Task& task,
                       char* scratch) const;
  Sums BeginSums(const void* const* in, const Task& task, bool direct, float* at, int64_t ld) const;
  absl::Status AddTerm(const void* const* in, const GemmTerm& term, const Task& task,
                       const Sums& sums, char* scratch) const;

  const GemmSpec spec_;
  std::vector<GemmPlan> plans_;         // one per result
  std::vector<BlockProduct> products_;  // one per result
  std::vector<Task> tasks_;
  EpilogueFn epilogue_;
  int slots_ = 1;
  int64_t sum_bytes_ = 0;     // per slot: accumulators, if not in the result's memory
  int64_t engine_bytes_ = 0;  // per slot: widened operands, and the small engine's packed panel
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GEMM_H_
