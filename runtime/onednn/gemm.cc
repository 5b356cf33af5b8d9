// SPDX-License-Identifier: Apache-2.0
#include "runtime/onednn/gemm.h"

#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/onednn/functions.h"
#include "runtime/onednn/library.h"
#include "runtime/onednn/one_thread.h"

namespace plumb {

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

}  // namespace plumb
