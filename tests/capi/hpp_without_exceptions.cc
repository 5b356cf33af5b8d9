// SPDX-License-Identifier: Apache-2.0
#include "tests/capi/hpp_without_exceptions.h"

#include <cstdint>
#include <string>

#include "plumb.hpp"

#if defined(__cpp_exceptions)
#error "this file is for -fno-exceptions"
#endif

namespace {

constexpr char kModel[] =
    "n_layer: 1 n_head: 1 d_model: 4 context_length: 4 vocab_size: 3\n"
    "placement { name: \"rule\" each: \"x = x + f(norm(x))\" end: \"x = norm(x)\" }\n"
    "block { placement: \"rule\" norm: \"rms_norm\" }\n";

plumb::Result<std::int64_t> Train() {
  plumb::RuntimeOptions options;
  options.use_environment = false;
  auto runtime = plumb::Runtime::Create(options);
  if (!runtime) return runtime.error();
  const auto spec = plumb::Spec::FromText(kModel);
  if (!spec) return spec.error();
  auto model = plumb::Model::Create(*runtime, *spec);
  if (!model) return model.error();
  if (const auto drawn = model->Init(1); !drawn) return drawn.error();
  auto trainer = plumb::Trainer::Create(*model, {"batch_size: 1 max_steps: 3"});
  if (!trainer) return trainer.error();
  const auto run = trainer->Run(
      [](std::int64_t, plumb::Span<std::int32_t> inputs, plumb::Span<std::int32_t> targets) {
        for (std::int32_t& id : inputs) id = 1;
        for (std::int32_t& id : targets) id = 2;
      });
  if (!run) return run.error();
  return trainer->Steps();
}

}  // namespace

std::string TrainWithoutExceptions() {
  const auto steps = Train();
  if (!steps) return steps.error().message();
  return *steps == 3 ? "ok" : "steps: " + std::to_string(*steps);
}

std::string FailWithoutExceptions() {
  const auto spec = plumb::Spec::FromText("n_hed: 2", "bad.pbtxt");
  return spec ? "no error" : spec.error().message();
}

void AbortWithoutExceptions() {
  plumb::Spec spec = plumb::Spec::FromText("n_hed: 2", "bad.pbtxt").value();
}
