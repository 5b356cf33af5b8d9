// plumb.h gives the bits of the modules below it, and an error for every mistake.
#include <gmock/gmock.h>

#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "plumb.h"
#include "runtime/data/batches.h"
#include "runtime/session/decode_session.h"
#include "runtime/session/sampler.h"
#include "runtime/session/train_session.h"
#include "tests/api/test_models.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

constexpr char kRecipe[] =
    "max_steps: 6 batch_size: 2 gradient_accumulation_steps: 2 learning_rate: 0.01 seed: 3";

// Frees what it holds.
template <class T, void (*Free)(T*)>
struct Handle {
  Handle() = default;
  Handle(Handle&& other) noexcept : get(std::exchange(other.get, nullptr)) {}
  ~Handle() { Free(get); }
  T* get = nullptr;
};
using RuntimeHandle = Handle<plumb_runtime, plumb_runtime_free>;
using SpecHandle = Handle<plumb_spec, plumb_spec_free>;
using ModelHandle = Handle<plumb_model, plumb_model_free>;
using TrainerHandle = Handle<plumb_trainer, plumb_trainer_free>;
using SessionHandle = Handle<plumb_session, plumb_session_free>;
using TokenizerHandle = Handle<plumb_tokenizer, plumb_tokenizer_free>;
using ErrorHandle = Handle<plumb_error, plumb_error_free>;

// Calls with an error that must not be there.
#define EXPECT_PLUMB_OK(call)                                       \
  do {                                                              \
    ErrorHandle unwanted;                                           \
    [[maybe_unused]] plumb_error** const err = &unwanted.get;       \
    EXPECT_EQ(call, PLUMB_OK) << plumb_error_message(unwanted.get); \
  } while (false)

// The message of a call that must fail with `code`.
template <class Call>
std::string Fails(plumb_status code, const Call& call) {
  ErrorHandle error;
  EXPECT_EQ(call(&error.get), code) << plumb_error_message(error.get);
  EXPECT_EQ(plumb_error_code(error.get), code);
  EXPECT_EQ(call(nullptr), code);  // an error is not wanted
  return plumb_error_message(error.get);
}

plumb_trainer_options Recipe(const char* text, int64_t seq = 0) {
  plumb_trainer_options options = {};
  options.struct_size = sizeof(options);
  options.recipe = text;
  options.recipe_size = std::strlen(text);
  options.seq = seq;
  return options;
}

class CapiTest : public ::testing::Test {
 protected:
  CapiTest() {
    plumb_runtime_options options = {};
    options.struct_size = sizeof(options);
    options.flags = PLUMB_NO_ENVIRONMENT;
    options.threads = 2;
    options.log = [](void* user, int32_t, const char* message) {
      static_cast<CapiTest*>(user)->log_ += message;
    };
    options.log_user = this;
    EXPECT_PLUMB_OK(plumb_runtime_create(&options, &runtime_.get, err));
  }

  ModelHandle Create(const std::string& text) {
    SpecHandle spec;
    ModelHandle model;
    EXPECT_PLUMB_OK(plumb_spec_from_text(text.data(), text.size(), "test", &spec.get, err));
    EXPECT_PLUMB_OK(plumb_model_create(runtime_.get, spec.get, &model.get, err));
    return model;
  }
  ModelHandle CreateWithWeights(uint64_t seed = 3) {
    ModelHandle model = Create(TinyModel().Text());
    EXPECT_PLUMB_OK(plumb_model_init(model.get, seed, err));
    return model;
  }
  static std::vector<float> Weights(const plumb_model* model) {
    std::vector<float> weights;
    for (size_t i = 0; i < plumb_model_tensor_count(model); ++i) {
      plumb_tensor tensor = {};
      tensor.struct_size = sizeof(tensor);
      EXPECT_PLUMB_OK(plumb_model_tensor(model, i, &tensor, err));
      const int64_t n = tensor.shape[0] * tensor.shape[1];
      weights.insert(weights.end(), tensor.data, tensor.data + n);
    }
    return weights;
  }
  static std::vector<float> Logits(const plumb_session* session, int32_t sequence, size_t n) {
    const float* const logits = plumb_session_logits(session, sequence);
    EXPECT_NE(logits, nullptr);
    return logits == nullptr ? std::vector<float>() : std::vector<float>(logits, logits + n);
  }

  RuntimeHandle runtime_;
  std::string log_;
};

TEST_F(CapiTest, TrainsToTheBitsOfASession) {
  for (const char* const dtype : {"F32", "BF16"}) {
    SCOPED_TRACE(dtype);
    const std::string recipe = absl::StrCat(kRecipe, " dtype: ", dtype);
    // The same through the session's own batches.
    const auto internal = MakeRuntime(2);
    const auto context = MakeContext(internal.get(), TinyModel().Text());
    std::string text;
    for (int i = 0; i < 200; ++i) text += static_cast<char>('a' + i * i % 5);
    const Dataset data = Dataset::FromContent(text, "text", {}).value();
    const TrainSpec spec = ParseTrainSpec(recipe, "recipe", {}).value();
    const auto session = TrainSession::Create(context.get(), &data, spec, 2).value();
    TrainBatches::Options batching;
    batching.batch_size = spec.batch_size;
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
      plumb_step_info info = {};
      info.struct_size = sizeof(info);
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
    EXPECT_PLUMB_OK(plumb_model_save(model.get, dir.File("w").c_str(), err));
    const ModelHandle loaded = Create(TinyModel().Text());
    EXPECT_PLUMB_OK(plumb_model_load(loaded.get, dir.File("w").c_str(), err));
    std::vector<float> expected;
    for (size_t i = 0; i < context->parameters.size(); ++i) {
      const int64_t n = context->parameters[i].shape.num_elements();
      expected.resize(expected.size() + static_cast<size_t>(n));
      session->parameters().Read(i, 0, n, expected.data() + expected.size() - n);
    }
    EXPECT_EQ(Weights(loaded.get), expected);
    plumb_tensor gradient = {};
    gradient.struct_size = sizeof(gradient);
    EXPECT_PLUMB_OK(plumb_trainer_gradient(trainer.get, 0, &gradient, err));
    EXPECT_EQ(0, std::memcmp(gradient.data, session->gradients(),
                             sizeof(float) * static_cast<size_t>(gradient.shape[0])));
  }
}

TEST_F(CapiTest, DecodesToTheBitsOfASession) {
  const auto internal = MakeRuntime(1);
  const auto context = MakeContext(internal.get(), TinyModel().Text());
  ParameterStore store(context->parameters, context->states);
  DrawParameters(context->parameters, context->states, 3, 1, store);
  const ModelHandle model = CreateWithWeights();
  const int32_t formats[] = {PLUMB_WEIGHTS_F32, PLUMB_WEIGHTS_BF16, PLUMB_WEIGHTS_INT8};
  const WeightFormat internal_formats[] = {WeightFormat::kF32, WeightFormat::kBf16,
                                           WeightFormat::kInt8};
  for (int i = 0; i < 3; ++i) {
    SCOPED_TRACE(i);
    const PackedWeights packed(*context, internal_formats[i], store);
    DecodeSession expected(context.get(), &packed, 2, 1);
    plumb_session_options options = {};
    options.struct_size = sizeof(options);
    options.sequences = 2;
    options.weights = formats[i];
    SessionHandle session;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &options, &session.get, err));
    EXPECT_EQ(plumb_session_logits(session.get, 0), nullptr);
    const std::vector<int32_t> prompt = {1, 4, 2};
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, prompt.data(), 3, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 1, prompt.data(), 2, err));
    const int32_t each[] = {0, 3};
    EXPECT_PLUMB_OK(plumb_session_feed_each(session.get, each, 2, err));
    ASSERT_TRUE(expected.Feed(0, prompt).ok());
    ASSERT_TRUE(expected.Feed(1, absl::MakeConstSpan(prompt).first(2)).ok());
    ASSERT_TRUE(expected.FeedEach(each).ok());
    for (int32_t sequence = 0; sequence < 2; ++sequence) {
      const float* const logits = expected.logits(sequence);
      EXPECT_EQ(Logits(session.get, sequence, 5), std::vector<float>(logits, logits + 5));
    }
    EXPECT_EQ(plumb_session_length(session.get, 0), 4);
    EXPECT_EQ(plumb_session_length(session.get, 2), -1);
  }
}

// What is taken back and fed again is as if it had never been.
TEST_F(CapiTest, TruncatesAndFeedsAgain) {
  const ModelHandle model = CreateWithWeights();
  for (const int32_t sequences : {1, 3}) {
    plumb_session_options options = {};
    options.struct_size = sizeof(options);
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
    // From the start, with the tokens that the session fed last.
    EXPECT_PLUMB_OK(plumb_session_truncate(session.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_truncate(fresh.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, first.data(), first.size(), err));
    EXPECT_PLUMB_OK(plumb_session_feed(fresh.get, 0, first.data(), first.size(), err));
    EXPECT_EQ(Logits(session.get, 0, 5), Logits(fresh.get, 0, 5));
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

TEST_F(CapiTest, SamplesAreAFunctionOfSeedAndIndex) {
  const ModelHandle model = CreateWithWeights();
  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  const int32_t begin = 1;
  const auto draw = [&](plumb_sample_options options) {
    EXPECT_PLUMB_OK(plumb_session_truncate(session.get, 0, 0, err));
    EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, &begin, 1, err));
    return Generate(session.get, options);
  };
  plumb_sample_options options = {};
  options.seed = 5;
  options.index = 2;
  const std::vector<int32_t> whole = draw(options);
  EXPECT_EQ(whole.size(), 8u);  // the context has room for 8, and one more is told
  EXPECT_EQ(draw(options), whole);
  // In two calls: the last token that was told is fed by the host.
  options.max_tokens = 3;
  std::vector<int32_t> parts = draw(options);
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, &parts.back(), 1, err));
  options.max_tokens = 0;
  options.drawn = 3;
  const std::vector<int32_t> rest = Generate(session.get, options);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
  options = {};
  options.vocabulary = 2;
  for (const int32_t token : draw(options)) EXPECT_LT(token, 2);
}

TEST_F(CapiTest, SessionsSeeWhatATrainerDid) {
  const ModelHandle model = CreateWithWeights();
  std::vector<SessionHandle> sessions(2);
  plumb_session_options session_options = {};
  session_options.struct_size = sizeof(session_options);
  for (int i = 0; i < 2; ++i) {
    session_options.weights = i == 0 ? PLUMB_WEIGHTS_F32 : PLUMB_WEIGHTS_INT8;
    EXPECT_PLUMB_OK(plumb_session_create(model.get, &session_options,
                                         &sessions[static_cast<size_t>(i)].get, err));
  }
  const plumb_trainer_options options = Recipe("batch_size: 1 learning_rate: 0.1");
  {
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
    EXPECT_THAT(Fails(PLUMB_FAILED_PRECONDITION,
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
  EXPECT_THAT(Fails(PLUMB_FAILED_PRECONDITION,
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
    plumb_sample_options options = {};
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

TEST_F(CapiTest, CallbacksAndCancelEndARun) {
  const ModelHandle model = CreateWithWeights();
  const plumb_trainer_options options = Recipe("batch_size: 1 max_steps: 50");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  const auto fill = [](void* user, int64_t step, int32_t* inputs, int32_t* targets, size_t n) {
    std::fill_n(inputs, n, 1);
    std::fill_n(targets, n, 2);
    return step > *static_cast<int64_t*>(user) ? 1 : 0;
  };
  int64_t last = 4;
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, fill, nullptr, &last, err));
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 4);
  last = 100;
  ErrorHandle stopped;
  EXPECT_EQ(plumb_trainer_run(
                trainer.get, fill,
                [](void*, const plumb_step_info* info) { return info->step == 6 ? 1 : 0; }, &last,
                &stopped.get),
            PLUMB_CANCELLED);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 6);
  plumb_trainer_cancel(trainer.get);
  EXPECT_EQ(plumb_trainer_run(trainer.get, fill, nullptr, &last, nullptr), PLUMB_CANCELLED);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 6);
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, fill, nullptr, &last, err));
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 50);
}

TEST_F(CapiTest, MistakesAreErrorsWithPlaces) {
  SpecHandle spec;
  ErrorHandle error;
  const std::string text = "n_layer: 2\nn_hed: 2\n";
  EXPECT_EQ(plumb_spec_from_text(text.data(), text.size(), "my.pbtxt", &spec.get, &error.get),
            PLUMB_INVALID_ARGUMENT);
  const char* file = nullptr;
  int32_t line = 0, column = 0;
  EXPECT_EQ(plumb_error_location(error.get, &file, &line, &column), 1);
  EXPECT_STREQ(file, "my.pbtxt");
  EXPECT_EQ(line, 2);
  EXPECT_GT(column, 0);
  EXPECT_EQ(spec.get, nullptr);

  EXPECT_THAT(Fails(PLUMB_NOT_FOUND,
                    [](plumb_error** e) {
                      plumb_spec* none = nullptr;
                      return plumb_spec_from_file("/not/there", &none, e);
                    }),
              HasSubstr("/not/there"));
  const ModelHandle bare = Create(TinyModel().Text());
  const auto create_session = [&](plumb_error** e) {
    plumb_session* none = nullptr;
    return plumb_session_create(bare.get, nullptr, &none, e);
  };
  EXPECT_THAT(Fails(PLUMB_FAILED_PRECONDITION, create_session), HasSubstr("no weights"));
  const ModelHandle model = CreateWithWeights();
  const std::vector<float> before = Weights(model.get);
  const plumb_trainer_options options = Recipe("batch_size: 1");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  std::vector<int32_t> inputs(8, 1), targets(8, 2);
  const auto step = [&](size_t n) {
    return [&, n](plumb_error** e) {
      return plumb_trainer_step(trainer.get, inputs.data(), targets.data(), n, nullptr, e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_INVALID_ARGUMENT, step(7)), HasSubstr("a step has 8 ids"));
  inputs[3] = 5;
  EXPECT_THAT(Fails(PLUMB_INVALID_ARGUMENT, step(8)), HasSubstr("inputs: id 5 at 3"));
  inputs[3] = 1;
  targets.assign(8, -1);
  EXPECT_THAT(Fails(PLUMB_INVALID_ARGUMENT, step(8)), HasSubstr("has none"));
  EXPECT_EQ(Weights(model.get), before);
  EXPECT_THAT(Fails(PLUMB_FAILED_PRECONDITION,
                    [&](plumb_error** e) {
                      plumb_tensor tensor = {};
                      tensor.struct_size = sizeof(tensor);
                      return plumb_trainer_gradient(trainer.get, 0, &tensor, e);
                    }),
              HasSubstr("no step"));
  Fails(PLUMB_INVALID_ARGUMENT, [&](plumb_error** e) {
    plumb_trainer_options bad = Recipe("batch_sise: 1");
    plumb_trainer* none = nullptr;
    const ModelHandle other = CreateWithWeights();
    return plumb_trainer_create(other.get, &bad, &none, e);
  });

  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  const std::vector<int32_t> nine(9, 1);
  Fails(PLUMB_OUT_OF_RANGE, [&](plumb_error** e) {
    return plumb_session_feed(session.get, 0, nine.data(), nine.size(), e);
  });
  Fails(PLUMB_OUT_OF_RANGE,
        [&](plumb_error** e) { return plumb_session_feed(session.get, 1, nine.data(), 1, e); });
  Fails(PLUMB_OUT_OF_RANGE,
        [&](plumb_error** e) { return plumb_session_truncate(session.get, 0, 1, e); });
  Fails(PLUMB_INVALID_ARGUMENT,
        [&](plumb_error** e) { return plumb_runtime_create(nullptr, nullptr, e); });
}

// Of an older header: shorter; of a newer one: longer, which is fine while it is 0.
TEST_F(CapiTest, OptionsOfOtherVersions) {
  struct Newer {
    plumb_session_options options;
    int64_t added;
  } newer = {};
  newer.options.struct_size = sizeof(newer);
  const ModelHandle model = CreateWithWeights();
  const auto create = [&](plumb_error** e) {
    SessionHandle session;
    return plumb_session_create(model.get, &newer.options, &session.get, e);
  };
  EXPECT_PLUMB_OK(create(err));
  newer.added = 1;
  EXPECT_THAT(Fails(PLUMB_INVALID_ARGUMENT, create), HasSubstr("does not know"));
  newer.options.struct_size = offsetof(plumb_session_options, weights);
  newer.options.weights = 77;  // beyond what the caller says it has
  EXPECT_PLUMB_OK(create(err));
  newer.options.struct_size = 0;
  EXPECT_THAT(Fails(PLUMB_INVALID_ARGUMENT, create), HasSubstr("struct_size"));
  plumb_model_info info = {};
  info.struct_size = offsetof(plumb_model_info, d_model);
  plumb_model_get_info(model.get, &info);
  EXPECT_EQ(info.n_layer, 2);
  EXPECT_EQ(info.d_model, 0);
}

TEST_F(CapiTest, TextsAreCutToTheirBuffers) {
  TokenizerHandle tokenizer, again;
  EXPECT_PLUMB_OK(plumb_tokenizer_create(PLUMB_CHARACTERS, "abc", 3, 1, &tokenizer.get, err));
  EXPECT_EQ(plumb_tokenizer_vocab_size(tokenizer.get), 4);
  EXPECT_EQ(plumb_tokenizer_begin_end(tokenizer.get), 3);
  size_t needed = 0;
  EXPECT_PLUMB_OK(plumb_tokenizer_json(tokenizer.get, nullptr, 0, &needed, err));
  std::string json(needed + 1, 'x');
  EXPECT_PLUMB_OK(plumb_tokenizer_json(tokenizer.get, json.data(), json.size(), nullptr, err));
  EXPECT_EQ(std::strlen(json.c_str()), needed);
  EXPECT_PLUMB_OK(plumb_tokenizer_from_json(json.data(), needed, &again.get, err));
  int32_t ids[2] = {-7, -7};
  EXPECT_PLUMB_OK(plumb_tokenizer_encode(again.get, "cab", 3, ids, 2, &needed, err));
  EXPECT_EQ(needed, 3u);
  EXPECT_EQ(ids[0], 2);
  EXPECT_EQ(ids[1], 0);
  char text[3];
  const int32_t all[] = {2, 0, 1};
  EXPECT_PLUMB_OK(plumb_tokenizer_decode(again.get, all, 3, text, sizeof(text), &needed, err));
  EXPECT_STREQ(text, "ca");
  EXPECT_EQ(needed, 3u);
  Fails(PLUMB_INVALID_ARGUMENT, [&](plumb_error** e) {
    return plumb_tokenizer_encode(again.get, "d", 1, nullptr, 0, nullptr, e);
  });
}

TEST_F(CapiTest, WeightsFromMemoryAreThoseOfTheFile) {
  const ScratchDir dir;
  const ModelHandle model = CreateWithWeights(11);
  EXPECT_PLUMB_OK(plumb_model_save(model.get, dir.File("w").c_str(), err));
  std::string content = ReadFile(dir.File("w")).value();
  const ModelHandle other = CreateWithWeights(12);
  EXPECT_NE(Weights(other.get), Weights(model.get));
  EXPECT_PLUMB_OK(plumb_model_load_memory(other.get, content.data(), content.size(), err));
  std::fill(content.begin(), content.end(), '\0');
  EXPECT_EQ(Weights(other.get), Weights(model.get));
  Fails(PLUMB_DATA_LOSS,
        [&](plumb_error** e) { return plumb_model_load_memory(other.get, content.data(), 5, e); });
  EXPECT_EQ(Weights(other.get), Weights(model.get));
}

}  // namespace
}  // namespace plumb
