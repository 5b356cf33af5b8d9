// SPDX-License-Identifier: Apache-2.0
// Checks that a training step and a decoded token allocate nothing once their length has been seen,
// except oneDNN's packing buffers of large products, which are the same in every step.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/thread_pool.h"
#include "runtime/client/model.h"
#include "runtime/client/recipe.h"
#include "runtime/data/batches.h"
#include "runtime/onednn/gemm.h"
#include "runtime/onednn/library.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/sampler.h"
#include "runtime/session/train_session.h"
#include "runtime/train/data_passes.h"
#include "runtime/train/metrics.h"
#include "tests/app/evaluate.h"
#include "tests/app/test_models.h"
#include "tests/session/count_mallocs.h"
#include "tests/session/scratch_dir.h"
#include "tests/session/test_datasets.h"

namespace plumb {
namespace {

template <class Body>
int64_t CountAllocations(const Body& body) {
  const int64_t before = MallocCount();
  body();
  return MallocCount() - before;
}

TEST(StepAllocationTest, CountsAllocations) {
  void* volatile memory = nullptr;
  EXPECT_EQ(CountAllocations([&] { memory = std::malloc(10); }), 1);
  std::free(memory);
  EXPECT_GE(CountAllocations([&] { std::vector<int> v(100, 1), w(v); }), 2);
  EXPECT_GE(CountAllocations([&] { AlignedBuffer buffer(1 << 10); }), 1);
}

TEST(StepAllocationTest, FillingBatchesAllocatesNothing) {
  for (const Dataset& dataset : {Documents(60, 1, 13, 0.3), TextDataset(400, 26, 0.3)}) {
    TrainBatches::Options train;
    train.batch_size = 4;
    train.context_length = 10;
    TrainBatches batches = *TrainBatches::Create(&dataset, train);
    Batch batch = batches.MakeBatch();
    // Batches from the first on, over the ends of epochs, and back.
    EXPECT_EQ(CountAllocations([&] {
                for (int64_t i = 0; i < 100; ++i) batches.Fill(i, &batch);
                batches.Fill(7, &batch);
              }),
              0);
    EvalBatches::Options eval;
    eval.batch_size = 4;
    eval.context_length = 10;
    const EvalBatches validation = *EvalBatches::Create(&dataset, Split::kValidation, eval);
    Batch eval_batch = validation.MakeBatch();
    EXPECT_EQ(CountAllocations([&] {
                for (int64_t i = 0; i < validation.size(); ++i) validation.Fill(i, &eval_batch);
              }),
              0);
  }
}

TEST(StepAllocationTest, DrawingTokensAllocatesNothing) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 37 % 101) / 10;
  const RngStream stream(1, "test");
  for (double temperature : {0.0, 0.7}) {
    for (int top_k : {0, 40}) {
      for (double top_p : {1.0, 0.9}) {
        SamplingOptions options;
        options.temperature = temperature;
        options.top_k = top_k;
        options.top_p = top_p;
        TokenSampler sampler = *TokenSampler::Create(options, 1000);
        int64_t sum = 0;
        EXPECT_EQ(CountAllocations([&] {
                    for (uint64_t i = 0; i < 20; ++i)
                      sum += *sampler.Draw(logits.data(), stream, i);
                  }),
                  0);
        EXPECT_GT(sum, 0);
      }
    }
  }
}

TEST(StepAllocationTest, AppendingMetricsAllocatesNothing) {
  ScratchDir dir;
  MetricsWriter writer = *MetricsWriter::Open(dir.File("metrics.csv"));
  StepMetrics metrics;
  metrics.loss = 1.0f / 3;
  metrics.val_loss = 2.5;
  EXPECT_EQ(CountAllocations([&] {
              for (int64_t i = 0; i < 20; ++i) {
                metrics.step = i;
                writer.Append(metrics).IgnoreError();
              }
            }),
            0);
  EXPECT_EQ(ReadMetrics(dir.File("metrics.csv"))->size(), 20u);
}

// Computes one product by oneDNN on each of `threads` threads at once. oneDNN's OpenMP allocates
// memory for a thread at the thread's first product. Work stealing makes the step in which this
// happens random.
void MultiplyByOneDnnOnEach(int threads) {
  if (!OneDnn().usable()) return;
  struct Shared {
    const int threads;
    std::atomic<int> arrived{0};
  } shared{threads};
  const auto task = [](const void* context, int64_t, int) {
    Shared& all = *static_cast<Shared*>(const_cast<void*>(context));
    for (++all.arrived; all.arrived < all.threads;) std::this_thread::yield();
    const std::vector<float> a(64 * 64, 1), b(a);
    std::vector<float> c(a);
    const GemmArgs product{false, false,    64, 64,    64,       a.data(),
                           64,    b.data(), 64, false, c.data(), 64};
    EXPECT_TRUE(OneDnnGemm(DType::kF32, product).ok());
    EXPECT_EQ(c[0], 64);
  };
  RunOnPool(threads, threads, task, &shared);
}

class SessionAllocationTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { MultiplyByOneDnnOnEach(threads_); }

  // Expects that steps after the first allocate nothing, in f32 and in bf16.
  void ExpectNoAllocations(const std::string& model, const Dataset& data, const std::string& recipe,
                           bool probes = false) {
    const auto context = MakeContext(runtime_.get(), model);
    for (const char* dtype : {" dtype: F32", " dtype: BF16"}) {
      const TrainSpec spec = *ParseTrainSpec(recipe + dtype, "recipe", {});
      const auto session = *TrainSession::Create(context.get(), &data, spec, threads_);
      ASSERT_TRUE(session->SetProbe(probes ? 1 : 0, {}).ok());
      ASSERT_TRUE(session->Step().ok());
      bool ok = true;
      const int64_t allocations = CountAllocations([&] {
        for (int step = 0; step < 3; ++step) ok = session->Step().ok() && ok;
      });
      EXPECT_TRUE(ok);
      if (ExcludesOneDnnMallocs()) {
        EXPECT_EQ(allocations, 0) << dtype;
      }
      EXPECT_EQ(session->probe() != nullptr, probes);
    }
  }

  const int threads_ = GetParam();
  const std::unique_ptr<Runtime> runtime_ = MakeRuntime(threads_);
};

std::string StudyModel() {
  return *ReadFile(absl::StrCat(PLUMB_SOURCE_DIR, "/examples/why_normalise/pre.pbtxt"));
}

// Returns a model whose products are partitioned for several threads.
std::string WideModel() {
  TinyModel model;
  model.placement = "double_qk";
  model.norm = "layer_norm";
  model.n_head = model.n_kv_head = 4;
  model.d_model = 128;
  model.d_ff = 512;
  model.context_length = 64;
  model.vocab_size = 26;
  model.positions = "ROPE";
  return model.Text();
}

// Returns a model whose head has long sums and blocks of many rows.
std::string LargeVocabularyModel() {
  TinyModel model;
  model.n_layer = 1;
  model.d_model = 768;
  model.d_ff = 768;
  model.context_length = 64;
  model.vocab_size = 20000;
  return model.Text();
}

// Returns a model with groups of rows some of which are multiplied by GEMV.
std::string ExpertsModel() {
  std::string text = WideModel();
  text.resize(text.find("block"));
  return absl::StrCat(text,
                      "block { placement: \"pre\" norm: \"rms_norm\" sublayer { attention {} } ",
                      "sublayer { experts { n_expert: \"6\" top_k: \"2\" gated: true bias: true ",
                      "shared_d_ff: \"64\" balance_loss: \"0.01\" } } }");
}

// Uses plumb.h, on batches that a callback fills.
TEST_P(SessionAllocationTest, StepAllocatesNothingForAKnownLength) {
  const auto runtime = MakeHostRuntime(threads_);
  const Dataset data = Documents(30, 2, 12);
  const ModelSource source = {
      StudyModel(), "study", {{"vocab_size", absl::StrCat(data.tokenizer().vocab_size())}}};
  api::Model model = *CreateModel(runtime.get(), *source.Parse());
  const Recipe recipe = *ParseRecipe("batch_size: 1", "recipe", {});
  TrainBatches batches = *MakeTrainBatches(&data, recipe, model.Info());
  Batch buffer = batches.MakeBatch();
  api::TrainerOptions options;
  options.recipe = recipe.text;
  options.seq = batches.max_seq();
  options.draw_weights = true;
  api::Trainer trainer = api::Trainer::Create(model, options).value();
  std::set<int64_t> lengths;
  int64_t seen_again = 0;
  for (int64_t batch = 0; batch < 120; ++batch) {
    int64_t tokens = 0;
    const int64_t allocations = CountAllocations([&] {
      const auto step = StepOnBatches(batch, &batches, &buffer, &trainer);
      if (step.ok()) tokens = step->tokens;
    });
    ASSERT_GT(tokens, 0);
    if (lengths.insert(tokens).second) continue;
    EXPECT_EQ(allocations, 0) << "step " << batch << " of " << tokens << " tokens";
    ++seen_again;
  }
  EXPECT_GT(seen_again, 100);
}

TEST_P(SessionAllocationTest, WideModelAllocatesNothingAfterAStep) {
  for (const std::string& text : {WideModel(), LargeVocabularyModel()}) {
    const auto context = MakeContext(runtime_.get(), text);
    const Dataset data = TextDataset(2000, 26);
    TrainSpec spec;
    spec.batch_size = 4;
    spec.gradient_accumulation_steps = 2;
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      spec.dtype = dtype;
      spec.recompute_blocks = dtype == DType::kBF16;
      const auto session = *TrainSession::Create(context.get(), &data, spec, threads_);
      ASSERT_TRUE(session->Step().ok());
      bool ok = true;
      std::array<OneDnnMallocs, 3> packed;
      const int64_t ours = CountAllocations([&] {
        for (OneDnnMallocs& step : packed) {
          const OneDnnMallocs before = OneDnnMallocCount();
          ok = session->Step().ok() && ok;
          const OneDnnMallocs after = OneDnnMallocCount();
          step = {after.count - before.count, after.bytes - before.bytes};
        }
      });
      EXPECT_TRUE(ok);
      if (!ExcludesOneDnnMallocs()) continue;
      EXPECT_EQ(ours, 0) << DTypeName(dtype);
      for (const OneDnnMallocs& step : packed) {
        EXPECT_EQ(step.count, packed[0].count);
        EXPECT_EQ(step.bytes, packed[0].bytes);
        EXPECT_LE(step.bytes, step.count * (int64_t{32} << 20)) << "a block of a product at a time";
      }
    }
  }
}

TEST_P(SessionAllocationTest, FullRecipeAllocatesNothingAfterAStep) {
  ExpectNoAllocations(
      WideModel(), TextDataset(2000, 26),
      "batch_size: 4 gradient_accumulation_steps: 2 optimizer: MUON muon { learning_rate: '2 * lr' "
      "} rule { match: '*.norm.*' learning_rate: '0.1 * lr' clip: '0.5' }");
}

TEST_P(SessionAllocationTest, MaskedTokensAllocateNothingAfterAStep) {
  TinyModel model;
  model.vocab_size = 7;
  model.more = "bidirectional: true token_types: 2";
  ExpectNoAllocations(model.Text(), Documents(40, 7, 7),
                      "batch_size: 4 masked_tokens { special_token: 5 }");
}

// Groups have other sizes in every step, so oneDNN packs more or less.
TEST_P(SessionAllocationTest, ExpertsAllocateNothingAfterAStep) {
  ExpectNoAllocations(ExpertsModel(), TextDataset(2000, 26), "batch_size: 4");
}

TEST_P(SessionAllocationTest, ProbesAllocateNothingAfterAStep) {
  ExpectNoAllocations(WideModel(), TextDataset(2000, 26),
                      "batch_size: 4 gradient_accumulation_steps: 2",
                      /*probes=*/true);
}

TEST_P(SessionAllocationTest, DecodingAllocatesNothingAfterAToken) {
  const std::string windowed = WideModel() + " attention { window: \"4\" }";
  for (const std::string& text :
       {StudyModel(), WideModel(), LargeVocabularyModel(), ExpertsModel(), windowed}) {
    const auto context = MakeContext(runtime_.get(), text);
    const ParameterStore parameters = GenericParameters(*context);
    DecodeSession decode(context.get(), &parameters, threads_);
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5};
    ASSERT_TRUE(decode.Feed(prompt).ok());
    ASSERT_TRUE(decode.Feed({prompt[0]}).ok());
    bool ok = true;
    EXPECT_EQ(CountAllocations([&] {
                for (int i = 0; i < 4; ++i) ok = decode.Feed({prompt[1]}).ok() && ok;
                decode.Reset();
                ok = decode.Feed(prompt).ok() && ok;  // a length that was seen
              }),
              0);
    EXPECT_TRUE(ok);
  }
}

TEST_P(SessionAllocationTest, BatchedDecodingAllocatesNothingAfterAStep) {
  for (const WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16, WeightFormat::kInt8}) {
    const auto context = MakeContext(runtime_.get(), WideModel());
    const ParameterStore parameters = GenericParameters(*context);
    const PackedWeights weights(*context, format, parameters, threads_);
    DecodeSession decode(context.get(), &weights, 3, threads_);
    const std::vector<int32_t> prompt = {1, 2, 3, 4, 5}, tokens = {3, 2, 1};
    ASSERT_TRUE(decode.Feed(0, prompt).ok());
    ASSERT_TRUE(decode.FeedBatch(tokens).ok());
    bool ok = true;
    EXPECT_EQ(CountAllocations([&] {
                for (int i = 0; i < 3; ++i) ok = decode.FeedBatch(tokens).ok() && ok;
                decode.Reset(1);
                ok = decode.Feed(1, prompt).ok() && ok;
                ok = decode.FeedBatch(tokens).ok() && ok;
              }),
              0);
    EXPECT_TRUE(ok);
  }
}

TEST_P(SessionAllocationTest, SecondEvaluationAllocatesNothing) {
  const auto context = MakeContext(runtime_.get(), StudyModel());
  const ParameterStore parameters = GenericParameters(*context);
  const Dataset data = Documents(30, 2, 12, /*val_fraction=*/0.5);
  const auto session =
      *EvalSession::Create(context.get(), &parameters, &data, Split::kValidation, 4, threads_);
  ASSERT_TRUE(session->Run(0).ok());
  bool ok = true;
  EXPECT_EQ(CountAllocations([&] { ok = session->Run(0).ok(); }), 0);
  EXPECT_TRUE(ok);
}

INSTANTIATE_TEST_SUITE_P(Threads, SessionAllocationTest, ::testing::Values(1, 2),
                         ::testing::PrintToStringParamName());

}  // namespace
}  // namespace plumb
