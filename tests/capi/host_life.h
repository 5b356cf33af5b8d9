// SPDX-License-Identifier: Apache-2.0
// Steps of a host that uses plumb.h: it creates a model, trains it and feeds it a prompt.
#ifndef PLUMB_TESTS_CAPI_HOST_LIFE_H_
#define PLUMB_TESTS_CAPI_HOST_LIFE_H_

#include <string>
#include <vector>

#include "tests/capi/capi_fixture.h"

namespace plumb {

// Returns a model with enough work for several threads.
inline std::string WideModel() {
  TinyModel model;
  model.d_model = 64;
  model.d_ff = 128;
  model.vocab_size = 40;
  model.context_length = 64;
  return model.Text();
}

inline RuntimeHandle MakeHostRuntime(const plumb_executor* executor,
                                     const plumb_allocator* allocator) {
  auto options = MakeStruct<plumb_runtime_options>();
  options.flags = PLUMB_RUNTIME_NO_ENVIRONMENT;
  options.threads = 3;
  options.executor = executor;
  options.allocator = allocator;
  RuntimeHandle runtime;
  EXPECT_PLUMB_OK(plumb_runtime_create(PLUMB_ABI_VERSION, &options, &runtime.get, err));
  return runtime;
}

// Runs the steps of a host, each of which may fail. Returns the first error, or PLUMB_OK and in
// `floats` the weights after two steps, a gradient and logits.
inline plumb_status Live(plumb_runtime* runtime, std::vector<float>* floats,
                         const char* weights_path, plumb_error** error) {
  static const std::string text = WideModel();
  SpecHandle spec;
  ModelHandle model;
  TrainerHandle trainer;
  SessionHandle session;
  plumb_status status = PLUMB_OK;
  const auto ok = [&status](plumb_status next) { return (status = next) == PLUMB_OK; };
  const plumb_trainer_options recipe = Recipe("batch_size: 4 max_steps: 2 seed: 5");
  const auto fill = [](void*, int64_t step, int32_t* inputs, int32_t* targets, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      inputs[i] = static_cast<int32_t>((i * 7 + step) % 40);
      targets[i] = static_cast<int32_t>((i * 7 + 3) % 40);
    }
    return 0;
  };
  const int32_t prompt[] = {1, 2, 3, 4, 5};
  auto gradient = MakeStruct<plumb_tensor>();
  if (!ok(plumb_spec_from_text(text.c_str(), "wide", &spec.get, error)) ||
      !ok(plumb_model_create(runtime, spec.get, &model.get, error)) ||
      !ok(weights_path == nullptr ? plumb_model_init(model.get, 1, error)
                                  : plumb_model_load(model.get, weights_path, nullptr, error)) ||
      !ok(plumb_trainer_create(model.get, &recipe, &trainer.get, error)) ||
      !ok(plumb_trainer_run(trainer.get, fill, nullptr, nullptr, error)) ||
      !ok(plumb_trainer_gradient(trainer.get, 0, &gradient, error)) ||
      !ok(plumb_session_create(model.get, nullptr, &session.get, error)) ||
      !ok(plumb_session_feed(session.get, 0, prompt, 5, error))) {
    return status;
  }
  for (int64_t i = 0; i < plumb_model_tensor_count(model.get); ++i) {
    auto tensor = MakeStruct<plumb_tensor>();
    if (!ok(plumb_model_tensor(model.get, i, &tensor, error))) return status;
    floats->insert(floats->end(), tensor.data, tensor.data + tensor.shape[0] * tensor.shape[1]);
  }
  floats->insert(floats->end(), gradient.data, gradient.data + 40 * 64);
  const float* const logits = plumb_session_logits(session.get, 0);
  floats->insert(floats->end(), logits, logits + 40);
  return PLUMB_OK;
}

// Returns the floats of Live with plumb's threads and memory.
inline const std::vector<float>& Expected() {
  static const std::vector<float> expected = [] {
    std::vector<float> floats;
    const RuntimeHandle runtime = MakeHostRuntime(nullptr, nullptr);
    EXPECT_PLUMB_OK(Live(runtime.get, &floats, nullptr, err));
    return floats;
  }();
  return expected;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_CAPI_HOST_LIFE_H_
