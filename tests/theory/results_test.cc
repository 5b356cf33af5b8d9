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
  EXPECT_DOUBLE_EQ(FirstOverLast(results.depths[1]), 4);
  EXPECT_DOUBLE_EQ(TotalGain(results.depths[1]), 6);
  EXPECT_TRUE(std::isnan(LogLogSlope({8, 8}, {1, 2}))) << "one depth has no slope";
  EXPECT_TRUE(std::isnan(LogLogSlope({1, 2}, {0, 2}))) << "0 has no logarithm";
}

TEST(ResultsTest, JsonHasMeasuredBesidePredicted) {
  const auto json = ToJson(Results());
  EXPECT_EQ(json["depth_slope"]["predicted"], -0.5);
  EXPECT_EQ(json["depths"][0]["stream"][2]["predicted"][1], 4.0);
  EXPECT_EQ(json["depths"][0]["gains"][0]["predicted"], 2.0);
  EXPECT_EQ(json["route"], "normed_input");
}

TEST(ResultsTest, WhatIsNotFiniteIsNullAndShownAsMissing) {
  TheoryResults results = Results();
  for (Measurement& depth : results.depths) {
    depth.stream[1].mean = std::numeric_limits<double>::quiet_NaN();
    depth.gradients[1].value.mean = std::numeric_limits<double>::infinity();
  }
  EXPECT_TRUE(ToJson(results)["depths"][0]["stream"][1]["value"].is_null());
  EXPECT_TRUE(ToJson(results)["depth_slope"]["measured"].is_null());
  for (const std::string& text : {ToText(results), ToCsv(results), ToPage(results)}) {
    EXPECT_THAT(text, Not(HasSubstr("nan")));
    EXPECT_THAT(text, Not(HasSubstr("inf,")));
  }
}

TEST(ResultsTest, CsvHasALineForEveryNumber) {
  EXPECT_THAT(ToCsv(Results()), HasSubstr("2,stream,2,\"v_2\",4,0.1,2,4\r\n"));
  EXPECT_THAT(ToCsv(Results()), HasSubstr("8,gain,1,\"layers.0.mlp\",3,,1.5,1.5\r\n"));
}

TEST(ResultsTest, ThePageIsWholeAndNamesAreText) {
  const std::string page = ToPage(Results());
  EXPECT_THAT(page, HasSubstr("&lt;script&gt;alert(&quot;m&quot;)"));
  for (const char* absent : {"<script", "http://", "https://", "src="}) {
    EXPECT_THAT(page, Not(HasSubstr(absent)));
  }
  EXPECT_THAT(page, HasSubstr("measured, slope -0.500"));
  EXPECT_THAT(page, HasSubstr("</html>\n"));
}

}  // namespace
}  // namespace plumb::cli
