#include "runtime/kernels/gemm/gemm_plan.h"

#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "runtime/kernels/gemm/gemm_policy.h"

namespace plumb {
namespace {

using testing::HasSubstr;

GemmProcessor Processor(const char* vendor, bool pairs, bool tiles) {
  return {vendor, 6, 207, "2.6.3", "avx512_core_bf16", pairs, tiles, "AVX3"};
}
const GemmProcessor kZen = Processor("AuthenticAMD", true, false);
const GemmProcessor kEmeraldRapids = Processor("GenuineIntel", true, false);
const GemmProcessor kWithAmx = Processor("GenuineIntel", true, true);
const GemmProcessor kOld = Processor("GenuineIntel", false, false);

GemmShape Shape(int64_t m, int64_t n, int64_t k, DType dtype = DType::kF32) {
  return {m, n, k, false, true, dtype};
}

TEST(GemmPolicyTest, Bf16IsMultipliedInPairsWhereThatIsFasterThanF32) {
  EXPECT_TRUE((GemmPolicy{kZen, GemmChoice::kAuto}.MultipliesBf16()));
  EXPECT_FALSE((GemmPolicy{kEmeraldRapids, GemmChoice::kAuto}.MultipliesBf16()));
  EXPECT_TRUE((GemmPolicy{kWithAmx, GemmChoice::kAuto}.MultipliesBf16()));
  EXPECT_FALSE((GemmPolicy{kOld, GemmChoice::kAuto}.MultipliesBf16()));
}

TEST(GemmPolicyTest, AChoiceOverridesTheTableButNotTheProcessor) {
  EXPECT_FALSE((GemmPolicy{kZen, GemmChoice::kWiden}.MultipliesBf16()));
  EXPECT_TRUE((GemmPolicy{kEmeraldRapids, GemmChoice::kPairs}.MultipliesBf16()));
  EXPECT_FALSE((GemmPolicy{kOld, GemmChoice::kPairs}.MultipliesBf16()));
}

TEST(GemmPolicyTest, SaysWhatItChose) {
  EXPECT_EQ((GemmPolicy{kZen, GemmChoice::kAuto}.ToString()),
            "oneDNN 2.6.3 avx512_core_bf16, bf16 in pairs; kernels AVX3; AuthenticAMD family 6 "
            "model 207");
  EXPECT_THAT((GemmPolicy{kEmeraldRapids, GemmChoice::kWiden}.ToString()),
              HasSubstr("bf16 widened to f32, --gemm widen;"));
  EXPECT_THAT((GemmPolicy{kEmeraldRapids, GemmChoice::kAuto}.Bf16Reason()),
              HasSubstr("half the rate"));
  EXPECT_THAT((GemmPolicy{kWithAmx, GemmChoice::kAuto}.Bf16Reason()), HasSubstr("AMX"));
}

TEST(GemmPolicyTest, ChoicesHaveNames) {
  for (const char* name : {"auto", "onednn", "small", "pairs", "widen"}) {
    const absl::StatusOr<GemmChoice> choice = ParseGemmChoice(name);
    ASSERT_TRUE(choice.ok()) << choice.status();
    EXPECT_EQ(GemmChoiceName(*choice), name);
  }
  EXPECT_THAT(std::string(ParseGemmChoice("onednnn").status().message()),
              HasSubstr("did you mean \"onednn\"?"));
}

TEST(GemmPlanTest, LargeProductsAreOneDnns) {
  const GemmPolicy policy{kZen, GemmChoice::kAuto};
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), policy).engine, GemmEngine::kOneDnn);
  // The crossing is the processor's, and lower where oneDNN multiplies bf16 as it is.
  EXPECT_EQ(PlanGemm(Shape(768, 128, 128), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(2048, 384, 384), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(2048, 384, 384), {kEmeraldRapids, GemmChoice::kAuto}).engine,
            GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(768, 128, 128), {kEmeraldRapids, GemmChoice::kAuto}).engine,
            GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(64, 64, 64, DType::kBF16), policy).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(64, 64, 64, DType::kBF16), {kEmeraldRapids, GemmChoice::kAuto}).engine,
            GemmEngine::kSmall);
  // Zen 4 packs weights of GPT-2 for little, but not for long rows.
  GemmPolicy zen4 = policy;
  zen4.processor.family = 25;
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768), policy).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(256, 768, 768), zen4).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(1024, 768, 3072), policy).engine, GemmEngine::kSmall);
  EXPECT_EQ(PlanGemm(Shape(1024, 768, 3072), zen4).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), {kZen, GemmChoice::kOneDnn}).engine, GemmEngine::kOneDnn);
  EXPECT_EQ(PlanGemm(Shape(256, 3072, 768), {kZen, GemmChoice::kSmall}).engine, GemmEngine::kSmall);
}

TEST(GemmPlanTest, PrintsTheWholeChoice) {
  EXPECT_EQ(
      PlanGemm(Shape(256, 3072, 768), {kZen, GemmChoice::kAuto}).ToString(Shape(256, 3072, 768)),
      "oneDNN f32 256x3072x768: 1x4 blocks of 256x768, packed by each task");
  const GemmShape bf16 = Shape(256, 768, 768, DType::kBF16);
  EXPECT_EQ(PlanGemm(bf16, {kZen, GemmChoice::kAuto}).ToString(bf16),
            "oneDNN bf16 256x768x768: 1x4 blocks of 256x192, packed by each task");
  EXPECT_EQ(PlanGemm(bf16, {kEmeraldRapids, GemmChoice::kAuto}).ToString(bf16),
            "oneDNN bf16 widened to f32 256x768x768: 1x4 blocks of 256x192, 384 terms widened at a "
            "time, packed by each task");
  EXPECT_EQ(PlanGemm(Shape(7, 16, 16), {kZen, GemmChoice::kAuto}).ToString(Shape(7, 16, 16)),
            "small f32 7x16x16");
}

// Any shape: blocks follow each other and cover the result.
TEST(GemmPlanTest, BlocksCoverTheResult) {
  const RngStream draws(3, "gemm plan");
  for (int64_t i = 0; i < 2000; ++i) {
    const auto size = [&](int64_t j, double most) {
      return 1 + static_cast<int64_t>(std::exp(draws.Uniform(4 * i + j) * std::log(most)));
    };
    GemmShape shape = Shape(size(0, 5000), size(1, 60000), size(2, 5000));
    shape.transpose_a = i % 2 == 1;
    shape.transpose_b = i % 3 == 1;
    const GemmPlan plan = PlanGemm(shape, {kZen, GemmChoice::kAuto});
    SCOPED_TRACE(plan.ToString(shape));
    EXPECT_LE(plan.tasks(), 2 * kMaxTasks);
    int64_t row = 0, column = 0;
    for (int64_t r = 0; r < plan.rows; ++r) {
      const Range range = plan.RowsOf(shape, r);
      ASSERT_EQ(range.begin, row);
      ASSERT_GE(range.end, range.begin);
      row = range.end;
    }
    for (int64_t c = 0; c < plan.columns; ++c) {
      const Range range = plan.ColumnsOf(shape, c);
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
