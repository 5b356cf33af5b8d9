// SPDX-License-Identifier: Apache-2.0
// Inspection of a model's programs without running them: the output of each stage of the compiler,
// and the min work of a pass.
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/memory_plan.h"
#include "runtime/model/update_plan.h"
#include "runtime/picture/picture.h"
#include "runtime/pytorch/pytorch.h"
#include "runtime/session/probe.h"
#include "runtime/session/program.h"
#include "runtime/session/train_memory.h"
#include "runtime/session/work.h"
#include "runtime/spec/train_spec.h"

namespace plumb::capi {
namespace {

std::vector<std::string> FullNames(const std::vector<ProbePoint>& points) {
  std::vector<std::string> names;
  for (const ProbePoint& point : points) names.push_back(point.FullName());
  return names;
}

// Lists the probe points, one per line, with a star before the default ones.
absl::StatusOr<std::string> ProbesText(const ModelContext& context) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<ProbePoint> points, ListProbePoints(context));
  const std::vector<std::string> names = FullNames(DefaultProbePoints(points));
  const std::set<std::string> defaults(names.begin(), names.end());
  std::string text;
  for (const std::string& name : FullNames(points)) {
    absl::StrAppend(&text, defaults.count(name) > 0 ? "* " : "  ", name, "\n");
  }
  return text;
}

// Returns the FLOPs of a pass of the training program.
absl::StatusOr<double> CountFlops(const ModelContext& context, const TrainSpec& recipe,
                                  const BuildOptions& program) {
  PLUMB_ASSIGN_OR_RETURN(const Graph graph, BuildProgram(context, program, /*gradients=*/true,
                                                         TrainPasses(context, recipe)));
  double flops = 0;
  for (const NodeTime& node : NodeCosts(graph)) flops += node.flops;
  return flops;
}

// Prints a stage; `program` is the training step's.
absl::StatusOr<std::string> ExplainStage(const ModelContext& context,
                                         const plumb_explain_options& options,
                                         const TrainSpec& recipe, const UpdatePlan& updates,
                                         BuildOptions program) {
  switch (options.stage) {
    case PLUMB_EXPLAIN_GRAPH:
    case PLUMB_EXPLAIN_GRADIENTS: {
      PLUMB_ASSIGN_OR_RETURN(
          Graph graph, BuildForward(context.model, context.parameters, *context.ops, program));
      if (options.stage == PLUMB_EXPLAIN_GRAPH) return ToString(graph);
      PLUMB_ASSIGN_OR_RETURN(graph,
                             AddBackwardPass(std::move(graph), *context.ops, program.frozen));
      return ToString(graph);
    }
    case PLUMB_EXPLAIN_PROMPT: {
      program.program = Program::kCached;
      PLUMB_ASSIGN_OR_RETURN(const Graph graph,
                             BuildProgram(context, program, /*gradients=*/false));
      return ToString(graph);
    }
    case PLUMB_EXPLAIN_PROBES:
      return ProbesText(context);
    case PLUMB_EXPLAIN_UPDATES: {
      std::string text = ToString(updates, recipe, context.parameters);
      if (updates.frozen.empty()) return text;
      PLUMB_ASSIGN_OR_RETURN(const double trained, CountFlops(context, recipe, program));
      program.frozen.clear();
      PLUMB_ASSIGN_OR_RETURN(const double all, CountFlops(context, recipe, program));
      absl::StrAppendFormat(&text, "  FLOPs of a token: %.3g, %.0f %% of those without freeze\n",
                            trained / static_cast<double>(program.batch * program.seq),
                            100 * trained / all);
      return text;
    }
    case PLUMB_EXPLAIN_SVG:
      return DrawModel(context.model, {});
    case PLUMB_EXPLAIN_LAYER_SVG: {
      PictureOptions picture;
      picture.layer = options.layer;
      return DrawModel(context.model, picture);
    }
    case PLUMB_EXPLAIN_PYTORCH:
      return WritePyTorch(context.model, {context.parameters, context.states}, recipe, updates);
    case PLUMB_EXPLAIN_OPTIMIZED:
    case PLUMB_EXPLAIN_MEMORY_PLAN:
    case PLUMB_EXPLAIN_EXECUTABLE:
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("options: there is no stage ", options.stage));
  }
  PLUMB_ASSIGN_OR_RETURN(Graph graph, BuildProgram(context, program, /*gradients=*/true,
                                                   TrainPasses(context, recipe)));
  if (options.stage == PLUMB_EXPLAIN_OPTIMIZED) return ToString(graph);
  if (options.stage == PLUMB_EXPLAIN_MEMORY_PLAN) {
    PLUMB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(graph));
    return ToString(plan, graph);
  }
  PLUMB_ASSIGN_OR_RETURN(const auto executable, Executable::Compile(std::move(graph)));
  return executable->ToString();
}

absl::StatusOr<std::string> Explain(const ModelContext& context,
                                    const plumb_explain_options* given) {
  PLUMB_ASSIGN_OR_RETURN(const plumb_explain_options options, Complete(given));
  if (options.layer != 0 && options.stage != PLUMB_EXPLAIN_LAYER_SVG) {
    return absl::InvalidArgumentError("options: layer is only for PLUMB_EXPLAIN_LAYER_SVG");
  }
  const int64_t context_length = context.model.dims.context_length;
  const int64_t batch = options.batch == 0 ? 1 : options.batch;
  const int64_t seq = options.seq == 0 ? context_length : options.seq;
  if (batch < 1) return absl::InvalidArgumentError("options: batch must be at least 1");
  if (seq < 1 || seq > context_length) {
    return absl::InvalidArgumentError(
        absl::StrCat("options: seq must be in 1..context_length (", context_length, "), is ", seq));
  }
  PLUMB_ASSIGN_OR_RETURN(const TrainSpec recipe,
                         ParseTrainSpec(GetText(options.recipe), "recipe", {}));
  PLUMB_ASSIGN_OR_RETURN(const UpdatePlan updates,
                         PlanUpdates(recipe, context.model, context.parameters));
  BuildOptions program = TrainProgram(recipe, updates.frozen);
  program.batch = batch;
  program.seq = seq;
  return ExplainStage(context, options, recipe, updates, program);
}

// Returns the FLOPs of a training pass with the recipe's frozen tensors over those without.
absl::StatusOr<double> ShareOfFlops(const ModelContext& context, absl::string_view recipe_text,
                                    BuildOptions program) {
  PLUMB_ASSIGN_OR_RETURN(const TrainSpec recipe, ParseTrainSpec(recipe_text, "recipe", {}));
  PLUMB_ASSIGN_OR_RETURN(const UpdatePlan updates,
                         PlanUpdates(recipe, context.model, context.parameters));
  if (updates.frozen.empty()) return 1.0;
  PLUMB_ASSIGN_OR_RETURN(const double all, CountFlops(context, recipe, program));
  program.frozen = updates.frozen;
  PLUMB_ASSIGN_OR_RETURN(const double trained, CountFlops(context, recipe, program));
  return trained / all;
}

absl::StatusOr<plumb_work> ComputeWork(const ModelContext& context, int32_t pass, int64_t tokens,
                                       int32_t weights, absl::string_view recipe) {
  if (pass != PLUMB_PASS_TRAINING && pass != PLUMB_PASS_FEED) {
    return absl::InvalidArgumentError(absl::StrCat("there is no pass ", pass));
  }
  if (tokens < 1 || tokens > context.model.dims.context_length) {
    return absl::InvalidArgumentError(absl::StrCat("tokens must be in 1..context_length (",
                                                   context.model.dims.context_length, "), is ",
                                                   tokens));
  }
  BuildOptions program;
  program.seq = tokens;
  if (pass == PLUMB_PASS_FEED) program.program = Program::kCached;
  PLUMB_ASSIGN_OR_RETURN(const ModelWork of_pass, CountWork(context, program));
  plumb_work work = {};
  work.flops = of_pass.forward_flops;
  if (pass == PLUMB_PASS_TRAINING) {
    program.program = Program::kTrain;
    PLUMB_ASSIGN_OR_RETURN(const double share, ShareOfFlops(context, recipe, program));
    work.flops *= 3 * share;
  }
  BuildOptions step;
  step.program = Program::kCached;
  PLUMB_ASSIGN_OR_RETURN(step.weights, GetFormat(weights));
  if (context.model.bidirectional) return work;  // has no decoding step
  PLUMB_ASSIGN_OR_RETURN(const ModelWork of_step, CountWork(context, step));
  work.weight_bytes = of_step.weight_bytes;
  return work;
}

}  // namespace
}  // namespace plumb::capi

using plumb::capi::Call;

plumb_status plumb_model_explain(const plumb_model* model, const plumb_explain_options* options,
                                 char** text, plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const std::string stage,
                           plumb::capi::Explain(*model->state->context, options));
    return plumb::capi::WriteText(stage, text);
  });
}

plumb_status plumb_model_work(const plumb_model* model, int32_t pass, int64_t tokens,
                              int32_t weights, const char* recipe, plumb_work* work,
                              plumb_error** error) {
  return Call(model, "model", error, [&]() -> absl::Status {
    PLUMB_ASSIGN_OR_RETURN(const plumb_work given,
                           plumb::capi::ComputeWork(*model->state->context, pass, tokens, weights,
                                                    plumb::capi::GetText(recipe)));
    return plumb::capi::CopyOut(given, "work", work);
  });
}
