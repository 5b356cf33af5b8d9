#include "runtime/tools/token_pass.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/tools/out_of_memory.h"

namespace plumb {
namespace {

using Rows = std::vector<std::vector<int32_t>>;

plumb_model_info InfoOf(const plumb_model* model) {
  auto info = Sized<plumb_model_info>();
  plumb_model_get_info(model, &info);
  return info;
}

// `what`: "token", "target", "type" of a sequence, which lie in least..most.
absl::Status CheckRow(const std::vector<int32_t>& row, size_t sequence, const char* what,
                      int64_t least, int64_t most) {
  for (size_t t = 0; t < row.size(); ++t) {
    if (row[t] >= least && row[t] <= most) continue;
    return absl::InvalidArgumentError(absl::StrCat("sequence ", sequence, ", ", what, " ", t, ": ",
                                                   row[t], " is not in 0..", most));
  }
  return absl::OkStatus();
}

absl::Status CheckLengths(const Rows& sequences, const plumb_model_info& model) {
  if (sequences.empty()) return absl::InvalidArgumentError("no sequences");
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

// `rows`, one a sequence, of its length; `name`: "targets".
absl::Status CheckAlike(const Rows& rows, const Rows& sequences, const char* name) {
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

absl::Status Check(const TokenBatch& batch, const plumb_model_info& model) {
  PLUMB_RETURN_IF_ERROR(CheckLengths(batch.sequences, model));
  for (size_t b = 0; b < batch.sequences.size(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckRow(batch.sequences[b], b, "token", 0, model.vocab_size - 1));
  }
  if (!batch.targets.empty()) {
    PLUMB_RETURN_IF_ERROR(CheckAlike(batch.targets, batch.sequences, "targets"));
    for (size_t b = 0; b < batch.targets.size(); ++b) {
      PLUMB_RETURN_IF_ERROR(CheckRow(batch.targets[b], b, "target", -1, model.vocab_size - 1));
    }
  } else if (model.bidirectional == 0 && batch.sequences[0].size() < 2) {
    return absl::InvalidArgumentError("a sequence needs at least two tokens");
  }
  if (batch.types.empty()) return absl::OkStatus();
  if (model.token_types == 0) {
    return absl::InvalidArgumentError("token types are given, and the model has no token_types");
  }
  PLUMB_RETURN_IF_ERROR(CheckAlike(batch.types, batch.sequences, "token_types"));
  for (size_t b = 0; b < batch.types.size(); ++b) {
    PLUMB_RETURN_IF_ERROR(CheckRow(batch.types[b], b, "type", 0, model.token_types - 1));
  }
  return absl::OkStatus();
}

// Each row and its padding.
std::vector<int32_t> SideBySide(const Rows& rows, size_t length, int32_t padding) {
  std::vector<int32_t> all;
  all.reserve(rows.size() * length);
  for (const std::vector<int32_t>& row : rows) {
    all.insert(all.end(), row.begin(), row.end());
    all.resize(all.size() + length - row.size(), padding);
  }
  return all;
}

// The gradient of every parameter and its L2 norm.
absl::Status TakeGradients(const plumb_evaluator* evaluator, size_t count, Model::Outputs* out) {
  for (size_t i = 0; i < count; ++i) {
    auto tensor = Sized<plumb_tensor>();
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_gradient, evaluator, i, &tensor));
    Model::Gradient gradient;
    gradient.name = tensor.name;
    gradient.shape.assign(tensor.shape, tensor.shape + tensor.rank);
    int64_t n = 1;
    for (const int64_t dim : gradient.shape) n *= dim;
    gradient.data.assign(tensor.data, tensor.data + n);
    double square = 0;
    for (const float g : gradient.data) square += static_cast<double>(g) * static_cast<double>(g);
    gradient.l2 = std::sqrt(square);
    out->gradients.push_back(std::move(gradient));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<PassBatch> ToPassBatch(const TokenBatch& batch, const plumb_model* model) {
  const plumb_model_info info = InfoOf(model);
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

absl::StatusOr<EvaluatorHandle> MakePassEvaluator(plumb_model* model, const PassBatch& batch,
                                                  bool logits, bool gradients) {
  if (gradients && !batch.has_targets) {
    return absl::InvalidArgumentError(
        "no token has a target, so that there is no loss to take gradients of; a bidirectional "
        "model needs \"targets\"");
  }
  auto options = Sized<plumb_evaluator_options>();
  options.rows = batch.rows;
  options.seq = batch.seq;
  options.logits = logits ? 1 : 0;
  options.gradients = gradients ? 1 : 0;
  PLUMB_ASSIGN_OR_RETURN(EvaluatorHandle evaluator,
                         MakeHandle<EvaluatorHandle>(plumb_evaluator_create, model, &options));
  PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_set_types, evaluator.get(), batch.types.data(),
                                  batch.types.size()));
  return evaluator;
}

absl::StatusOr<Model::Outputs> RunTokens(plumb_model* model, const TokenBatch& batch,
                                         bool with_gradients) {
  PLUMB_ASSIGN_OR_RETURN(const PassBatch pass, ToPassBatch(batch, model));
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<Model::Outputs> {
    PLUMB_ASSIGN_OR_RETURN(const EvaluatorHandle evaluator,
                           MakePassEvaluator(model, pass, /*logits=*/true, with_gradients));
    Model::Outputs out;
    out.batch = pass.rows;
    out.seq = pass.seq;
    out.vocab = InfoOf(model).vocab_size;
    double loss = 0;
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_run, evaluator.get(), pass.inputs.data(),
                                    pass.has_targets ? pass.targets.data() : nullptr,
                                    pass.inputs.size(), pass.has_targets ? &loss : nullptr));
    if (pass.has_targets) out.loss = loss;
    const float* const logits = plumb_evaluator_logits(evaluator.get());
    out.logits.assign(logits, logits + out.batch * out.seq * out.vocab);
    if (!with_gradients) return out;
    PLUMB_RETURN_IF_ERROR(TakeGradients(evaluator.get(), plumb_model_tensor_count(model), &out));
    return out;
  });
}

}  // namespace plumb
