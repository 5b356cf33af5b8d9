// SPDX-License-Identifier: Apache-2.0
#include "runtime/onednn/gemm_speed.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/onednn/gemm.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

constexpr int64_t kSize = 2048;
// Rows of each thread: enough that packing takes few percent. bf16 is multiplied faster.
int64_t RowsOf(DType operands) { return operands == DType::kBF16 ? 2048 : 1024; }

}  // namespace

absl::StatusOr<double> GemmSpeed::Measure(DType operands, int threads) {
  if (!OneDnn().usable()) return absl::UnimplementedError(OneDnn().problem);
  if (operands == DType::kBF16 && !OneDnn().bf16_gemm) {
    return absl::UnimplementedError("oneDNN exports no GEMM of bf16");
  }
  threads = std::clamp(threads, 1, 256);
  const int64_t rows = RowsOf(operands), elements = rows * kSize;
  const int64_t sum_bytes = threads * elements * SizeOf(DType::kF32);
  if (c_.size() < sum_bytes) {
    // The values are zeros, which do not change the time.
    a_ = AlignedBuffer(elements * SizeOf(DType::kF32));
    b_ = AlignedBuffer(kSize * kSize * SizeOf(DType::kF32));
    c_ = AlignedBuffer(sum_bytes);
  }
  double seconds = 0;
  // The first product touches pages and wakes workers; the second is timed.
  for (int run = 0; run < 2; ++run) {
    using Clock = std::chrono::steady_clock;
    std::vector<absl::Status> ended(static_cast<size_t>(threads));
    const Clock::time_point start = Clock::now();
    ParallelFor(threads, threads, [&](int64_t i, int) {
      float* const c = c_.as<float>() + i * elements;
      ended[static_cast<size_t>(i)] = OneDnnGemm(
          operands,
          {false, false, rows, kSize, kSize, a_.data(), kSize, b_.data(), kSize, false, c, kSize});
    });
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (absl::Status& status : ended) PLUMB_RETURN_IF_ERROR(std::move(status));
  }
  return 2.0 * kSize * static_cast<double>(elements) * threads / seconds;
}

}  // namespace plumb
