// SPDX-License-Identifier: Apache-2.0
// Tests of the shipped norms beyond their equations: parameters, refused attributes, edge cases.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/plugin/built_plugins.h"
#include "tests/plugin/norm_harness.h"

namespace plumb {
namespace {

TEST(ShippedNormsTest, AreInstalled) {
  for (const char* id :
       {"batch_norm", "derf", "dyt", "group_norm", "l2_norm", "layer_norm", "none",
        "org.example.l2_norm", "p_rms_norm", "power_norm", "rms_norm", "scale_norm", "std_norm"}) {
    ASSERT_NE(FindBuilt(id), nullptr) << id;
  }
  EXPECT_EQ(FindBuilt("rms_norm")->Instantiate(16, {}).value()->ToString(),
            "rms_norm(affine=true, eps=1e-05, unit_offset=false)[16]");
}

TEST(ShippedNormsTest, HaveTheParametersOfTheirPapers) {
  const auto params = [](const char* id, const NormAttrs& attrs) {
    std::string text;
    const auto instance = FindBuilt(id)->Instantiate(16, attrs).value();
    for (const NormParam& p : instance->params()) {
      absl::StrAppend(&text, p.name, " ", p.InitToString(), "; ");
    }
    return text;
  };
  EXPECT_EQ(params("layer_norm", {}), "weight ones; bias zeros; ");
  EXPECT_EQ(params("layer_norm", {{"bias", false}}), "weight ones; ");
  EXPECT_EQ(params("layer_norm", {{"affine", false}}), "");
  EXPECT_EQ(params("rms_norm", {}), "weight ones; ");
  EXPECT_EQ(params("rms_norm", {{"unit_offset", true}}), "weight zeros; ");
  EXPECT_EQ(params("none", {}), "");
  EXPECT_EQ(params("scale_norm", {}), "scale constant(4); ");
  EXPECT_EQ(params("l2_norm", {}), "");
  EXPECT_EQ(params("p_rms_norm", {}), "weight ones; ");
  EXPECT_EQ(params("group_norm", {{"groups", 4.0}}), "weight ones; bias zeros; ");
  EXPECT_EQ(params("group_norm", {{"affine", false}}), "");
  EXPECT_EQ(params("std_norm", {}), "weight ones; bias zeros; ");
  EXPECT_EQ(params("dyt", {}), "alpha constant(0.5); weight ones; bias zeros; ");
  EXPECT_EQ(params("dyt", {{"alpha_init", 0.2}, {"bias", false}}),
            "alpha constant(0.2); weight ones; ");
  EXPECT_EQ(params("derf", {{"affine", false}}), "alpha constant(0.5); shift constant(0); ");
}

TEST(ShippedNormsTest, RefuseInvalidDimensions) {
  const auto refusal = [](const char* id, int64_t dim, const NormAttrs& attrs) {
    const absl::Status status = FindBuilt(id)->Instantiate(dim, attrs).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  };
  EXPECT_THAT(refusal("group_norm", 10, {{"groups", 4.0}}),
              ::testing::HasSubstr("groups is 4, and must divide dim, which is 10"));
  EXPECT_THAT(refusal("std_norm", 1, {}), ::testing::HasSubstr("unbiased"));
  EXPECT_TRUE(FindBuilt("std_norm")->Instantiate(1, {{"unbiased", false}}).ok());
}

// A row of zeros has no direction. With eps, a small step has a gradient.
TEST(ShippedNormsTest, L2NormOfZerosHasNoGradient) {
  const auto run = [](const NormAttrs& attrs) {
    const auto instance = FindBuilt("l2_norm")->Instantiate(3, attrs).value();
    NormHarness<float> harness(*instance, 1);
    NormValues<float> v = harness.Random(12);
    v.x = {0, 0, 0};
    v.dy = {1, 2, 3};
    harness.Run(&v);
    EXPECT_THAT(v.y, ::testing::Each(0.0f));
    return v.dx;
  };
  EXPECT_THAT(run({}), ::testing::Each(0.0f));
  EXPECT_THAT(run({{"eps", 0.5}}), ::testing::ElementsAre(2, 4, 6));
}

TEST(ShippedNormsTest, RmsNormRefusesAnOffsetOfNoGain) {
  const absl::Status status =
      FindBuilt("rms_norm")->Instantiate(16, {{"affine", false}, {"unit_offset", true}}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), ::testing::HasSubstr("unit_offset"));
}

// The header determines the order of sums, independently of the instruction set. dyt and derf use
// PLUMB_FMA.
TEST(NormRowsTest, GiveTheSameBitsAtEveryLevel) {
  for (const char* id : {"group_norm", "l2_norm", "layer_norm", "p_rms_norm", "rms_norm",
                         "scale_norm", "std_norm"}) {
    for (const int64_t dim : {2, 31, 33, 64, 100, 768}) {
      std::vector<NormValues<float>> results;
      for (const int level : {0, 1, 3}) {
        const auto instance = FindBuilt(id, level)->Instantiate(dim, {}).value();
        NormHarness<float> harness(*instance, 5);
        NormValues<float> v = harness.Random(4);
        harness.Run(&v);
        results.push_back(v);
      }
      for (const int level : {0, 1}) {
        EXPECT_EQ(results[level].y, results[2].y) << id << " dim " << dim << " level " << level;
        EXPECT_EQ(results[level].dx, results[2].dx) << id << " dim " << dim << " level " << level;
        EXPECT_EQ(results[level].dparams, results[2].dparams) << id << " dim " << dim;
      }
    }
  }
}

}  // namespace
}  // namespace plumb
