// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/model_pass.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/formats/safetensors.h"

namespace plumb {
namespace {

using Rows = std::vector<std::vector<int32_t>>;

// Checks that all elements of a row are in min..max. `what` is "token", "target" or "type", for
// errors.
absl::Status CheckRow(const std::vector<int32_t>& row, size_t sequence, const char* what,
                      int64_t min, int64_t max) {
  for (size_t t = 0; t < row.size(); ++t) {
    if (row[t] >= min && row[t] <= max) continue;
    return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, ", ", what, " ", t, ": ",
                                                   row[t], " is not in 0..", max));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const Rows& sequences, const api::ModelInfo& model) {
  if (sequences.empty()) {
    return absl::InvalidArgumentError("there are no sequences; give one or more");
  }
  const size_t first = sequences[0].size();
  for (size_t b = 0; b < sequences.size(); ++b) {
    const size_t length = sequences[b].size();
    if (length != first && model.bidirectional == 0) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, " has ", length,
                                                     " tokens, the first has ", first,
                                                     "; all must be of one length"));
    }
    if (length == 0) return absl::InvalidArgumentError(absl::StrCat("sequence ", b, " is empty"));
    if (static_cast<int64_t>(length) > model.context_length) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, ": ", length,
                                                     " tokens are more than the model's ",
                                                     "context_length ", model.context_length));
    }
  }
  return absl::OkStatus();
}

// Checks that `rows` has one row per sequence, of the same length. `name`: "targets".
absl::Status CheckMatching(const Rows& rows, const Rows& sequences, const char* name) {
  if (rows.size() != sequences.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has ", rows.size(), " lists for ", sequences.size(), " sequences"));
  }
  for (size_t b = 0; b < rows.size(); ++b) {
    if (rows[b].size() == sequences[b].size()) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        name, "[", b, "] has ", rows[b].size(), " elements for ", sequences[b].size(), " tokens"));
  }
  return absl::OkStatus();
}

absl::Status Check(const TokenBatch& batch, const api::ModelInfo& model) {
  PLUMB_RETURN_IF_ERROR(CheckLengths(batch.sequences, model));
  for (size_t b = 0; b < batch.sequences.size(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckRow(batch.sequences[b], b, "token", 0, model.vocab_size - 1));
  }
  if (!batch.targets.empty()) {
    PLUMB_RETURN_IF_ERROR(CheckMatching(batch.targets, batch.sequences, "targets"));
    for (size_t b = 0; b < batch.targets.size(); ++b) {
      PLUMB_RETURN_IF_ERROR(CheckRow(batch.targets[b], b, "target", -1, model.vocab_size - 1));
    }
  } else if (model.bidirectional == 0 && batch.sequences[0].size() < 2) {
    return absl::InvalidArgumentError("a sequence needs at least two tokens");
  }
  if (batch.types.empty()) return absl::OkStatus();
  if (model.token_types == 0) {
    return absl::InvalidArgumentError(
        "token types are given, but the model has no token_types; drop them");
  }
  PLUMB_RETURN_IF_ERROR(CheckMatching(batch.types, batch.sequences, "token_types"));
  for (size_t b = 0; b < batch.types.size(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckRow(batch.types[b], b, "type", 0, model.token_types - 1));
  }
  return absl::OkStatus();
}

// Concatenates the rows, each padded to `length`.
std::vector<int32_t> SideBySide(const Rows& rows, size_t length, int32_t padding) {
  std::vector<int32_t> all;
  all.reserve(rows.size() * length);
  for (const std::vector<int32_t>& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    all.resize(all.size() + length - row.size(), padding);
  }
  return all;
}

// Padded TokenBatch [rows, seq] for api::Evaluator.
struct PassBatch {
  int64_t rows = 0, seq = 0;
  std::vector<int32_t> inputs, targets, types;  // empty types: all 0
  bool has_targets = false;
};

// Converts a batch. Errors: those of RunTokens for its arguments.
absl::StatusOr<PassBatch> ToPassBatch(const TokenBatch& batch, const api::ModelInfo& info) {
  PLUMB_RETURN_IF_ERROR(Check(batch, info));
  size_t length = 0;
  for (const std::vector<int32_t>& row : batch.sequences) length = std::max(length, row.size());
  PassBatch pass;
  pass.rows = static_cast<int64_t>(batch.sequences.size());
  pass.seq = static_cast<int64_t>(length);
  pass.inputs = SideBySide(batch.sequences, length, -1);
  pass.types = SideBySide(batch.types, length, 0);
  pass.targets = SideBySide(batch.targets, length, -1);
  if (batch.targets.empty() && info.bidirectional == 0) {  // the next tokens
    pass.targets.assign(pass.inputs.begin() + 1, pass.inputs.end());
    pass.targets.push_back(-1);
    for (size_t b = 1; b < batch.sequences.size(); ++b) pass.targets[b * length - 1] = -1;
  }
  pass.has_targets = std::any_of(pass.targets.begin(), pass.targets.end(),
                                 [](int32_t target) { return target >= 0; });
  return pass;
}

// Creates an evaluator for such a batch and sets its types.
absl::StatusOr<api::Evaluator> MakePassEvaluator(api::Model* model, const PassBatch& batch,
                                                 bool logits, bool gradients) {
  if (gradients && !batch.has_targets) {
    return absl::InvalidArgumentError(
        "no token has a target, so there is no loss and no gradient; a bidirectional model needs "
        "\"targets\"");
  }
  api::EvaluatorOptions options;
  options.rows = batch.rows;
  options.seq = batch.seq;
  options.logits = logits;
  options.gradients = gradients;
  PLUMB_ASSIGN_OR_RETURN(api::Evaluator evaluator,
                         ToStatus(api::Evaluator::Create(*model, options)));
  PLUMB_RETURN_IF_ERROR(ToStatus(evaluator.SetTypes(batch.types)));
  return evaluator;
}

// Copies the gradient of every parameter and computes its L2 norm.
absl::Status TakeGradients(const api::Evaluator& evaluator, size_t count, ModelOutputs* out) {
  for (size_t i = 0; i < count; ++i) {
    PLUMB_ASSIGN_OR_RETURN(const auto tensor, ToStatus(evaluator.Gradient(i)));
    ModelOutputs::Gradient gradient;
    gradient.name = tensor.name;
    gradient.shape.assign(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    gradient.data.assign(tensor.data.begin(), tensor.data.end());
    double square = 0;
    for (const float g : gradient.data) square += static_cast<double>(g) * static_cast<double>(g);
    gradient.l2 = std::sqrt(square);
    out->gradients.push_back(std::move(gradient));
  }
  return absl::OkStatus();
}

// Figures of a pass, collected in the order in which they are reported.
struct CollectedFigures {
  std::map<std::string, TensorFigures> activations, gradients;
  std::vector<ProbedParameter> parameters;

  void Add(const api::ProbeInfo& probe) {
    switch (probe.kind) {
      case PLUMB_PROBE_ACTIVATION:
        activations[probe.name] = ToFigures(probe);
        break;
      case PLUMB_PROBE_GRADIENT:
        gradients[probe.name] = ToFigures(probe);
        break;
      case PLUMB_PROBE_PARAMETER:
        parameters.push_back({probe.name, ToFigures(probe), {}});
        break;
      default:  // a gradient follows its parameter immediately
        parameters.back().gradient = ToFigures(probe);
    }
  }
  // Returns the figures in the order of the data, given by `points`.
  ProbeFigures InOrder(const std::vector<std::string>& points) {
    ProbeFigures figures;
    for (const std::string& point : points) {
      absl::string_view name = point;
      const bool is_gradient = absl::ConsumePrefix(&name, "grad.");
      const auto& told = is_gradient ? gradients : activations;
      const auto at = told.find(std::string(name));
      if (at == told.end()) continue;
      (is_gradient ? figures.gradients : figures.activations).push_back({at->first, at->second});
    }
    figures.parameters = std::move(parameters);
    return figures;
  }
};

}  // namespace

absl::StatusOr<ModelOutputs> RunTokens(api::Model* model, const TokenBatch& batch,
                                       bool with_gradients) {
  const api::ModelInfo info = model->Info();
  PLUMB_ASSIGN_OR_RETURN(const PassBatch pass, ToPassBatch(batch, info));
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<ModelOutputs> {
    PLUMB_ASSIGN_OR_RETURN(api::Evaluator evaluator,
                           MakePassEvaluator(model, pass, /*logits=*/true, with_gradients));
    ModelOutputs out;
    out.batch = pass.rows;
    out.seq = pass.seq;
    out.vocab = info.vocab_size;
    if (pass.has_targets) {
      PLUMB_ASSIGN_OR_RETURN(out.loss, ToStatus(evaluator.Loss(pass.inputs, pass.targets)));
    } else {
      PLUMB_RETURN_IF_ERROR(ToStatus(evaluator.Logits(pass.inputs)).status());
    }
    const api::Span<const float> logits = evaluator.Logits();
    out.logits.assign(logits.begin(), logits.end());
    if (!with_gradients) return out;
    PLUMB_RETURN_IF_ERROR(TakeGradients(evaluator, model->TensorCount(), &out));
    return out;
  });
}

absl::StatusOr<ProbeFigures> ProbeTokens(api::Model* model, const TokenBatch& batch,
                                         const std::vector<std::string>& points) {
  PLUMB_ASSIGN_OR_RETURN(const PassBatch pass, ToPassBatch(batch, model->Info()));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, ProbePoints(*model));
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<ProbeFigures> {
    PLUMB_ASSIGN_OR_RETURN(api::Evaluator evaluator,
                           MakePassEvaluator(model, pass, /*logits=*/false, /*gradients=*/true));
    CollectedFigures told;
    PLUMB_RETURN_IF_ERROR(ToStatus(
        evaluator.SetProbe(points, [&told](const api::ProbeInfo& probe) { told.Add(probe); })));
    PLUMB_RETURN_IF_ERROR(ToStatus(evaluator.Loss(pass.inputs, pass.targets)).status());
    return told.InOrder(all);
  });
}

absl::Status ModelOutputs::WriteLogits(const std::string& path) const {
  const TensorToWrite tensor{"logits", F32({batch, seq, vocab}), logits.data()};
  return WriteSafetensors(path, absl::MakeConstSpan(&tensor, 1));
}

absl::Status ModelOutputs::WriteGradients(const std::string& path) const {
  std::vector<TensorToWrite> tensors;
  for (const Gradient& gradient : gradients) {
    tensors.push_back(
        {gradient.name, F32(Shape(absl::MakeConstSpan(gradient.shape))), gradient.data.data()});
  }
  return WriteSafetensors(path, tensors);
}

}  // namespace plumb
