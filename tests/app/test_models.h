// SPDX-License-Identifier: Apache-2.0
// Runtimes, small models, weights and token ids for the tests of models, sessions and the public
// headers.
#ifndef PLUMB_TESTS_APP_TEST_MODELS_H_
#define PLUMB_TESTS_APP_TEST_MODELS_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/plumb_api.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "tests/compile/reference_run.h"

namespace plumb {

using Tokens = std::vector<std::vector<int32_t>>;  // [batch][seq]

// A runtime that finds the norms of this build and the placements of this source tree, and nothing
// else.
std::unique_ptr<Runtime> MakeRuntime(int threads = 1);
std::unique_ptr<HostRuntime> MakeHostRuntime(int threads = 1);

// The model of a text, as programs open it. The runtime must outlive it.
absl::StatusOr<api::Model> TryModel(HostRuntime* runtime, const std::string& text,
                                    const std::string& name = "test.pbtxt");

// A model without its weights; the runtime must outlive it.
absl::StatusOr<std::unique_ptr<ModelContext>> TryContext(Runtime* runtime, const std::string& text);
// The same for text that is right: aborts with the message otherwise.
std::unique_ptr<ModelContext> MakeContext(Runtime* runtime, const std::string& text);

// The names of all placements in plugins/placements, sorted.
std::vector<std::string> ShippedPlacements();

// A small model as text.
struct TinyModel {
  std::string placement = "pre";
  std::string norm = "rms_norm";  // "" leaves the slots empty
  int n_layer = 2;
  int n_head = 2;
  int n_kv_head = 2;
  int d_model = 8;
  int d_ff = 12;
  int vocab_size = 5;
  int context_length = 8;
  std::string positions = "LEARNED";
  std::string more;  // further fields of the model

  std::string Text() const;
};

// Values without symmetry for every parameter: gains around their initial value, gates and biases
// not zero, matrices that keep activations near 1. A function of the name and the seed. The buffers
// of norms have their initial values.
std::vector<float> GenericValues(const ParameterSpec& parameter, uint64_t seed);
ParameterStore GenericParameters(const ModelContext& context, uint64_t seed = 1);

// All weights, in the layout of the store and with zeros between them, whatever form they are in.
std::vector<float> Floats(const ParameterStore& store);

Tokens RandomTokens(int64_t batch, int64_t seq, int64_t vocab_size, uint64_t seed = 1);

// What ReferenceRun wants: the parameters, the states of norms, zeros for dropout to draw from, and
// for `tokens` the inputs and the shifted targets (the last position of a row has none).
ReferenceTensors Feeds(const ParameterStore& parameters, const Tokens& tokens);

// The largest |a - b| over the largest |b|; infinite where the sizes differ or a is not finite.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b);
double RelativeError(const std::vector<float>& a, const std::vector<double>& b);

// Parameterized tests are named after their placements.
inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_TEST_MODELS_H_
