// SPDX-License-Identifier: Apache-2.0
#include "runtime/onednn/gemm.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/parallel.h"
#include "runtime/base/status.h"
#include "runtime/onednn/functions.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

constexpr int64_t kSize = 2048;
// Rows of each thread: enough that packing takes few percent. bf16 is multiplied faster.
int64_t GetRows(DType operands) { return operands == DType::kBF16 ? 2048 : 1024; }

}  // namespace

absl::Status OneDnnGemm(DType operands, const GemmArgs& g) {
  if (!OneDnn().usable()) return absl::FailedPreconditionError(OneDnn().problem);
  if (const absl::Status& code = GenerateOneDnnCode(); !code.ok()) return code;
  const OneDnnFunctions& onednn = LoadedOneDnn();
  const OneThread one_thread(onednn);
  const char ta = g.transpose_a ? 'T' : 'N', tb = g.transpose_b ? 'T' : 'N';
  const float beta = g.accumulate ? 1.0f : 0.0f;
  dnnl_status_t status = dnnl_unimplemented;
  if (operands == DType::kF32) {
    status = onednn.sgemm(ta, tb, g.m, g.n, g.k, 1.0f, static_cast<const float*>(g.a), g.lda,
                          static_cast<const float*>(g.b), g.ldb, beta, g.c, g.ldc);
  } else {
    PLUMB_CHECK(operands == DType::kBF16 && OneDnn().bf16_gemm, "no such product");
    status =
        onednn.gemm_bf16bf16f32(ta, tb, g.m, g.n, g.k, 1.0f, static_cast<const uint16_t*>(g.a),
                                g.lda, static_cast<const uint16_t*>(g.b), g.ldb, beta, g.c, g.ldc);
  }
  if (status == dnnl_success) return absl::OkStatus();
  const std::string what = absl::StrCat("oneDNN's product of a [", g.m, ", ", g.k, "] and a [", g.k,
                                        ", ", g.n, "] matrix failed");
  if (status == dnnl_out_of_memory) return absl::ResourceExhaustedError(what + ": out of memory");
  const std::string text = absl::StrCat(what, ": status ", status);
  return status == dnnl_unimplemented ? absl::UnimplementedError(text) : absl::InternalError(text);
}

absl::StatusOr<double> GemmSpeed::Measure(DType operands, int threads) {
  if (!OneDnn().usable()) return absl::UnimplementedError(OneDnn().problem);
  if (operands == DType::kBF16 && !OneDnn().bf16_gemm) {
    return absl::UnimplementedError("oneDNN exports no GEMM of bf16");
  }
  threads = std::clamp(threads, 1, 256);
  const int64_t rows = GetRows(operands), elements = rows * kSize;
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
