// SPDX-License-Identifier: Apache-2.0
// Tests of the buffers of norms through the public headers: descriptions, run directories,
// checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/formats/safetensors.h"
#include "runtime/train/train_run.h"
#include "runtime/train/trained_model.h"
#include "tests/app/test_run.h"
#include "tests/plugin/test_norm.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string ModelText(const std::string& plugin) {
  return absl::StrCat(
      "n_layer: 2 n_head: 2 d_model: 8 context_length: 10\n"
      "norm { name: \"n\" plugin: \"",
      plugin, "\" allow_cross_token: true }\nblock { placement: \"pre\" norm: \"n\" }\n");
}

class NormBuffersTest : public ::testing::Test {
 protected:
  NormBuffersTest() {
    EXPECT_TRUE(test_.runtime()->api().RegisterPlugin(CenteringNorm()).ok());
    EXPECT_TRUE(test_.runtime()->api().RegisterPlugin(CenteringEvalNorm()).ok());
    WriteModel("batch_norm");
  }

  void WriteModel(const std::string& plugin) const {
    test_.dir().Write("model.pbtxt", ModelText(plugin));
  }
  api::Model Make(const std::string& plugin) const {
    return TryModel(test_.runtime(), absl::StrCat(ModelText(plugin), "\nvocab_size: 6")).value();
  }
  nlohmann::json Describe(const std::string& plugin) const {
    const auto text = ToStatus(test_.runtime()->api().DescribePlugin(plugin));
    EXPECT_TRUE(text.ok()) << text.status();
    return nlohmann::json::parse(text.value_or("{}"));
  }
  std::string Content(const std::string& name) const {
    const auto content = ReadFile(test_.dir().File(name));
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? *content : "";
  }

  const TestRun test_;
};

TEST_F(NormBuffersTest, DescribeCountsBuffersSeparately) {
  const nlohmann::ordered_json with = DescribeModel(Make("batch_norm")).value();
  // Its parameters are weight and bias, the same as batch_norm's.
  const nlohmann::ordered_json without = DescribeModel(Make("layer_norm")).value();
  EXPECT_EQ(with["totals"]["parameters"], without["totals"]["parameters"]);
  EXPECT_EQ(with["tensors"].size(), without["tensors"].size());
  EXPECT_EQ(without["buffers"].size(), 0u);
  EXPECT_EQ(without["totals"]["buffer_elements"], 0);
  int64_t elements = 0;
  std::vector<std::string> names;
  for (const auto& buffer : with["buffers"]) {
    EXPECT_EQ(buffer["role"], "buffer");
    elements += buffer["elements"].get<int64_t>();
    names.push_back(buffer["name"]);
  }
  EXPECT_EQ(with["totals"]["buffer_elements"], elements);
  EXPECT_THAT(names,
              AllOf(Contains("layers.0.attention.norm.running_mean"),
                    Contains("layers.1.mlp.norm.running_var"), Contains("end.norm.running_mean")));
}

TEST_F(NormBuffersTest, PluginDescriptionListsBuffers) {
  const nlohmann::json info = Describe("test.centering_eval");
  EXPECT_EQ(info["parameters"].size(), 0u);
  ASSERT_EQ(info["buffers"].size(), 2u);
  EXPECT_EQ(info["buffers"][0]["name"], "running_mean");
  EXPECT_EQ(info["buffers"][0]["shape"], "[dim]");
  EXPECT_EQ(info["buffers"][0]["init"], "zeros");
  using List = std::vector<std::string>;
  EXPECT_EQ(info["traits"], List({"cross-row", "cross-row in evaluation"}));
  EXPECT_EQ(info["dtypes"], List({"f32"}));
  EXPECT_EQ(Describe("test.centering")["traits"], List({"cross-row", "shift-invariant"}));
}

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
  const nlohmann::json info = Describe("org.example.test");
  ASSERT_EQ(info["parameters"].size(), 1u);
  EXPECT_EQ(info["parameters"][0]["offset"], 1);
}

TEST_F(NormBuffersTest, CrossTokenPermissionWarnsOncePerRun) {
  test_.runtime()->TakeWarnings();
  test_.Open(test_.Request(test_.out()));
  const std::vector<std::string> warnings = test_.runtime()->TakeWarnings();
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("model.pbtxt:2:"), HasSubstr("norm \"n\""),
                                          HasSubstr("takes statistics over tokens"))));
  test_.Open(test_.Request(""));
  EXPECT_THAT(test_.runtime()->TakeWarnings(), IsEmpty());
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

TEST_F(NormBuffersTest, ResumedRunHasTheSameBits) {
  const auto whole = test_.Open(test_.Request(test_.dir().File("whole")));
  TestRun::Steps(whole.get(), 8);
  {
    const auto half = test_.Open(test_.Request(test_.out()));
    TestRun::Steps(half.get(), 3);
    ASSERT_TRUE(half->SaveCheckpoint().ok());
  }
  const auto rest = test_.Open(test_.Resume());
  EXPECT_EQ(rest->step(), 3);
  TestRun::Steps(rest.get(), 5);
  for (const char* file : {"model.safetensors", "optimizer.safetensors"}) {
    const std::string path = absl::StrCat("checkpoints/step-000008/", file);
    EXPECT_EQ(Content("run/" + path), Content("whole/" + path)) << file;
  }
}

TEST_F(NormBuffersTest, EvaluationAndSamplingReadBuffers) {
  const auto run = test_.Open(test_.Request(test_.out()));
  TestRun::Steps(run.get(), 8);
  const auto expected = run->ValidationLoss();
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto trained = TrainedModel::Open(test_.runtime(), test_.out());
  ASSERT_TRUE(trained.ok()) << trained.status();
  const auto losses = (*trained)->Evaluate(test_.dir().File("data.txt"));
  ASSERT_TRUE(losses.ok()) << losses.status();
  ASSERT_EQ(losses->size(), 2u);
  // Batches of another size would change the losses if the statistics were the batch's.
  EXPECT_NEAR((*losses)[1].loss, *expected, 1e-5);
  GenerateOptions options;
  options.max_tokens = 5;
  const auto sample = (*trained)->Generate(options);
  EXPECT_TRUE(sample.ok()) << sample.status();
}

TEST_F(NormBuffersTest, BatchStatisticsNormsCannotSample) {
  WriteModel("test.centering_eval");
  const auto run = test_.Open(test_.Request(test_.out()));
  TestRun::Steps(run.get(), 8);
  auto trained = TrainedModel::Open(test_.runtime(), test_.out());
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_TRUE((*trained)->Evaluate(test_.dir().File("data.txt")).ok());
  const absl::Status status = (*trained)->Generate(GenerateOptions()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("norm \"n\" (test.centering_eval)"));
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

// A batch with gradients is run as a training step and one without as an evaluation. Neither
// changes the model.
TEST_F(NormBuffersTest, GradientsSelectTheTrainingPass) {
  api::Model model = Make("test.centering");
  ASSERT_TRUE(model.Init(1).ok());
  const Tokens tokens = RandomTokens(2, 6, 6);
  const auto evaluation = RunTokens(&model, {tokens}, /*with_gradients=*/false);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_THAT(evaluation->gradients, IsEmpty());
  const auto training = RunTokens(&model, {tokens});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_GT(training->gradients.size(), 0u);
  EXPECT_NE(training->loss, evaluation->loss);
  EXPECT_EQ(RunTokens(&model, {tokens}, false)->loss, evaluation->loss);
  EXPECT_EQ(RunTokens(&model, {tokens})->loss, training->loss);
}

}  // namespace
}  // namespace plumb
