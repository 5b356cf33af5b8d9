// SPDX-License-Identifier: Apache-2.0
// Checks that the planned and reported memory of a training session is what it allocates.
#include "runtime/session/train_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/session/train_session.h"
#include "tests/app/test_models.h"
#include "tests/session/count_mallocs.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

using ::testing::HasSubstr;

struct Recipe {
  const char* name;
  DType dtype;
  bool recompute;
  int64_t micro_batches;
};

const Recipe kRecipes[] = {
    {"f32", DType::kF32, false, 1},
    {"f32_accumulated", DType::kF32, false, 3},
    {"f32_recomputed", DType::kF32, true, 1},
    {"bf16", DType::kBF16, false, 1},
    {"bf16_recomputed_accumulated", DType::kBF16, true, 2},
};

class TrainMemoryTest : public ::testing::TestWithParam<Recipe> {
 protected:
  static TrainSpec Spec() {
    TrainSpec spec;
    spec.batch_size = 4;
    spec.dtype = GetParam().dtype;
    spec.recompute_blocks = GetParam().recompute;
    spec.gradient_accumulation_steps = GetParam().micro_batches;
    return spec;
  }

  // Checks that the session's buffers have the planned sizes.
  static void ExpectPlanned(const ModelContext& context) {
    const Dataset data = TextDataset(2000, 26);
    // Threads allocate their own memory in the first step of a process.
    ASSERT_TRUE((*TrainSession::Create(&context, &data, Spec(), 2))->Step().ok());
    const int64_t before = LiveAlignedBytes();
    const auto session = *TrainSession::Create(&context, &data, Spec(), 2);
    ASSERT_TRUE(session->Step().ok());
    const TrainMemory memory = session->memory();
    // The ids of micro-batches are in vectors, and everything else is in aligned buffers.
    const int64_t ids = GetParam().micro_batches * Batch::Bytes(4, 32);
    if (before >= 0) {
      EXPECT_EQ(LiveAlignedBytes() - before, memory.total() - ids);
      // Further steps allocate nothing.
      ASSERT_TRUE(session->Step().ok());
      EXPECT_EQ(LiveAlignedBytes() - before, memory.total() - ids);
    }

    const auto planned = PlanTrainMemory(context, Spec(), 32);
    ASSERT_TRUE(planned.ok()) << planned.status();
    EXPECT_EQ(planned->weights, memory.weights);
    EXPECT_EQ(planned->gradients, memory.gradients);
    EXPECT_EQ(planned->moments, memory.moments);
    EXPECT_EQ(planned->norm_states, memory.norm_states);
    EXPECT_EQ(planned->inputs, memory.inputs);
    EXPECT_EQ(planned->workspace, memory.workspace);
    EXPECT_EQ(planned->total(), memory.total());
  }

  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(2);
};

TinyModel Model() {
  TinyModel model;
  model.n_layer = 3;
  model.n_head = model.n_kv_head = 4;
  model.d_model = 64;
  model.d_ff = 256;
  model.context_length = 32;
  model.vocab_size = 26;
  return model;
}

// Pre-norm, and rules that keep results of layers for later ones.
constexpr const char* kPlacements[] = {"pre", "denseformer", "hyper_connections",
                                       "attention_residuals", "value_residual"};

TEST_P(TrainMemoryTest, EqualsTheBuffersOfTheSession) {
  for (const char* placement : kPlacements) {
    SCOPED_TRACE(placement);
    TinyModel model = Model();
    model.placement = placement;
    ExpectPlanned(*MakeContext(runtime_.get(), model.Text()));
  }
}

TEST_P(TrainMemoryTest, PlansTheMemoryOfExperts) {
  std::string text = Model().Text();
  text.resize(text.find("block"));
  ExpectPlanned(*MakeContext(
      runtime_.get(),
      absl::StrCat(
          text, "block { placement: \"pre\" norm: \"rms_norm\" sublayer { attention {} } ",
          "sublayer { experts { n_expert: \"5\" top_k: \"2\" d_ff: \"40\" gated: true bias: true ",
          "shared_d_ff: \"16\" shared_gate: true balance_loss: \"0.1\" } } }")));
}

// Returns the resident bytes of this process.
int64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  int64_t size = 0, resident = 0;
  file >> size >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

TEST_P(TrainMemoryTest, EqualsTheGrowthOfTheProcess) {
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "the sanitizer's own memory is more";
#endif
  TinyModel model = Model();
  model.d_model = 256;
  model.d_ff = 1024;
  model.n_layer = 4;
  const auto context = MakeContext(runtime_.get(), model.Text());
  const Dataset data = TextDataset(2000, 26);
  TrainSpec spec = Spec();
  spec.batch_size = 16;
  malloc_trim(0);  // freed blocks would be reused
  const int64_t before = ResidentBytes();
  const auto session = *TrainSession::Create(context.get(), &data, spec, 2);
  ASSERT_TRUE(session->Step().ok());
  const double grown = static_cast<double>(ResidentBytes() - before);
  const double said = static_cast<double>(session->memory().total());
  // Buffers occupy whole huge pages, and programs, kernels and threads' stacks are added.
  constexpr double kOverhead = 32 << 20;
  EXPECT_GT(said, 60e6);
  EXPECT_GT(grown, 0.95 * said - (4 << 20));
  EXPECT_LT(grown, 1.02 * said + kOverhead);
}

std::string GetName(const ::testing::TestParamInfo<Recipe>& recipe) { return recipe.param.name; }
INSTANTIATE_TEST_SUITE_P(Recipes, TrainMemoryTest, ::testing::ValuesIn(kRecipes), GetName);

TEST(TrainMemorySizesTest, RecomputationAndBf16TakeLess) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(1);
  const auto context = MakeContext(runtime.get(), Model().Text());
  TrainSpec spec;
  spec.batch_size = 16;
  const TrainMemory plain = *PlanTrainMemory(*context, spec, 32);
  spec.recompute_blocks = true;
  const TrainMemory recomputed = *PlanTrainMemory(*context, spec, 32);
  EXPECT_LT(recomputed.workspace, 0.7 * static_cast<double>(plain.workspace));
  spec.recompute_blocks = false;
  spec.dtype = DType::kBF16;
  const TrainMemory bf16 = *PlanTrainMemory(*context, spec, 32);
  EXPECT_LT(bf16.workspace, 0.75 * static_cast<double>(plain.workspace));
  EXPECT_EQ(bf16.weights, plain.weights);
  EXPECT_EQ(bf16.total() - bf16.workspace, plain.total() - plain.workspace);
}

TEST(TrainMemorySizesTest, RefusesSizesThatOverflow) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(1);
  TinyModel model = Model();
  model.context_length = 1 << 20;
  model.vocab_size = 1 << 20;
  model.positions = "ROPE";
  const auto context = MakeContext(runtime.get(), model.Text());
  TrainSpec spec;
  spec.batch_size = 1 << 20;  // 2^62 bytes of logits
  const absl::Status status = PlanTrainMemory(*context, spec, 1 << 20).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("[batch 1048576, sequence 1048576, "
                                                       "vocab_size 1048576]"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("make batch_size"));
  spec.batch_size = 1;
  EXPECT_TRUE(PlanTrainMemory(*context, spec, 1 << 20).ok()) << "4 TB can be planned";
}

TEST(TrainMemorySizesTest, UnaddressableWeightsAreAnError) {
  const std::unique_ptr<Runtime> runtime = MakeRuntime(1);
  TinyModel model = Model();
  model.d_model = 1 << 22;
  model.d_ff = 1 << 22;
  const auto context = TryContext(runtime.get(), model.Text());
  ASSERT_TRUE(context.ok()) << context.status();
  const absl::Status status = PlanTrainMemory(**context, TrainSpec(), 8).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the model's weights"));
}

}  // namespace
}  // namespace plumb
