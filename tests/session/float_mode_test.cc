// SPDX-License-Identifier: Apache-2.0
// Checks that steps, evaluation and decoding compute with denormals flushed to zero, on every
// thread, and restore the caller's floating-point mode.
#include "runtime/base/float_mode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cfenv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "runtime/kernels/simd/tensor_stats.h"
#include "runtime/session/decode_session.h"
#include "tests/app/evaluate.h"
#include "tests/session/recipe_fixture.h"
#include "tests/spec/centering_norm.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

constexpr float kDenormal = 1e-40f;

bool KeepsDenormals() {
  volatile float small = std::numeric_limits<float>::min();
  volatile float half = small / 2;
  return half != 0;
}

// A norm that counts calls by floating-point mode; each function works as CenteringNorm's.
std::atomic<int> flushed_calls, kept_calls;

void CountCall() { ++(KeepsDenormals() ? kept_calls : flushed_calls); }

const plumb_norm_plugin* CountingNorm() {
  static const plumb_norm_plugin table = [] {
    plumb_norm_plugin norm = *CenteringNorm();
    norm.id = norm.name = "test.counting";
    norm.forward = [](const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                      int64_t r1) {
      CountCall();
      return CenteringNorm()->forward(instance, call, r0, r1);
    };
    norm.backward = [](const plumb_norm_instance* instance, const plumb_norm_call* call, int64_t r0,
                       int64_t r1) {
      CountCall();
      return CenteringNorm()->backward(instance, call, r0, r1);
    };
    norm.stats_partial = [](const plumb_norm_instance* instance, uint32_t phase,
                            const plumb_norm_call* call, int64_t r0, int64_t r1, void* partial) {
      CountCall();
      return CenteringNorm()->stats_partial(instance, phase, call, r0, r1, partial);
    };
    return norm;
  }();
  return &table;
}

// Returns documents of one letter; the first has others once, so their rows of the embedding get a
// gradient in the first step of an epoch only.
Dataset RareLetters() {
  std::string content = "abcd\n";
  for (int i = 0; i < 400; ++i) content += "aaaa\n";
  DatasetOptions options;
  options.format = DatasetOptions::Format::kDocuments;
  options.val_fraction = 0;
  return *Dataset::FromContent(content, "rare.txt", options);
}

// Returns a recipe with which moments of those rows become denormal within a hundred steps. The
// smallest ones then stop decaying: 0.6 of the smallest denormal is rounded to itself.
TrainSpec FastDecay() {
  TrainSpec spec;
  spec.batch_size = 1;
  spec.keep_order = true;
  spec.beta1 = spec.beta2 = 0.6;
  return spec;
}

int CountDenormals(const float* x, int64_t n) {
  return static_cast<int>(
      std::count_if(x, x + n, [](float f) { return std::fpclassify(f) == FP_SUBNORMAL; }));
}

class FloatModeTest : public RecipeTest {
 protected:
  FloatModeTest() { EXPECT_TRUE(runtime_->RegisterPlugin(CountingNorm()).ok()); }

  static TinyModel Counting() {
    TinyModel model;
    model.norm = "n";
    model.vocab_size = 6;
    model.more = "norm { name: \"n\" plugin: \"test.counting\" allow_cross_token: true }";
    return model;
  }
  // Returns a model wide enough that ops and the optimizer share their work between threads.
  static TinyModel Wide() {
    TinyModel model;
    model.d_model = 128;
    model.d_ff = 512;
    model.vocab_size = 40;
    return model;
  }
};

TEST_F(FloatModeTest, ScopeRestoresTheMode) {
  const FloatMode before = FloatMode::Current();
  ASSERT_TRUE(KeepsDenormals());
  {
    const ScopedNoDenormals outer;
    EXPECT_FALSE(KeepsDenormals());
    {
      const ScopedNoDenormals inner;
      EXPECT_FALSE(KeepsDenormals());
    }
    EXPECT_FALSE(KeepsDenormals());
    std::feraiseexcept(FE_INEXACT);
  }
  EXPECT_TRUE(FloatMode::Current() == before);
  EXPECT_NE(std::fetestexcept(FE_INEXACT), 0) << "a flag that was raised inside was lost";
}

TEST_F(FloatModeTest, StepKeepsTheCallersMode) {
  const auto context = MakeContext(runtime_.get(), Counting().Text());
  const Dataset data = TextDataset(400, 6);
  TrainSpec spec;
  spec.gradient_accumulation_steps = 2;
  const auto session = Make(*context, data, spec);
  ASSERT_TRUE(session->SetProbe(2, {}).ok());
  StepProfile profile;
  for (const bool flushes : {false, true}) {
    for (const int rounding : {FE_TONEAREST, FE_UPWARD}) {
      std::optional<ScopedNoDenormals> callers;
      if (flushes) callers.emplace();
      std::fesetround(rounding);
      const FloatMode before = FloatMode::Current();
      for (StepProfile* timed : {&profile, static_cast<StepProfile*>(nullptr)}) {
        session->SetProfile(timed);
        const auto step = session->Step();
        ASSERT_TRUE(step.ok()) << step.status();
        EXPECT_TRUE(FloatMode::Current() == before);
      }
      std::fesetround(FE_TONEAREST);
    }
  }
}

TEST_F(FloatModeTest, FailedStepKeepsTheCallersMode) {
  const FloatMode before = FloatMode::Current();
  const auto context = MakeContext(runtime_.get(), Counting().Text());
  const Dataset out_of_range = TextDataset(400, 9);
  const auto failing = Make(*context, out_of_range, TrainSpec());
  const absl::Status failed = failing->Step().status();
  EXPECT_FALSE(failed.ok());
  EXPECT_FALSE(absl::IsAborted(failed)) << failed;
  EXPECT_TRUE(FloatMode::Current() == before);

  const Dataset data = TextDataset(400, 6);
  const auto diverging = Make(*context, data, TrainSpec());
  ASSERT_TRUE(diverging->SetProbe(1, {}).ok());
  diverging->parameters().data()[0] = std::numeric_limits<float>::quiet_NaN();
  absl::Status status;
  for (int i = 0; i < 20 && status.ok(); ++i) status = diverging->Step().status();
  EXPECT_TRUE(absl::IsAborted(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("not finite"));
  EXPECT_TRUE(FloatMode::Current() == before);
}

TEST_F(FloatModeTest, PluginsRunWithDenormalsFlushedOnEveryThread) {
  TinyModel model = Counting();
  model.d_model = 128;
  model.context_length = 64;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextDataset(4000, 6, 0.25);
  for (const int threads : {1, 3}) {
    flushed_calls = kept_calls = 0;
    TrainSpec spec;
    spec.batch_size = 4;
    const auto session = Make(*context, data, spec, threads);
    ASSERT_TRUE(session->Step().ok());
    const int after_training = flushed_calls;
    auto eval = EvalSession::Create(context.get(), &session->weights(), &data, Split::kValidation,
                                    4, threads);
    ASSERT_TRUE((*eval)->Run(2).ok());
    const int after_evaluation = flushed_calls;
    DecodeSession decode(context.get(), &session->parameters(), threads);
    ASSERT_TRUE(decode.Feed({1, 2, 3}).ok());
    ASSERT_TRUE(decode.Feed({4}).ok());
    EXPECT_GT(after_training, 0);
    EXPECT_GT(after_evaluation, after_training);
    EXPECT_GT(flushed_calls, after_evaluation);
    EXPECT_EQ(kept_calls, 0);
    EXPECT_TRUE(KeepsDenormals());
  }
}

TEST_F(FloatModeTest, MomentsOfRowsWithoutGradientsDecayToZero) {
  TinyModel model;
  model.vocab_size = 5;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = RareLetters();
  const auto session = Make(*context, data, FastDecay());
  const int64_t n = session->parameters().layout().size;
  std::ptrdiff_t zeros = 0, min_zeros = n;
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(session->Step().ok());
    const int denormals =
        CountDenormals(session->first_moments(), n) + CountDenormals(session->second_moments(), n);
    ASSERT_EQ(denormals, 0) << "after step " << i + 1;
    zeros = std::count(session->second_moments(), session->second_moments() + n, 0.0f);
    min_zeros = std::min(min_zeros, zeros);
  }
  EXPECT_GT(zeros, min_zeros) << "the test decays nothing";
}

// Returns the numbers that must be bit-identical: losses and norms of gradients, then the weights.
std::vector<double> ComputeLosses(TrainSession* session, int steps) {
  std::vector<double> trace;
  for (int i = 0; i < steps; ++i) {
    const auto step = session->Step();
    EXPECT_TRUE(step.ok()) << step.status();
    if (!step.ok()) break;
    trace.push_back(step->loss);
    trace.push_back(step->grad_norm);
  }
  const ParameterStore& parameters = session->parameters();
  const int64_t n = parameters.layout().size;
  for (const float* numbers : {static_cast<const float*>(parameters.data()),
                               session->first_moments(), session->second_moments()}) {
    trace.insert(trace.end(), numbers, numbers + n);
  }
  return trace;
}

TEST_F(FloatModeTest, ThreadsAndCallersModeChangeNoBit) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = RareLetters();
  const int steps = 150;
  const auto first = Make(*context, data, FastDecay());
  const std::vector<double> expected = ComputeLosses(first.get(), steps);
  for (const bool flushes : {false, true}) {
    std::optional<ScopedNoDenormals> callers;
    if (flushes) callers.emplace();
    for (const int threads : {1, 2, 3}) {
      const auto session = Make(*context, data, FastDecay(), threads);
      EXPECT_EQ(ComputeLosses(session.get(), steps), expected) << threads << " threads";
    }
  }
}

// Denormal weights, as a checkpoint from another program may have.
TEST_F(FloatModeTest, EvaluationAndDecodingReadDenormalsAsZeros) {
  const auto context = MakeContext(runtime_.get(), Wide().Text());
  const Dataset data = TextDataset(400, 20, 0.25);
  const std::vector<int32_t> tokens = RandomTokens(1, 8, 20)[0];
  const auto results = [&](float small, WeightFormat format, int threads) {
    const ParameterStore parameters = GenericParameters(*context);
    for (int64_t i = 0; i < parameters.layout().size; i += 3) parameters.data()[i] = small;
    for (const ParameterLayout::Entry& entry : parameters.layout().entries) {
      // The logits are denormal, if anything is.
      if (entry.name != "head.weight") continue;
      std::fill(parameters.data() + entry.begin, parameters.data() + entry.end, small);
    }
    const PackedWeights weights(*context, format, parameters, threads);
    std::vector<double> numbers;
    auto eval =
        *EvalSession::Create(context.get(), &weights, &data, Split::kValidation, 2, threads);
    const auto evaluated = eval->Run(0);
    EXPECT_TRUE(evaluated.ok()) << evaluated.status();
    numbers.push_back(evaluated->loss);
    DecodeSession decode(context.get(), &weights, 1, threads);
    for (const int32_t token : tokens) {
      EXPECT_TRUE(decode.Feed(absl::MakeConstSpan(&token, 1)).ok());
      numbers.insert(numbers.end(), decode.logits(), decode.logits() + 40);
    }
    return numbers;
  };
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    const std::vector<double> expected = results(0, format, 1);
    for (const bool flushes : {false, true}) {
      std::optional<ScopedNoDenormals> callers;
      if (flushes) callers.emplace();
      const FloatMode before = FloatMode::Current();
      for (const int threads : {1, 2}) {
        EXPECT_EQ(results(kDenormal, format, threads), expected);
        EXPECT_TRUE(FloatMode::Current() == before);
      }
    }
  }
}

TEST_F(FloatModeTest, StatisticsCountDenormalsAsZeros) {
  for (const size_t n : {size_t{1}, size_t{7}, size_t{100}, size_t{70000}}) {
    std::vector<float> x(n, kDenormal);
    for (const float large : {kDenormal, 2.0f}) {
      x[n / 2] = large;
      const double must = large == 2.0f ? 2.0 : 0.0;
      for (const bool flushes : {false, true}) {
        std::optional<ScopedNoDenormals> callers;
        if (flushes) callers.emplace();
        const TensorStats stats = ComputeStats(x.data(), static_cast<int64_t>(n), 2);
        EXPECT_EQ(stats.count, static_cast<int64_t>(n));
        EXPECT_EQ(stats.sum, must);
        EXPECT_EQ(stats.sum_squares, must * must);
        EXPECT_EQ(static_cast<double>(stats.max_abs), must);
      }
    }
  }
}

}  // namespace
}  // namespace plumb
