// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/norm_runner.h"

#include <algorithm>
#include <cstring>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"
#include "runtime/ops/norm_rows.h"

namespace plumb {
namespace {

int64_t FloatBytes(int64_t n) { return AlignUp(n * SizeOf(DType::kF32)); }

}  // namespace

NormRunner::NormRunner(const NormInstance& instance, DType dtype)
    : instance_(instance),
      dtype_(dtype),
      converts_(dtype == DType::kBF16 && (instance.plugin().dtypes() & PLUMB_DTYPE_BF16) == 0),
      fns_(SelectNormRowFns(dtype)) {}

plumb_norm_call NormRunner::CallPrototype(int64_t rows) const {
  const int64_t pitch = instance_.dim() * SizeOf(dtype_);
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.flags = pitch % kAlignment == 0 ? uint32_t{PLUMB_CALL_ALIGNED64} : 0;
  call.dtype = dtype_ == DType::kBF16 ? PLUMB_DTYPE_BF16 : PLUMB_DTYPE_F32;
  call.dim = static_cast<uint32_t>(instance_.dim());
  call.rows = rows;
  call.x_pitch = call.y_pitch = call.dy_pitch = call.dx_pitch = pitch;
  if (instance_.two_inputs()) call.x2_pitch = call.dx2_pitch = pitch;
  call.saved_pitch = instance_.saved_per_row() * SizeOf(DType::kF32);
  return call;
}

int64_t NormRunner::BlockRows(int64_t rows) const {
  return std::min(rows, NormBlockRows(instance_.dim()));
}

int64_t NormRunner::block_bytes() const {
  return FloatBytes(NormBlockRows(instance_.dim()) * instance_.dim());
}

// Layout of a converting call: the row blocks, the statistic of one block, and the plugin's own
// scratch.
int64_t NormRunner::scratch_bytes(int64_t rows) const {
  if (!converts_) return instance_.scratch_bytes(rows);
  return AlignUp(instance_.scratch_bytes(BlockRows(rows))) + operands() * block_bytes() +
         FloatBytes(instance_.partial_elems());
}

plumb_norm_call NormRunner::InF32(const plumb_norm_call& call) const {
  plumb_norm_call in_f32 = call;
  const int64_t pitch = instance_.dim() * SizeOf(DType::kF32);
  in_f32.dtype = PLUMB_DTYPE_F32;
  in_f32.flags &= ~uint32_t{PLUMB_CALL_ALIGNED64};
  if (pitch % kAlignment == 0) in_f32.flags |= PLUMB_CALL_ALIGNED64;
  in_f32.x_pitch = in_f32.y_pitch = in_f32.dy_pitch = in_f32.dx_pitch = pitch;
  if (instance_.two_inputs()) in_f32.x2_pitch = in_f32.dx2_pitch = pitch;
  // The row blocks are first, at offsets that do not depend on the range's number of rows.
  if (call.scratch != nullptr) {
    in_f32.scratch = static_cast<char*>(call.scratch) + operands() * block_bytes() +
                     FloatBytes(instance_.partial_elems());
  }
  return in_f32;
}

float* NormRunner::RowBlock(const plumb_norm_call& call, Operand o, const void* from, int64_t r0,
                            int64_t r1) const {
  const int64_t dim = instance_.dim();
  float* block = reinterpret_cast<float*>(static_cast<char*>(call.scratch) + o * block_bytes());
  if (from != nullptr) {
    fns_.widen(static_cast<const uint16_t*>(from) + r0 * dim, block, (r1 - r0) * dim);
  }
  return block;
}

void* NormRunner::Base(float* block, int64_t r0) const {
  // Rows keep their indices, because a norm may use them, so the tensor begins before the block.
  return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(block) -
                                 static_cast<uintptr_t>(r0 * instance_.dim()) * sizeof(float));
}

absl::Status NormRunner::Forward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  if (!converts_) return instance_.Forward(call, r0, r1);
  const int64_t dim = instance_.dim();
  plumb_norm_call in_f32 = InF32(call);
  return ForEachRowBlock(
      {r0, r1}, NormBlockRows(dim), [&](int64_t begin, int64_t end) -> absl::Status {
        float* const y = RowBlock(call, kY, nullptr, begin, end);
        in_f32.x = Base(RowBlock(call, kX, call.x, begin, end), begin);
        in_f32.y = Base(y, begin);
        if (call.x2 != nullptr) in_f32.x2 = Base(RowBlock(call, kX2, call.x2, begin, end), begin);
        PLUMB_RETURN_IF_ERROR(instance_.Forward(in_f32, begin, end));
        fns_.round(y, static_cast<uint16_t*>(call.y) + begin * dim, (end - begin) * dim);
        return absl::OkStatus();
      });
}

absl::Status NormRunner::Backward(const plumb_norm_call& call, int64_t r0, int64_t r1) const {
  if (!converts_) return instance_.Backward(call, r0, r1);
  const int64_t dim = instance_.dim();
  const bool accumulates = (call.flags & PLUMB_CALL_DX_ACCUMULATE) != 0;
  plumb_norm_call in_f32 = InF32(call);
  return ForEachRowBlock(
      {r0, r1}, NormBlockRows(dim), [&](int64_t begin, int64_t end) -> absl::Status {
        if (call.x != nullptr) in_f32.x = Base(RowBlock(call, kX, call.x, begin, end), begin);
        if (call.y != nullptr) in_f32.y = Base(RowBlock(call, kY, call.y, begin, end), begin);
        float* const dx = RowBlock(call, kDx, accumulates ? call.dx : nullptr, begin, end);
        in_f32.dy = Base(RowBlock(call, kDy, call.dy, begin, end), begin);
        in_f32.dx = Base(dx, begin);
        if (call.x2 != nullptr) in_f32.x2 = Base(RowBlock(call, kX2, call.x2, begin, end), begin);
        float* dx2 = nullptr;
        if (call.dx2 != nullptr) {
          dx2 = RowBlock(call, kDx2, nullptr, begin, end);
          in_f32.dx2 = Base(dx2, begin);
        }
        PLUMB_RETURN_IF_ERROR(instance_.Backward(in_f32, begin, end));
        fns_.round(dx, static_cast<uint16_t*>(call.dx) + begin * dim, (end - begin) * dim);
        if (dx2 != nullptr) {
          fns_.round(dx2, static_cast<uint16_t*>(call.dx2) + begin * dim, (end - begin) * dim);
        }
        return absl::OkStatus();
      });
}

absl::Status NormRunner::StatsPartial(uint32_t phase, const plumb_norm_call& call, int64_t r0,
                                      int64_t r1, void* partial) const {
  if (!converts_) return instance_.StatsPartial(phase, call, r0, r1, partial);
  plumb_norm_call in_f32 = InF32(call);
  char* const of_block = static_cast<char*>(call.scratch) + operands() * block_bytes();
  const int64_t block_rows = NormBlockRows(instance_.dim());
  return ForEachRowBlock({r0, r1}, block_rows, [&](int64_t begin, int64_t end) -> absl::Status {
    if (call.x != nullptr) in_f32.x = Base(RowBlock(call, kX, call.x, begin, end), begin);
    if (call.dy != nullptr) in_f32.dy = Base(RowBlock(call, kDy, call.dy, begin, end), begin);
    if (phase == PLUMB_PHASE_BACKWARD && call.y != nullptr) {
      in_f32.y = Base(RowBlock(call, kY, call.y, begin, end), begin);
    }
    std::memset(of_block, 0, static_cast<size_t>(FloatBytes(instance_.partial_elems())));
    PLUMB_RETURN_IF_ERROR(instance_.StatsPartial(phase, in_f32, begin, end, of_block));
    return instance_.StatsCombine(phase, in_f32, partial, of_block);
  });
}

absl::Status NormRunner::StatsCombine(uint32_t phase, const plumb_norm_call& call, void* acc,
                                      const void* partial) const {
  return instance_.StatsCombine(phase, converts_ ? InF32(call) : call, acc, partial);
}

absl::Status NormRunner::StatsFinalize(uint32_t phase, const plumb_norm_call& call,
                                       void* acc) const {
  return instance_.StatsFinalize(phase, converts_ ? InF32(call) : call, acc);
}

}  // namespace plumb
