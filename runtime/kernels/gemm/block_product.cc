// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/block_product.h"

#include <algorithm>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/gemm/tile_gemm.h"
#include "runtime/kernels/gemv/gemv.h"

namespace plumb {
namespace {

constexpr int64_t kFloatBytes = SizeOf(DType::kF32);

// Returns the address of element [row, column] of a row-major bf16 matrix.
const uint16_t* At(const void* matrix, int64_t row, int64_t column, int64_t ld) {
  return static_cast<const uint16_t*>(matrix) + row * ld + column;
}

// Widens a part of a bf16 matrix to f32, with rows `columns` apart.
void WidenPart(const uint16_t* from, int64_t ld, int64_t rows, int64_t columns, float* to) {
  for (int64_t i = 0; i < rows; ++i) WidenFromBf16(from + i * ld, columns, to + i * columns);
}

}  // namespace

BlockProduct::BlockProduct(const GemmPlan& plan, DType operands, bool transpose_a, bool transpose_b)
    : operands_(operands),
      engine_(plan.engine),
      widens_(plan.widens),
      k_block_(plan.k_block),
      small_(SelectSmallGemm(transpose_a, transpose_b)) {}

int64_t BlockProduct::scratch_bytes(int64_t rows, int64_t columns, int64_t k) const {
  int64_t bytes = 0;
  if (widens_) {
    const int64_t terms = std::min(k, k_block_);
    bytes += AlignUp(terms * rows * kFloatBytes) + AlignUp(terms * columns * kFloatBytes);
  }
  if (engine_ == GemmEngine::kTiles) bytes += TileGemmScratch(rows, columns, k);
  if (engine_ == GemmEngine::kSmall) bytes += SmallGemmScratch(k) * kFloatBytes;
  return AlignUp(bytes);
}

absl::Status BlockProduct::Run(const GemmArgs& args, const GemmStart& start, void* scratch) const {
  float* const floats = static_cast<float*>(scratch);
  return widens_ ? RunWidened(args, start, floats) : Multiply(operands_, args, start, floats);
}

// Widens both bf16 operands k_block terms at a time and multiplies these.
absl::Status BlockProduct::RunWidened(const GemmArgs& args, const GemmStart& start,
                                      float* scratch) const {
  const int64_t rows = args.m, columns = args.n;
  const bool ta = args.transpose_a, tb = args.transpose_b;
  const int64_t k_block = std::min(args.k, k_block_);
  float* const wide_a = scratch;
  float* const wide_b = wide_a + AlignUp(k_block * rows * kFloatBytes) / kFloatBytes;
  float* const rest = wide_b + AlignUp(k_block * columns * kFloatBytes) / kFloatBytes;
  const int64_t parts = CeilDiv(args.k, k_block_);
  for (int64_t part = 0; part < parts; ++part) {
    const Range range = TaskRange(args.k, parts, part);
    const int64_t k = range.end - range.begin, k0 = range.begin;
    WidenPart(ta ? At(args.a, k0, 0, args.lda) : At(args.a, 0, k0, args.lda), args.lda,
              ta ? k : rows, ta ? rows : k, wide_a);
    WidenPart(tb ? At(args.b, 0, k0, args.ldb) : At(args.b, k0, 0, args.ldb), args.ldb,
              tb ? columns : k, tb ? k : columns, wide_b);
    absl::Status status =
        Multiply(DType::kF32,
                 {ta, tb, rows, columns, k, wide_a, ta ? rows : k, wide_b, tb ? k : columns,
                  args.accumulate || part > 0, args.c, args.ldc},
                 part == 0 ? start : GemmStart(), rest);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status BlockProduct::Multiply(DType operands, const GemmArgs& args, const GemmStart& start,
                                    float* scratch) const {
  if (engine_ == GemmEngine::kOneDnn) return OneDnnGemm(operands, args);
  if (engine_ == GemmEngine::kTiles) {
    TileGemm(args, scratch);
  } else {
    small_(args, start, scratch);
  }
  return absl::OkStatus();
}

}  // namespace plumb
