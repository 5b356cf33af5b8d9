// SPDX-License-Identifier: Apache-2.0
// Compares the gradients of every shipped placement with central differences of the forward pass,
// in double, and the float executable with both.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 2;
constexpr int64_t kSeq = 4;

struct Case {
  std::string placement;
  std::string norm;
};

// Returns true for placements that apply one slot over a range, which norms with statistics over
// tokens refuse.
bool SharesASlot(const std::string& placement) {
  static const std::set<std::string> names = {"attention_residuals",  "block_attention_residuals",
                                              "deep_cross_attention", "frac_connections",
                                              "hyper_connections",    "kimi_k3"};
  return names.count(placement) > 0;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const std::string& placement : ShippedPlacements()) {
    for (const char* norm : {"layer_norm", "rms_norm", "batch_norm"}) {
      if (norm != std::string("batch_norm") || !SharesASlot(placement)) {
        cases.push_back({placement, norm});
      }
    }
  }
  return cases;
}

std::string CaseName(const ::testing::TestParamInfo<Case>& info) {
  return absl::StrCat(info.param.placement, "_", info.param.norm);
}

class GradientTest : public ::testing::TestWithParam<Case> {
 protected:
  GradientTest() {
    TinyModel model;
    model.placement = GetParam().placement;
    model.norm = GetParam().norm;
    // The layers are enough for conditions on the layer (swin_v2 normalizes after every sixth).
    model.n_layer = model.placement == "swin_v2" ? 6 : 2;
    model.context_length = kSeq;
    // The cases of the second norm also test other positions and heads.
    if (model.norm == "rms_norm") {
      model.positions = "ROPE";
      model.n_kv_head = 1;
    }
    if (model.norm == "batch_norm") {
      model.norm = "bn";
      model.more = R"pbtxt(norm { name: "bn" plugin: "batch_norm" allow_cross_token: true })pbtxt";
    }
    context_ = MakeContext(runtime_.get(), model.Text());
    // With the first seed an input of a ReLU, or of a norm, is too close to 0 for differences.
    const bool is_close =
        model.placement == "deep_cross_attention" || model.placement == "hyper_connections";
    const uint64_t seed = is_close ? 2 : 1;
    parameters_ = std::make_unique<ParameterStore>(GenericParameters(*context_, seed));
    tokens_ = RandomTokens(kBatch, kSeq, model.vocab_size);
    // ProRes introduces layers gradually. At this step the first layer's scale is 1 and the
    // second's 0.6.
    for (const StateLayout::Entry& state : parameters_->states().entries) {
      if (state.name == StateName(kStepBuffer)) parameters_->state_data()[state.begin] = 1200;
    }
    feeds_ = Feeds(*parameters_, tokens_);
    feeds_[kRandomInput] = {I32({kRandomWords}), {}, {1, 0, 2, 0, 0, 0}};
  }

  Graph Build(bool gradients, bool drop = true) const {
    BuildOptions options;
    options.drop = drop;
    // The loss of an evaluation is another function if norms have running statistics or if
    // something is dropped.
    const bool same_function = context_->states.empty() && !Drops();
    options.program = gradients || !same_function ? Program::kTrain : Program::kEval;
    options.batch = kBatch;
    options.seq = kSeq;
    options.output_logits = gradients;
    if (!gradients) {
      return *BuildForward(context_->model, context_->parameters, *context_->ops, options);
    }
    return *BuildProgram(*context_, options, true);
  }

  static bool Drops() {
    return GetParam().placement == "dropout" || GetParam().placement == "stochastic_depth";
  }

  // Returns d loss / d step at step 0 if `name` is value + step * direction.
  double Directional(const Graph& forward, const std::string& name,
                     const std::vector<double>& direction) {
    const std::vector<double> start = feeds_[name].f;
    const auto loss_at = [&](double step) {
      std::vector<double>& values = feeds_[name].f;
      for (size_t i = 0; i < start.size(); ++i) values[i] = start[i] + step * direction[i];
      const double loss = ReferenceRun(forward, feeds_)->at("loss").f[0];
      values = start;
      return loss;
    };
    // The five-point formula has an error of order h^4.
    const double h = 2e-4;
    return (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  std::unique_ptr<ModelContext> context_;
  std::unique_ptr<ParameterStore> parameters_;
  Tokens tokens_;
  ReferenceTensors feeds_;
};

// The direction is random in every tensor, so a wrong element shows with probability one.
TEST_P(GradientTest, GradientsAgreeWithCentralDifferences) {
  if (GetParam().placement == "gpas")
    GTEST_SKIP() << "its gradient excludes the operands of stop()";
  const auto analytic = ReferenceRun(Build(true), feeds_);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  double largest = 0;
  for (const ParameterSpec& parameter : context_->parameters) {
    for (double g : analytic->at("grad." + parameter.name).f) {
      largest = std::max(largest, std::fabs(g));
    }
  }
  ASSERT_GT(largest, 1e-3);
  const Graph forward = Build(false);
  for (const ParameterSpec& parameter : context_->parameters) {
    const std::vector<double>& gradient = analytic->at("grad." + parameter.name).f;
    const RngStream stream(7, parameter.name);
    std::vector<double> direction(gradient.size());
    double expected = 0;
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = stream.Normal(i);
      expected += direction[i] * gradient[i];
    }
    EXPECT_NEAR(Directional(forward, parameter.name, direction), expected, 1e-6 * largest)
        << parameter.name;
  }
}

TEST_P(GradientTest, TheExecutableAgreesWithTheReference) {
  // RunBatch does not drop.
  const auto expected = ReferenceRun(Build(true, /*drop=*/false), feeds_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  const auto outputs =
      RunBatch(*context_, *parameters_, tokens_, /*with_gradients=*/true, /*threads=*/1);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_LE(RelativeError(outputs->logits, expected->at("logits").f), 1e-5);
  const double loss = expected->at("loss").f[0];
  EXPECT_NEAR(outputs->loss, loss, 1e-5 * loss);
  std::vector<double> gradients(outputs->gradients.size(), 0);
  for (const ParameterLayout::Entry& entry : parameters_->layout().entries) {
    const std::vector<double>& gradient = expected->at("grad." + entry.name).f;
    std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
  }
  EXPECT_LE(RelativeError(outputs->gradients, gradients), 1e-5);
}

INSTANTIATE_TEST_SUITE_P(All, GradientTest, ::testing::ValuesIn(Cases()), CaseName);

// These rules differ most, so each element is checked by itself.
class EveryElementTest : public GradientTest {};

TEST_P(EveryElementTest, GradientsAgreeWithCentralDifferences) {
  const auto analytic = ReferenceRun(Build(true), feeds_);
  ASSERT_TRUE(analytic.ok()) << analytic.status();
  const Graph forward = Build(false);
  for (const ParameterSpec& parameter : context_->parameters) {
    const std::vector<double>& gradient = analytic->at("grad." + parameter.name).f;
    std::vector<double> direction(gradient.size(), 0);
    for (size_t i = 0; i < direction.size(); ++i) {
      direction[i] = 1;
      EXPECT_NEAR(Directional(forward, parameter.name, direction), gradient[i], 1e-7)
          << parameter.name << "[" << i << "]";
      direction[i] = 0;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Some, EveryElementTest,
                         ::testing::Values(Case{"post", "layer_norm"}, Case{"double", "rms_norm"},
                                           Case{"resi_dual", "layer_norm"},
                                           Case{"normformer", "rms_norm"}),
                         CaseName);

}  // namespace
}  // namespace plumb
