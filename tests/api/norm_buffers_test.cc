// The buffers of norms through the public headers: descriptions, run directories, checkpoints.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/io/safetensors.h"
#include "runtime/tools/generate.h"
#include "runtime/tools/model.h"
#include "runtime/tools/train.h"
#include "tests/api/test_run.h"
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
    EXPECT_TRUE(test_.runtime()->RegisterPlugin(CenteringNorm()).ok());
    EXPECT_TRUE(test_.runtime()->RegisterPlugin(CenteringEvalNorm()).ok());
    WriteModel("batch_norm");
  }

  void WriteModel(const std::string& plugin) const {
    test_.dir().Write("model.pbtxt", ModelText(plugin));
  }
  std::unique_ptr<Model> CreateModel(const std::string& plugin) const {
    absl::StatusOr<Spec> spec = Spec::FromText(ModelText(plugin), "m.pbtxt");
    EXPECT_TRUE(spec->Set("vocab_size", "6").ok());
    auto model = Model::Create(test_.runtime(), *spec);
    EXPECT_TRUE(model.ok()) << model.status();
    return *std::move(model);
  }
  std::string Content(const std::string& name) const {
    const auto content = ReadFile(test_.dir().File(name));
    EXPECT_TRUE(content.ok()) << content.status();
    return content.ok() ? *content : "";
  }

  const TestRun test_;
};

TEST_F(NormBuffersTest, AModelsDescriptionCountsThemByThemselves) {
  const auto with = CreateModel("batch_norm")->Describe();
  ASSERT_TRUE(with.ok()) << with.status();
  const auto without = CreateModel("layer_norm")->Describe();  // weight and bias, as batch_norm
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(with->parameters, without->parameters);
  EXPECT_EQ(with->tensors.size(), without->tensors.size());
  EXPECT_THAT(without->buffers, IsEmpty());
  EXPECT_EQ(without->buffer_elements, 0);
  int64_t elements = 0;
  std::vector<std::string> names;
  for (const TensorInfo& buffer : with->buffers) {
    EXPECT_EQ(buffer.role, "buffer");
    elements += buffer.elements;
    names.push_back(buffer.name);
  }
  EXPECT_EQ(with->buffer_elements, elements);
  EXPECT_THAT(names,
              AllOf(Contains("layers.0.attention.norm.running_mean"),
                    Contains("layers.1.mlp.norm.running_var"), Contains("end.norm.running_mean")));
}

TEST_F(NormBuffersTest, APluginsDescriptionShowsThem) {
  const auto info = test_.runtime()->DescribePlugin("test.centering_eval");
  ASSERT_TRUE(info.ok()) << info.status();
  EXPECT_THAT(info->parameters, IsEmpty());
  ASSERT_EQ(info->buffers.size(), 2u);
  EXPECT_EQ(info->buffers[0].name, "running_mean");
  EXPECT_EQ(info->buffers[0].shape, "[dim]");
  EXPECT_EQ(info->buffers[0].init, "zeros");
  EXPECT_THAT(info->traits, ElementsAre("cross-row", "cross-row in evaluation"));
  EXPECT_THAT(info->dtypes, ElementsAre("f32"));
  EXPECT_THAT(test_.runtime()->DescribePlugin("test.centering")->traits,
              ElementsAre("cross-row", "shift-invariant"));
}

TEST_F(NormBuffersTest, APluginsDescriptionSaysWhatIsAddedToAParameter) {
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
  ASSERT_TRUE(test_.runtime()->RegisterPlugin(&table).ok());
  const auto info = test_.runtime()->DescribePlugin("org.example.test");
  ASSERT_TRUE(info.ok()) << info.status();
  ASSERT_EQ(info->parameters.size(), 1u);
  EXPECT_EQ(info->parameters[0].offset, 1);
}

TEST_F(NormBuffersTest, ThePermissionIsAWarningOnceForARun) {
  test_.runtime()->TakeWarnings();
  test_.Open(test_.Request(test_.out()));
  const std::vector<std::string> warnings = test_.runtime()->TakeWarnings();
  EXPECT_THAT(warnings, ElementsAre(AllOf(HasSubstr("model.pbtxt:2:"), HasSubstr("norm \"n\""),
                                          HasSubstr("takes statistics over tokens"))));
  test_.Open(test_.Request(""));
  EXPECT_THAT(test_.runtime()->TakeWarnings(), IsEmpty());
}

TEST_F(NormBuffersTest, ACheckpointHoldsThemByNameAndNoMoments) {
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

TEST_F(NormBuffersTest, ARunThatIsResumedIsTheRunThatWasNotBitForBit) {
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

TEST_F(NormBuffersTest, ATrainedModelEvaluatesAndSamplesWithThem) {
  const auto run = test_.Open(test_.Request(test_.out()));
  TestRun::Steps(run.get(), 8);
  const auto expected = run->ValidationLoss();
  ASSERT_TRUE(expected.ok()) << expected.status();
  auto trained = TrainedModel::Open(test_.runtime(), test_.out());
  ASSERT_TRUE(trained.ok()) << trained.status();
  const auto losses = (*trained)->Evaluate(test_.dir().File("data.txt"));
  ASSERT_TRUE(losses.ok()) << losses.status();
  ASSERT_EQ(losses->size(), 2u);
  // Batches of other sizes: with statistics of the batch the losses would differ.
  EXPECT_NEAR((*losses)[1].loss, *expected, 1e-5);
  GenerateOptions options;
  options.max_tokens = 5;
  const auto sample = (*trained)->Generate(options);
  EXPECT_TRUE(sample.ok()) << sample.status();
}

TEST_F(NormBuffersTest, WhatTakesStatisticsInEvaluationTooIsEvaluatedButNotSampled) {
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

TEST_F(NormBuffersTest, WeightFilesAreReadAsStrictlyAsWithoutThem) {
  const std::string path = test_.dir().File("w.safetensors");
  const auto model = CreateModel("batch_norm");
  ASSERT_TRUE(model->Init(1).ok());
  ASSERT_TRUE(model->SaveWeights(path).ok());
  EXPECT_TRUE(model->LoadWeights(path).ok());
  const absl::Status surplus = CreateModel("layer_norm")->LoadWeights(path);
  EXPECT_THAT(std::string(surplus.message()),
              HasSubstr("surplus: layers.0.attention.norm.running_mean"));
  const auto other = CreateModel("layer_norm");
  ASSERT_TRUE(other->Init(1).ok());
  ASSERT_TRUE(other->SaveWeights(path).ok());
  const absl::Status missing = model->LoadWeights(path);
  EXPECT_EQ(missing.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("missing: layers.0.attention.norm.running_mean f32[8]"));
}

// With gradients a batch is a training step's, without an evaluation's; neither changes the model.
TEST_F(NormBuffersTest, ABatchIsRunAsInTrainingOrAsInEvaluation) {
  const auto model = CreateModel("test.centering");
  ASSERT_TRUE(model->Init(1).ok());
  const Tokens tokens = RandomTokens(2, 6, 6);
  const auto evaluation = model->Run({tokens}, /*with_gradients=*/false);
  ASSERT_TRUE(evaluation.ok()) << evaluation.status();
  EXPECT_THAT(evaluation->gradients, IsEmpty());
  const auto training = model->Run({tokens});
  ASSERT_TRUE(training.ok()) << training.status();
  EXPECT_GT(training->gradients.size(), 0u);
  EXPECT_NE(training->loss, evaluation->loss);
  EXPECT_EQ(model->Run({tokens}, false)->loss, evaluation->loss);
  EXPECT_EQ(model->Run({tokens})->loss, training->loss);
}

}  // namespace
}  // namespace plumb
