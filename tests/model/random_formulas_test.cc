// SPDX-License-Identifier: Apache-2.0
// Tests random formulas, from their text to a memory plan and, for a sample, to one pass of a
// training step, which is compared with the graph's reference. None may crash, hang or take much
// memory.
//
// PLUMB_RANDOM_FORMULAS=100000 tests as many, PLUMB_RANDOM_FORMULAS_FROM=n starts at the n-th,
// PLUMB_RANDOM_FORMULAS_RUN_EVERY=1 runs all accepted ones instead of one in ten.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/rng.h"
#include "runtime/client/model.h"
#include "runtime/compile/memory_plan.h"
#include "runtime/model/build.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"
#include "tests/model/random_placement.h"

namespace plumb {
namespace {

constexpr int64_t kBatch = 2, kSeq = 4;
constexpr double kMaxSeconds = 20;  // limit for one model on a busy machine
constexpr int64_t kMaxKiB = int64_t{1} << 20;

uint64_t FromEnvironment(const char* name, uint64_t otherwise) {
  const char* const text = std::getenv(name);
  uint64_t value = 0;
  return text != nullptr && absl::SimpleAtoi(text, &value) ? value : otherwise;
}

int64_t PeakKiB() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss;
}

class RandomFormulasTest : public ::testing::Test {
 protected:
  // Describes the model, builds its training step and plans its memory. Returns false if the text
  // is refused.
  bool Compile(const std::string& text, bool describe) {
    context_.reset();
    absl::StatusOr<std::unique_ptr<ModelContext>> context = TryContext(runtime_.get(), text);
    if (!context.ok()) {
      EXPECT_EQ(context.status().code(), absl::StatusCode::kInvalidArgument) << context.status();
      EXPECT_EQ(context.status().message().find("test.pbtxt"), 0u) << context.status();
      return false;
    }
    context_ = *std::move(context);
    if (describe) {
      const auto model = TryModel(host_.get(), text);
      EXPECT_TRUE(model.ok() && model->Describe().ok());
    }
    const absl::StatusOr<Graph> graph = Program();
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!graph.ok()) return false;
    const absl::StatusOr<MemoryPlan> plan = PlanMemory(*graph);
    EXPECT_TRUE(plan.ok()) << plan.status();
    return true;
  }

  // Returns the training program. Without passes it consists of the formulas' ops, one by one.
  absl::StatusOr<Graph> Program(const OptimizeOptions& passes = {}) const {
    BuildOptions options;
    options.program = plumb::Program::kTrain;
    options.batch = kBatch;
    options.seq = kSeq;
    options.output_logits = true;
    options.drop = false;  // RunBatch does not drop
    return BuildProgram(*context_, options, /*gradients=*/true, passes);
  }

  // Compares one pass with the reference if f32 can agree: values must be of moderate size, and the
  // results must hardly change if weights change by little more than their rounding. Gradients that
  // are differences of large values, as in a saturated softmax, change. Returns true if the
  // comparison was possible.
  bool AgreesWithTheReference() {
    ParameterStore parameters = GenericParameters(*context_);
    const Tokens tokens = RandomTokens(kBatch, kSeq, context_->model.dims.vocab_size);
    ReferenceTensors feeds = Feeds(parameters, tokens);
    feeds[kRandomInput] = {I32({kRandomWords}), {}, std::vector<int32_t>(kRandomWords, 0)};
    const auto expected = ReferenceRun(*Program(OnlyPasses({})), feeds);
    EXPECT_TRUE(expected.ok()) << expected.status();
    const auto outputs = RunBatch(*context_, parameters, tokens, /*with_gradients=*/true, 1);
    EXPECT_TRUE(outputs.ok()) << outputs.status();
    if (!expected.ok() || !outputs.ok()) return false;
    const std::vector<double> gradients = Gradients(*expected, parameters.layout());
    const std::vector<double>& logits = expected->at("logits").f;
    if (!IsTame(logits) || !IsTame(gradients)) return false;
    const RngStream stream(3, "nearby");
    float* const values = parameters.data();
    for (int64_t k = 0; k < parameters.layout().size; ++k) {
      values[k] *= static_cast<float>(1 + 1e-6 * stream.Normal(static_cast<uint64_t>(k)));
    }
    const auto nearby = RunBatch(*context_, parameters, tokens, /*with_gradients=*/true, 1);
    EXPECT_TRUE(nearby.ok()) << nearby.status();
    if (!nearby.ok() || RelativeError(nearby->logits, outputs->logits) > 1e-4 ||
        RelativeError(nearby->gradients, outputs->gradients) > 1e-4) {
      return false;
    }
    EXPECT_LE(RelativeError(outputs->logits, logits), 1e-3);
    EXPECT_LE(RelativeError(outputs->gradients, gradients), 1e-3);
    return true;
  }

  static std::vector<double> Gradients(const ReferenceTensors& results,
                                       const ParameterLayout& layout) {
    std::vector<double> gradients(static_cast<size_t>(layout.size), 0);
    for (const ParameterLayout::Entry& entry : layout.entries) {
      const std::vector<double>& gradient = results.at("grad." + entry.name).f;
      std::copy(gradient.begin(), gradient.end(), gradients.begin() + entry.begin);
    }
    return gradients;
  }

  static bool IsTame(const std::vector<double>& values) {
    double largest = 0;
    for (const double value : values) {
      if (!std::isfinite(value)) return false;
      largest = std::max(largest, std::fabs(value));
    }
    return largest > 1e-4 && largest < 1e3;
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime();
  const std::unique_ptr<HostRuntime> host_ = MakeHostRuntime();
  std::unique_ptr<ModelContext> context_;
};

TEST_F(RandomFormulasTest, AgreeWithTheReferenceOrAreRefused) {
  const uint64_t first = FromEnvironment("PLUMB_RANDOM_FORMULAS_FROM", 0);
  const uint64_t count = FromEnvironment("PLUMB_RANDOM_FORMULAS", 3000);
  const int64_t every =
      static_cast<int64_t>(FromEnvironment("PLUMB_RANDOM_FORMULAS_RUN_EVERY", 10));
  uint64_t seen = 0;
  int64_t accepted = 0, run = 0, compared = 0;
  double slowest = 0;
  for (uint64_t i = first; i < first + count; ++i) {
    const std::string text = RandomModel(i);
    ++seen;
    SCOPED_TRACE(absl::StrCat("formulas ", i, ":\n", text));
    const auto begin = std::chrono::steady_clock::now();
    if (Compile(text, /*describe=*/i % 8 == 0)) {
      ++accepted;
      if (accepted % every == 0) {
        ++run;
        compared += AgreesWithTheReference();
      }
    }
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    slowest = std::max(slowest, taken.count());
    ASSERT_LT(taken.count(), kMaxSeconds);
    ASSERT_LT(PeakKiB(), kMaxKiB);
    if (::testing::Test::HasFailure()) break;
  }
  std::cout << seen << " models: " << accepted << " accepted, " << run << " run, " << compared
            << " compared; " << slowest << " s for the slowest, " << PeakKiB() / 1024 << " MiB\n";
  if (seen < 1000) return;  // a short run has no statistics of the generator
  EXPECT_GT(accepted, static_cast<int64_t>(seen) / 3);
  EXPECT_LT(accepted, static_cast<int64_t>(seen) * 9 / 10);
  EXPECT_GT(compared, run / 2);
}

}  // namespace
}  // namespace plumb
