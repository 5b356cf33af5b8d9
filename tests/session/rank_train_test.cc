// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <limits>

#include "runtime/session/step_profile.h"
#include "tests/session/rank_train_fixture.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

struct Case {
  const char* name;
  const char* recipe;
  std::vector<std::pair<std::string, std::string>> settings = {};
};

const Case kCases[] = {
    {"f32", ""},
    {"bf16", "dtype: BF16"},
    {"muon", "optimizer: MUON"},
    {"clip_groups", "rule { match: '*.norm.*' clip: '0.1' } rule { match: 'head.*' clip: '0.2' }"},
    {"average", "ema_decay: 0.9"},
    {"normalized", "normalize { match: '*.mlp.up.weight' }"},
    {"bf16_normalized", "dtype: BF16 normalize { match: '*.mlp.up.weight' }"},
    {"bf16_muon_only", "dtype: BF16 optimizer: MUON"},
    {"units_as_micro_batches",
     "",
     {{"units", "0"}, {"gradient_accumulation_steps", "8"}, {"batch_size", "2"}}},
    {"ten_units",
     "",
     {{"units", "10"}, {"gradient_accumulation_steps", "1"}, {"batch_size", "10"}}},
    {"bf16_muon", "dtype: BF16 optimizer: MUON ema_decay: 0.5"},
    {"frozen", "ema_decay: 0.9 rule { match: 'layers.1.*' } rule { match: '*' freeze: true }"},
    {"bf16_frozen",
     "dtype: BF16 rule { match: 'layers.0.*' freeze: true } rule { match: '*.norm.*' "
     "freeze: true } rule { match: 'embedding.*' freeze: true }"},
};

class RankTrainCaseTest : public RankTrainTest, public ::testing::WithParamInterface<Case> {};

TEST_P(RankTrainCaseTest, RanksAndThreadsChangeNoBit) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const TrainSpec spec = Recipe(GetParam().recipe, GetParam().settings);
  const std::vector<double> expected = TraceOfOne(*context, data, spec, 3);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(TraceOfOne(*context, data, spec, 3, 2), expected);
  for (const int ranks : {2, 3, 4, 8}) {
    for (const int threads : {1, 2}) {
      SCOPED_TRACE(absl::StrCat(ranks, " ranks, ", threads, " threads"));
      for (const auto& trace : TraceOfRanks(*context, data, spec, 3, ranks, threads)) {
        EXPECT_EQ(trace, expected);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, RankTrainCaseTest, ::testing::ValuesIn(kCases),
                         [](const auto& at) { return std::string(at.param.name); });

TEST_F(RankTrainTest, MixedLengthsChangeNoBit) {
  TinyModel model = Model();
  model.vocab_size = 6;
  const auto context = MakeContext(runtime_.get(), model.Text());
  std::string prompts;
  for (int i = 0; i < 60; ++i) {
    absl::StrAppend(&prompts, "{\"prompt\": \"", std::string(i % 9, "abcde"[i % 5]),
                    "\", \"completion\": \"", i % 2 == 0 ? "edcba" : "b", "\"}\n");
  }
  DatasetOptions options;
  options.format = DatasetOptions::Format::kJsonl;
  options.val_fraction = 0;
  const TrainSpec spec = Recipe("");
  for (const Dataset& data :
       {Documents(60, 2, 10), *Dataset::FromContent(prompts, "prompts.jsonl", options)}) {
    const auto expected = TraceOfOne(*context, data, spec, 4);
    for (const auto& trace : TraceOfRanks(*context, data, spec, 4, 4, 1)) {
      EXPECT_EQ(trace, expected) << data.name();
    }
  }
}

TEST_F(RankTrainTest, LargeModelsChangeNoBit) {
  TinyModel model = Model();
  model.d_model = 128;
  model.d_ff = 512;
  model.n_layer = 4;
  const auto context = MakeContext(runtime_.get(), model.Text());
  ASSERT_TRUE(SumsSquaresInProgram(*context)) << "the program sums squares of gradients";
  const Dataset data = TextDataset(2000, 26);
  const TrainSpec spec = Recipe("", {{"batch_size", "2"}, {"units", "4"}});
  const std::vector<double> expected = TraceOfOne(*context, data, spec, 2);
  for (const int ranks : {2, 4}) {
    for (const auto& trace : TraceOfRanks(*context, data, spec, 2, ranks, 1)) {
      EXPECT_EQ(trace, expected);
    }
  }
}

TEST_F(RankTrainTest, RouterCorrectionsCountAllRanks) {
  TinyModel model = Model();
  model.block =
      "share: \"all\" own_norms: true sublayer { attention {} } sublayer { experts { n_expert: "
      "\"5\" "
      "top_k: \"2\" router: SIGMOID correction: true } }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextDataset(2000, 26);
  const TrainSpec spec = Recipe("router_correction_rate: 0.02 dtype: BF16");
  const std::vector<double> expected = TraceOfOne(*context, data, spec, 3);
  for (const int ranks : {2, 3, 8}) {
    for (const auto& trace : TraceOfRanks(*context, data, spec, 3, ranks, 1)) {
      EXPECT_EQ(trace, expected);
    }
  }
  EXPECT_NE(expected, TraceOfOne(*context, data, Recipe("dtype: BF16"), 3));
}

TEST_F(RankTrainTest, RefusesMoreRanksThanUnits) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const TrainSpec spec = Recipe("", {{"units", "2"}});
  for (const absl::Status& refused : Refused(3, *context, data, [&](int) { return spec; })) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("3 ranks, and a step of 2 units: each rank computes one unit or more"));
  }
}

TEST_F(RankTrainTest, RefusesRanksThatDiffer) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const auto recipe = [](int rank) { return Recipe(rank == 1 ? "beta1: 0.8" : ""); };
  for (const absl::Status& refused : Refused(2, *context, data, recipe)) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(refused.message()), HasSubstr("the recipe differs between ranks"));
  }
  const auto seed = [](int rank) {
    return Recipe("", {{"seed", "4"}, {"learning_rate", rank == 1 ? "0.02" : "0.01"}});
  };
  for (const absl::Status& refused : Refused(2, *context, data, seed)) {
    EXPECT_THAT(std::string(refused.message()), HasSubstr("the recipe differs between ranks"));
  }
}

TEST_F(RankTrainTest, DivergenceIsAnErrorOnAllRanks) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const auto results = RunRanks(4, [&](Communicator* rank) -> absl::Status {
    const TrainSpec spec = Recipe("");
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           TrainSession::Create(&*context, &data, spec, 1, rank));
    PLUMB_RETURN_IF_ERROR(session->Step().status());
    // Changed on one rank only, which does not happen in practice, but shows whose error is
    // reported.
    float* const weight = session->parameters().floats(0);
    const float kept = *weight;
    if (rank->rank() == 2) {
      std::fill_n(weight, 26 * 32, std::numeric_limits<float>::quiet_NaN());
    }
    const absl::Status failed = session->Step().status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kAborted) << failed;
    EXPECT_THAT(std::string(failed.message()),
                HasSubstr("rank 2 on host host2: diverged at step 2"));
    EXPECT_EQ(session->step(), 1);
    EXPECT_EQ(*weight == kept, rank->rank() != 2);
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_F(RankTrainTest, LostRankIsUnavailable) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const auto results = RunRanks(2, [&](Communicator* rank) -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           TrainSession::Create(&*context, &data, Recipe(""), 1, rank));
    PLUMB_RETURN_IF_ERROR(session->Step().status());
    if (rank->rank() == 1) return absl::OkStatus();
    const absl::Status failed = session->Step().status();
    EXPECT_EQ(failed.code(), absl::StatusCode::kUnavailable) << failed;
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_F(RankTrainTest, RefusesNormsWithStatistics) {
  ASSERT_TRUE(runtime_->RegisterPlugin(CenteringNorm()).ok());
  TinyModel model = Model();
  model.norm = "n";
  model.more = "norm { name: \"n\" plugin: \"test.centering\" allow_cross_token: true }";
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextDataset(2000, 26);
  EXPECT_FALSE(TraceOfOne(*context, data, Recipe(""), 1).empty());
  for (const absl::Status& refused : Refused(2, *context, data, [](int) { return Recipe(""); })) {
    EXPECT_EQ(refused.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.message()),
                HasSubstr("layers.0.attention.norm keeps statistics from one unit"));
  }
}

TEST_F(RankTrainTest, RanksTakeThePlannedMemory) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  for (const char* recipe : {"", "optimizer: MUON", "dtype: BF16 ema_decay: 0.5",
                             "dtype: BF16 rule { match: 'layers.*.mlp.*' freeze: true }",
                             "rule { match: 'head.*' } rule { match: '*' freeze: true }"}) {
    const TrainSpec spec = Recipe(recipe);
    std::vector<int64_t> totals(3);
    const auto results = RunRanks(3, [&](Communicator* rank) -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(const auto session,
                             TrainSession::Create(&*context, &data, spec, 1, rank));
      PLUMB_RETURN_IF_ERROR(session->Step().status());
      const TrainMemory memory = session->memory(), &planned = session->planned_memory();
      EXPECT_EQ(memory.weights, planned.weights);
      EXPECT_EQ(memory.gradients, planned.gradients);
      EXPECT_EQ(memory.exchange, planned.exchange);
      EXPECT_EQ(memory.moments, planned.moments);
      EXPECT_EQ(memory.total(), planned.total());
      totals[static_cast<size_t>(rank->rank())] = memory.total();
      return absl::OkStatus();
    });
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
    const auto max = PlanTrainMemory(*context, spec, 12, 3);
    ASSERT_TRUE(max.ok()) << max.status();
    EXPECT_EQ(max->total(), *std::max_element(totals.begin(), totals.end())) << recipe;
  }
}

TEST_F(RankTrainTest, ProfileHasTheWaits) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const auto results = RunRanks(2, [&](Communicator* rank) -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           TrainSession::Create(&*context, &data, Recipe(""), 1, rank));
    StepProfile profile;
    session->SetProfile(&profile);
    PLUMB_RETURN_IF_ERROR(session->Step().status());
    std::vector<std::string> stages;
    for (const StepProfile::Row& row : profile.Rows()) {
      if (!row.in_graph) stages.push_back(row.name);
    }
    for (const char* stage : {"gradients: sending", "gradients: adding", "gradients: waiting",
                              "results: sending and waiting"}) {
      EXPECT_THAT(stages, ::testing::Contains(stage));
    }
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_F(RankTrainTest, ProbesSeeTheSameGradients) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const auto gradient_squares = [](const TrainSession& session) {
    std::vector<double> squares;
    for (const auto& parameter : session.probe()->parameters) {
      squares.push_back(parameter.gradient.sum_squares);
    }
    return squares;
  };
  const auto one = *TrainSession::Create(&*context, &data, Recipe(""), 1);
  ASSERT_TRUE(one->SetProbe(1, {}).ok());
  ASSERT_TRUE(one->Step().ok());
  const auto results = RunRanks(2, [&](Communicator* rank) -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const auto session,
                           TrainSession::Create(&*context, &data, Recipe(""), 1, rank));
    if (rank->rank() == 0) PLUMB_RETURN_IF_ERROR(session->SetProbe(1, {}));
    PLUMB_RETURN_IF_ERROR(session->Step().status());
    if (rank->rank() == 0) {
      EXPECT_EQ(gradient_squares(*session), gradient_squares(*one));
    }
    return absl::OkStatus();
  });
  for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
}

TEST_F(RankTrainTest, GradientExchangeOverlapsTheBackwardPass) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const Dataset data = TextDataset(2000, 26);
  const BucketPlan plan = BucketPlan::Of(ParameterLayout(context->parameters), 4);
  EXPECT_GT(plan.buckets.size(), 4u);
  BuildOptions options = TrainProgram(Recipe(""));
  options.seq = 12;
  const auto program = *Executable::Compile(
      *BuildProgram(*context, options, /*gradients=*/true, TrainPasses(*context, Recipe(""))));
  const auto ready = plan.ReadyIn(*program, ParameterLayout(context->parameters));
  ASSERT_EQ(ready.size(), plan.buckets.size());
  EXPECT_LT(ready.front().node, program->graph().nodes.size() * 3 / 4)
      << "the first bucket is there long before the end of the pass";
  EXPECT_GT(ready.back().node, ready.front().node);
}

TEST_F(RankTrainTest, RanksDivideGradientsEvenly) {
  const auto context = MakeContext(runtime_.get(), Model().Text());
  const TrainSpec spec = Recipe("rule { match: 'layers.2.*' } rule { match: '*' freeze: true }");
  const auto updates = PlanUpdates(spec, context->model, context->parameters);
  ASSERT_TRUE(updates.ok()) << updates.status();
  const ParameterLayout layout(context->parameters, updates->frozen);
  const BucketPlan plan = BucketPlan::Of(layout, 2);
  int64_t gradients = 0;
  for (const BucketPlan::Bucket& bucket : plan.buckets) {
    EXPECT_EQ(bucket.range.begin, gradients);
    gradients = bucket.range.end;
  }
  EXPECT_EQ(gradients, layout.size);
  const double half = static_cast<double>(plan.CountElements(0) + plan.CountElements(1)) / 2;
  EXPECT_EQ(2 * half, static_cast<double>(layout.size));
  EXPECT_NEAR(static_cast<double>(plan.CountElements(0)), half, 0.2 * half);
}

}  // namespace
}  // namespace plumb
