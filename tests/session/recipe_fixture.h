// SPDX-License-Identifier: Apache-2.0
// Helpers of training tests: a runtime, sessions, losses of their steps.
#ifndef PLUMB_TESTS_SESSION_RECIPE_FIXTURE_H_
#define PLUMB_TESTS_SESSION_RECIPE_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/session/train_session.h"
#include "tests/app/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {

class RecipeTest : public ::testing::Test {
 protected:
  static TrainSpec Spec(const std::string& recipe) {
    auto spec = ParseTrainSpec(recipe, "recipe.pbtxt", {});
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.ok() ? *std::move(spec) : TrainSpec();
  }
  static std::unique_ptr<TrainSession> Make(const ModelContext& context, const Dataset& data,
                                            const TrainSpec& spec, int threads = 1) {
    auto session = TrainSession::Create(&context, &data, spec, threads);
    if (!session.ok()) {
      ADD_FAILURE() << session.status();
      return nullptr;
    }
    return *std::move(session);
  }
  static std::vector<double> Losses(TrainSession* session, int steps) {
    std::vector<double> losses;
    for (int i = 0; i < steps; ++i) {
      const auto step = session->Step();
      EXPECT_TRUE(step.ok()) << step.status();
      if (!step.ok()) break;
      losses.push_back(step->loss);
    }
    return losses;
  }
  // Returns a model whose tensors are smaller than a vector, larger than one, and of odd sizes.
  static TinyModel SmallModel() {
    TinyModel model;
    model.norm = "layer_norm";
    model.vocab_size = 6;
    model.more = "mlp { bias: true } head_bias: true";
    return model;
  }
  // Returns documents of five letters, in order: the tokens from which RunBatch computes a step's
  // gradient.
  static Tokens StepTokens(const Dataset& data, int64_t step, int64_t batch) {
    const int32_t mark = *data.tokenizer().end_token();
    Tokens tokens;
    for (int64_t i = step * batch; i < (step + 1) * batch; ++i) {
      const auto document = data.document(Split::kTrain, i);
      tokens.push_back({mark});
      tokens.back().insert(tokens.back().end(), document.begin(), document.end());
      tokens.back().push_back(mark);
    }
    return tokens;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_RECIPE_FIXTURE_H_
