// SPDX-License-Identifier: Apache-2.0
#include "cli/theory/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/app/test_models.h"

namespace plumb::cli {
namespace {

using ::testing::HasSubstr;

class PredictTest : public ::testing::Test {
 protected:
  Reading Read(const std::string& placement, const std::string& more = "") {
    TinyModel tiny;
    tiny.placement = placement;
    tiny.more = more;
    const auto model = TryModel(runtime_.get(), tiny.Text());
    EXPECT_TRUE(model.ok()) << model.status();
    return ReadModel(DescribeModel(*model).value());
  }
  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
};

TEST_F(PredictTest, RoutesFollowTheEquations) {
  EXPECT_EQ(Read("pre").route, Route::kNormedInput);
  EXPECT_EQ(Read("parallel").route, Route::kNormedInput);
  EXPECT_EQ(Read("post").route, Route::kThroughNorms);
  EXPECT_EQ(Read("double").route, Route::kNormedOutput);
  EXPECT_EQ(Read("olmo2").route, Route::kNormedOutput);
  EXPECT_EQ(Read("none").route, Route::kNoNorm);
}

TEST_F(PredictTest, PlacementNamesDoNotMatter) {
  // The placement has the name of another one.
  const Reading reading = Read("post", R"text(
    placement { name: "post" each: "y = norm(x)" each: "x = x + f(y)" end: "x = norm(x)" })text");
  EXPECT_EQ(reading.route, Route::kNormedInput);
}

TEST_F(PredictTest, PredictsOnlyCoveredModels) {
  // These have scales, a gate, a scale that depends on the layer, a condition, two streams, or a
  // mixture.
  for (const char* placement : {"deepnorm", "keel", "rezero", "layer_scale", "scaled_residual",
                                "ln_scaling", "swin_v2", "resi_dual", "b2t", "hybrid_norm"}) {
    const Reading reading = Read(placement);
    EXPECT_EQ(reading.route, Route::kOther) << placement;
    EXPECT_FALSE(PredictStream(reading, 1, 3).has_value()) << placement;
    EXPECT_FALSE(PredictDepthSlope(reading).has_value()) << placement;
    EXPECT_FALSE(PredictGain(reading, {"layers.0.mlp", 1, 1, 2}).has_value()) << placement;
  }
}

TEST_F(PredictTest, EachRouteHasItsPrediction) {
  const Reading pre = Read("pre"), post = Read("post"), twice = Read("double");
  EXPECT_EQ(PredictStream(pre, 1, 4)->low, 3);
  EXPECT_EQ(PredictStream(pre, 1, 4)->high, 7);
  EXPECT_EQ(PredictStream(post, 2, 0)->high, 2) << "before the first norm";
  EXPECT_EQ(PredictStream(post, 2, 4)->high, 1);
  EXPECT_EQ(PredictStream(twice, 1, 4)->low, 9) << "two sublayers a layer";
  EXPECT_EQ(PredictDepthSlope(pre), -0.5);
  EXPECT_EQ(PredictDepthSlope(post), 0);
  EXPECT_FALSE(PredictDepthSlope(Read("none")).has_value());
  EXPECT_DOUBLE_EQ(*PredictGain(pre, {"layers.0.mlp", 1, 2, 3}), std::sqrt(1.5));
}

TEST_F(PredictTest, NamesDifferencesFromTheTheory) {
  const Reading reading = Read("pre");
  ASSERT_EQ(reading.caveats.size(), 2u) << "d_ff is 12 of 8, and weights are PyTorch's";
  EXPECT_THAT(reading.caveats[0], HasSubstr("d_ff is 1.5 d_model"));
  EXPECT_THAT(reading.caveats[1], HasSubstr("the variance of Xavier"));
  EXPECT_EQ(Read("pre", R"(init { match: "layers.*.weight" xavier_normal {} })").caveats.size(),
            1u);
}

}  // namespace
}  // namespace plumb::cli
