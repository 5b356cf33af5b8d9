// SPDX-License-Identifier: Apache-2.0
// Small models for the tests of plumb.hpp.
#ifndef PLUMB_TESTS_CAPI_HPP_MODELS_H_
#define PLUMB_TESTS_CAPI_HPP_MODELS_H_

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "plumb.hpp"

constexpr char kHppModel[] =
    "n_layer: 1 n_head: 2 d_model: 8 context_length: 8 vocab_size: 5\n"
    "placement { name: \"rule\" each: \"x = x + f(norm(x))\" end: \"x = norm(x)\" }\n"
    "block { placement: \"rule\" norm: \"rms_norm\" }\n";

inline plumb::Runtime MakeRuntime(plumb::RuntimeOptions options = {}) {
  options.use_environment = false;
  options.threads = 2;
  return plumb::Runtime::Create(std::move(options)).value();
}

inline plumb::Model MakeModel(plumb::Runtime& runtime, std::uint64_t seed = 3) {
  plumb::Model model =
      plumb::Model::Create(runtime, plumb::Spec::FromText(kHppModel, "test").value()).value();
  model.Init(seed).value();
  return model;
}

inline plumb::Model MakeModel() {
  plumb::Runtime runtime = MakeRuntime();
  return MakeModel(runtime);
}

// Fills in the task of counting: a token's target is the next of the five tokens.
inline void Fill(std::int64_t step, plumb::Span<std::int32_t> inputs,
                 plumb::Span<std::int32_t> targets) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    inputs[i] = static_cast<std::int32_t>((i + static_cast<std::size_t>(step)) % 5);
    targets[i] = (inputs[i] + 1) % 5;
  }
}

inline std::vector<float> Weights(const plumb::Model& model) {
  std::vector<float> all;
  for (std::size_t i = 0; i < model.TensorCount(); ++i) {
    const plumb::TensorView<const float> tensor = model.Tensor(i).value();
    all.insert(all.end(), tensor.data.begin(), tensor.data.end());
  }
  return all;
}

#endif  // PLUMB_TESTS_CAPI_HPP_MODELS_H_
