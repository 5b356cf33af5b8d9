// SPDX-License-Identifier: Apache-2.0
// Runs and readers of their models in concurrent threads of one process, which is how hosts and
// studies use them. They share only the pool of workers. Under ThreadSanitizer this test checks
// that sharing.
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/train/trained_model.h"
#include "tests/app/train_run_fixture.h"

namespace plumb {
namespace {

constexpr int kThreads = 3;

// Trains with validation and checkpoints. Returns the losses and a sample of the trained model.
std::string TrainAndSample(const TestRun& test, int seed, const std::string& out) {
  const std::unique_ptr<HostRuntime> runtime = MakeHostRuntime(/*threads=*/2);
  TrainRequest request = test.Request(out);
  request.seed = static_cast<uint64_t>(seed);
  request.train_overrides = {{"checkpoint_interval", "3"}, {"eval_interval", "2"}};
  request.probe.every = 4;
  auto run = TrainRun::Open(runtime.get(), request);
  if (!run.ok()) return std::string(run.status().message());
  std::string said;
  while (!(*run)->done()) {
    const auto step = (*run)->Step();
    if (!step.ok()) return std::string(step.status().message());
    absl::StrAppend(&said, step->loss, " ", step->val_loss.value_or(0), "\n");
  }
  const auto model = TrainedModel::Open(runtime.get(), out);
  if (!model.ok()) return std::string(model.status().message());
  const auto sample = (*model)->Generate(GenerateOptions());
  return absl::StrCat(said, sample.ok() ? sample->text : std::string(sample.status().message()));
}

TEST(ConcurrentRunsTest, ConcurrentRunsHaveTheSameBits) {
  const TestRun test;
  std::vector<std::string> alone, together(kThreads);
  for (int i = 0; i < kThreads; ++i) {
    alone.push_back(TrainAndSample(test, i + 1, test.dir().File(absl::StrCat("alone", i))));
    ASSERT_NE(alone.back().find('\n'), std::string::npos) << alone.back();
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&test, &together, i] {
      together[static_cast<size_t>(i)] =
          TrainAndSample(test, i + 1, test.dir().File(absl::StrCat("together", i)));
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace plumb
