// SPDX-License-Identifier: Apache-2.0
// Shared parts of the tests of plumb.h: handles that free themselves, a runtime, a model, its
// weights.
#ifndef PLUMB_TESTS_CAPI_CAPI_FIXTURE_H_
#define PLUMB_TESTS_CAPI_CAPI_FIXTURE_H_

#include <gmock/gmock.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "plumb.h"
#include "tests/app/test_models.h"

namespace plumb {

inline constexpr char kRecipe[] =
    "max_steps: 6 batch_size: 2 gradient_accumulation_steps: 2 learning_rate: 0.01 seed: 3";

// Owns a handle and frees it.
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
using EvaluatorHandle = Handle<plumb_evaluator, plumb_evaluator_free>;
using TokenizerHandle = Handle<plumb_tokenizer, plumb_tokenizer_free>;
using ErrorHandle = Handle<plumb_error, plumb_error_free>;

// Returns an options or info struct of plumb.h whose struct_size is set.
template <class T>
T MakeStruct() {
  T value = {};
  value.struct_size = sizeof(value);
  return value;
}

// Calls with an error argument `err`, and expects PLUMB_OK.
#define EXPECT_PLUMB_OK(call)                                       \
  do {                                                              \
    ErrorHandle unwanted;                                           \
    [[maybe_unused]] plumb_error** const err = &unwanted.get;       \
    EXPECT_EQ(call, PLUMB_OK) << plumb_error_message(unwanted.get); \
  } while (false)

// Returns the text of a function whose last arguments are text and error.
template <class Function, class... Arguments>
std::string GetText(const Function& function, Arguments... arguments) {
  char* text = nullptr;
  EXPECT_PLUMB_OK(function(arguments..., &text, err));
  std::string copy = text == nullptr ? "" : text;
  plumb_free(text);
  return copy;
}

inline plumb_tokenizer_info GetInfo(const plumb_tokenizer* tokenizer) {
  auto info = MakeStruct<plumb_tokenizer_info>();
  EXPECT_PLUMB_OK(plumb_tokenizer_get_info(tokenizer, &info, err));
  return info;
}

// Expects that the call fails with `code`. Returns its message.
template <class Call>
std::string Fails(plumb_status code, const Call& call) {
  ErrorHandle error;
  EXPECT_EQ(call(&error.get), code) << plumb_error_message(error.get);
  EXPECT_EQ(plumb_error_code(error.get), code);
  EXPECT_EQ(call(nullptr), code);  // the error argument is optional
  return plumb_error_message(error.get);
}

template <class Function, class... Arguments>
std::string Fails(plumb_status code, const Function& function, const Arguments&... arguments) {
  return Fails(code, [&](plumb_error** error) { return function(arguments..., error); });
}

inline plumb_trainer_options Recipe(const char* text, int64_t seq = 0) {
  auto options = MakeStruct<plumb_trainer_options>();
  options.recipe = text;
  options.seq = seq;
  return options;
}

class CapiTest : public ::testing::Test {
 protected:
  CapiTest() {
    auto options = MakeStruct<plumb_runtime_options>();
    options.flags = PLUMB_RUNTIME_NO_ENVIRONMENT;
    options.threads = 2;
    options.log = [](void* user, int32_t, const char* message) {
      static_cast<CapiTest*>(user)->log_ += message;
    };
    options.log_user = this;
    EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime_.get, err));
  }

  ModelHandle Create(const std::string& text) {
    SpecHandle spec;
    ModelHandle model;
    EXPECT_PLUMB_OK(plumb_spec_from_text(text.c_str(), "test", &spec.get, err));
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
    for (int64_t i = 0; i < plumb_model_tensor_count(model); ++i) {
      auto tensor = MakeStruct<plumb_tensor>();
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

}  // namespace plumb

#endif  // PLUMB_TESTS_CAPI_CAPI_FIXTURE_H_
