// SPDX-License-Identifier: Apache-2.0
// Tests of runs whose steps diverge and whose losses jump: the messages, the checkpoints that are
// kept, and the state from which the run continues.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/app/poison_norm.h"
#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr char kModel[] = R"pbtxt(
  n_head: 2 d_model: 8 context_length: 12
  norm { name: "poison" plugin: "test.poison" }
  layers { repeat: 3 block { placement: "pre" norm: "rms_norm" } }
  layers { repeat: 1 block { placement: "pre" norm: "poison" } }
)pbtxt";
constexpr int64_t kSteps = 14;

// Fixture with fifteen batches an epoch. One of them holds the long document, for which the norm of
// layer 3 returns NaN.
class DivergenceRunTest : public TrainRunTest {
 protected:
  DivergenceRunTest() {
    EXPECT_TRUE(test_.runtime()->api().RegisterPlugin(PoisonNorm()).ok());
    test_.dir().Write("model.pbtxt", kModel);
    std::string data;
    for (int i = 0; i < 29; ++i) {
      data += std::string(static_cast<size_t>(1 + i % 5), static_cast<char>('a' + i % 4)) + "\n";
    }
    test_.dir().Write("data.txt", data + "abcdabcda\n");
    poison_rows = 2 * 10;  // the document's letters and the begin token
  }
  ~DivergenceRunTest() override { poison_rows = 0; }

  TrainRequest Request(const std::string& out, const Overrides& more = {}) const {
    TrainRequest request = test_.Request(out);
    request.train_overrides = {{"max_steps", absl::StrCat(kSteps)},
                               {"data.val_fraction", "0"},
                               {"checkpoint_interval", "3"},
                               {"seed", "2"}};
    request.train_overrides.insert(request.train_overrides.end(), more.begin(), more.end());
    return request;
  }

  // Steps until the end or an error.
  static absl::Status Run(TrainRun* run, std::vector<TrainIncident>* incidents = nullptr) {
    while (!run->done()) {
      const auto step = run->Step();
      if (!step.ok()) return step.status();
      if (incidents == nullptr) continue;
      incidents->insert(incidents->end(), step->incidents.begin(), step->incidents.end());
    }
    return absl::OkStatus();
  }

  // Returns the number of targets of each step of an undisturbed run. These numbers identify its
  // batches.
  std::vector<int64_t> TokensOfBatches() const {
    const int64_t rows = poison_rows;
    poison_rows = 0;
    const auto run = test_.Open(Request("", {{"max_steps", "30"}}));
    std::vector<int64_t> tokens;
    while (!run->done()) tokens.push_back(run->Step()->tokens);
    poison_rows = rows;
    return tokens;
  }
  std::vector<int64_t> TokensOfSteps(const std::string& out) const {
    std::vector<int64_t> tokens;
    const auto metrics = ReadMetrics(JoinPath(out, "metrics.csv"));
    EXPECT_TRUE(metrics.ok()) << metrics.status();
    for (size_t i = 0; metrics.ok() && i < metrics->size(); ++i) {
      EXPECT_EQ((*metrics)[i].step, static_cast<int64_t>(i + 1));
      tokens.push_back((*metrics)[i].tokens);
    }
    return tokens;
  }
  static std::vector<Json> Incidents(const std::string& out) {
    std::vector<Json> lines;
    const std::string path = JoinPath(out, "incidents.jsonl");
    if (!FileExists(path)) return lines;
    for (absl::string_view line : absl::StrSplit(Content(path), '\n', absl::SkipEmpty())) {
      lines.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    }
    return lines;
  }
  // Returns the step at which the run diverges, the step of the long document.
  int64_t BadStep() const {
    const auto run = test_.Open(Request(""));
    EXPECT_EQ(Run(run.get()).code(), absl::StatusCode::kAborted);
    return run->step() + 1;
  }
};

TEST_F(DivergenceRunTest, TheErrorNamesLayerSlotAndOp) {
  const auto run = test_.Open(Request(test_.out()));
  const absl::Status status = Run(run.get());
  ASSERT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  const int64_t bad = run->step() + 1;
  ASSERT_GT(bad, 6) << "there is a checkpoint to speak of";
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("diverged at step ", bad, ": the loss is ")));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("not finite is layers.3.attention.norm.out (layer 3, attention, slot norm; "
                        "op "));
  EXPECT_THAT(std::string(status.message()), HasSubstr("norm test.poison()[8])"));
  EXPECT_EQ(run->Step().status(), status) << "and again";
  const std::vector<Json> lines = Incidents(test_.out());
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_EQ(lines[0]["kind"], "stop");
  EXPECT_EQ(lines[0]["step"], bad);
  EXPECT_EQ(lines[0]["message"], std::string(status.message()));
  EXPECT_EQ(Content(RunFile("last_good")), Content(RunFile("latest")));
}

TEST_F(DivergenceRunTest, SkipDropsOneBatch) {
  const int64_t bad = BadStep();
  std::vector<int64_t> expected = TokensOfBatches();
  expected.erase(expected.begin() + bad - 1);
  expected.resize(kSteps);
  const auto run = test_.Open(Request(test_.out(), {{"on_divergence", "SKIP"}}));
  std::vector<TrainIncident> incidents;
  ASSERT_TRUE(Run(run.get(), &incidents).ok());
  EXPECT_EQ(TokensOfSteps(test_.out()), expected);
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].kind, TrainIncident::Kind::kSkip);
  EXPECT_EQ(incidents[0].step, bad);
  EXPECT_THAT(incidents[0].message,
              AllOf(HasSubstr("layer 3"), HasSubstr(absl::StrCat("dropped batch ", bad))));
  EXPECT_EQ(run->incidents().skips, 1);
}

TEST_F(DivergenceRunTest, KilledRunSkipsTheSameBatches) {
  const Overrides mode = {{"on_divergence", "SKIP"}};
  const std::string whole = test_.dir().File("whole");
  ASSERT_TRUE(Run(test_.Open(Request(whole, mode)).get()).ok());
  const std::string model = absl::StrCat("checkpoints/step-0000", kSteps, "/model.safetensors");
  for (int killed = 3; killed < kSteps; killed += 2) {
    const std::string out = test_.dir().File(absl::StrCat("killed", killed));
    TestRun::Steps(test_.Open(Request(out, mode)).get(), killed);
    TrainRequest resume = test_.Resume();
    resume.out = out;
    ASSERT_TRUE(Run(test_.Open(resume).get()).ok());
    EXPECT_EQ(Content(JoinPath(out, model)), Content(JoinPath(whole, model)));
    EXPECT_EQ(Content(JoinPath(out, "incidents.jsonl")),
              Content(JoinPath(whole, "incidents.jsonl")));
  }
}

TEST_F(DivergenceRunTest, EndsAfterMaxDivergences) {
  const auto run = test_.Open(Request(test_.out(), {{"on_divergence", "SKIP"},
                                                    {"learning_rate", "1e30"},
                                                    {"warmup_steps", "0"},
                                                    {"max_divergences", "3"}}));
  const absl::Status status = Run(run.get());
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("one more than max_divergences, 3"));
  EXPECT_EQ(run->incidents().skips, 3);
  EXPECT_EQ(Incidents(test_.out()).size(), 4u);
  EXPECT_EQ(Incidents(test_.out()).back()["kind"], "stop");
}

TEST_F(DivergenceRunTest, CheckpointsHoldFiniteWeights) {
  poison_rows = 0;
  for (const char* mode : {"STOP", "SKIP"}) {
    const std::string out = test_.dir().File(mode);
    const auto run = test_.Open(Request(out, {{"learning_rate", "1e39"},
                                              {"warmup_steps", "0"},
                                              {"checkpoint_interval", "1"},
                                              {"on_divergence", mode},
                                              {"max_divergences", "2"}}));
    const absl::Status status = Run(run.get());
    EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("diverged at step 1: its update overflowed; "),
                      HasSubstr(" is not finite though the gradient was")));
    EXPECT_EQ(run->step(), 0);
    EXPECT_FALSE(fs::exists(JoinPath(out, "checkpoints/step-000001")));
  }
}

TEST_F(DivergenceRunTest, DeletedDirectoryIsReported) {
  for (const char* mode : {"STOP", "SKIP"}) {
    const std::string out = test_.dir().File(mode);
    const auto run =
        test_.Open(Request(out, {{"on_divergence", mode}, {"checkpoint_interval", "100"}}));
    TestRun::Steps(run.get(), 2);
    fs::remove_all(out);
    const absl::Status status = Run(run.get());
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(": was removed or replaced"));
  }
}

// Sixty documents of the same letter, and then two of others, in the order of the file.
TEST_F(DivergenceRunTest, SpikesDoNotMarkGoodCheckpoints) {
  poison_rows = 0;
  std::string data;
  for (int i = 0; i < 60; ++i) data += "aaaaaa\n";
  test_.dir().Write("data.txt", data + "bcdbcd\ndcbdcb\n");
  const auto run = test_.Open(Request(test_.out(), {{"batch_size", "1"},
                                                    {"max_steps", "61"},
                                                    {"keep_checkpoints", "1"},
                                                    {"schedule", "CONSTANT"},
                                                    {"learning_rate", "0.03"},
                                                    {"data.keep_order", "true"}}));
  std::vector<TrainIncident> incidents;
  ASSERT_TRUE(Run(run.get(), &incidents).ok());
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].kind, TrainIncident::Kind::kSpike);
  EXPECT_EQ(incidents[0].step, 61);
  EXPECT_THAT(incidents[0].message, testing::ContainsRegex("the loss jumps at step 61 to [0-9.]+, "
                                                           "from a median of 0[0-9.]*; [0-9]+ %"));
  EXPECT_EQ(run->incidents().spikes, 1);
  EXPECT_EQ(Incidents(test_.out())[0]["kind"], "spike");
  EXPECT_EQ(Content(RunFile("latest")), "step-000061\n");
  EXPECT_EQ(Content(RunFile("last_good")), "step-000060\n");
  EXPECT_TRUE(fs::exists(RunFile("checkpoints/step-000060"))) << "though keep_checkpoints is 1";
}

}  // namespace
}  // namespace plumb
