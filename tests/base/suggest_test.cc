// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/diagnostics.h"

#include <gtest/gtest.h>

namespace plumb {
namespace {

std::string Meant(const std::string& name) { return "; did you mean \"" + name + "\"?"; }

TEST(DidYouMeanTest, FindsTypos) {
  const std::vector<std::string> names = {"layer_norm", "none", "rms_norm"};
  EXPECT_EQ(DidYouMean("rmsnorm", names), Meant("rms_norm"));    // a character is missing
  EXPECT_EQ(DidYouMean("rms_nrom", names), Meant("rms_norm"));   // two are swapped
  EXPECT_EQ(DidYouMean("rms_norrm", names), Meant("rms_norm"));  // one is doubled
  EXPECT_EQ(DidYouMean("rmz_norm", names), Meant("rms_norm"));   // one is replaced
  EXPECT_EQ(DidYouMean("RMS-Norm", names), Meant("rms_norm"));   // spelled differently
  EXPECT_EQ(DidYouMean("Layer Norm", names), Meant("layer_norm"));
}

TEST(DidYouMeanTest, SuggestsNothingIfNothingIsNear) {
  const std::vector<std::string> names = {"layer_norm", "none", "rms_norm"};
  EXPECT_EQ(DidYouMean("attention", names), "");
  EXPECT_EQ(DidYouMean("", names), "");
  EXPECT_EQ(DidYouMean("rms_norm", {}), "");
  EXPECT_EQ(DidYouMean("y", {"x"}), "");  // names of one letter have no letter in common
  EXPECT_EQ(DidYouMean("", {"x"}), "");
  EXPECT_EQ(DidYouMean("X", {"x"}), Meant("x"));
}

TEST(DidYouMeanTest, FindsPrefixes) {
  EXPECT_EQ(DidYouMean("prenorm", {"post", "pre"}), Meant("pre"));
  EXPECT_EQ(DidYouMean("rms", {"layer_norm", "rms_norm"}), Meant("rms_norm"));
  EXPECT_EQ(DidYouMean("ln", {"ln_scaling"}), "");  // too short to compare
}

TEST(DidYouMeanTest, PrefersTyposToPrefixes) {
  EXPECT_EQ(DidYouMean("rms_nrom", {"rms", "rms_norm"}), Meant("rms_norm"));
  EXPECT_EQ(DidYouMean("rms_nrom", {"rms_norm", "rms"}), Meant("rms_norm"));
  EXPECT_EQ(DidYouMean("layers", {"layer", "layer_norm"}), Meant("layer"));
  EXPECT_EQ(DidYouMean("n_layers", {"n_layer", "n_lay"}), Meant("n_layer"));
}

TEST(DidYouMeanTest, KnowsNamesWithoutTheirQualifiers) {
  const std::vector<std::string> names = {"max_norm", "org.example.mix_norm"};
  EXPECT_EQ(DidYouMean("mix_norm", names), Meant("org.example.mix_norm"));
  EXPECT_EQ(DidYouMean("x_norm", names), Meant("max_norm"));  // no whole word
}

TEST(DidYouMeanTest, TiesGoToTheFirstName) {
  EXPECT_EQ(DidYouMean("norm_3", {"norm_1", "norm_2"}), Meant("norm_1"));
}

TEST(DidYouMeanTest, LongTextIsFast) {
  const std::string long_name(100000, 'a');
  EXPECT_EQ(DidYouMean(long_name, {"a", long_name}), "");
  EXPECT_EQ(DidYouMean("aaaa", {long_name}), "");
}

}  // namespace
}  // namespace plumb
