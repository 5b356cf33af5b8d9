// SPDX-License-Identifier: Apache-2.0
// Inputs of formulas besides tokens and weights: the step, and the random numbers of dropout.
#include <cmath>
#include <set>

#include "absl/strings/str_cat.h"
#include "runtime/formats/safetensors.h"
#include "runtime/model/build.h"
#include "runtime/session/decode_session.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

constexpr char kDropping[] =
    "each: \"x = x + drop_path(drop(f(norm(x)), 0.2), 0.3 * layer / n_layer)\"";

class FormulaInputsTest : public RecipeTest {
 protected:
  // Returns a model whose placement is `pre`, extended by `text`.
  static TinyModel Mine(const std::string& text) {
    TinyModel model;
    model.placement = "mine";
    model.norm = "layer_norm";
    model.vocab_size = 6;
    model.more = absl::StrCat("placement { name: \"mine\" extends: \"pre\" ", text, " }");
    return model;
  }
  std::unique_ptr<ModelContext> Context(const TinyModel& model) {
    return MakeContext(runtime_.get(), model.Text());
  }
  // Returns one document, so that all batches are equal.
  static Dataset OneDocument() {
    DatasetOptions options;
    options.format = DatasetOptions::Format::kDocuments;
    return *Dataset::FromContent("abcde\n", "documents.txt", options);
  }
  // Returns a recipe that does not change the weights.
  static TrainSpec Idle(const std::string& more = "") {
    return Spec(absl::StrCat("batch_size: 2 learning_rate: 0 max_steps: 2000 ", more));
  }
};

class DropTypeTest : public FormulaInputsTest, public ::testing::WithParamInterface<DType> {};

TEST_P(DropTypeTest, StepsAndRowsDropDifferentElements) {
  const auto context = Context(Mine(kDropping));
  const Dataset data = OneDocument();
  TrainSpec single = Idle(), pairs = Idle("gradient_accumulation_steps: 2");
  single.dtype = pairs.dtype = GetParam();
  const std::vector<double> losses = Losses(Make(*context, data, single).get(), 6);
  EXPECT_EQ(std::set<double>(losses.begin(), losses.end()).size(), 6u);
  TrainSpec four = single;
  four.batch_size = 4;
  const std::vector<double> whole = Losses(Make(*context, data, four).get(), 3);
  const std::vector<double> split = Losses(Make(*context, data, pairs).get(), 3);
  const double near = GetParam() == DType::kBF16 ? 2e-3 : 1e-6;
  for (size_t i = 0; i < split.size(); ++i) {
    EXPECT_NEAR(split[i], whole[i], near) << i;
    EXPECT_GT(std::fabs(whole[i] - losses[i]), near) << "rows 3 and 4 as rows 1 and 2, step " << i;
  }
  single.seed = 2;  // changes the weights too
  EXPECT_NE(Losses(Make(*context, data, single).get(), 6), losses);
}

INSTANTIATE_TEST_SUITE_P(DTypes, DropTypeTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(DTypeName(dtype.param)); });

TEST_F(FormulaInputsTest, PlacesHaveIndependentMasks) {
  const TinyModel model =
      Mine("each: \"y = f(norm(x))\" each: \"x = x + drop(y, 0.1) + drop(y, 0.1)\"");
  const std::string looped = absl::StrCat(
      "n_head: 2 d_model: 8 d_ff: \"12\" vocab_size: 6 context_length: 8 "
      "layers { repeat: 2 share: true block { placement: \"mine\" norm: \"layer_norm\" } } ",
      model.more);
  for (const std::string& text : {model.Text(), looped}) {
    const auto context = MakeContext(runtime_.get(), text);
    BuildOptions options;
    options.batch = 2;
    options.seq = 4;
    const auto graph = BuildForward(context->model, context->parameters, *context->ops, options);
    ASSERT_TRUE(graph.ok()) << graph.status();
    int drops = 0;
    std::set<std::string> names;
    for (const Node& node : graph->nodes) {
      if (node.op->name != "drop") continue;
      ++drops;
      names.insert(node.attrs.GetString("name"));
    }
    EXPECT_EQ(drops, 8) << text;  // two in each of two sublayers of two layers
    EXPECT_EQ(names.size(), 8u) << text;
  }
}

TEST_F(FormulaInputsTest, EvaluationDecodingAndGradientsDropNothing) {
  const auto dropping = Context(Mine(kDropping)), plain = Context(Mine(""));
  const Dataset data = TextDataset(400, 6, 0.25);
  const auto session = Make(*dropping, data, Spec("batch_size: 2 learning_rate: 0.01"));
  Losses(session.get(), 3);
  const ParameterStore& weights = session->parameters();
  const auto loss = [&](const ModelContext& context) {
    const auto eval = EvalSession::Create(&context, &weights, &data, Split::kValidation, 2, 1);
    return (*eval)->Run(0)->loss;
  };
  EXPECT_EQ(loss(*dropping), loss(*plain));
  const auto logits = [&](const ModelContext& context) {
    DecodeSession decode(&context, &weights, 1);
    EXPECT_TRUE(decode.Feed({1, 2, 3}).ok());
    EXPECT_TRUE(decode.Feed({4}).ok());
    return std::vector<float>(decode.logits(0), decode.logits(0) + 6);
  };
  EXPECT_EQ(logits(*dropping), logits(*plain));
  const auto batch = [&](const ModelContext& context) {
    return *RunBatch(context, weights, RandomTokens(2, 6, 6), /*with_gradients=*/true, 1);
  };
  const BatchOutputs a = batch(*dropping), b = batch(*plain);
  EXPECT_LE(RelativeError(a.logits, b.logits), 1e-6);
  EXPECT_LE(RelativeError(a.gradients, b.gradients), 1e-5);
}

// Makes the loss depend on the step by a factor of the logits; `what` is an expression of the step.
std::string LogitsTimes(const std::string& what) {
  return absl::StrCat("inside { point: \"head.logits\" rule: \"logits = (", what, ") * logits\" }");
}

class StepTest : public FormulaInputsTest, public ::testing::WithParamInterface<DType> {
 protected:
  TrainSpec Recipe() const {
    TrainSpec spec = Idle();
    spec.dtype = GetParam();
    return spec;
  }
  // Returns the loss of a training step in which `step` is this number.
  double LossAt(int64_t step) {
    const auto context = Context(Mine(LogitsTimes(absl::StrCat(step))));
    return Losses(Make(*context, data_, Recipe()).get(), 1)[0];
  }
  double EvalLoss(const ModelContext& context, const TrainSession& session) {
    const auto eval =
        EvalSession::Create(&context, &session.weights(), &data_, Split::kTrain, 1, 1);
    return (*eval)->Run(0)->loss;
  }

  const Dataset data_ = OneDocument();
  // A product with the step and one with the number may differ by a rounding of bf16.
  const double tolerance_ = GetParam() == DType::kBF16 ? 1e-2 : 1e-5;
};

TEST_P(StepTest, TrainingCountsFromOne) {
  const auto context = Context(Mine(LogitsTimes("step")));
  const auto session = Make(*context, data_, Recipe());
  for (int64_t step = 0; step < 5; ++step) {
    if (step > 0) {
      EXPECT_GT(std::fabs(LossAt(step) - LossAt(step + 1)), 5 * tolerance_);
      EXPECT_NEAR(EvalLoss(*context, *session), LossAt(step), tolerance_) << step;
    }
    EXPECT_NEAR(Losses(session.get(), 1)[0], LossAt(step + 1), tolerance_) << step;
  }
}

// 1001 is not representable in bf16.
TEST_P(StepTest, LargeValuesAreExact) {
  const auto context = Context(Mine(LogitsTimes("1 + (step == 1001)")));
  const auto session = Make(*context, data_, Recipe());
  session->ResumeAt(999);
  const std::vector<double> losses = Losses(session.get(), 3);
  EXPECT_NEAR(losses[0], LossAt(1), tolerance_);
  EXPECT_NEAR(losses[1], LossAt(2), tolerance_);
  EXPECT_NEAR(losses[2], LossAt(1), tolerance_);
}

INSTANTIATE_TEST_SUITE_P(DTypes, StepTest, ::testing::Values(DType::kF32, DType::kBF16),
                         [](const auto& dtype) { return std::string(DTypeName(dtype.param)); });

}  // namespace
}  // namespace plumb
