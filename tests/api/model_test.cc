#include "runtime/tools/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "runtime/base/file.h"
#include "runtime/io/safetensors.h"
#include "tests/api/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

class ModelTest : public ::testing::Test {
 protected:
  std::unique_ptr<Model> Make(const TinyModel& tiny) {
    const auto spec = Spec::FromText(tiny.Text(), "tiny.pbtxt");
    EXPECT_TRUE(spec.ok()) << spec.status();
    auto model = Model::Create(runtime_.get(), *spec);
    if (!model.ok()) {
      ADD_FAILURE() << model.status();
      return nullptr;
    }
    return *std::move(model);
  }

  const std::unique_ptr<HostRuntime> runtime_ = MakeHostRuntime();
  ScratchDir dir_;
};

TEST_F(ModelTest, DescribesWhatTheTextMeans) {
  TinyModel tiny;
  tiny.placement = "peri";
  const auto description = Make(tiny)->Describe();
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_EQ(description->name, "tiny");
  EXPECT_THAT(description->dims,
              ElementsAre(Pair("n_layer", 2), Pair("n_head", 2), Pair("n_kv_head", 2),
                          Pair("d_model", 8), Pair("d_ff", 12), Pair("head_dim", 4),
                          Pair("vocab_size", 5), Pair("context_length", 8)));
  EXPECT_EQ(description->positions, "learned");
  EXPECT_FALSE(description->tied);
  EXPECT_THAT(description->begin, ElementsAre("begin: x = norm(x)"));
  EXPECT_THAT(description->end, ElementsAre("end: x = norm(x)"));
  ASSERT_EQ(description->layers.size(), 1u);
  EXPECT_EQ(description->layers[0].last, 1);
  EXPECT_EQ(description->identity_route, "through 1 norm");
  EXPECT_EQ(description->norms_before_head, 1);
  EXPECT_EQ(description->norm_sites, 10);
  int64_t sum = 0;
  for (const TensorInfo& tensor : description->tensors) sum += tensor.elements;
  EXPECT_EQ(description->parameters, sum);
  // Token, position, head; attention, MLP; ten norms.
  EXPECT_EQ(sum, 40 + 64 + 40 + 2 * (256 + 192) + 10 * 8);
  EXPECT_EQ(description->weight_bytes, 4 * sum);
  const TensorInfo& norm = description->tensors[2];
  EXPECT_EQ(norm.name, "begin.norm.weight");
  EXPECT_EQ(norm.role, "norm");
  EXPECT_EQ(norm.init, "constant(1)");
  EXPECT_THAT(norm.shape, ElementsAre(8));
}

TEST_F(ModelTest, ASpecIsAValueThatCanBeChangedAndPrinted) {
  const auto spec = Spec::FromText(TinyModel().Text(), "tiny.pbtxt");
  ASSERT_TRUE(spec.ok()) << spec.status();
  Spec other = *spec;
  ASSERT_TRUE(other.Set("n_layer", "3").ok());
  ASSERT_TRUE(other.Set("vocab_size", "0").ok());
  EXPECT_EQ(other.vocab_size(), 0);
  EXPECT_EQ(spec->vocab_size(), 5);
  EXPECT_THAT(other.ToText(), HasSubstr("n_layer: 3"));
  EXPECT_THAT(spec->ToText(), HasSubstr("n_layer: 2"));
  EXPECT_FALSE(other.Set("n_layers", "3").ok());
  EXPECT_FALSE(Spec::FromText("n_layer: x", "bad.pbtxt").ok());
  EXPECT_THAT(std::string(Spec::FromText("n_layer: x", "bad.pbtxt").status().message()),
              HasSubstr("bad.pbtxt:1:"));
  EXPECT_EQ(Spec::FromFile(dir_.File("missing.pbtxt")).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(ModelTest, GradientNormsAreThoseOfTheGradients) {
  const auto model = Make(TinyModel());
  ASSERT_TRUE(model->Init(1).ok());
  const auto outputs = model->Run({RandomTokens(2, 5, 5)});
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_FALSE(outputs->gradients.empty());
  for (const Model::Gradient& gradient : outputs->gradients) {
    double square = 0;
    for (float g : gradient.data) square += std::pow(static_cast<double>(g), 2);
    EXPECT_NEAR(gradient.l2, std::sqrt(square), 1e-9) << gradient.name;
  }
  const std::string path = dir_.File("logits.safetensors");
  ASSERT_TRUE(Model::WriteLogits(*outputs, path).ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_NE(file->Find("logits"), nullptr);
  EXPECT_EQ(file->Find("logits")->shape, Shape({2, 5, 5}));
}

TEST_F(ModelTest, AModelNeedsAVocabularyToBeBuilt) {
  TinyModel tiny;
  tiny.vocab_size = 0;
  const auto spec = Spec::FromText(tiny.Text(), "tiny.pbtxt");
  ASSERT_TRUE(spec.ok());
  const auto model = Model::Create(runtime_.get(), *spec);
  EXPECT_EQ(model.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(model.status().message()), HasSubstr("vocab_size"));
}

}  // namespace
}  // namespace plumb
