// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/dequantized_gemm.h"

#include <algorithm>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/tensor_type.h"
#include "runtime/kernels/gemv/quantize.h"

namespace plumb {
namespace {

constexpr int64_t kPanelFloats = 1 << 16;     // 256 KiB
constexpr int64_t kRowBlockFloats = 1 << 17;  // size of a row block of x

}  // namespace

DequantizedGemm::DequantizedGemm(int64_t n, int64_t k)
    : n_(n),
      k_(k),
      groups_(Int8Groups(k)),
      panel_(std::max<int64_t>(32, kPanelFloats / k / 32 * 32)),
      multiply_(SelectSmallGemm(false, false)) {}

int64_t DequantizedGemm::scratch_bytes() const {
  return AlignUp((panel_ * groups_ * kInt8Group + SmallGemmScratch(k_)) * SizeOf(DType::kF32));
}

void DequantizedGemm::RunPanel(const Operands& operands, int64_t m, int64_t i,
                               void* scratch) const {
  const int64_t row_block =
      std::max<int64_t>(8, kRowBlockFloats / std::min(k_, kMaxSmallGemmTerms));
  float* const floats = static_cast<float*>(scratch);
  float* const rest = floats + panel_ * groups_ * kInt8Group;
  const int64_t j = i * panel_, n = std::min(panel_, n_ - j), tile = j / kInt8TileRows * groups_;
  DequantizeTransposed(operands.w + tile * kInt8TileElements,
                       operands.scales + tile * kInt8TileRows, Int8Blocks(n), groups_, floats);
  const int64_t ldb = Int8Blocks(n) * kInt8TileRows;
  for (int64_t row = 0; row < m; row += row_block) {
    multiply_({false, false, std::min(row_block, m - row), n, k_, operands.x + row * k_, k_, floats,
               ldb, false, operands.y + row * n_ + j, n_},
              operands.bias == nullptr ? nullptr : operands.bias + j, rest);
  }
}

}  // namespace plumb
