// SPDX-License-Identifier: Apache-2.0
// Tests of the tensors of norms through the public headers: descriptions and checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/client/model.h"
#include "runtime/formats/safetensors.h"
#include "runtime/train/train_run.h"
#include "tests/app/test_run.h"
#include "tests/plugin/test_norm.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::string ModelText(const std::string& plugin) {
  return absl::StrCat(
      "n_layer: 2 n_head: 2 d_model: 8 context_length: 10\n"
      "norm { name: \"n\" plugin: \"",
      plugin, "\" allow_cross_token: true }\nblock { placement: \"pre\" norm: \"n\" }\n");
}

class NormBuffersTest : public ::testing::Test {
 protected:
  NormBuffersTest() { test_.dir().Write("model.pbtxt", ModelText("batch_norm")); }

  api::Model Make(const std::string& plugin) const {
    return TryModel(test_.runtime(), absl::StrCat(ModelText(plugin), "\nvocab_size: 6")).value();
  }

  const TestRun test_;
};

TEST_F(NormBuffersTest, PluginDescriptionShowsParameterOffsets) {
  plumb_tensor_def weight{};
  weight.name = "weight";
  weight.ndim = 1;
  weight.dims[0] = 4;
  weight.lr_scale = 1;
  weight.offset = 1;
  test_norm::layout_answer = {};
  test_norm::layout_answer.tensor_stride = sizeof(plumb_tensor_def);
  test_norm::layout_answer.n_params = 1;
  test_norm::layout_answer.params = &weight;
  static const plumb_norm_plugin table = test_norm::Table();
  ASSERT_TRUE(test_.runtime()->api().RegisterPlugin(&table).ok());
  const auto text = ToStatus(test_.runtime()->api().DescribePlugin("org.example.test"));
  ASSERT_TRUE(text.ok()) << text.status();
  const nlohmann::json info = nlohmann::json::parse(*text);
  ASSERT_EQ(info["parameters"].size(), 1u);
  EXPECT_EQ(info["parameters"][0]["offset"], 1);
}

TEST_F(NormBuffersTest, CheckpointHasBuffersWithoutMoments) {
  const auto run = test_.Open(test_.Request(test_.out()));
  TestRun::Steps(run.get(), 8);
  const std::string checkpoint = absl::StrCat(test_.out(), "/checkpoints/step-000008/");
  const auto model = SafetensorsFile::Open(checkpoint + "model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status();
  const TensorEntry* mean = model->Find("layers.0.attention.norm.running_mean");
  ASSERT_NE(mean, nullptr);
  EXPECT_EQ(mean->dtype, "F32");
  EXPECT_EQ(mean->shape, Shape({8}));
  std::vector<float> values(8);
  ASSERT_TRUE(model->Read(mean->name, F32({8}), values.data()).ok());
  EXPECT_THAT(values, Not(ElementsAre(0, 0, 0, 0, 0, 0, 0, 0)));
  const auto optimizer = SafetensorsFile::Open(checkpoint + "optimizer.safetensors");
  ASSERT_TRUE(optimizer.ok()) << optimizer.status();
  for (const TensorEntry& tensor : optimizer->tensors()) {
    EXPECT_THAT(tensor.name, Not(HasSubstr("running_")));
  }
}

TEST_F(NormBuffersTest, LoadRefusesMissingAndSurplusBuffers) {
  const std::string path = test_.dir().File("w.safetensors");
  api::Model model = Make("batch_norm"), other = Make("layer_norm");
  ASSERT_TRUE(model.Init(1).ok());
  ASSERT_TRUE(model.Save(path).ok());
  EXPECT_TRUE(model.Load(path).ok());
  const absl::Status surplus = ToStatus(other.Load(path));
  EXPECT_THAT(std::string(surplus.message()),
              HasSubstr("surplus: layers.0.attention.norm.running_mean"));
  ASSERT_TRUE(other.Init(1).ok());
  ASSERT_TRUE(other.Save(path).ok());
  const absl::Status missing = ToStatus(model.Load(path));
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("missing: layers.0.attention.norm.running_mean f32[8]"));
}

}  // namespace
}  // namespace plumb
