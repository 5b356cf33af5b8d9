// The passes of plumb::Model over given tokens: what a model computes for them, and probes of it.
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
#include "runtime/tools/token_pass.h"

namespace plumb {
namespace {

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

absl::StatusOr<Model::Outputs> Model::Run(const TokenBatch& batch, bool with_gradients) const {
  return RunTokens(handle(), batch, with_gradients);
}

absl::StatusOr<ProbeFigures> Model::Probe(const TokenBatch& batch,
                                          const std::vector<std::string>& points) const {
  PLUMB_ASSIGN_OR_RETURN(const PassBatch pass, ToPassBatch(batch, handle()));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> all, ProbePoints());
  return OrOutOfMemory("a pass over the batch", [&]() -> absl::StatusOr<ProbeFigures> {
    PLUMB_ASSIGN_OR_RETURN(const EvaluatorHandle evaluator,
                           MakePassEvaluator(handle(), pass, /*logits=*/false, /*gradients=*/true));
    std::vector<const char*> names;
    for (const std::string& point : points) names.push_back(point.c_str());
    ToldFigures told;
    const plumb_probe_fn tell = [](void* user, const plumb_probe* probe) -> int32_t {
      static_cast<ToldFigures*>(user)->Add(*probe);
      return 0;
    };
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_probe, evaluator.get(), names.data(),
                                    names.size(), tell, static_cast<void*>(&told)));
    double loss = 0;
    PLUMB_RETURN_IF_ERROR(CallPlumb(plumb_evaluator_run, evaluator.get(), pass.inputs.data(),
                                    pass.targets.data(), pass.inputs.size(), &loss));
    return told.InOrder(all);
  });
}

absl::Status Model::WriteLogits(const Outputs& outputs, const std::string& path) {
  const TensorToWrite logits{"logits", F32({outputs.batch, outputs.seq, outputs.vocab}),
                             outputs.logits.data()};
  return WriteSafetensors(path, absl::MakeConstSpan(&logits, 1));
}

absl::Status Model::WriteGradients(const Outputs& outputs, const std::string& path) {
  std::vector<TensorToWrite> tensors;
  for (const Gradient& gradient : outputs.gradients) {
    tensors.push_back(
        {gradient.name, F32(Shape(absl::MakeConstSpan(gradient.shape))), gradient.data.data()});
  }
  return WriteSafetensors(path, tensors);
}

}  // namespace plumb
