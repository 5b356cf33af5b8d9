// SPDX-License-Identifier: Apache-2.0
// plumb.h returns an error for every invalid argument, and accepts options of any version.
#include <functional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

TEST_F(CapiTest, InvalidCallsAreErrorsWithPlaces) {
  SpecHandle spec;
  ErrorHandle error;
  const std::string text = "n_layer: 2\nn_hed: 2\n";
  EXPECT_EQ(plumb_spec_from_text(text.c_str(), "my.pbtxt", &spec.get, &error.get),
            PLUMB_STATUS_INVALID_ARGUMENT);
  const char* file = nullptr;
  int32_t line = 0, column = 0;
  EXPECT_EQ(plumb_error_location(error.get, &file, &line, &column), 1);
  EXPECT_STREQ(file, "my.pbtxt");
  EXPECT_EQ(line, 2);
  EXPECT_GT(column, 0);
  EXPECT_EQ(spec.get, nullptr);

  EXPECT_THAT(Fails(PLUMB_STATUS_NOT_FOUND,
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
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION, create_session), HasSubstr("no weights"));
  const ModelHandle model = CreateWithWeights();
  const std::vector<float> before = Weights(model.get);
  const plumb_trainer_options options = Recipe("batch_size: 1");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  std::vector<int32_t> inputs(8, 1), targets(8, 2);
  const auto step = [&](int64_t n) {
    return [&, n](plumb_error** e) {
      return plumb_trainer_step(trainer.get, inputs.data(), targets.data(), n, nullptr, e);
    };
  };
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, step(7)), HasSubstr("a step has 8 ids"));
  inputs[3] = 5;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, step(8)), HasSubstr("inputs: id 5 at 3"));
  inputs[3] = 1;
  targets[2] = -100;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, step(8)),
              HasSubstr("targets: id -100 at 2 is not in the vocabulary of 5, nor -1"));
  targets.assign(8, -1);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, step(8)), HasSubstr("all targets are -1"));
  EXPECT_EQ(Weights(model.get), before);
  EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION,
                    [&](plumb_error** e) {
                      auto tensor = MakeStruct<plumb_tensor>();
                      return plumb_trainer_gradient(trainer.get, 0, &tensor, e);
                    }),
              HasSubstr("no step"));
  Fails(PLUMB_STATUS_INVALID_ARGUMENT, [&](plumb_error** e) {
    plumb_trainer_options bad = Recipe("batch_sise: 1");
    plumb_trainer* none = nullptr;
    const ModelHandle other = CreateWithWeights();
    return plumb_trainer_create(other.get, &bad, &none, e);
  });

  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  const std::vector<int32_t> nine(9, 1);
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_session_feed, session.get, 0, nine.data(), 9);
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_session_feed, session.get, 1, nine.data(), 1);
  Fails(PLUMB_STATUS_OUT_OF_RANGE, plumb_session_truncate, session.get, 0, 1);
  Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_runtime_create, PLUMB_ABI_VERSION, nullptr, nullptr);
}

TEST_F(CapiTest, RefusesHostsOfOtherMinorVersions) {
  for (const uint32_t version : {PLUMB_ABI_VERSION - 1, PLUMB_ABI_VERSION + 1}) {
    plumb_runtime* runtime = nullptr;
    EXPECT_THAT(
        Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_runtime_create, version, nullptr, &runtime),
        testing::AllOf(HasSubstr(absl::StrCat("plumb.h of version 0.", version)),
                       HasSubstr(absl::StrCat("libplumb is ", plumb_version()))));
    EXPECT_EQ(runtime, nullptr);
  }
}

TEST_F(CapiTest, OutputsNeedTheirSize) {
  const ModelHandle model = CreateWithWeights();
  const plumb_trainer_options recipe = Recipe("batch_size: 1");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &recipe, &trainer.get, err));
  const std::vector<int32_t> ids(8, 1);
  plumb_model_info info = {};
  plumb_tensor tensor = {};
  plumb_work work = {};
  plumb_trainer_memory memory = {};
  plumb_step_info step = {};
  const std::vector<std::function<plumb_status(plumb_error**)>> calls = {
      [&](plumb_error** e) { return plumb_model_get_info(model.get, &info, e); },
      [&](plumb_error** e) { return plumb_model_tensor(model.get, 0, &tensor, e); },
      [&](plumb_error** e) {
        return plumb_model_work(model.get, PLUMB_PASS_FEED, 1, 0, nullptr, &work, e);
      },
      [&](plumb_error** e) { return plumb_trainer_plan(model.get, &recipe, &memory, e); },
      [&](plumb_error** e) { return plumb_trainer_get_memory(trainer.get, &memory, e); },
      [&](plumb_error** e) {
        return plumb_trainer_state(trainer.get, PLUMB_STATE_MODEL, 0, &tensor, e);
      },
      [&](plumb_error** e) {
        return plumb_trainer_step(trainer.get, ids.data(), ids.data(), 8, &step, e);
      }};
  for (const auto& call : calls) {
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, call), HasSubstr("struct_size is not set"));
  }
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 0);
  plumb_plugin_call call = {};
  EXPECT_EQ(plumb_plugin_calls(&call, 1), -1);
}

TEST_F(CapiTest, WeightsStayWhileATrainerLives) {
  const ScratchDir dir;
  const ModelHandle model = CreateWithWeights();
  EXPECT_PLUMB_OK(plumb_model_save(model.get, dir.File("w").c_str(), nullptr, err));
  const plumb_trainer_options recipe = Recipe("batch_size: 1");
  {
    TrainerHandle trainer;
    EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &recipe, &trainer.get, err));
    EXPECT_THAT(Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_model_init, model.get, 1),
                HasSubstr("the model has a trainer"));
    Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_model_load, model.get, dir.File("w").c_str(),
          nullptr);
    Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_model_load_memory, model.get, "x", 1);
  }
  EXPECT_PLUMB_OK(plumb_model_load(model.get, dir.File("w").c_str(), nullptr, err));
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 1, err));
}

// Options of an older header are shorter. Those of a newer one are longer, and valid if the rest is
// 0.
TEST_F(CapiTest, AcceptsOptionsOfOtherVersions) {
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
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("does not know"));
  newer.options.struct_size = offsetof(plumb_session_options, weights);
  newer.options.weights = 77;  // beyond the struct_size
  EXPECT_PLUMB_OK(create(err));
  newer.options.struct_size = 0;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, create), HasSubstr("struct_size"));
  plumb_model_info info = {};
  info.struct_size = offsetof(plumb_model_info, d_model);
  EXPECT_PLUMB_OK(plumb_model_get_info(model.get, &info, err));
  EXPECT_EQ(info.n_layer, 2);
  EXPECT_EQ(info.d_model, 0);
}

TEST_F(CapiTest, TextsAndTokensAreTheCallers) {
  TokenizerHandle tokenizer, again;
  EXPECT_PLUMB_OK(
      plumb_tokenizer_create(PLUMB_TOKENIZER_CHARACTERS, "abc", 3, 1, &tokenizer.get, err));
  const plumb_tokenizer_info info = GetInfo(tokenizer.get);
  EXPECT_EQ(info.vocab_size, 4);
  EXPECT_EQ(info.begin, 3);
  EXPECT_EQ(info.end, 3);
  ASSERT_EQ(info.prefix_count, 1);
  EXPECT_EQ(info.prefix[0], 3);
  const std::string saved = GetText(plumb_tokenizer_json, tokenizer.get);
  EXPECT_PLUMB_OK(plumb_tokenizer_from_json(saved.c_str(), &again.get, err));
  int32_t* ids = nullptr;
  int64_t count = 0;
  EXPECT_PLUMB_OK(plumb_tokenizer_encode(again.get, "cab", 3, &ids, &count, err));
  EXPECT_THAT(std::vector<int32_t>(ids, ids + count), testing::ElementsAre(2, 0, 1));
  char* text = nullptr;
  size_t size = 0;
  EXPECT_PLUMB_OK(plumb_tokenizer_decode(again.get, ids, count, &text, &size, err));
  EXPECT_STREQ(text, "cab");
  EXPECT_EQ(size, 3u);
  plumb_free(text);
  plumb_free(ids);
  plumb_free(nullptr);
  EXPECT_PLUMB_OK(plumb_tokenizer_encode(again.get, nullptr, 0, &ids, &count, err));
  EXPECT_EQ(count, 0);
  plumb_free(ids);
  Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_tokenizer_encode, again.get, "d", 1, &ids, &count);
}

TEST_F(CapiTest, LoadsWeightsFromMemory) {
  const ScratchDir dir;
  const ModelHandle model = CreateWithWeights(11);
  EXPECT_PLUMB_OK(plumb_model_save(model.get, dir.File("w").c_str(), nullptr, err));
  std::string content = ReadFile(dir.File("w")).value();
  const ModelHandle other = CreateWithWeights(12);
  EXPECT_NE(Weights(other.get), Weights(model.get));
  EXPECT_PLUMB_OK(plumb_model_load_memory(other.get, content.data(), content.size(), err));
  std::fill(content.begin(), content.end(), '\0');
  EXPECT_EQ(Weights(other.get), Weights(model.get));
  Fails(PLUMB_STATUS_DATA_LOSS, plumb_model_load_memory, other.get, content.data(), 5);
  EXPECT_EQ(Weights(other.get), Weights(model.get));
}

TEST_F(CapiTest, LoadsTheWeightsThatFit) {
  const ScratchDir dir;
  const ModelHandle two = CreateWithWeights(11);
  EXPECT_PLUMB_OK(plumb_model_save(two.get, dir.File("two").c_str(), nullptr, err));
  TinyModel deeper;
  deeper.n_layer = 3;
  const ModelHandle three = Create(deeper.Text());
  char* none = nullptr;
  Fails(PLUMB_STATUS_FAILED_PRECONDITION, plumb_model_load, three.get, dir.File("two").c_str(),
        &none);
  EXPECT_PLUMB_OK(plumb_model_init(three.get, 12, err));
  EXPECT_PLUMB_OK(plumb_model_save(three.get, dir.File("three").c_str(), nullptr, err));
  const std::string left = GetText(plumb_model_load, three.get, dir.File("two").c_str());
  EXPECT_THAT(left, testing::StartsWith("missing: layers.2."));
  EXPECT_THAT(left, testing::Not(HasSubstr("layers.1.")));
  EXPECT_THAT(left, testing::Not(HasSubstr("surplus")));
  auto given = MakeStruct<plumb_tensor>(), read = MakeStruct<plumb_tensor>();
  EXPECT_PLUMB_OK(plumb_model_tensor(
      two.get, plumb_model_find_tensor(two.get, "layers.1.mlp.up.weight"), &given, err));
  EXPECT_PLUMB_OK(plumb_model_tensor(
      three.get, plumb_model_find_tensor(three.get, "layers.1.mlp.up.weight"), &read, err));
  EXPECT_EQ(std::memcmp(given.data, read.data, sizeof(float)), 0);
  EXPECT_THAT(GetText(plumb_model_load, two.get, dir.File("three").c_str()),
              testing::StartsWith("surplus: layers.2."));
  TinyModel wider;
  wider.vocab_size = 6;
  const ModelHandle other = Create(wider.Text());
  EXPECT_PLUMB_OK(plumb_model_init(other.get, 1, err));
  const std::vector<float> before = Weights(other.get);
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_load, other.get,
                    dir.File("two").c_str(), &none),
              HasSubstr("misshapen: "));
  EXPECT_EQ(Weights(other.get), before);
}

TEST_F(CapiTest, RefusesAbsurdSizes) {
  const size_t minus_one = static_cast<size_t>(-1);
  const ModelHandle model = CreateWithWeights();
  TokenizerHandle bytes;
  EXPECT_PLUMB_OK(plumb_tokenizer_create(PLUMB_TOKENIZER_BYTES, nullptr, 0, 0, &bytes.get, err));
  EXPECT_THAT(
      Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_model_load_memory, model.get, "x", minus_one),
      HasSubstr("negative or exceeds memory"));
  int32_t* ids = nullptr;
  int64_t count = 0;
  EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT, plumb_tokenizer_encode, bytes.get, "x",
                    minus_one, &ids, &count),
              HasSubstr("negative or exceeds memory"));
  for (const uint32_t size : {uint32_t{1} << 30, UINT32_MAX}) {
    plumb_session_options options = {};
    options.struct_size = size;
    EXPECT_THAT(Fails(PLUMB_STATUS_INVALID_ARGUMENT,
                      [&](plumb_error** e) {
                        plumb_session* none = nullptr;
                        return plumb_session_create(model.get, &options, &none, e);
                      }),
                HasSubstr("struct_size"));
  }
}

TEST_F(CapiTest, RefusesMoreThanMemory) {
  const ModelHandle model = CreateWithWeights();
  // The memory of a whole step is checked.
  for (const char* const recipe : {"gradient_accumulation_steps: 2000000000 batch_size: 4096",
                                   "gradient_accumulation_steps: 2147483647 batch_size: 1048576"}) {
    const plumb_trainer_options steps = Recipe(recipe);
    TrainerHandle trainer;
    EXPECT_THAT(Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED, plumb_trainer_create, model.get, &steps,
                      &trainer.get),
                HasSubstr("a smaller train.gradient_accumulation_steps"));
  }
  TinyModel wide;
  wide.vocab_size = 1 << 20;
  wide.d_model = 2;
  wide.n_head = 1;
  wide.n_kv_head = 1;
  wide.context_length = 1 << 12;
  const ModelHandle large = Create(wide.Text());
  EXPECT_PLUMB_OK(plumb_model_init(large.get, 1, err));
  auto options = MakeStruct<plumb_evaluator_options>();
  options.rows = 64;
  options.logits = 1;  // a tebibyte of logits
  EXPECT_THAT(Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED,
                    [&](plumb_error** e) {
                      plumb_evaluator* none = nullptr;
                      return plumb_evaluator_create(large.get, &options, &none, e);
                    }),
              HasSubstr("the evaluator would take 1048"));
}

// A trainer that cannot be created leaves the tensors where they were.
TEST_F(CapiTest, FailedTrainerKeepsTheLayout) {
  TinyModel wide;
  wide.d_model = 64;
  wide.d_ff = 256;
  wide.context_length = 128;
  const ModelHandle model = Create(wide.Text());
  EXPECT_PLUMB_OK(plumb_model_init(model.get, 3, err));
  const std::vector<float> before = Weights(model.get);
  auto tensor = MakeStruct<plumb_tensor>();
  EXPECT_PLUMB_OK(plumb_model_tensor(model.get, 0, &tensor, err));
  const float* const data = tensor.data;
  const plumb_trainer_options huge = Recipe("dtype: BF16 batch_size: 1000000");
  Fails(PLUMB_STATUS_RESOURCE_EXHAUSTED, [&](plumb_error** e) {
    plumb_trainer* none = nullptr;
    return plumb_trainer_create(model.get, &huge, &none, e);
  });
  EXPECT_PLUMB_OK(plumb_model_tensor(model.get, 0, &tensor, err));
  EXPECT_EQ(tensor.data, data);
  EXPECT_EQ(Weights(model.get), before);
}

struct Nested {
  plumb_trainer* trainer = nullptr;
  plumb_session* session = nullptr;
  int refused = 0, allowed = 0;
};

TEST_F(CapiTest, CallbacksMustNotChangeTheirHandle) {
  const ModelHandle model = CreateWithWeights();
  const plumb_trainer_options options = Recipe("batch_size: 1 max_steps: 2");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &options, &trainer.get, err));
  Nested nested;
  nested.trainer = trainer.get;
  const auto probe = [](void* user, const plumb_probe*) -> int32_t {
    auto* const in = static_cast<Nested*>(user);
    const std::vector<int32_t> ids(8, 1);
    const plumb_status status[] = {
        plumb_trainer_probe(in->trainer, 0, nullptr, 0, nullptr, nullptr, nullptr),
        plumb_trainer_step(in->trainer, ids.data(), ids.data(), 8, nullptr, nullptr),
        plumb_trainer_load(in->trainer, "/not/there", nullptr)};
    for (const plumb_status each : status) in->refused += each == PLUMB_STATUS_FAILED_PRECONDITION;
    return 0;
  };
  const char* const points[] = {"logits"};
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 1, points, 1, probe, &nested, err));
  const auto fill = [](void*, int64_t, int32_t* inputs, int32_t* targets, int64_t n) {
    std::fill_n(inputs, n, 1);
    std::fill_n(targets, n, 2);
    return 0;
  };
  const auto after = [](void* user, const plumb_step_info*) -> int32_t {
    auto* const in = static_cast<Nested*>(user);
    auto tensor = MakeStruct<plumb_tensor>();
    in->allowed += plumb_trainer_gradient(in->trainer, 0, &tensor, nullptr) == PLUMB_OK;
    return 0;
  };
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, fill, after, &nested, err));
  EXPECT_EQ(nested.refused, 6);
  EXPECT_EQ(nested.allowed, 2);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 2);

  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  nested.session = session.get;
  const int32_t token = 1;
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, &token, 1, err));
  auto sampling = MakeStruct<plumb_sample_options>();
  sampling.max_tokens = 2;
  nested.refused = 0;
  const auto drawn = [](void* user, int32_t id) -> int32_t {
    auto* const in = static_cast<Nested*>(user);
    in->refused +=
        plumb_session_feed(in->session, 0, &id, 1, nullptr) == PLUMB_STATUS_FAILED_PRECONDITION;
    return 0;
  };
  EXPECT_PLUMB_OK(plumb_session_generate(session.get, 0, &sampling, drawn, &nested, err));
  EXPECT_EQ(nested.refused, 2);
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, &token, 1, err));
}

// Each callback that returns nonzero ends its call in the same way; what was done stays done.
TEST_F(CapiTest, EveryCallbackCancels) {
  const ModelHandle model = CreateWithWeights();
  const plumb_trainer_options recipe = Recipe("batch_size: 1 max_steps: 4");
  TrainerHandle trainer;
  EXPECT_PLUMB_OK(plumb_trainer_create(model.get, &recipe, &trainer.get, err));
  const std::vector<int32_t> ids(8, 1);
  const auto stops = [](void*, int64_t, int32_t*, int32_t*, int64_t) -> int32_t { return 7; };
  const auto fill = [](void*, int64_t, int32_t* inputs, int32_t* targets, int64_t n) -> int32_t {
    std::fill_n(inputs, n, 1);
    std::fill_n(targets, n, 2);
    return 0;
  };
  const auto after = [](void*, const plumb_step_info*) -> int32_t { return -1; };
  const auto none = [](void*, int64_t, int32_t*, int32_t*, int64_t*) -> int32_t { return 1; };
  const auto probe = [](void*, const plumb_probe*) -> int32_t { return 2; };
  const auto use = [](void*) -> int32_t { return 1; };
  constexpr plumb_status kCancelled = PLUMB_STATUS_CANCELLED;
  Fails(kCancelled, plumb_trainer_run, trainer.get, stops, nullptr, nullptr);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 0);
  Fails(kCancelled, plumb_trainer_step_with_callback, trainer.get, none, nullptr, nullptr);
  Fails(kCancelled, plumb_trainer_share_states, trainer.get, use, nullptr);
  EXPECT_EQ(plumb_trainer_run(trainer.get, fill, after, nullptr, nullptr), kCancelled);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 1);
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 1, nullptr, 0, probe, nullptr, err));
  auto info = MakeStruct<plumb_step_info>();
  EXPECT_EQ(plumb_trainer_step(trainer.get, ids.data(), ids.data(), 8, &info, nullptr), kCancelled);
  EXPECT_EQ(info.step, 2);
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 2);
  EXPECT_PLUMB_OK(plumb_trainer_probe(trainer.get, 0, nullptr, 0, nullptr, nullptr, err));
  EXPECT_PLUMB_OK(plumb_trainer_run(trainer.get, fill, nullptr, nullptr, err));
  EXPECT_EQ(plumb_trainer_steps(trainer.get), 4);

  SessionHandle session;
  EXPECT_PLUMB_OK(plumb_session_create(model.get, nullptr, &session.get, err));
  EXPECT_PLUMB_OK(plumb_session_feed(session.get, 0, ids.data(), 1, err));
  const auto drawn = [](void*, int32_t) -> int32_t { return 1; };
  Fails(kCancelled, plumb_session_generate, session.get, 0, nullptr, drawn, nullptr);
  EXPECT_EQ(plumb_session_finish_reason(session.get), PLUMB_FINISH_STOP);
  EXPECT_EQ(plumb_session_length(session.get, 0), 1) << "the token is not appended";
}

}  // namespace
}  // namespace plumb
