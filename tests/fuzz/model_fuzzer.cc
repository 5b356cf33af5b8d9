// SPDX-License-Identifier: Apache-2.0
// Fuzzes a model's text: its description and picture, its graph, and one pass of a training step.
#include <algorithm>
#include <string>
#include <vector>

#include "runtime/base/check.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

// Maximum sizes of models that are run, because a search needs many runs. Larger ones are only
// described.
constexpr int64_t kMaxParameters = 20000;
constexpr int64_t kMaxLayers = 64;

bool IsSmall(const api::ModelInfo& model, const nlohmann::ordered_json& description) {
  return description["dims"]["n_layer"] <= kMaxLayers &&
         model.parameters + model.context_length <= kMaxParameters;
}

void RunOneStep(api::Model* model, int64_t vocab_size, int64_t context_length) {
  const int64_t seq = std::min<int64_t>(context_length, 3);
  std::vector<std::vector<int32_t>> tokens(2, std::vector<int32_t>(static_cast<size_t>(seq)));
  for (size_t row = 0; row < tokens.size(); ++row) {
    for (size_t t = 0; t < tokens[row].size(); ++t) {
      tokens[row][t] = static_cast<int32_t>((row * 7 + t * 3) % static_cast<size_t>(vocab_size));
    }
  }
  if (!model->Init(1).ok()) return;
  const absl::StatusOr<ModelOutputs> outputs = RunTokens(model, {tokens, tokens, {}});
  if (!outputs.ok()) return;
  PLUMB_CHECK(outputs->logits.size() == static_cast<size_t>(2 * seq * vocab_size),
              "logits of another shape");
}

PLUMB_FUZZER(model) {
  const auto spec = api::Spec::FromText(std::string(AsText(data, size)), "fuzz.pbtxt");
  if (!spec.ok()) return;
  const std::string text = spec->Text().value();
  const auto again = api::Spec::FromText(text, "again.pbtxt");
  PLUMB_CHECK(again.ok() && again->Text().value() == text, "a description does not read itself");
  absl::StatusOr<api::Model> model = CreateModel(FuzzRuntime(), *spec);
  FuzzRuntime()->TakeWarnings();
  if (!model.ok()) {
    PLUMB_CHECK(!model.status().message().empty(), "an error without words");
    return;
  }
  const api::ModelInfo info = model->Info();
  const auto description = plumb::DescribeModel(*model);
  if (!description.ok() || !IsSmall(info, *description)) return;
  const absl::StatusOr<std::string> picture = plumb::DrawModel(*model);
  PLUMB_CHECK(!picture.ok() || picture->find("</svg>") != std::string::npos, "half a picture");
  if (info.vocab_size > 0 && info.context_length > 0) {
    RunOneStep(&*model, info.vocab_size, info.context_length);
  }
}

}  // namespace
}  // namespace plumb
