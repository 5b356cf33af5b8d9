// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm_plan.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/onednn/library.h"

namespace plumb {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// Returns the policy of a processor that multiplies bf16 in this way.
GemmPolicy Policy(const char* vendor, bool pairs, bool tiles) {
  return {{vendor, 6, 207, "AVX3", pairs, tiles},
          GemmChoice::kAuto,
          OneDnnLibrary{"", false, "", "2.6.3", "avx512_core_bf16", pairs, true}};
}
const GemmPolicy kZen = Policy("AuthenticAMD", true, false);
const GemmPolicy kEmeraldRapids = Policy("GenuineIntel", true, false);
const GemmPolicy kWithAmx = Policy("GenuineIntel", true, true);
const GemmPolicy kOld = Policy("GenuineIntel", false, false);

GemmPolicy With(GemmChoice choice, GemmPolicy policy) {
  policy.choice = choice;
  return policy;
}

GemmPolicy WithoutOneDnn(GemmPolicy policy) {
  policy.given_library.emplace().problem = "libdnnl.so.2: not there";
  return policy;
}

GemmShape Shape(int64_t m, int64_t n, int64_t k, DType dtype = DType::kF32) {
  return {m, n, k, false, true, dtype};
}

TEST(GemmPolicyTest, Bf16MultipliesPairsIfFasterThanF32) {
  EXPECT_TRUE((kZen.MultipliesBf16()));
  EXPECT_FALSE((kEmeraldRapids.MultipliesBf16()));
  EXPECT_TRUE((kWithAmx.MultipliesBf16()));
  EXPECT_FALSE((kOld.MultipliesBf16()));
}

TEST(GemmPolicyTest, ChoiceOverridesTheTable) {
  EXPECT_FALSE((With(GemmChoice::kWiden, kZen).MultipliesBf16()));
  EXPECT_TRUE((With(GemmChoice::kPairs, kEmeraldRapids).MultipliesBf16()));
  EXPECT_FALSE((With(GemmChoice::kPairs, kOld).MultipliesBf16()));
}

TEST(GemmPolicyTest, TilesWorkWithoutOneDnn) {
  const GemmPolicy policy = WithoutOneDnn(kWithAmx);
  EXPECT_TRUE(policy.MultipliesBf16());
  const GemmPlan plan = PlanGemm(Shape(256, 768, 768, DType::kBF16), policy);
  EXPECT_EQ(plan.engine, GemmEngine::kTiles);
  EXPECT_FALSE(plan.widens);
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768), policy).engine, GemmEngine::kSmall);
  const GemmPolicy asked = With(GemmChoice::kOneDnn, kWithAmx);
  EXPECT_TRUE(asked.MultipliesBf16());
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768, DType::kBF16), asked).engine, GemmEngine::kOneDnn);
}

TEST(GemmPolicyTest, PrintsTheChoice) {
  EXPECT_EQ((kZen.ToString()),
            "oneDNN 2.6.3 avx512_core_bf16, bf16 in pairs; kernels AVX3; AuthenticAMD family 6 "
            "model 207");
  EXPECT_THAT((With(GemmChoice::kWiden, kEmeraldRapids).ToString()),
              HasSubstr("bf16 widened to f32, gemm widen;"));
  EXPECT_THAT((kEmeraldRapids.Bf16Reason()), HasSubstr("half the rate"));
  EXPECT_THAT((kWithAmx.Bf16Reason()), HasSubstr("AMX"));
  EXPECT_THAT(kWithAmx.ToString(), HasSubstr("bf16 in tiles;"));
}

TEST(GemmPolicyTest, ParsesChoiceNames) {
  for (const char* name : {"auto", "onednn", "small", "pairs", "widen"}) {
    const absl::StatusOr<GemmChoice> choice = ParseGemmChoice(name);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(GemmChoiceName(*choice), name);
  }
  EXPECT_THAT(std::string(ParseGemmChoice("onednnn").status().message()),
              HasSubstr("did you mean \"onednn\"?"));
}

TEST(GemmPlanTest, LargeProductsUseOneDnn) {
  const GemmPolicy policy = kZen;
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), policy).engine, GemmEngine::kOneDnn);
  // The crossover depends on the processor, and is lower if oneDNN multiplies bf16 without
  // widening.
  EXPECT_EQ(PlanGemm(Shape(768, 128, 128), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(2048, 384, 384), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(2048, 384, 384), kEmeraldRapids).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(768, 128, 128), kEmeraldRapids).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(64, 64, 64, DType::kBF16), policy).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(64, 64, 64, DType::kBF16), kEmeraldRapids).engine, GemmEngine::kSmall);
  // Zen 4 packs GPT-2's weights cheaply, except for long rows.
  GemmPolicy zen4 = policy;
  zen4.processor.family = 25;
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768), policy).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768), zen4).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(1024, 768, 3072), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(1024, 768, 3072), zen4).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), With(GemmChoice::kOneDnn, kZen)).engine,
            GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), With(GemmChoice::kSmall, kZen)).engine,
            GemmEngine::kSmall);
}

// The policy has no given library, so oneDNN would be loaded.
TEST(GemmPlanTest, SmallProductsDoNotLoadOneDnn) {
  const GemmPolicy policy{kZen.processor, GemmChoice::kAuto, {}};
  if (OneDnnIfLoaded() != nullptr) GTEST_SKIP() << "another test has loaded it before";
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    EXPECT_EQ(PlanGemm(Shape(7, 16, 16, dtype), policy).engine, GemmEngine::kSmall);
  }
  EXPECT_EQ(PlanGemm(Shape(16, 512, 512), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(512, 3072, 768), With(GemmChoice::kSmall, policy)).engine,
            GemmEngine::kSmall);
  EXPECT_EQ(policy.Problem(), "");
  EXPECT_EQ(OneDnnIfLoaded(), nullptr);
}

TEST(GemmPlanTest, WithoutOneDnnAllProductsAreSmall) {
  const GemmPolicy policy = WithoutOneDnn(kZen);
  const GemmShape shape = Shape(256, 768, 768, DType::kBF16);
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(shape, policy).engine, GemmEngine::kSmall);
  EXPECT_TRUE(PlanGemm(shape, policy).widens);
  EXPECT_FALSE(policy.MultipliesBf16());
  EXPECT_FALSE(With(GemmChoice::kPairs, policy).MultipliesBf16());
  EXPECT_THAT(policy.ToString(), StartsWith("no oneDNN, bf16 widened to f32; kernels AVX3; "));
  EXPECT_THAT(policy.Bf16Reason(), HasSubstr("is not there"));
  EXPECT_THAT(policy.Problem(), AllOf(HasSubstr("libdnnl.so.2: not there"), HasSubstr("slower")));
  EXPECT_EQ(With(GemmChoice::kSmall, policy).Problem(), "") << "it is not needed";
  EXPECT_EQ(kZen.Problem(), "");
}

TEST(GemmPlanTest, PrintsTheWholeChoice) {
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), kZen).ToString(Shape(256, 3072, 768)),
            "oneDNN f32 256x3072x768: 1x4 blocks of 256x768, packed by each task");
  const GemmShape bf16 = Shape(256, 768, 768, DType::kBF16);
  EXPECT_EQ(PlanGemm(bf16, kZen).ToString(bf16),
            "oneDNN bf16 256x768x768: 1x4 blocks of 256x192, packed by each task");
  EXPECT_EQ(PlanGemm(bf16, kEmeraldRapids).ToString(bf16),
            "oneDNN bf16 widened to f32 256x768x768: 1x4 blocks of 256x192, 384 terms widened at a "
            "time, packed by each task");
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), kZen).ToString(Shape(7, 16, 16)), "small f32 7x16x16");
}

// Blocks of any shape are consecutive and cover the result.
TEST(GemmPlanTest, BlocksCoverTheResult) {
  const RngStream draws(3, "gemm plan");
  for (int64_t i = 0; i < 2000; ++i) {
    const auto size = [&](int64_t j, double max) {
      return 1 + static_cast<int64_t>(std::exp(draws.Uniform(4 * i + j) * std::log(max)));
    };
    GemmShape shape = Shape(size(0, 5000), size(1, 60000), size(2, 5000));
    shape.transpose_a = i % 2 == 1;
    shape.transpose_b = i % 3 == 1;
    const GemmPlan plan = PlanGemm(shape, kZen);
    SCOPED_TRACE(plan.ToString(shape));
    EXPECT_LE(plan.tasks(), 2 * kMaxTasks);
    int64_t row = 0, column = 0;
    for (int64_t r = 0; r < plan.rows; ++r) {
      const Range range = plan.GetRows(shape, r);
      ASSERT_EQ(range.begin, row);
      ASSERT_GE(range.end, range.begin);
      row = range.end;
    }
    for (int64_t c = 0; c < plan.columns; ++c) {
      const Range range = plan.GetColumns(shape, c);
      ASSERT_EQ(range.begin, column);
      ASSERT_GE(range.end, range.begin);
      column = range.end;
    }
    ASSERT_EQ(row, shape.m);
    ASSERT_EQ(column, shape.n);
  }
}

}  // namespace
}  // namespace plumb
