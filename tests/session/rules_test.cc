// SPDX-License-Identifier: Apache-2.0
// Compares a recipe's rules with a naive AdamW whose hyperparameters are written by hand.
#include <gmock/gmock.h>

#include <cmath>
#include <map>

#include "absl/strings/match.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

struct Hyperparameters {
  double learning_rate, weight_decay, beta1, beta2, eps;
  int clip_group;
};

// The norm of a group's gradients must exceed its bound, so that clipping has an effect.
constexpr double kClips[] = {0.2, 0.05, 0.02};

Hyperparameters ByHand(const std::string& name, bool is_matrix, double lr) {
  if (absl::StrContains(name, ".norm.")) return {0.1 * lr + 1e-3, 0.07, 0.8, 0.9, 0.05, 1};
  if (absl::StartsWith(name, "layers.") && is_matrix) {
    const bool is_down = absl::EndsWith(name, ".down.weight");
    const double layer = absl::StartsWith(name, "layers.0.") ? 1 : 2;
    return {lr * 4 / (is_down ? 12 : 8), 0.3 * layer, 0.7, 0.95, 0.02, 2};
  }
  return {lr, is_matrix ? 0.3 : 0.0, 0.8, 0.9, 0.05, 0};
}

constexpr char kRecipe[] =
    "batch_size: 4 learning_rate: 0.05 schedule: LINEAR max_steps: 10 beta1: 0.8 beta2: 0.9\n"
    "eps: 0.05 weight_decay: 0.3 grad_clip: 0.2 data { keep_order: true }\n"
    "let: 'base = 4'\n"
    "rule { match: '*.norm.*' learning_rate: '0.1 * lr + 1e-3' weight_decay: '0.07' clip: '0.05' "
    "}\n"
    "rule { match: 'layers.*' tensors: MATRICES learning_rate: 'lr * base / fan_in'\n"
    "       weight_decay: 'wd * layer' beta1: '0.7' beta2: '0.95' eps: 'eps * 0.4' clip: '0.02' "
    "}\n";

class RulesTest : public RecipeTest {};

TEST_F(RulesTest, StepsMatchANaiveAdamW) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const Dataset data = Documents(64, 5, 5);
  const auto session = Make(*context, data, Spec(kRecipe));
  const ParameterLayout& layout = session->parameters().layout();
  const size_t size = static_cast<size_t>(layout.size);
  std::vector<double> p(session->parameters().data(), session->parameters().data() + size);
  std::vector<double> m(size, 0), v(size, 0);
  for (int step = 1; step <= 3; ++step) {
    const auto batch = RunBatch(*context, session->parameters(), StepTokens(data, step - 1, 4),
                                /*with_gradients=*/true, 1);
    ASSERT_TRUE(batch.ok()) << batch.status();
    const double lr = 0.05 * (1 - (step - 1) / 10.0);
    double squares[3] = {0, 0, 0};
    const auto by_hand = [&](size_t i) {
      return ByHand(layout.entries[i].name, context->parameters[i].is_matrix(), lr);
    };
    for (size_t i = 0; i < layout.entries.size(); ++i) {
      for (int64_t e = layout.entries[i].begin; e < layout.entries[i].end; ++e) {
        const double g = batch->gradients[static_cast<size_t>(e)];
        squares[by_hand(i).clip_group] += g * g;
      }
    }
    for (int group = 0; group < 3; ++group) {
      EXPECT_GT(std::sqrt(squares[group]), kClips[group]) << "clipping would not show";
    }
    for (size_t i = 0; i < layout.entries.size(); ++i) {
      const Hyperparameters h = by_hand(i);
      const double clip = kClips[h.clip_group] / std::sqrt(squares[h.clip_group]);
      for (int64_t e = layout.entries[i].begin; e < layout.entries[i].end; ++e) {
        const size_t at = static_cast<size_t>(e);
        const double g = batch->gradients[at] * clip;
        m[at] = h.beta1 * m[at] + (1 - h.beta1) * g;
        v[at] = h.beta2 * v[at] + (1 - h.beta2) * g * g;
        const double m_hat = m[at] / (1 - std::pow(h.beta1, step));
        const double v_hat = v[at] / (1 - std::pow(h.beta2, step));
        p[at] -= h.learning_rate * (m_hat / (std::sqrt(v_hat) + h.eps) + h.weight_decay * p[at]);
      }
    }
    const auto result = session->Step();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_DOUBLE_EQ(result->learning_rate, lr);
    EXPECT_NEAR(result->grad_norm, std::sqrt(squares[0] + squares[1] + squares[2]), 1e-5);
  }
  for (size_t i = 0; i < size; ++i) {
    ASSERT_NEAR(session->parameters().data()[i], p[i], 2e-6) << i;
    ASSERT_NEAR(session->first_moments()[i], m[i], 1e-6) << i;
    ASSERT_NEAR(session->second_moments()[i], v[i], 1e-6) << i;
  }
}

// A rule that sets the defaults changes no bit.
TEST_F(RulesTest, RuleWithDefaultsChangesNothing) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const Dataset data = Documents(64, 5, 5);
  const auto plain = Make(*context, data, Spec("batch_size: 4"));
  const auto ruled = Make(
      *context, data,
      Spec("batch_size: 4 rule { match: '*' tensors: MATRICES learning_rate: 'lr' weight_decay: "
           "'wd' beta1: 'beta1' beta2: 'beta2' eps: 'eps' }"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(plain->Step()->loss, ruled->Step()->loss);
  EXPECT_EQ(Floats(plain->parameters()), Floats(ruled->parameters()));
}

TEST_F(RulesTest, CreateRefusesInvalidRules) {
  const auto context = MakeContext(runtime_.get(), SmallModel().Text());
  const Dataset data = Documents(64, 5, 5);
  const auto session =
      TrainSession::Create(context.get(), &data, Spec("rule { match: 'nothing' clip: '1' }"), 1);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(session.status().message()),
              HasSubstr("recipe.pbtxt:1:8: rule: matches no tensor"));
}

}  // namespace
}  // namespace plumb
