// SPDX-License-Identifier: Apache-2.0
#include "tests/app/test_models.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/check.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/capi/runtime_core.h"
#include "runtime/client/model.h"
#include "runtime/spec/model_spec.h"

namespace plumb {
namespace {

[[noreturn]] void Die(const absl::Status& status) {
  std::cerr << status << std::endl;
  std::abort();
}

template <class B>
double ComputeRelativeError(const std::vector<float>& a, const std::vector<B>& b) {
  if (a.size() != b.size()) return std::numeric_limits<double>::infinity();
  double largest = 0, difference = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double x = static_cast<double>(a[i]), y = static_cast<double>(b[i]);
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, std::fabs(y));
    difference = std::max(difference, std::fabs(x - y));
  }
  return difference == 0 ? 0 : difference / largest;
}

}  // namespace

std::unique_ptr<Runtime> MakeRuntime(int threads) {
  RuntimeOptions options;
  options.plugin_directories = {PLUMB_TEST_PLUGIN_DIR};
  options.placement_directories = {absl::StrCat(PLUMB_SOURCE_DIR, "/plugins/placements")};
  options.use_environment = false;
  options.threads = threads;
  absl::StatusOr<std::unique_ptr<Runtime>> runtime = Runtime::Create(options);
  if (!runtime.ok()) Die(runtime.status());
  return *std::move(runtime);
}

std::unique_ptr<HostRuntime> MakeHostRuntime(int threads) {
  api::RuntimeOptions options;
  options.plugin_path = PLUMB_TEST_PLUGIN_DIR;
  options.placement_path = absl::StrCat(PLUMB_SOURCE_DIR, "/plugins/placements");
  options.use_environment = false;
  options.threads = threads;
  absl::StatusOr<std::unique_ptr<HostRuntime>> runtime = HostRuntime::Create(options);
  if (!runtime.ok()) Die(runtime.status());
  return *std::move(runtime);
}

absl::StatusOr<api::Model> TryModel(HostRuntime* runtime, const std::string& text,
                                    const std::string& name) {
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ToStatus(api::Spec::FromText(text, name)));
  return CreateModel(runtime, spec);
}

absl::StatusOr<std::unique_ptr<ModelContext>> TryContext(Runtime* runtime,
                                                         const std::string& text) {
  PLUMB_ASSIGN_OR_RETURN(const ModelSpec spec, ModelSpec::FromText(text, "test.pbtxt"));
  return runtime->impl().MakeContext(spec);
}

std::unique_ptr<ModelContext> MakeContext(Runtime* runtime, const std::string& text) {
  absl::StatusOr<std::unique_ptr<ModelContext>> context = TryContext(runtime, text);
  if (!context.ok()) Die(context.status());
  return *std::move(context);
}

std::vector<std::string> ShippedPlacements() {
  std::vector<std::string> names;
  for (const auto& file :
       std::filesystem::directory_iterator(absl::StrCat(PLUMB_SOURCE_DIR, "/plugins/placements"))) {
    if (file.path().extension() == ".pbtxt") names.push_back(file.path().stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string TinyModel::Text() const {
  std::string text = absl::StrCat(
      "n_layer: ", n_layer, " n_head: ", n_head, " n_kv_head: ", n_kv_head, " d_model: ", d_model,
      " d_ff: \"", d_ff, "\" vocab_size: ", vocab_size, " context_length: ", context_length,
      " positions { kind: ", positions, " }\n", more, "\nblock { placement: \"", placement, "\" ");
  if (!norm.empty()) absl::StrAppend(&text, "norm: \"", norm, "\" ");
  return absl::StrCat(text, block, "}\n");
}

TinyModel WithLinearAttention(TinyModel model) {
  model.placement = "delta";
  absl::StrAppend(
      &model.more,
      " norm { name: \"unit\" plugin: \"rms_norm\" attr { name: \"affine\" flag: false } }"
      " placement { name: \"delta\" extends: \"pre\""
      " slot { name: \"unit_norm\" per_head: true }"
      " inside { point: \"linear_attention.k\""
      "          rule: \"k = unit_norm(silu(k)) / sqrt(head_dim)\" } }");
  absl::StrAppend(&model.block,
                  "slot { name: \"unit_norm\" norm: \"unit\" } sublayer { linear_attention { "
                  "n_key_head: \"1\" decay: PER_HEAD delta: true conv { width: 3 } } } "
                  "sublayer { mlp {} } ");
  return model;
}

std::vector<float> GenericValues(const ParameterSpec& parameter, uint64_t seed) {
  using Role = ParameterSpec::Role;
  const RngStream stream(seed, absl::StrCat("generic ", parameter.name));
  const bool is_gate = parameter.role == Role::kLearned;
  const bool is_matrix = parameter.is_matrix();
  const bool is_table = parameter.name.rfind("embedding.", 0) == 0;
  const double center = is_gate ? 0.7 : parameter.role == Role::kNorm ? parameter.init.a : 0;
  const double spread = is_table    ? 1
                        : is_matrix ? 1.2 / std::sqrt(static_cast<double>(parameter.shape.last()))
                                    : 0.25;
  std::vector<float> values(static_cast<size_t>(parameter.shape.num_elements()));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(center + spread * stream.Normal(i));
  }
  return values;
}

ParameterStore GenericParameters(const ModelContext& context, uint64_t seed) {
  ParameterStore store(context.parameters, context.states);
  PLUMB_CHECK(DrawParameters(context.parameters, context.states, seed, /*threads=*/1, store).ok(),
              "initial values");
  for (size_t i = 0; i < context.parameters.size(); ++i) {
    const std::vector<float> values = GenericValues(context.parameters[i], seed);
    std::copy(values.begin(), values.end(), store.data() + store.layout().entries[i].begin);
  }
  return store;
}

std::vector<float> Floats(const ParameterStore& store) {
  std::vector<float> floats(static_cast<size_t>(store.layout().size));
  for (size_t i = 0; i < store.layout().entries.size(); ++i) {
    const ParameterLayout::Entry& entry = store.layout().entries[i];
    store.Read(i, 0, entry.end - entry.begin, floats.data() + entry.begin);
  }
  return floats;
}

Tokens RandomTokens(int64_t batch, int64_t seq, int64_t vocab_size, uint64_t seed) {
  Tokens tokens(static_cast<size_t>(batch), std::vector<int32_t>(static_cast<size_t>(seq)));
  const RngStream stream(seed, "tokens");
  uint64_t draw = 0;
  for (std::vector<int32_t>& row : tokens) {
    for (int32_t& token : row) {
      token = static_cast<int32_t>(stream.Below(draw++, static_cast<uint64_t>(vocab_size)));
    }
  }
  return tokens;
}

ReferenceTensors Feeds(const ParameterStore& parameters, const Tokens& tokens) {
  ReferenceTensors feeds;
  for (const ParameterLayout::Entry& entry : parameters.layout().entries) {
    ReferenceTensor& tensor = feeds[entry.name];
    tensor.type = F32(entry.shape);
    tensor.f.assign(parameters.data() + entry.begin, parameters.data() + entry.end);
  }
  for (const StateLayout::Entry& entry : parameters.states().entries) {
    ReferenceTensor& tensor = feeds[entry.name];
    tensor.type = F32({entry.elements});
    const float* state = parameters.state_data() + entry.begin;
    tensor.f.assign(state, state + entry.elements);
  }
  const TensorType ids =
      I32({static_cast<int64_t>(tokens.size()), static_cast<int64_t>(tokens[0].size())});
  ReferenceTensor token{ids, {}, {}}, position{ids, {}, {}}, target{ids, {}, {}};
  for (const std::vector<int32_t>& row : tokens) {
    for (size_t t = 0; t < row.size(); ++t) {
      token.i.push_back(row[t]);
      position.i.push_back(static_cast<int32_t>(t));
      target.i.push_back(t + 1 < row.size() ? row[t + 1] : -1);
    }
  }
  feeds[kRandomInput] = {I32({kRandomWords}), {}, std::vector<int32_t>(kRandomWords, 0)};
  feeds["tokens"] = std::move(token);
  feeds["positions"] = std::move(position);
  feeds["targets"] = std::move(target);
  return feeds;
}

double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  return ComputeRelativeError(a, b);
}
double RelativeError(const std::vector<float>& a, const std::vector<double>& b) {
  return ComputeRelativeError(a, b);
}

}  // namespace plumb
