// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/file.h"
#include "runtime/formats/safetensors.h"
#include "tests/app/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

class ModelTest : public ::testing::Test {
 protected:
  api::Model Make(const TinyModel& tiny) {
    return TryModel(runtime_.get(), tiny.Text(), "tiny.pbtxt").value();
  }

  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
  ScratchDir dir_;
};

TEST_F(ModelTest, DescribesAModel) {
  TinyModel tiny;
  tiny.placement = "peri";
  const auto described = DescribeModel(Make(tiny));
  ASSERT_TRUE(described.ok()) << described.status();
  const nlohmann::ordered_json& description = *described;
  EXPECT_EQ(description["name"], "tiny");
  const nlohmann::ordered_json dims = {{"n_layer", 2},    {"n_head", 2},        {"n_kv_head", 2},
                                       {"d_model", 8},    {"d_ff", 12},         {"head_dim", 4},
                                       {"vocab_size", 5}, {"context_length", 8}};
  EXPECT_EQ(description["dims"], dims);
  EXPECT_EQ(description["positions"], "learned");
  EXPECT_EQ(description["tied"], false);
  EXPECT_EQ(description["begin"][0], "begin: x = norm(x)");
  EXPECT_EQ(description["end"][0], "end: x = norm(x)");
  ASSERT_EQ(description["layers"].size(), 1u);
  EXPECT_EQ(description["layers"][0]["last"], 1);
  EXPECT_EQ(description["identity_route"], "through 1 norm");
  EXPECT_EQ(description["norms_before_head"], 1);
  EXPECT_EQ(description["norm_sites"], 10);
  int64_t sum = 0;
  for (const auto& tensor : description["tensors"]) sum += tensor["elements"].get<int64_t>();
  EXPECT_EQ(description["totals"]["parameters"], sum);
  // Token and position embeddings and the head; attention and MLP of two layers; ten norms.
  EXPECT_EQ(sum, 40 + 64 + 40 + 2 * (256 + 192) + 10 * 8);
  EXPECT_EQ(description["totals"]["weight_bytes"], 4 * sum);
  const auto& norm = description["tensors"][2];
  EXPECT_EQ(norm["name"], "begin.norm.weight");
  EXPECT_EQ(norm["role"], "norm");
  EXPECT_EQ(norm["init"], "constant(1)");
  EXPECT_EQ(norm["shape"].dump(), "[8]");
}

TEST_F(ModelTest, SourceIsAValue) {
  const ModelSource source = {TinyModel().Text(), "tiny.pbtxt", {}};
  ModelSource other = source;
  other.settings = {{"n_layer", "3"}, {"vocab_size", "0"}};
  const auto spec = source.Parse(), changed = other.Parse();
  ASSERT_TRUE(spec.ok() && changed.ok()) << spec.status() << changed.status();
  EXPECT_EQ(VocabSizeOf(*changed), 0);
  EXPECT_EQ(VocabSizeOf(*spec), 5);
  EXPECT_THAT(changed->Text().value(), HasSubstr("n_layer: 3"));
  EXPECT_THAT(spec->Text().value(), HasSubstr("n_layer: 2"));
  other.settings = {{"n_layers", "3"}};
  EXPECT_THAT(std::string(other.Parse().status().message()), HasSubstr("model.n_layers"));
  EXPECT_THAT(std::string(ModelSource{"n_layer: x", "bad.pbtxt", {}}.Parse().status().message()),
              HasSubstr("bad.pbtxt:1:"));
  EXPECT_EQ(ReadSpec(dir_.File("missing.pbtxt")).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(ModelTest, GradientNormsEqualTheGradients) {
  api::Model model = Make(TinyModel());
  ASSERT_TRUE(model.Init(1).ok());
  const auto outputs = RunTokens(&model, {RandomTokens(2, 5, 5)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_FALSE(outputs->gradients.empty());
  for (const ModelOutputs::Gradient& gradient : outputs->gradients) {
    double square = 0;
    for (float g : gradient.data) square += std::pow(static_cast<double>(g), 2);
    EXPECT_NEAR(gradient.l2, std::sqrt(square), 1e-9) << gradient.name;
  }
  const std::string path = dir_.File("logits.safetensors");
  ASSERT_TRUE(outputs->WriteLogits(path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_NE(file->Find("logits"), nullptr);
  EXPECT_EQ(file->Find("logits")->shape, Shape({2, 5, 5}));
}

TEST_F(ModelTest, AModelNeedsAVocabularyToBeBuilt) {
  TinyModel tiny;
  tiny.vocab_size = 0;
  const auto model = TryModel(runtime_.get(), tiny.Text());
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("vocab_size"));
}

}  // namespace
}  // namespace plumb
