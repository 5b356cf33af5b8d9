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
#include "runtime/capi/runtime_core.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/plumb_api.h"
#include "runtime/session/parameter_store.h"
#include "runtime/session/program.h"
#include "tests/compile/reference_run.h"

namespace plumb {

using Tokens = std::vector<std::vector<int32_t>>;  // [batch][seq]

// Returns a runtime that finds only the norms of this build and the placements of this source tree.
std::unique_ptr<Runtime> MakeRuntime(int threads = 1);
std::unique_ptr<HostRuntime> MakeHostRuntime(int threads = 1);

// Opens the model of a text as programs do.
// Requires: the runtime outlives the model.
absl::StatusOr<api::Model> TryModel(HostRuntime* runtime, const std::string& text,
                                    const std::string& name = "test.pbtxt");

// Returns a model without weights.
// Requires: the runtime outlives it.
absl::StatusOr<std::unique_ptr<ModelContext>> TryContext(Runtime* runtime, const std::string& text);
// Does the same for valid text: aborts with the message of an error.
std::unique_ptr<ModelContext> MakeContext(Runtime* runtime, const std::string& text);

// Returns the names of all placements in plugins/placements, sorted.
std::vector<std::string> ShippedPlacements();

// Description of a small model.
struct TinyModel {
  std::string placement = "pre";
  std::string norm = "rms_norm";  // "": the slots stay empty
  int n_layer = 2;
  int n_head = 2;
  int n_kv_head = 2;
  int d_model = 8;
  int d_ff = 12;
  int vocab_size = 5;
  int context_length = 8;
  std::string positions = "LEARNED";
  std::string more;   // further fields of the model
  std::string block;  // further fields of its block

  std::string Text() const;
};

// Returns the model with linear attention in place of attention: a decay, the delta rule and
// convolutions.
TinyModel WithLinearAttention(TinyModel model);

// Returns values without symmetry for a parameter: gains near their initial value, nonzero gates
// and biases, and matrices that keep activations near 1. They depend only on the name and the seed.
// Buffers of norms have their initial values.
std::vector<float> GenericValues(const ParameterSpec& parameter, uint64_t seed);
ParameterStore GenericParameters(const ModelContext& context, uint64_t seed = 1);

// Returns all weights as floats, in the layout of the store with zeros between them.
std::vector<float> Floats(const ParameterStore& store);

Tokens RandomTokens(int64_t batch, int64_t seq, int64_t vocab_size, uint64_t seed = 1);

// Returns the inputs of ReferenceRun: the parameters, the states of norms, zeros as the random
// numbers of dropout, and for `tokens` the inputs and the shifted targets. The last position of a
// row has no target.
ReferenceTensors Feeds(const ParameterStore& parameters, const Tokens& tokens);

// Returns the largest |a - b| over the largest |b|: infinity if sizes differ or a is not finite.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b);
double RelativeError(const std::vector<float>& a, const std::vector<double>& b);

// Returns the name of the placement as the name of a parameterized test.
inline std::string TestName(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

}  // namespace plumb

#endif  // PLUMB_TESTS_APP_TEST_MODELS_H_
