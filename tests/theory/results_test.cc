// SPDX-License-Identifier: Apache-2.0
#include "cli/theory/results.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

namespace plumb::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Measurement Layers(int64_t n_layer, double last_gradient) {
  Measurement depth;
  depth.n_layer = n_layer;
  double v = 1;
  for (int64_t layer = 0; layer <= n_layer; ++layer, v *= 2) depth.stream.push_back({v, 0.1});
  depth.gradients = {{"layers.0.mlp.down.weight", {1, 0}},
                     {"layers.1.mlp.down.weight", {last_gradient, 0}}};
  depth.passages = {{"layers.0.attention", 2, 1, 4}, {"layers.0.mlp", 3, 4, 9}};
  depth.first_over_last = {0.02, 0.001, 0.03, 9};
  depth.total_gain = {6, 5, 6.5, 7};
  return depth;
}

TheoryResults Results() {
  TheoryResults results;
  results.model = "<script>alert(\"m\")</script>";
  results.seeds = 2;
  results.seq = 4;
  results.reading.route = Route::kNormedInput;
  results.reading.norm_before_head = true;
  results.depths = {Layers(2, 0.5), Layers(8, 0.25)};
  return results;
}

TEST(ResultsTest, SlopesRatiosAndGains) {
  const TheoryResults results = Results();
  EXPECT_DOUBLE_EQ(*MeasuredDepthSlope(results), -0.5);
  EXPECT_DOUBLE_EQ(GrowthPerLayer(results.depths[1]), 2);
  EXPECT_TRUE(std::isnan(LogLogSlope({8, 8}, {1, 2}))) << "one depth has no slope";
  EXPECT_TRUE(std::isnan(LogLogSlope({1, 2}, {0, 2}))) << "0 has no logarithm";
}

// The arithmetic mean of these six seeds of a deep post-norm stack is 2.2, which describes none of
// them.
TEST(RatiosTest, OneLargeRatioDoesNotMakeTheMean) {
  const RatioOverSeeds ratio = SummarizeRatios({0.021, 4e-5, 0.25, 0.03, 12.8, 0.0014});
  EXPECT_NEAR(ratio.geometric_mean, 0.022, 1e-4);
  EXPECT_DOUBLE_EQ(ratio.median, (0.021 + 0.03) / 2);
  EXPECT_DOUBLE_EQ(ratio.low, (4e-5 + 0.0014) / 2);
  EXPECT_DOUBLE_EQ(ratio.high, (0.25 + 12.8) / 2);
}

TEST(RatiosTest, OneSeedAndSeedsWithoutARatio) {
  EXPECT_DOUBLE_EQ(SummarizeRatios({3}).geometric_mean, 3);
  EXPECT_DOUBLE_EQ(SummarizeRatios({3}).low, 3);
  EXPECT_DOUBLE_EQ(SummarizeRatios({3}).high, 3);
  EXPECT_EQ(SummarizeRatios({0, 2}).geometric_mean, 0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(SummarizeRatios({1, nan}).geometric_mean));
  EXPECT_TRUE(std::isnan(SummarizeRatios({1, nan}).median));
  const double infinite = std::numeric_limits<double>::infinity();
  EXPECT_EQ(SummarizeRatios({1, 2, infinite}).median, 2);
  EXPECT_EQ(SummarizeRatios({infinite, infinite}).high, infinite);
}

TEST(ResultsTest, TextAndJsonHaveGeometricMeansAndQuantilesOfRatios) {
  const std::string text = ToText(Results());
  EXPECT_THAT(text, HasSubstr("ratios: geometric mean over seeds (quantiles 0.1, 0.5, 0.9)\n"));
  EXPECT_THAT(text, HasSubstr("gradient, first over last   0.02 (0.001, 0.03, 9)\n"));
  EXPECT_THAT(text, HasSubstr("gain through all layers     6 (5, 6.5, 7)   predicted 3\n"));
  const auto depth = ToJson(Results())["depths"][0];
  EXPECT_EQ(depth["first_over_last"], 0.02);
  EXPECT_EQ(depth["first_over_last_quantiles"]["0.1"], 0.001);
  EXPECT_EQ(depth["total_gain"], 6);
  EXPECT_EQ(depth["total_gain_quantiles"]["0.9"], 7);
}

TEST(ResultsTest, JsonHasMeasuredNextToPredicted) {
  const auto json = ToJson(Results());
  EXPECT_EQ(json["depth_slope"]["predicted"], -0.5);
  EXPECT_EQ(json["depths"][0]["stream"][2]["predicted"][1], 4.0);
  EXPECT_EQ(json["depths"][0]["gains"][0]["predicted"], 2.0);
  EXPECT_EQ(json["route"], "normed_input");
}

TEST(ResultsTest, NonFiniteValuesAreNullOrMissing) {
  TheoryResults results = Results();
  for (Measurement& depth : results.depths) {
    depth.stream[1].mean = std::numeric_limits<double>::quiet_NaN();
    depth.gradients[1].value.mean = std::numeric_limits<double>::infinity();
  }
  EXPECT_TRUE(ToJson(results)["depths"][0]["stream"][1]["value"].is_null());
  EXPECT_TRUE(ToJson(results)["depth_slope"]["measured"].is_null());
  EXPECT_THAT(ToText(results), Not(HasSubstr("nan")));
  EXPECT_THAT(ToText(results), Not(HasSubstr("inf")));
}

}  // namespace
}  // namespace plumb::cli
