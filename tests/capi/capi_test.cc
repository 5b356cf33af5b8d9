// SPDX-License-Identifier: Apache-2.0
// Results of plumb.h equal those of the modules below it, bit for bit.
#include <cmath>
#include <thread>

#include "absl/strings/str_cat.h"
#include "runtime/data/batches.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/sampler.h"
#include "runtime/session/train_session.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

TEST_F(CapiTest, TrainsBitForBitLikeASession) {
  for (const char* const dtype : {"F32", "BF16"}) {
    SCOPED_TRACE(dtype);
    const std::string recipe = absl::StrCat(kRecipe, " dtype: ", dtype);
    // The session is trained on its batches directly.
    const auto internal = MakeRuntime(2);
    const auto context = MakeContext(internal.get(), TinyModel().Text());
    std::string text;
    for (int i = 0; i < 200; ++i) text += static_cast<char>('a' + i * i % 5);
    const Dataset data = Dataset::FromContent(text, "text", {}).value();
    const TrainSpec spec = ParseTrainSpec(recipe, "recipe", {}).value();
    const auto session = TrainSession::Create(context.get(), &data, spec, 2).value();
    TrainBatches::Options batching;
    batching.batch_size = spec.batch_size;
    batching.micro_batches = spec.gradient_accumulation_steps;
    batching.context_length = context->model.dims.context_length;
    batching.seed = spec.seed;
    TrainBatches batches = TrainBatches::Create(&data, batching).value();
    Batch batch = batches.MakeBatch();

    const ModelHandle model = CreateWithWeights();
    const plumb_trainer_options options = Recipe(recipe.c_str());
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
    ASSERT_EQ(plumb_trainer_step_tokens(trainer.get), 2u * 2u * 8u);
    for (int64_t step = 0; step < spec.max_steps; ++step) {
      std::vector<int32_t> inputs, targets;
      for (int64_t i = 0; i < 2; ++i) {
        batches.Fill(2 * step + i, &batch);
        inputs.insert(inputs.end(), batch.tokens.begin(), batch.tokens.end());
        targets.insert(targets.end(), batch.targets.begin(), batch.targets.end());
      }
      auto info = MakeStruct<plumb_step_info>();
      EXPECT_PLUMB_OK(plumb_trainer_step(trainer.get, inputs.data(), targets.data(), inputs.size(),
                                         &info, err));
      const StepResult expected = session->Step().value();
      EXPECT_EQ(info.loss, expected.loss);
      EXPECT_EQ(info.gradient_norm, expected.grad_norm);
      EXPECT_EQ(info.learning_rate, expected.learning_rate);
      EXPECT_EQ(info.tokens, expected.tokens);
      EXPECT_EQ(info.step, step + 1);
    }
    const ScratchDir dir;
    EXPECT_PLUMB_OK(plumb_model_save(model.get, dir.File("w").c_str(), nullptr, err));
    const ModelHandle loaded = Create(TinyModel().Text());
    EXPECT_PLUMB_OK(plumb_model_load(loaded.get, dir.File("w").c_str(), nullptr, err));
    std::vector<float> expected;
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      const int64_t n = context->parameters[i].shape.num_elements();
      expected.resize(expected.size() + static_cast<size_t>(n));
      session->parameters().Read(i, 0, n, expected.data() + expected.size() - n);
    }
    EXPECT_EQ(Weights(loaded.get), expected);
    auto gradient = MakeStruct<plumb_tensor>();
    EXPECT_PLUMB_OK(plumb_trainer_gradient(trainer.get, 0, &gradient, err));
    EXPECT_EQ(0, std::memcmp(gradient.data, session->gradients(),
                             sizeof(float) * static_cast<size_t>(gradient.shape[0])));
  }
}

TEST_F(CapiTest, DecodesBitForBitLikeASession) {
  const auto internal = MakeRuntime(1);
  const auto context = MakeContext(internal.get(), TinyModel().Text());
  ParameterStore store(context->parameters, context->states);
  ASSERT_TRUE(DrawParameters(context->parameters, context->states, 3, 1, store).ok());
  const ModelHandle model = CreateWithWeights();
  const int32_t formats[] = {PLUMB_WEIGHTS_F32, PLUMB_WEIGHTS_BF16, PLUMB_WEIGHTS_INT8};
  const WeightFormat internal_formats[] = {WeightFormat::kF32, WeightFormat::kBf16,
                                           WeightFormat::kInt8};
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const PackedWeights packed(*context, internal_formats[i], store);
    DecodeSession expected(context.get(), &packed, 2, 1);
    auto options = MakeStruct<plumb_session_options>();
    options.sequences = 2;
    options.weights = formats[i];
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &session.get, err));
    EXPECT_EQ(plumb_session_logits(session.get, 0), nullptr);
    const std::vector<int32_t> prompt = {1, 4, 2};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, prompt.data(), 3, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 1, prompt.data(), 2, err));
    const int32_t each[] = {0, 3};
    EXPECT_PLUMB_OK(plumb_session_feed_batch(session.get, each, 2, err));
    ASSERT_TRUE(expected.Feed(0, prompt).ok());
    ASSERT_TRUE(expected.Feed(1, absl::MakeConstSpan(prompt).first(2)).ok());
    ASSERT_TRUE(expected.FeedBatch(each).ok());
    for (int32_t sequence = 0; sequence < 2; ++sequence) {
      const float* const logits = expected.logits(sequence);
      EXPECT_EQ(Logits(session.get, sequence, 5), std::vector<float>(logits, logits + 5));
    }
    EXPECT_EQ(plumb_session_length(session.get, 0), 4);
    EXPECT_EQ(plumb_session_length(session.get, 2), -1);
  }
}

// After a truncation, the results are those of a session that was never fed the removed tokens.
TEST_F(CapiTest, TruncatesAndFeedsAgain) {
  const ModelHandle model = CreateWithWeights();
  for (const int32_t sequences : {1, 3}) {
    auto options = MakeStruct<plumb_session_options>();
    options.sequences = sequences;
    SessionHandle session, fresh;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &session.get, err));
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &fresh.get, err));
    const std::vector<int32_t> first = {1, 2, 3, 4, 0}, second = {4, 4, 1};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, first.data(), first.size(), err));
    EXPECT_PLUMB_OK(plumb_session_truncate(session.get, 0, 2, err));
    EXPECT_EQ(plumb_session_logits(session.get, 0), nullptr);
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, second.data(), second.size(), err));
    EXPECT_PLUMB_OK(plumb_session_feed(fresh.get, 0, first.data(), 2, err));
    EXPECT_PLUMB_OK(plumb_session_feed(fresh.get, 0, second.data(), second.size(), err));
    EXPECT_EQ(Logits(session.get, 0, 5), Logits(fresh.get, 0, 5));
    // The session is truncated to its start and fed the tokens of before.
    EXPECT_PLUMB_OK(plumb_session_truncate(session.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_truncate(fresh.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, first.data(), first.size(), err));
    EXPECT_PLUMB_OK(plumb_session_feed(fresh.get, 0, first.data(), first.size(), err));
    EXPECT_EQ(Logits(session.get, 0, 5), Logits(fresh.get, 0, 5));
  }
}

// The common prefix of sequences is computed once, unless the weights have changed since.
TEST_F(CapiTest, PrefixReuseSeesNewWeights) {
  const ModelHandle model = CreateWithWeights();
  auto options = MakeStruct<plumb_session_options>();
  options.sequences = 2;
  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &session.get, err));
  const std::vector<int32_t> prompt = {1, 4, 2};
  const auto feed = [&](int32_t sequence) {
    EXPECT_PLUMB_OK(plumb_session_truncate(session.get, sequence, 0, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, sequence, prompt.data(), 3, err));
    return Logits(session.get, sequence, 5);
  };
  const std::vector<float> before = feed(0);
  EXPECT_EQ(feed(1), before);
  EXPECT_EQ(feed(0), before);
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 4, err));
  const std::vector<float> after = feed(1);
  EXPECT_NE(after, before);
  EXPECT_EQ(feed(0), after);
  auto tensor = MakeStruct<plumb_tensor>();
  EXPECT_PLUMB_OK(plumb_model_tensor(model.get, 0, &tensor, err));
  tensor.data[tensor.shape[1]] += 1;  // embedding of token 1
  plumb_model_changed(model.get);
  const std::vector<float> written = feed(0);
  EXPECT_NE(written, after);
  EXPECT_EQ(feed(1), written);
}

// Draws one token at a time with changing options. Each draw equals the first one of a session.
TEST_F(CapiTest, SingleDrawsEqualFirstDraws) {
  const ModelHandle model = CreateWithWeights();
  const std::vector<int32_t> prompt = {1, 4};
  const auto start = [&](SessionHandle* session) {
    EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session->get, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session->get, 0, prompt.data(), prompt.size(), err));
  };
  const plumb_token_fn keep = [](void* user, int32_t token) -> int32_t {
    static_cast<std::vector<int32_t>*>(user)->push_back(token);
    return 0;
  };
  SessionHandle by_one;
  start(&by_one);
  for (const int32_t top_k : {0, 1, 2, 0}) {
    for (const int32_t vocabulary : {0, 3}) {
      for (const double temperature : {0.5, 2.0}) {
        auto options = MakeStruct<plumb_sample_options>();
        options.top_k = top_k;
        options.vocabulary = vocabulary;
        options.temperature = temperature;
        options.seed = 11;
        SessionHandle in_a_row;
        start(&in_a_row);
        std::vector<int32_t> row, drawn;
        options.max_tokens = 5;
        EXPECT_PLUMB_OK(plumb_session_generate(in_a_row.get, 0, &options, keep, &row, err));
        EXPECT_PLUMB_OK(plumb_session_truncate(by_one.get, 0, 0, err));
        EXPECT_PLUMB_OK(plumb_session_feed(by_one.get, 0, prompt.data(), prompt.size(), err));
        options.max_tokens = 1;
        for (options.drawn = 0; options.drawn < 5; ++options.drawn) {
          EXPECT_PLUMB_OK(plumb_session_generate(by_one.get, 0, &options, keep, &drawn, err));
          EXPECT_PLUMB_OK(plumb_session_feed(by_one.get, 0, &drawn.back(), 1, err));
        }
        EXPECT_EQ(drawn, row);
      }
    }
  }
}

std::vector<int32_t> Generate(plumb_session* session, plumb_sample_options options) {
  options.struct_size = sizeof(options);
  std::vector<int32_t> tokens;
  EXPECT_PLUMB_OK(plumb_session_generate(
      session, 0, &options,
      [](void* user, int32_t token) {
        static_cast<std::vector<int32_t>*>(user)->push_back(token);
        return 0;
      },
      &tokens, err));
  return tokens;
}

TEST_F(CapiTest, SessionsSeeTrainedWeights) {
  const ModelHandle model = CreateWithWeights();
  std::vector<SessionHandle> sessions(2);
  auto session_options = MakeStruct<plumb_session_options>();
  for (int i = 0; i < 2; ++i) {
    session_options.weights = i == 0 ? PLUMB_WEIGHTS_F32 : PLUMB_WEIGHTS_INT8;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &session_options,
                                         &sessions[static_cast<size_t>(i)].get, err));
  }
  const plumb_trainer_options options = Recipe("batch_size: 1 learning_rate: 0.1");
  {
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
    EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION,
                      [&](plumb_error** e) {
                        plumb_trainer* second = nullptr;
                        return plumb_trainer_create(model.get, &options, &second, e);
                      }),
                HasSubstr("has a trainer"));
    const std::vector<int32_t> ids = {0, 1, 2, 3, 4, 0, 1, 2};
    EXPECT_PLUMB_OK(
        plumb_trainer_step(trainer.get, ids.data(), ids.data(), ids.size(), nullptr, err));
  }
  const int32_t token = 2;
  for (int i = 0; i < 2; ++i) {
    session_options.weights = i == 0 ? PLUMB_WEIGHTS_F32 : PLUMB_WEIGHTS_INT8;
    SessionHandle fresh;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &session_options, &fresh.get, err));
    EXPECT_PLUMB_OK(plumb_session_feed(fresh.get, 0, &token, 1, err));
    plumb_session* const old = sessions[static_cast<size_t>(i)].get;
    EXPECT_PLUMB_OK(plumb_session_feed(old, 0, &token, 1, err));
    EXPECT_EQ(Logits(old, 0, 5), Logits(fresh.get, 0, 5));
  }
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION,
                    [&](plumb_error** e) {
                      const plumb_trainer_options bf16 = Recipe("dtype: BF16");
                      plumb_trainer* trainer = nullptr;
                      return plumb_trainer_create(model.get, &bf16, &trainer, e);
                    }),
              HasSubstr("sessions"));
}

TEST_F(CapiTest, SeveralThreadsDecodeOneModel) {
  const ModelHandle model = CreateWithWeights();
  const auto decode = [&](int32_t first) {
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, &first, 1, err));
    plumb_sample_options options = PLUMB_SAMPLE_OPTIONS_INIT;
    options.seed = static_cast<uint64_t>(first);
    return Generate(session.get, options);
  };
  std::vector<std::vector<int32_t>> alone, together(4);
  for (int32_t i = 0; i < 4; ++i) alone.push_back(decode(i));
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] { together[static_cast<size_t>(i)] = decode(i); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(together, alone);
}

}  // namespace
}  // namespace plumb
