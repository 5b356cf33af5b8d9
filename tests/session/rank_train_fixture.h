// SPDX-License-Identifier: Apache-2.0
// Training sessions of ranks that are threads, and comparisons that must hold for any number of
// ranks.
#ifndef PLUMB_TESTS_SESSION_RANK_TRAIN_FIXTURE_H_
#define PLUMB_TESTS_SESSION_RANK_TRAIN_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ranks/local_ranks.h"
#include "runtime/session/train_session.h"
#include "tests/app/test_models.h"
#include "tests/session/test_datasets.h"

namespace plumb {

class RankTrainTest : public ::testing::Test {
 protected:
  // Returns a model with several buckets for several ranks.
  static TinyModel Model() {
    TinyModel model;
    model.placement = "pre";
    model.norm = "layer_norm";
    model.n_layer = 3;
    model.n_head = model.n_kv_head = 4;
    model.d_model = 32;
    model.d_ff = 64;
    model.context_length = 12;
    model.vocab_size = 26;
    return model;
  }

  using Settings = std::vector<std::pair<std::string, std::string>>;

  // Returns a recipe of 8 units of 2 rows each, unless `settings` say otherwise.
  static TrainSpec Recipe(const std::string& more, const Settings& settings = {}) {
    const auto spec = ParseTrainSpec(
        absl::StrCat("batch_size: 8 gradient_accumulation_steps: 2 units: 8 learning_rate: 0.01 "
                     "max_steps: 100 seed: 3 grad_clip: 0.5 ",
                     more),
        "recipe", settings);
    EXPECT_TRUE(spec.ok()) << spec.status();
    return spec.value_or(TrainSpec());
  }

  // Returns losses, norms and token counts of `steps` steps, then weights and their average.
  static absl::StatusOr<std::vector<double>> Trace(TrainSession* session, int steps) {
    std::vector<double> trace;
    for (int i = 0; i < steps; ++i) {
      PLUMB_ASSIGN_OR_RETURN(const StepResult step, session->Step());
      trace.insert(trace.end(), {step.loss, step.grad_norm, static_cast<double>(step.tokens)});
    }
    const std::vector<float> weights = Floats(session->parameters());
    trace.insert(trace.end(), weights.begin(), weights.end());
    if (session->average() != nullptr) {
      const std::vector<float> average = Floats(*session->average());
      trace.insert(trace.end(), average.begin(), average.end());
    }
    return trace;
  }

  std::vector<double> TraceOfOne(const ModelContext& context, const Dataset& data,
                                 const TrainSpec& spec, int steps, int threads = 1) {
    auto session = TrainSession::Create(&context, &data, spec, threads);
    EXPECT_TRUE(session.ok()) << session.status();
    if (!session.ok()) return {};
    const auto trace = Trace(session->get(), steps);
    EXPECT_TRUE(trace.ok()) << trace.status();
    return trace.value_or(std::vector<double>());
  }

  // Returns the trace of each rank.
  std::vector<std::vector<double>> TraceOfRanks(const ModelContext& context, const Dataset& data,
                                                const TrainSpec& spec, int steps, int ranks,
                                                int threads) {
    std::vector<std::vector<double>> traces(static_cast<size_t>(ranks));
    const auto results = RunRanks(ranks, [&](Communicator* rank) -> absl::Status {
      PLUMB_ASSIGN_OR_RETURN(const auto session,
                             TrainSession::Create(&context, &data, spec, threads, rank));
      const auto at = static_cast<size_t>(rank->rank());
      PLUMB_ASSIGN_OR_RETURN(traces[at], Trace(session.get(), steps));
      return absl::OkStatus();
    });
    for (const absl::Status& result : results) EXPECT_TRUE(result.ok()) << result;
    return traces;
  }

  // Returns the error of creating sessions of `ranks` ranks, for each rank.
  static std::vector<absl::Status> Refused(int ranks, const ModelContext& context,
                                           const Dataset& data,
                                           const std::function<TrainSpec(int rank)>& recipe) {
    std::vector<absl::Status> refused(static_cast<size_t>(ranks));
    RunRanks(ranks, [&](Communicator* rank) {
      refused[static_cast<size_t>(rank->rank())] =
          TrainSession::Create(&context, &data, recipe(rank->rank()), 1, rank).status();
      return absl::OkStatus();
    });
    return refused;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
};

}  // namespace plumb

#endif  // PLUMB_TESTS_SESSION_RANK_TRAIN_FIXTURE_H_
