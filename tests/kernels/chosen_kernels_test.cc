// SPDX-License-Identifier: Apache-2.0
// Compares the chosen kernels with the features of the processor. A fallback is slower but still
// correct, so no other test notices it. For example, a newer version of Highway may prefer
// instruction sets that the kernels do not know.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/kernels/attention/attention.h"
#include "runtime/kernels/gemm/epilogue.h"
#include "runtime/kernels/gemm/gemm_plan.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/kernels/gemv/gemv.h"
#include "runtime/kernels/simd/cpu_features.h"
#include "runtime/onednn/library.h"

#if defined(__x86_64__)

namespace plumb {
namespace {

// Features found by the compiler's detection, which checks the processor and the operating system's
// support.
struct Processor {
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
              __builtin_cpu_supports("bmi2");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512vl");
  bool bf16 = avx512 && __builtin_cpu_supports("avx512bf16");
  bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  bool amd = __builtin_cpu_is("amd");
  // True if pairs of bf16 are faster than f32.
  bool pairs = bf16 && amd;
};
const Processor kHas;

constexpr uint16_t kOne = 0x3f80, kDenormal = 0x0040;  // bf16

TEST(ChosenKernelsTest, ChoosesTheBestInstructionSet) {
  EXPECT_EQ(KernelTarget(), kHas.avx512 ? "AVX3" : kHas.avx2 ? "AVX2" : KernelTarget());
  EXPECT_EQ(UsesBf16Instructions(), kHas.bf16);
  EXPECT_EQ(UsesBf16Pairs(), kHas.pairs);
  EXPECT_EQ(UsesVnni(), kHas.vnni);
}

TEST(ChosenKernelsTest, Bf16GemvMultipliesPairsIfFast) {
  const Gemv gemv(1, 256, 256, DType::kBF16, DType::kBF16, DType::kF32, /*may_pack=*/false);
  EXPECT_EQ(gemv.scratch_bytes() == 0, kHas.pairs) << "else operands are widened, into scratch";
}

// Only the processor's conversion flushes denormals to zero.
TEST(ChosenKernelsTest, EpiloguesRoundWithTheProcessorsConversion) {
  const std::vector<float> sums(32, 1e-40f);
  std::vector<uint16_t> out(32, kOne);
  EpilogueArgs args{1, 32, sums.data(), 32, nullptr, nullptr, out.data(), 32};
  SelectEpilogue(Epilogue::kStore, ActivationKind::kRelu, DType::kBF16)(args);
  EXPECT_EQ(out[0] == 0, kHas.bf16);
}

// The processor's multiplication of pairs does, too. The test checks the context and the gradient
// of the values.
TEST(ChosenKernelsTest, Bf16AttentionMultipliesPairsIfFast) {
  constexpr int64_t kDim = 16;
  const std::vector<uint16_t> ones(kDim, kOne), denormals(kDim, kDenormal);
  std::vector<uint16_t> context(kDim, kOne), dq(kDim), dk(kDim), dv(kDim, kOne);
  float lse = 0;
  AlignedBuffer scratch(
      std::max(AttendScratchBytes(1, kDim), AttendGradScratchBytes(1, kDim, sizeof(uint16_t))));
  const AttendArgs<uint16_t> forward{
      ones.data(), kDim, ones.data(), denormals.data(), kDim, context.data(), kDim, &lse, 1, 0, 0,
      kDim,        1.0f, {}};
  ChooseAttend<uint16_t>()(forward, scratch.as<float>());
  EXPECT_EQ(context[0] == 0, kHas.pairs);

  const AttendGradArgs<uint16_t> backward{ones.data(), ones.data(), denormals.data(),
                                          dq.data(),   kDim,        ones.data(),
                                          ones.data(), dk.data(),   dv.data(),
                                          kDim,        &lse,        1,
                                          0,           1,           kDim,
                                          1.0f,        {}};
  ChooseAttendGrad<uint16_t>()(backward, scratch.as<float>());
  EXPECT_EQ(dv[0] == 0, kHas.pairs);
}

TEST(ChosenKernelsTest, LargeBf16ProductsUseOneDnnIfFast) {
  ASSERT_TRUE(OneDnn().usable()) << OneDnn().problem;
  EXPECT_TRUE(OneDnn().bf16_gemm) << "a version of oneDNN that no longer exports it";
  if (std::getenv("ONEDNN_MAX_CPU_ISA") != nullptr || std::getenv("DNNL_MAX_CPU_ISA") != nullptr) {
    GTEST_SKIP() << "oneDNN is limited to a lesser instruction set";
  }
  const GemmPolicy policy = HostGemmPolicy();
  EXPECT_EQ(policy.library().bf16_pairs(), kHas.bf16 && kHas.vnni) << policy.ToString();
  const GemmPlan plan = PlanGemm({1024, 1024, 1024, false, false, DType::kBF16}, policy);
  EXPECT_EQ(plan.engine, UsesAmx() ? GemmEngine::kTiles : GemmEngine::kOneDnn);
  EXPECT_EQ(plan.widens, !kHas.pairs && !UsesAmx()) << policy.ToString();
}

}  // namespace
}  // namespace plumb

#endif  // defined(__x86_64__)
