// SPDX-License-Identifier: Apache-2.0
// Tests of the additions of norm ABI 1.1 in models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/model/build.h"
#include "runtime/model/parameters.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "tests/app/evaluate.h"
#include "tests/app/grown_norm.h"
#include "tests/app/test_models.h"
#include "tests/compile/reference_run.h"

namespace plumb {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class GrownNormTest : public ::testing::Test {
 protected:
  GrownNormTest() {
    EXPECT_TRUE(runtime_->RegisterPlugin(GrownNorm()).ok());
    EXPECT_TRUE(runtime_->RegisterPlugin(PairNorm()).ok());
  }

  // Returns the initial gains of a model by name.
  std::map<std::string, std::vector<float>> Gains(const ModelContext& context, uint64_t seed) {
    const ParameterStore store(context.parameters, context.states);
    EXPECT_TRUE(DrawParameters(context.parameters, context.states, seed, 1, store).ok());
    std::map<std::string, std::vector<float>> gains;
    for (size_t i = 0; i < context.parameters.size(); ++i) {
      const ParameterSpec& parameter = context.parameters[i];
      if (parameter.role != ParameterSpec::Role::kNorm) continue;
      const float* begin = store.floats(i);
      gains[parameter.name] = {begin, begin + parameter.shape.num_elements()};
    }
    return gains;
  }

  static TinyModel Model() {
    TinyModel model;
    model.norm = "test.grown";
    return model;
  }

  // Returns a model whose norms read positions and the step, in a placement with these fields.
  static TinyModel Aware(const std::string& plugin, const std::string& placement) {
    TinyModel model;
    model.placement = "p";
    model.norm = "n";
    model.more = absl::StrCat("norm { name: \"n\" plugin: \"", plugin,
                              "\" attr { name: \"aware\" flag: true } } ",
                              "placement { name: \"p\" ", placement, " }");
    return model;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

constexpr char kEverywhere[] =
    "slot { name: \"q_norm\" per_head: true } inside { point: \"attention.q\" rule: \"q = "
    "q_norm(q)\" } "
    "inside { point: \"head.logits\" rule: \"logits = head_norm(logits)\" } "
    "each: \"x = x + f(norm(x))\" end: \"x = norm(x)\"";
// The inputs are the block's input, the sum before the norm, and a sum one term of which is the
// second input.
constexpr char kPairs[] =
    "begin: \"e = x\" each: \"y = f(x)\" each: \"x = norm(x + y, e) + norm[1](y, x)\" "
    "end: \"x = norm(x, e)\"";
constexpr char kSame[] = "each: \"x = x + f(norm(x, x))\" end: \"x = norm(x, x)\"";

// -- Initial values

TEST_F(GrownNormTest, WritesInitialValuesFromASeedOfEachTensor) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const auto gains = Gains(*context, 7);
  EXPECT_EQ(gains, Gains(*context, 7));
  const std::vector<float>& first = gains.at("layers.0.attention.norm.gain");
  ASSERT_EQ(first.size(), 8u);
  EXPECT_NE(first, gains.at("layers.0.mlp.norm.gain"));
  EXPECT_NE(first, Gains(*context, 8).at("layers.0.attention.norm.gain"));
  for (const float value : first) {
    EXPECT_GE(value, 1);
    EXPECT_LE(value, 2);
  }
  EXPECT_NE(first[0], first[1]);
}

TEST_F(GrownNormTest, InitRulesScaleAndReplaceInitialValues) {
  const auto plain = MakeContext(runtime_.get(), Model().Text());
  TinyModel model = Model();
  model.more =
      "init { match: \"*attention.norm.gain\" scale: \"-3\" } "
      "init { match: \"*mlp.norm.gain\" constant { value: \"0.5\" } }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const std::vector<float> before = Gains(*plain, 7).at("layers.0.attention.norm.gain");
  const auto gains = Gains(*context, 7);
  const std::vector<float>& scaled = gains.at("layers.0.attention.norm.gain");
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_EQ(scaled[i], static_cast<float>(-3.0 * static_cast<double>(before[i])));
  }
  EXPECT_EQ(gains.at("layers.0.mlp.norm.gain"), std::vector<float>(8, 0.5f));
  for (const ParameterSpec& parameter : context->parameters) {
    if (parameter.name != "layers.0.attention.norm.gain") continue;
    EXPECT_EQ(parameter.init.ToString(), "fill(test.grown) * -3");
  }
}

TEST_F(GrownNormTest, NamesTheTensorThatWasNotFilled) {
  TinyModel model = Model();
  model.norm = "n";
  model.more =
      R"pbtxt(norm { name: "n" plugin: "test.grown" attr { name: "fails" flag: true } })pbtxt";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const ParameterStore store(context->parameters, context->states);
  const absl::Status status = DrawParameters(context->parameters, context->states, 1, 1, store);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("layers.0.attention.norm.gain"), HasSubstr("test.grown"),
                    HasSubstr("no values today")));
}

// -- Gradients, compared with central differences of the reference, and the executable compared
// with both

constexpr int64_t kBatch = 2, kSeq = 4;

class GradientOfGrownNorm : public GrownNormTest {
 protected:
  void Use(TinyModel model) {
    model.context_length = kSeq;
    context_ = MakeContext(runtime_.get(), model.Text());
    parameters_ = std::make_unique<ParameterStore>(GenericParameters(*context_, 1));
    for (const StateLayout::Entry& state : parameters_->states().entries) {
      if (state.name == StateName(kStepBuffer)) parameters_->state_data()[state.begin] = 5;
    }
    tokens_ = RandomTokens(kBatch, kSeq, model.vocab_size);
    feeds_ = Feeds(*parameters_, tokens_);
  }

  static BuildOptions Options() {
    BuildOptions options;
    options.batch = kBatch;
    options.seq = kSeq;
    options.output_logits = true;
    return options;
  }

  void CheckGradients() {
    const auto analytic = ReferenceRun(*BuildProgram(*context_, Options(), true), feeds_);
    ASSERT_TRUE(analytic.ok()) << analytic.status();
    const Graph forward =
        *BuildForward(context_->model, context_->parameters, *context_->ops, Options());
    for (const ParameterSpec& parameter : context_->parameters) {
      const std::vector<double>& gradient = analytic->at("grad." + parameter.name).f;
      std::vector<double>& values = feeds_[parameter.name].f;
      for (size_t i = 0; i < gradient.size(); ++i) {
        const double start = values[i];
        const auto loss_at = [&](double step) {
          values[i] = start + step;
          const double loss = ReferenceRun(forward, feeds_)->at("loss").f[0];
          values[i] = start;
          return loss;
        };
        const double h = 3e-4;
        const double slope =
            (8 * (loss_at(h) - loss_at(-h)) - (loss_at(2 * h) - loss_at(-2 * h))) / (12 * h);
        ASSERT_NEAR(slope, gradient[i], 1e-6 * (1 + std::abs(slope)))
            << parameter.name << "[" << i << "]";
      }
    }
  }

  void CheckExecutable() {
    const auto expected = ReferenceRun(*BuildProgram(*context_, Options(), true), feeds_);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const int threads : {1, 3}) {
      const auto outputs =
          RunBatch(*context_, *parameters_, tokens_, /*with_gradients=*/true, threads);
      ASSERT_TRUE(outputs.ok()) << outputs.status();
      EXPECT_LE(RelativeError(outputs->logits, expected->at("logits").f), 1e-5);
      std::vector<double> gradients(outputs->gradients.size(), 0);
      for (const ParameterLayout::Entry& entry : parameters_->layout().entries) {
        const std::vector<double>& gradient = expected->at("grad." + entry.name).f;
        std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
      }
      EXPECT_LE(RelativeError(outputs->gradients, gradients), 1e-5);
    }
  }

  std::unique_ptr<ModelContext> context_;
  std::unique_ptr<ParameterStore> parameters_;
  Tokens tokens_;
  ReferenceTensors feeds_;
};

TEST_F(GradientOfGrownNorm, HasAGainPerHead) {
  TinyModel model = Model();
  model.placement = "qk_norm";
  model.n_kv_head = 1;
  Use(model);
  std::map<std::string, std::string> shapes;
  for (const ParameterSpec& parameter : context_->parameters) {
    shapes[parameter.name] = parameter.shape.ToString();
  }
  EXPECT_EQ(shapes["layers.0.attention.q_norm.gain"], "[2, 4]");
  EXPECT_EQ(shapes["layers.0.attention.k_norm.gain"], "[1, 4]");
  EXPECT_EQ(shapes["layers.0.attention.norm.gain"], "[8]");
  CheckGradients();
  CheckExecutable();
}

TEST_F(GradientOfGrownNorm, ReceivesPositionsAndTheStep) {
  Use(Aware("test.grown", kEverywhere));
  const auto logits = [this](double step) {
    feeds_[StateName(kStepBuffer)].f = {step};
    return ReferenceRun(*BuildProgram(*context_, Options(), true), feeds_)->at("logits").f;
  };
  const auto of_step_3 = logits(3);
  EXPECT_NE(of_step_3, logits(5));  // parameters_ is at step 5 from here on
  CheckGradients();
  CheckExecutable();
}

TEST_F(GradientOfGrownNorm, HasTwoInputs) {
  for (const char* placement : {kPairs, kSame}) {
    Use(Aware("test.pair", placement));
    CheckGradients();
    CheckExecutable();
  }
}

// Tokens of prompts and decoded tokens have the same positions as in a pass over all of them.
TEST_F(GradientOfGrownNorm, DecodesWithTheContextOfAFullPass) {
  for (const auto& [plugin, placement] :
       {std::pair("test.grown", kEverywhere), std::pair("test.pair", kPairs)}) {
    Use(Aware(plugin, placement));
    const auto full = RunBatch(*context_, *parameters_, tokens_, /*with_gradients=*/false, 1);
    ASSERT_TRUE(full.ok()) << full.status();
    const int64_t vocab = context_->model.dims.vocab_size;
    const std::vector<int32_t>& row = tokens_[0];
    for (int64_t prompt = 1; prompt <= kSeq; ++prompt) {
      DecodeSession decode(context_.get(), parameters_.get(), 1);
      for (int64_t t = prompt; t <= kSeq; ++t) {
        const auto begin = row.begin() + (t == prompt ? 0 : t - 1);
        ASSERT_TRUE(decode.Feed(std::vector<int32_t>(begin, row.begin() + t)).ok());
        const std::vector<float> got(decode.logits(), decode.logits() + vocab);
        const auto at = full->logits.begin() + (t - 1) * vocab;
        EXPECT_LE(RelativeError(got, std::vector<float>(at, at + vocab)), 5e-6)
            << plugin << " " << prompt << " " << t;
      }
    }
  }
}

// -- Two inputs: errors

TEST_F(GrownNormTest, RefusesWrongNumbersOfInputs) {
  const auto error = [this](const std::string& norm, const std::string& placement) {
    TinyModel model;
    model.placement = "p";
    model.norm = norm;
    model.more = absl::StrCat("placement { name: \"p\" ", placement, " }");
    return std::string(TryContext(runtime_.get(), model.Text()).status().message());
  };
  EXPECT_THAT(error("rms_norm", "each: \"x = x + f(norm(x, x))\""),
              AllOf(HasSubstr("the norm \"rms_norm\" has one input, norm(x)"),
                    HasSubstr("x = x + f(norm(x, x))"), HasSubstr("test.pbtxt")));
  EXPECT_THAT(error("test.pair", "each: \"x = x + f(norm(x))\""),
              HasSubstr("the norm \"test.pair\" has two inputs: norm(x, y); here it is given one"));
  EXPECT_THAT(
      error("test.pair", "linear { name: \"l\" out: \"4\" } each: \"x = x + f(norm(x, l(x)))\""),
      HasSubstr("norm takes two tensors of one width, 8"));
  EXPECT_THAT(error("test.pair", "each: \"x = x + f(norm(x, x, x))\""),
              HasSubstr("norm takes one tensor, not 3 arguments"));
}

}  // namespace
}  // namespace plumb
