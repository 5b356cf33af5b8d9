// SPDX-License-Identifier: Apache-2.0
// Training in bf16: the arithmetic of programs changes, the guarantees of a run do not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "runtime/base/bf16.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

class Bf16TrainTest : public RecipeTest {
 protected:
  static TrainSpec Spec(DType dtype = DType::kBF16) {
    TrainSpec spec;
    spec.batch_size = 4;
    spec.dtype = dtype;
    spec.learning_rate = 3e-3;
    return spec;
  }
  static TinyModel Wide() {
    TinyModel model;
    model.placement = "double_qk";
    model.norm = "layer_norm";
    model.n_head = model.n_kv_head = 4;
    model.d_model = 64;
    model.d_ff = 256;
    model.context_length = 32;
    model.vocab_size = 26;
    return model;
  }
  static std::vector<float> Weights(const TrainSession& session) {
    return Floats(session.parameters());
  }
};

TEST_F(Bf16TrainTest, LossesAreCloseToF32) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = TextDataset(5000, 26);
  const std::vector<double> f32 = Losses(Make(*context, data, Spec(DType::kF32)).get(), 60);
  const std::vector<double> bf16 = Losses(Make(*context, data, Spec()).get(), 60);
  ASSERT_EQ(f32.size(), bf16.size());
  EXPECT_NE(f32, bf16);
  EXPECT_NEAR(bf16[0], f32[0], 0.01 * f32[0]);
  double gap = 0;
  for (size_t i = 0; i < f32.size(); ++i) {
    EXPECT_NEAR(bf16[i], f32[i], 0.03 * f32[i]) << "step " << i + 1;
    gap += bf16[i] - f32[i];
  }
  EXPECT_NEAR(gap / static_cast<double>(f32.size()), 0, 0.01 * f32[0]);
  EXPECT_LT(bf16.back(), 0.7 * bf16.front());
}

TEST_F(Bf16TrainTest, ProgramsReadRoundedWeightsInPlace) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = TextDataset(5000, 26);
  const auto session = Make(*context, data, Spec());
  EXPECT_EQ(session->weights().bytes(), 0);
  for (int step = 0; step < 3; ++step) {
    int64_t differing = 0, matrices = 0;
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      ASSERT_EQ(session->parameters().is_split(i), context->parameters[i].is_matrix());
      if (!context->parameters[i].is_matrix()) continue;
      ++matrices;
      std::vector<float> floats(static_cast<size_t>(context->parameters[i].shape.num_elements()));
      session->parameters().Read(i, 0, static_cast<int64_t>(floats.size()), floats.data());
      const SplitF32 split = session->parameters().split(i);
      for (size_t e = 0; e < floats.size(); ++e) {
        uint32_t bits;
        std::memcpy(&bits, &floats[e], sizeof(bits));
        const bool tie = (bits & 0xffff) == 0x8000;
        differing += !tie && split.high[e] != Bf16FromFloat(floats[e]);
      }
    }
    EXPECT_GT(matrices, 10);
    EXPECT_EQ(differing, 0) << "before step " << step + 1;
    ASSERT_TRUE(session->Step().ok());
  }
}

// A weight of 1 and steps of 2^-10: in bf16 alone it would never change.
TEST_F(Bf16TrainTest, AccumulatesStepsBelowBf16Precision) {
  const auto context = MakeContext(runtime_.get(), TinyModel().Text());
  const Dataset data = TextDataset(300, 5);
  TrainSpec spec = Spec();
  spec.learning_rate = 1.0 / 1024;
  spec.weight_decay = 0;
  const auto session = Make(*context, data, spec);
  const ParameterStore& store = session->parameters();
  const size_t head = store.layout().entries.size() - 1;
  ASSERT_TRUE(store.is_split(head));
  float weight = 1;
  store.Write(head, 0, 1, &weight);
  Losses(session.get(), 8);
  store.Read(head, 0, 1, &weight);
  EXPECT_NE(weight, 1);
  EXPECT_LT(std::fabs(weight - 1), 0.02);
}

TEST_F(Bf16TrainTest, ProbesChangeNothing) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = TextDataset(5000, 26);
  const std::vector<double> expected = Losses(Make(*context, data, Spec()).get(), 4);
  const auto bf16 = Make(*context, data, Spec());
  const auto f32 = Make(*context, data, Spec(DType::kF32));
  ASSERT_TRUE(bf16->SetProbe(2, {}).ok());
  ASSERT_TRUE(f32->SetProbe(2, {}).ok());
  Losses(f32.get(), 1);
  EXPECT_EQ(Losses(bf16.get(), 1)[0], expected[0]);
  ASSERT_NE(bf16->probe(), nullptr);
  const ProbeResult &a = *bf16->probe(), &b = *f32->probe();
  ASSERT_EQ(a.activations.size(), b.activations.size());
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  EXPECT_GT(a.activations.size(), 10u);
  for (size_t i = 0; i < a.activations.size(); ++i) {
    EXPECT_EQ(a.activations[i].name, b.activations[i].name);
    const double want = b.activations[i].stats.Rms();
    EXPECT_NEAR(a.activations[i].stats.Rms(), want, 0.02 * want) << a.activations[i].name;
    EXPECT_EQ(a.activations[i].stats.count, b.activations[i].stats.count);
  }
  for (size_t i = 0; i < a.gradients.size(); ++i) {
    const double want = b.gradients[i].stats.Rms();
    EXPECT_NEAR(a.gradients[i].stats.Rms(), want, 0.05 * want) << a.gradients[i].name;
  }
  EXPECT_EQ(Losses(bf16.get(), 3), std::vector<double>(expected.begin() + 1, expected.end()));
}

TEST_F(Bf16TrainTest, EvaluationFollowsTheSessionsWeightsInItsFormat) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = TextDataset(5000, 26, /*val_fraction=*/0.2);
  const auto session = Make(*context, data, Spec());
  const auto bf16 =
      *EvalSession::Create(context.get(), &session->weights(), &data, Split::kValidation, 4, 1);
  const auto f32 =
      *EvalSession::Create(context.get(), &session->parameters(), &data, Split::kValidation, 4, 1);
  const double before = bf16->Run(0)->loss;
  Losses(session.get(), 40);
  const double after = bf16->Run(0)->loss;
  EXPECT_LT(after, 0.8 * before);
  EXPECT_NEAR(after, f32->Run(0)->loss, 0.01 * after);
  EXPECT_NE(after, f32->Run(0)->loss);
}

// Large enough that the program sums the squares itself.
TEST_F(Bf16TrainTest, GradientNormMatchesTheGradient) {
  TinyModel model = Wide();
  model.d_model = 256;
  model.d_ff = 1024;
  const auto context = MakeContext(runtime_.get(), model.Text());
  ASSERT_TRUE(SumsSquaresInProgram(*context));
  const Dataset data = Documents(8, 5, 5);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    TrainSpec spec = Spec(dtype);
    spec.keep_order = true;
    const auto session = Make(*context, data, spec);
    const Tokens tokens = StepTokens(data, 0, 4);
    const auto batch = RunBatch(*context, session->parameters(), tokens, /*with_gradients=*/true, 1,
                                nullptr, GetWeightFormat(spec));
    ASSERT_TRUE(batch.ok()) << batch.status();
    double square = 0;
    for (const float g : batch->gradients)
      square += static_cast<double>(g) * static_cast<double>(g);
    const auto step = session->Step();
    ASSERT_TRUE(step.ok()) << step.status();
    // RunBatch's sequences have one more position, without a target.
    EXPECT_NEAR(step->grad_norm, std::sqrt(square), 0.01 * std::sqrt(square)) << DTypeName(dtype);
  }
}

}  // namespace
}  // namespace plumb
