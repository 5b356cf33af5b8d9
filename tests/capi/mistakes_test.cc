// plumb.h gives an error for every mistake, and takes options and buffers of any size.
#include "tests/capi/capi_fixture.h"
#include "tests/session/scratch_dir.h"

namespace plumb {
namespace {

using testing::HasSubstr;

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
  std::string saved(needed + 1, 'x');
  EXPECT_PLUMB_OK(plumb_tokenizer_json(tokenizer.get, saved.data(), saved.size(), nullptr, err));
  EXPECT_EQ(std::strlen(saved.c_str()), needed);
  EXPECT_PLUMB_OK(plumb_tokenizer_from_json(saved.data(), needed, &again.get, err));
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
