// The passes of plumb::Model over given tokens: what a model computes for them, and probes of it.
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/io/safetensors.h"
#include "runtime/tools/handles.h"
#include "runtime/tools/model.h"
#include "runtime/tools/out_of_memory.h"
#include "runtime/tools/run_probe.h"

namespace plumb {
namespace {

using Tokens = std::vector<std::vector<int32_t>>;

// Token ids side by side, and the target of each: the token after it, of the last of a row none.
struct PassBatch {
  int64_t rows = 0, seq = 0;
  std::vector<int32_t> inputs, targets;
};

absl::StatusOr<PassBatch> ToBatch(const Tokens& tokens, const plumb_model_info& model) {
  if (tokens.empty()) return absl::InvalidArgumentError("no sequences");
  const size_t length = tokens[0].size();
  for (size_t b = 0; b < tokens.size(); ++b) {
    if (tokens[b].size() != length) {
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, " has ", tokens[b].size(),
                                                     " tokens, the first has ", length,
                                                     "; all must be of one length"));
    }
    for (size_t t = 0; t < length; ++t) {
      if (tokens[b][t] >= 0 && tokens[b][t] < model.vocab_size) continue;
      return absl::InvalidArgumentError(absl::StrCat("sequence ", b, ", token ", t, ": ",
                                                     tokens[b][t], " is not in 0..",
                                                     model.vocab_size - 1));
    }
  }
  if (length < 2) return absl::InvalidArgumentError("a sequence needs at least two tokens");
  PassBatch batch;
  batch.rows = static_cast<int64_t>(tokens.size());
  batch.seq = static_cast<int64_t>(length);
  if (batch.seq > model.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("sequences of ", batch.seq,
                                                   " tokens are longer than the model's "
                                                   "context_length ",
                                                   model.context_length));
  }
  for (const std::vector<int32_t>& row : tokens) {
    batch.inputs.insert(batch.inputs.end(), row.begin(), row.end());
    batch.targets.insert(batch.targets.end(), row.begin() + 1, row.end());
    batch.targets.push_back(-1);
  }
  return batch;
}

plumb_model_info InfoOf(const plumb_model* model) {
  auto info = Sized<plumb_model_info>();
  plumb_model_get_info(model, &info);
  return info;
}

absl::StatusOr<EvaluatorHandle> MakeEvaluator(plumb_model* model, const PassBatch& batch,
                                              bool logits, bool gradients) {
  auto options = Sized<plumb_evaluator_options>();
  options.rows = batch.rows;
  options.seq = batch.seq;
  options.logits = logits ? 1 : 0;
  options.gradients = gradients ? 1 : 0;
  return MakeHandle<EvaluatorHandle>(plumb_evaluator_create, model, &options);
}

absl::StatusOr<double> RunEvaluator(plumb_evaluator* evaluator, const PassBatch& batch) {
  double loss = 0;
  PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_run, evaluator, batch.inputs.data(),
                                  batch.targets.data(), batch.inputs.size(), &loss));
  return loss;
}

// The gradient of every parameter and its L2 norm.
absl::Status TakeGradients(const plumb_evaluator* evaluator, size_t count, Model::Outputs* out) {
  for (size_t i = 0; i < count; ++i) {
    auto tensor = Sized<plumb_tensor>();
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_gradient, evaluator, i, &tensor));
    int64_t n = 1;
    for (const int64_t dim : tensor.shape) n *= dim;
    std::vector<float> gradient(tensor.data, tensor.data + n);
    double square = 0;
    for (const float g : gradient) square += static_cast<double>(g) * static_cast<double>(g);
    out->grad_l2.emplace_back(tensor.name, std::sqrt(square));
    out->gradients[tensor.name] = std::move(gradient);
    out->shapes[tensor.name].assign(tensor.shape, tensor.shape + tensor.rank);
  }
  return absl::OkStatus();
}

// Figures of a pass as they are told.
struct ToldFigures {
  std::map<std::string, TensorFigures> activations, gradients;
  std::vector<ProbedParameter> parameters;

  void Add(const plumb_probe& probe) {
    switch (probe.kind) {
      case PLUMB_PROBE_ACTIVATION:
        activations[probe.name] = FiguresOf(probe);
        break;
      case PLUMB_PROBE_GRADIENT:
        gradients[probe.name] = FiguresOf(probe);
        break;
      case PLUMB_PROBE_PARAMETER:
        parameters.push_back({probe.name, FiguresOf(probe), {}});
        break;
      default:  // its gradient comes right after it
        parameters.back().gradient = FiguresOf(probe);
    }
  }
  // In the order of the data: that of `points`.
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

absl::StatusOr<Model::Outputs> Model::Run(const Tokens& tokens, bool with_gradients) const {
  PLUMB_ASSIGN_OR_RETURN(const PassBatch batch, ToBatch(tokens, InfoOf(handle())));
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<Outputs> {
    PLUMB_ASSIGN_OR_RETURN(const EvaluatorHandle evaluator,
                           MakeEvaluator(handle(), batch, /*logits=*/true, with_gradients));
    Outputs out;
    out.batch = batch.rows;
    out.seq = batch.seq;
    out.vocab = InfoOf(handle()).vocab_size;
    PLUMB_ASSIGN_OR_RETURN(out.loss, RunEvaluator(evaluator.get(), batch));
    const float* const logits = plumb_evaluator_logits(evaluator.get());
    out.logits.assign(logits, logits + out.batch * out.seq * out.vocab);
    if (!with_gradients) return out;
    PLUMB_RETURN_IF_ERROR(TakeGradients(evaluator.get(), plumb_model_tensor_count(handle()), &out));
    return out;
  });
}

absl::StatusOr<ProbeFigures> Model::Probe(const Tokens& tokens,
                                          const std::vector<std::string>& points) const {
  PLUMB_ASSIGN_OR_RETURN(const PassBatch batch, ToBatch(tokens, InfoOf(handle())));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, ProbePoints());
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<ProbeFigures> {
    PLUMB_ASSIGN_OR_RETURN(const EvaluatorHandle evaluator,
                           MakeEvaluator(handle(), batch, /*logits=*/false, /*gradients=*/true));
    std::vector<const char*> names;
    for (const std::string& point : points) names.push_back(point.c_str());
    ToldFigures told;
    const plumb_probe_fn tell = [](void* user, const plumb_probe* probe) -> int32_t {
      static_cast<ToldFigures*>(user)->Add(*probe);
      return 0;
    };
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_probe, evaluator.get(), names.data(),
                                    names.size(), tell, static_cast<void*>(&told)));
    PLUMB_RETURN_IF_ERROR(RunEvaluator(evaluator.get(), batch).status());
    return told.InOrder(all);
  });
}

absl::Status Model::WriteGradients(const Outputs& outputs, const std::string& path) {
  std::vector<TensorToWrite> tensors;
  for (const auto& [name, gradient] : outputs.gradients) {
    tensors.push_back({name, F32(Shape(outputs.shapes.at(name))), gradient.data()});
  }
  return WriteSafetensors(path, tensors);
}

absl::Status Model::WriteLogits(const Outputs& outputs, const std::string& path) {
  const TensorToWrite logits{"logits", F32({outputs.batch, outputs.seq, outputs.vocab}),
                             outputs.logits.data()};
  return WriteSafetensors(path, absl::MakeConstSpan(&logits, 1));
}

}  // namespace plumb
