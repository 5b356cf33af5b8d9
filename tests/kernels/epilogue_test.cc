// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/epilogue.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "runtime/base/bf16.h"
#include "runtime/base/rng.h"
#include "tests/kernels/simd_targets.h"

namespace plumb {
namespace {

// Every epilogue that ends in bf16 rounds alike, by the processor's instructions or by plumb's
// code, in whole vectors and in the last, partial one.
TEST(EpilogueTest, RoundsToNearestBf16) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  std::vector<float> sums = {0.0f,         -0.0f,           1.0f,     1.00390625f,   1.01171875f,
                             -1.00390625f, 3.3895e38f,      -3.4e38f, kInfinity,     -kInfinity,
                             NAN,          1.17549435e-38f, 65536.5f, 1.0039063692f, 1e-30f};
  const RngStream draws(9, "finish");
  while (sums.size() < 2 * 37) sums.push_back(static_cast<float>(draws.Normal(sums.size())));
  std::vector<uint16_t> ones(sums.size(), Bf16FromFloat(1.0f)), zeros(sums.size(), 0);
  ForEachSimdTarget([&](const std::string& target) {
    for (const Epilogue kind : {Epilogue::kStore, Epilogue::kAdd, Epilogue::kMul}) {
      std::vector<uint16_t> out(sums.size() + 1, 77);
      EpilogueArgs f{2, 37, sums.data(), 37, nullptr, nullptr, out.data(), 37};
      f.operand = kind == Epilogue::kMul ? ones.data() : zeros.data();
      SelectEpilogue(kind, ActivationKind::kRelu, DType::kBF16)(f);
      EXPECT_EQ(out.back(), 77);
      for (size_t i = 0; i < sums.size(); ++i) {
        if (kind == Epilogue::kAdd && sums[i] == 0) continue;  // -0 + 0
        if (std::isnan(sums[i])) {
          EXPECT_TRUE(std::isnan(FloatFromBf16(out[i]))) << target;
        } else {
          EXPECT_EQ(out[i], Bf16FromFloat(sums[i])) << sums[i] << " on " << target;
        }
      }
    }
  });
}

}  // namespace
}  // namespace plumb
