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
// Rows per task: enough that packing the matrix, which every task does, takes a few percent.
constexpr int64_t kTaskRows = 512;
constexpr int kTasksPerThread = 2;

}  // namespace

absl::StatusOr<double> GemmSpeed::Measure(DType operands, int threads) {
  if (!OneDnn().usable()) return absl::UnimplementedError(OneDnn().problem);
  if (operands == DType::kBF16 && !OneDnn().bf16_gemm) {
    return absl::UnimplementedError("oneDNN exports no GEMM of bf16");
  }
  constexpr int64_t kRowsBytes = kTaskRows * kSize * SizeOf(DType::kF32);
  threads = std::clamp(threads, 1, 256);
  if (c_.size() != threads * kRowsBytes) {
    // The values are zeros, which do not change the time.
    a_ = AlignedBuffer(kRowsBytes);
    b_ = AlignedBuffer(kSize * kSize * SizeOf(DType::kF32));
    c_ = AlignedBuffer(threads * kRowsBytes);
  }
  const int64_t tasks = threads * kTasksPerThread;
  double seconds = 0;
  // The first product touches pages and wakes workers; the second is timed.
  for (int run = 0; run < 2; ++run) {
    using Clock = std::chrono::steady_clock;
    std::vector<absl::Status> ended(static_cast<size_t>(tasks));
    const Clock::time_point start = Clock::now();
    ParallelFor(tasks, threads, [&](int64_t i, int slot) {
      float* const c = c_.as<float>() + slot * kTaskRows * kSize;
      ended[static_cast<size_t>(i)] =
          OneDnnGemm(operands, {false, false, kTaskRows, kSize, kSize, a_.data(), kSize, b_.data(),
                                kSize, false, c, kSize});
    });
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
    for (absl::Status& status : ended) PLUMB_RETURN_IF_ERROR(std::move(status));
  }
  return 2.0 * kSize * kSize * kTaskRows * static_cast<double>(tasks) / seconds;
}

}  // namespace plumb
