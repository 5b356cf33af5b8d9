// SPDX-License-Identifier: Apache-2.0
// Tests of mixtures of experts in a model: parameters, their initial values and updates, and costs
// that follow the number of chosen experts. kinds_test has the properties that hold for every kind
// of sublayer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/compile/executable.h"
#include "runtime/model/describe.h"
#include "runtime/model/update_plan.h"
#include "runtime/session/newton_schulz.h"
#include "runtime/session/work.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"

namespace plumb {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kTokens = 24, kWidth = 8, kHidden = 12, kLayers = 2;

std::string Text(const std::string& experts, const std::string& more = "") {
  TinyModel model;
  model.context_length = kTokens;
  model.vocab_size = 6;
  model.more = more;
  model.block = absl::StrCat("sublayer { attention {} } sublayer { experts { ", experts, " } } ");
  return model.Text();
}

class ExpertsTest : public RecipeTest {
 protected:
  std::unique_ptr<ModelContext> Context(const std::string& experts, const std::string& more = "") {
    return MakeContext(runtime_.get(), Text(experts, more));
  }
  static const ParameterSpec& Of(const ModelContext& context, absl::string_view name) {
    const auto at =
        std::find_if(context.parameters.begin(), context.parameters.end(),
                     [name](const ParameterSpec& parameter) { return parameter.name == name; });
    if (at == context.parameters.end()) ADD_FAILURE() << "no parameter " << name;
    return at == context.parameters.end() ? context.parameters.front() : *at;
  }
};

TEST_F(ExpertsTest, OneTensorHoldsAllExperts) {
  const auto context = Context(
      "n_expert: \"3\" top_k: \"2\" d_ff: \"5\" gated: true bias: true shared_d_ff: \"7\" "
      "shared_gate: true",
      "init { match: \"*.experts.up.weight\" xavier_normal {} }");
  std::vector<std::string> names;
  for (const ParameterSpec& parameter : context->parameters) {
    if (absl::StartsWith(parameter.name, "layers.1.mlp.") &&
        parameter.role == ParameterSpec::Role::kWeight) {
      names.push_back(absl::StrCat(parameter.name.substr(13), parameter.shape.ToString()));
    }
  }
  EXPECT_THAT(names, ElementsAre("router.weight[3, 8]", "experts.gate.weight[3, 5, 8]",
                                 "experts.gate.bias[3, 5]", "experts.up.weight[3, 5, 8]",
                                 "experts.up.bias[3, 5]", "experts.down.weight[3, 8, 5]",
                                 "experts.down.bias[3, 8]", "shared.gate.weight[7, 8]",
                                 "shared.gate.bias[7]", "shared.up.weight[7, 8]",
                                 "shared.up.bias[7]", "shared.down.weight[8, 7]",
                                 "shared.down.bias[8]", "shared_gate.weight[1, 8]"));
  const ParameterSpec& down = Of(*context, "layers.0.mlp.experts.down.weight");
  EXPECT_EQ(down.init.ToString(), Of(*context, "layers.0.mlp.experts.down.bias").init.ToString());
  EXPECT_NEAR(down.init.b, 1 / std::sqrt(5.0), 1e-12);
  EXPECT_NEAR(Of(*context, "layers.0.mlp.experts.up.weight").init.b, std::sqrt(2.0 / 13), 1e-12);
  EXPECT_EQ(down.active_elements(), 2 * 8 * 5);
  EXPECT_TRUE(down.is_matrix());
  EXPECT_FALSE(Of(*context, "layers.0.mlp.experts.down.bias").is_matrix());
  EXPECT_EQ(StoredDType(Of(*context, "layers.0.mlp.experts.down.bias"), WeightFormat::kBf16),
            DType::kF32);
  EXPECT_EQ(StoredDType(Of(*context, "layers.0.mlp.router.weight"), WeightFormat::kInt8),
            DType::kF32);
}

TEST_F(ExpertsTest, WidthMayDifferPerLayer) {
  TinyModel model;
  model.more = "mlp { d_ff: \"6 * layer\" bias: true }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  EXPECT_EQ(Of(*context, "layers.0.mlp.up.weight").shape, Shape({6, 8}));
  EXPECT_EQ(Of(*context, "layers.1.mlp.down.weight").shape, Shape({8, 12}));
  EXPECT_EQ(Of(*context, "layers.1.mlp.up.bias").shape, Shape({12}));
  const auto description = DescribeStack(context->model);
  ASSERT_TRUE(description.ok()) << description.status();
  EXPECT_THAT(description->groups[0].scalars,
              ElementsAre("mlp.d_ff = 6 * layer = 6 .. 12 over the layers"));
}

TEST_F(ExpertsTest, DescribedByTheirEquation) {
  const auto lines = [this](const std::string& fields) {
    const auto context = Context(fields);
    return DescribeStack(context->model)->groups[0].scalars;
  };
  EXPECT_THAT(lines("n_expert: \"4\" top_k: \"n_head\""),
              ElementsAre("mlp(x) = sum over 2 of 4 experts e of p_e expert_e(x); "
                          "p = softmax of the chosen router(x)"));
  EXPECT_THAT(lines("n_expert: \"4\" top_k: \"1\" router: SIGMOID shared_d_ff: \"5\" d_ff: \"6\""),
              ElementsAre("mlp(x) = sum over 1 of 4 experts e of p_e expert_e(x) + shared(x); "
                          "p = sigmoid(router(x))",
                          "mlp.d_ff = 6 = 6", "mlp.shared_d_ff = 5 = 5"));
  EXPECT_THAT(lines("n_expert: \"4\" top_k: \"1\" router: SOFTMAX shared_d_ff: \"5\" "
                    "shared_gate: true scale: \"5 / 2\" balance_loss: \"layer / 10\""),
              ElementsAre("mlp(x) = 2.5 * sum over 1 of 4 experts e of p_e expert_e(x) + "
                          "sigmoid(shared_gate(x)) * shared(x); p = softmax(router(x))",
                          "mlp.shared_d_ff = 5 = 5",
                          "mlp.balance_loss = layer / 10 = 0.1 .. 0.2 over the layers"));
}

// -- Cost

double CountFlops(const Graph& graph) {
  double flops = 0;
  for (const NodeTime& node : NodeCosts(graph)) flops += node.flops;
  return flops;
}

BuildOptions Train(WeightFormat format) {
  BuildOptions options;
  options.seq = kTokens;
  options.weights = format;
  return options;
}

// More experts cost only the router's products and, in training, the gradients of the router's
// weights.
TEST_F(ExpertsTest, FlopsFollowTheChosenExperts) {
  const auto few = Context("n_expert: \"4\" top_k: \"2\""),
             many = Context("n_expert: \"64\" top_k: \"2\""),
             twice = Context("n_expert: \"4\" top_k: \"4\"");
  constexpr double kRouter = 2.0 * 60 * kWidth * kTokens * kLayers;
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16}) {
    const auto program = [&](const ModelContext& context, bool gradients) {
      return *BuildProgram(context, Train(format), gradients);
    };
    EXPECT_EQ(CountFlops(program(*many, false)) - CountFlops(program(*few, false)), kRouter);
    EXPECT_EQ(CountFlops(program(*many, true)) - CountFlops(program(*few, true)), 3 * kRouter);
    constexpr double kTwoExperts = 2 * 2.0 * 2 * kHidden * kWidth * kTokens * kLayers;
    EXPECT_EQ(CountFlops(program(*twice, false)) - CountFlops(program(*few, false)), kTwoExperts);
    EXPECT_EQ(CountFlops(program(*twice, true)) - CountFlops(program(*few, true)), 3 * kTwoExperts);
  }
  // The number of rows grouped by expert is the number of chosen experts per token.
  const Graph graph =
      *BuildForward(many->model, many->parameters, *many->ops, Train(WeightFormat::kF32));
  int products = 0;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "expert_matmul") continue;
    ++products;
    EXPECT_EQ(graph.value(node.outputs[0]).type.shape[0], 2 * kTokens);
  }
  EXPECT_EQ(products, 2 * kLayers);
}

TEST_F(ExpertsTest, DecodingReadsTheChosenExperts) {
  const auto few = Context("n_expert: \"4\" top_k: \"2\" bias: true"),
             many = Context("n_expert: \"64\" top_k: \"2\" bias: true");
  constexpr int64_t kRouter = 60 * kWidth * kLayers;
  const auto work = [](const ModelContext& context, int64_t batch, WeightFormat format) {
    BuildOptions options;
    options.program = Program::kCached;
    options.batch = batch;
    options.weights = format;
    return *CountWork(context, options);
  };
  for (const auto& [format, size] : {std::make_pair(WeightFormat::kF32, int64_t{4}),
                                     std::make_pair(WeightFormat::kBf16, int64_t{2}),
                                     std::make_pair(WeightFormat::kInt8, int64_t{4})}) {
    EXPECT_EQ(work(*many, 1, format).weight_bytes - work(*few, 1, format).weight_bytes,
              kRouter * size);
    EXPECT_EQ(work(*many, 1, format).forward_flops - work(*few, 1, format).forward_flops,
              2 * kRouter);
  }
  // Three tokens may choose six of 64 experts.
  constexpr int64_t kExpert = 2 * kHidden * kWidth + kHidden + kWidth;
  EXPECT_EQ(work(*many, 3, WeightFormat::kF32).weight_bytes -
                work(*many, 1, WeightFormat::kF32).weight_bytes,
            4 * 4 * kExpert * kLayers);
}

// -- The balance loss

TEST_F(ExpertsTest, TheBalanceLossIsMinimizedAndNotReported) {
  const std::string fields = "n_expert: \"4\" top_k: \"2\"";
  const auto plain = Context(fields), balanced = Context(fields + " balance_loss: \"0.5 * layer\"");
  const Tokens tokens = RandomTokens(2, 6, 6);
  const auto run = [&tokens](const ModelContext& context, const ParameterStore& parameters) {
    BuildOptions options;
    options.batch = 2;
    options.seq = 6;
    return *ReferenceRun(*BuildForward(context.model, context.parameters, *context.ops, options),
                         Feeds(parameters, tokens));
  };
  const ParameterStore parameters = GenericParameters(*plain);
  const auto outputs = run(*balanced, parameters);
  EXPECT_EQ(outputs.at("loss").f, run(*plain, parameters).at("loss").f);
  EXPECT_EQ(run(*plain, parameters).count("objective"), 0u);
  EXPECT_GT(outputs.at("objective").f[0], outputs.at("loss").f[0]);
  // If all probabilities are equal, the loss equals its coefficient for any choice: 0.5 + 1.
  ParameterStore even = GenericParameters(*plain);
  for (size_t i = 0; i < plain->parameters.size(); ++i) {
    if (!plain->parameters[i].is_router) continue;
    std::fill_n(even.floats(i), plain->parameters[i].shape.num_elements(), 0.0f);
  }
  const auto at_rest = run(*balanced, even);
  EXPECT_NEAR(at_rest.at("objective").f[0] - at_rest.at("loss").f[0], 1.5, 1e-9);

  const auto evaluated = RunBatch(*balanced, parameters, tokens, /*with_gradients=*/false, 1);
  ASSERT_TRUE(evaluated.ok()) << evaluated.status();
  EXPECT_NEAR(evaluated->loss, outputs.at("loss").f[0], 1e-5);
}

TEST_F(ExpertsTest, BalanceLossSpreadsTheChoices) {
  const Dataset data = Documents(200, 5, 5, 0);
  const auto balance = [&](const std::string& fields) {
    const auto context = Context("n_expert: \"6\" top_k: \"1\" router: SOFTMAX " + fields);
    const auto session = Make(*context, data, Spec("batch_size: 8 learning_rate: 0.02"));
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(session->Step().ok());
    BuildOptions options;
    options.batch = 8;
    options.seq = 7;
    const auto measured =
        Context("n_expert: \"6\" top_k: \"1\" router: SOFTMAX balance_loss: \"1\"");
    const auto outputs =
        *ReferenceRun(*BuildForward(measured->model, measured->parameters, *measured->ops, options),
                      Feeds(session->parameters(), StepTokens(data, 0, 8)));
    return outputs.at("objective").f[0] - outputs.at("loss").f[0];
  };
  const double without = balance(""), with = balance("balance_loss: \"0.3\"");
  EXPECT_LT(with, 2.2) << "two layers that are used alike have 2";
  EXPECT_GT(without, with);
}

// -- Corrections of routers

TEST_F(ExpertsTest, CorrectionsChangeChoicesNotWeights) {
  const auto context =
      Context("n_expert: \"4\" top_k: \"1\" router: SIGMOID correction: true router_bias: true");
  EXPECT_EQ(Of(*context, "layers.1.mlp.router.correction").shape, Shape({4}));
  EXPECT_EQ(Of(*context, "layers.1.mlp.router.correction").init.ToString(), "constant(0)");
  EXPECT_EQ(Of(*context, "layers.1.mlp.router.bias").shape, Shape({4}));
  const Tokens tokens = RandomTokens(2, 6, 6);
  const auto run = [&](float of_third) {
    ParameterStore parameters = GenericParameters(*context);
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      if (!context->parameters[i].is_correction) continue;
      std::fill_n(parameters.floats(i), 4, 0.0f);
      parameters.floats(i)[2] = of_third;
    }
    BuildOptions options;
    options.batch = 2;
    options.seq = 6;
    Graph graph = *BuildForward(context->model, context->parameters, *context->ops, options);
    for (const char* name : {"layers.0.mlp.route", "layers.0.mlp.router"}) {
      for (size_t v = 0; v < graph.values.size(); ++v) {
        if (graph.values[v].name == name) graph.outputs.push_back({name, static_cast<ValueId>(v)});
      }
    }
    return *ReferenceRun(graph, Feeds(parameters, tokens));
  };
  // The sum of the scores is below 2, so a correction of 2 makes all tokens choose the third.
  const auto all = run(2);
  const std::vector<double>& logits = all.at("layers.0.mlp.router").f;
  const std::vector<double>& weights = all.at("layers.0.mlp.route").f;
  ASSERT_EQ(weights.size(), 12u);
  for (size_t t = 0; t < weights.size(); ++t) {
    EXPECT_NEAR(weights[t], 1 / (1 + std::exp(-logits[4 * t + 2])), 1e-12);
  }
  EXPECT_NE(run(0).at("loss").f, all.at("loss").f);
}

TEST_F(ExpertsTest, StepsMoveCorrectionsTowardsEqualLoads) {
  const std::string fields = "n_expert: \"6\" top_k: \"1\" router: SIGMOID correction: true";
  const auto context = Context(fields);
  const Dataset data = Documents(200, 5, 5, 0);
  const TrainSpec spec = Spec(
      "batch_size: 8 learning_rate: 0.02 units: 4 weight_decay_on: EVERYTHING weight_decay: 0.5 "
      "router_correction_rate: 0.125 data { keep_order: true }");
  const auto session = Make(*context, data, spec);
  const auto corrections = [&] {
    std::vector<float> values;
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      const float* const from = session->parameters().floats(i);
      if (context->parameters[i].is_correction) values.insert(values.end(), from, from + 6);
    }
    return values;
  };
  EXPECT_EQ(corrections(), std::vector<float>(12, 0.0f));
  // The loads of a step, by a pass over all of its inputs: the last token of a document is none.
  Tokens tokens = StepTokens(data, 0, 8);
  for (auto& row : tokens) row.pop_back();
  BuildOptions options;
  options.batch = 8;
  options.seq = 6;
  options.counts_loads = true;
  const auto outputs =
      *ReferenceRun(*BuildForward(context->model, context->parameters, *context->ops, options),
                    Feeds(session->parameters(), tokens));
  std::vector<float> expected;
  for (const char* state : {"layers.0.mlp.router.state", "layers.1.mlp.router.state"}) {
    for (const double load : outputs.at(state).f) {
      expected.push_back(load * 6 < 48 ? 0.125f : load * 6 > 48 ? -0.125f : 0.0f);
    }
  }
  ASSERT_TRUE(session->Step().ok());
  EXPECT_EQ(corrections(), expected);
  for (int64_t i = 0; i < session->parameters().states().size; ++i) {
    EXPECT_EQ(session->parameters().state_data()[i], 0) << "loads are of one step";
  }
}

TEST_F(ExpertsTest, CorrectionsSpreadTheChoices) {
  const Dataset data = Documents(200, 5, 5, 0);
  const auto largest_share = [&](const std::string& recipe) {
    const auto context =
        Context("n_expert: \"6\" top_k: \"1\" router: SIGMOID renormalize: true correction: true");
    const auto session = Make(*context, data, Spec("batch_size: 8 learning_rate: 0.02 " + recipe));
    for (int i = 0; i < 60; ++i) EXPECT_TRUE(session->Step().ok());
    BuildOptions options;
    options.batch = 8;
    options.seq = 7;
    options.counts_loads = true;
    const auto outputs =
        *ReferenceRun(*BuildForward(context->model, context->parameters, *context->ops, options),
                      Feeds(session->parameters(), StepTokens(data, 0, 8)));
    const std::vector<double>& loads = outputs.at("layers.1.mlp.router.state").f;
    return *std::max_element(loads.begin(), loads.end()) / 56;
  };
  EXPECT_LT(largest_share("router_correction_rate: 0.02"), largest_share(""));
}

TEST_F(ExpertsTest, RefusesARateWithoutCorrections) {
  const auto context = Context("n_expert: \"4\" top_k: \"1\"");
  const Dataset data = Documents(20, 5, 5, 0);
  const auto session =
      TrainSession::Create(context.get(), &data, Spec("router_correction_rate: 0.001"), 1);
  EXPECT_EQ(session.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(absl::StrContains(session.status().message(), "the model has none"))
      << session.status();
}

// -- Updates

TEST_F(ExpertsTest, RulesSeeTheFansOfOneExpert) {
  const auto context = Context("n_expert: \"3\" top_k: \"1\" d_ff: \"5\" bias: true");
  const TrainSpec spec = Spec(
      "optimizer: MUON rule { match: '*.experts.*' tensors: VECTORS learning_rate: 'lr / fan_in' } "
      "rule { match: '*.down.weight' learning_rate: 'lr * fan_out / fan_in' }");
  const auto plan = PlanUpdates(spec, context->model, context->parameters);
  ASSERT_TRUE(plan.ok()) << plan.status();
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterUpdate& update = plan->parameters[i];
    const std::string& name = context->parameters[i].name;
    if (absl::EndsWith(name, "experts.down.weight")) {
      EXPECT_DOUBLE_EQ(update.LearningRate(1), 8.0 / 5);
      EXPECT_EQ(update.optimizer, OptimizerKind::kMuon);
    } else if (absl::EndsWith(name, "experts.down.bias")) {
      EXPECT_DOUBLE_EQ(update.LearningRate(1), 1.0 / 5);
      EXPECT_EQ(update.optimizer, OptimizerKind::kAdamW);
      EXPECT_EQ(update.weight_decay, 0);
    }
  }
}

TEST_F(ExpertsTest, MuonUpdatesExpertsSeparately) {
  const auto context = Context("n_expert: \"3\" top_k: \"2\" gated: true");
  const Dataset data = Documents(40, 5, 5, 0);
  const TrainSpec spec = Spec(
      "optimizer: MUON batch_size: 4 learning_rate: 0.5 weight_decay: 0 grad_clip: 0 "
      "data { keep_order: true }");
  const auto session = Make(*context, data, spec);
  const std::vector<float> before = Floats(session->parameters());
  const auto outputs =
      RunBatch(*context, session->parameters(), StepTokens(data, 0, 4), /*with_gradients=*/true, 1);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  ASSERT_TRUE(session->Step().ok());
  const std::vector<float> after = Floats(session->parameters());

  const ParameterLayout& layout = session->parameters().layout();
  int matrices = 0;
  for (size_t i = 0; i < context->parameters.size(); ++i) {
    const ParameterSpec& parameter = context->parameters[i];
    if (parameter.top_k == 0) continue;
    const Shape shape = parameter.one();
    const auto newton_schulz = *NewtonSchulz::Create(*context->ops, {shape}, 5);
    newton_schulz->Allocate();
    const int64_t n = shape.num_elements();
    for (int64_t e = 0; e < parameter.count(); ++e) {
      const size_t at = static_cast<size_t>(layout.entries[i].begin + e * n);
      std::copy_n(outputs->gradients.begin() + static_cast<int64_t>(at), n, newton_schulz->input());
      ASSERT_TRUE(newton_schulz->Run(shape, 1).ok());
      const double rate =
          0.5 *
          std::sqrt(std::max(1.0, static_cast<double>(shape[0]) / static_cast<double>(shape[1])));
      for (int64_t j = 0; j < n; ++j) {
        const size_t k = at + static_cast<size_t>(j);
        ASSERT_NEAR(before[k] - after[k], rate * static_cast<double>(newton_schulz->output()[j]),
                    1e-3)
            << parameter.name << " of expert " << e;
      }
      ++matrices;
    }
  }
  EXPECT_EQ(matrices, 3 * 3 * kLayers);
}

}  // namespace
}  // namespace plumb
