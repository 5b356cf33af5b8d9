// SPDX-License-Identifier: Apache-2.0
// NormRunner: applies a norm to ranges of rows of f32 or bf16. A plugin with bf16 support reads the
// rows directly. For others, row blocks are widened to f32 and the results rounded, so that every
// norm works in bf16. Immutable. Private to the module.
#ifndef PLUMB_RUNTIME_OPS_NORM_RUNNER_H_
#define PLUMB_RUNTIME_OPS_NORM_RUNNER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/tensor_type.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// The elementwise functions that a norm's ops need, for a dtype.
struct NormRowFns {
  // Computes sum[i] = a[i] + b[i], begin <= i < end, in this dtype; sum may be a or b.
  void (*add)(const void* a, const void* b, void* sum, int64_t begin, int64_t end);
  // Convert from and to bf16.
  void (*widen)(const uint16_t* from, float* to, int64_t n);
  void (*round)(const float* from, uint16_t* to, int64_t n);
};
NormRowFns SelectNormRowFns(DType dtype);

class NormRunner {
 public:
  // Requires: `dtype` is f32 or bf16; `instance` outlives this.
  NormRunner(const NormInstance& instance, DType dtype);

  const NormInstance& instance() const { return instance_; }
  DType dtype() const { return dtype_; }
  // Returns true if the instance has ForwardResidual and BackwardResidual for rows of this dtype.
  bool has_residual() const { return !converts_ && instance_.has_residual(); }

  // Returns a call with the fields that all calls on that number of rows share.
  plumb_norm_call CallPrototype(int64_t rows) const;
  // Returns the bytes of call.scratch, for ranges of at most `rows` rows.
  int64_t scratch_bytes(int64_t rows) const;

  // Runs NormInstance's function of this name, on a call made from the prototype.
  absl::Status Forward(const plumb_norm_call& call, int64_t r0, int64_t r1) const;
  absl::Status Backward(const plumb_norm_call& call, int64_t r0, int64_t r1) const;
  absl::Status StatsPartial(uint32_t phase, const plumb_norm_call& call, int64_t r0, int64_t r1,
                            void* partial) const;
  absl::Status StatsCombine(uint32_t phase, const plumb_norm_call& call, void* acc,
                            const void* partial) const;
  absl::Status StatsFinalize(uint32_t phase, const plumb_norm_call& call, void* acc) const;

 private:
  enum Operand { kX, kY, kDy, kDx, kX2, kDx2 };
  int64_t operands() const { return instance_.two_inputs() ? 6 : 4; }

  plumb_norm_call InF32(const plumb_norm_call& call) const;
  int64_t BlockRows(int64_t rows) const;
  int64_t block_bytes() const;
  // Returns the row block of operand `o`, f32, in the call's scratch. Rows [r0, r1) of `from` are
  // widened into it unless `from` is null.
  float* RowBlock(const plumb_norm_call& call, Operand o, const void* from, int64_t r0,
                  int64_t r1) const;
  // Returns the address of row 0 of a tensor whose row r0 is at `block`.
  void* Base(float* block, int64_t r0) const;

  const NormInstance& instance_;
  const DType dtype_;
  const bool converts_;
  const NormRowFns fns_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_NORM_RUNNER_H_
