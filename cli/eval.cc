// SPDX-License-Identifier: Apache-2.0
// plumb eval: computes the loss of a trained model on data, or all outputs of a model for given
// tokens.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/eval_tokens.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/client/model_pass.h"
#include "runtime/train/run_model.h"
#include "runtime/train/trained_model.h"

namespace plumb::cli {
namespace {

struct EvalFlags {
  std::string subject;  // RUN or MODEL.pbtxt
  std::string data;
  std::string weights;  // with --data a type, with --tokens a file
  std::string tokens, logits, gradients, grads;
  int64_t stride = 0;  // 0: windows do not overlap
  bool ema = false;
  bool json = false;

  bool wants_gradients() const { return !gradients.empty() || !grads.empty(); }
};

// Prints the losses. `coarse`: the losses with the weights of --weights, parallel to `losses`, or
// empty.
absl::Status PrintLosses(const EvalFlags& options, const TrainedModel& model,
                         const std::vector<SplitLoss>& losses,
                         const std::vector<SplitLoss>& coarse) {
  if (options.json) {
    Json splits = Json::object();
    for (size_t i = 0; i < losses.size(); ++i) {
      const SplitLoss& loss = losses[i];
      Json split = {{"loss", loss.loss}, {"targets", loss.targets}, {"sequences", loss.sequences}};
      if (!coarse.empty()) {
        split[absl::StrCat("loss_", options.weights)] = coarse[i].loss;
        split["difference"] = coarse[i].loss - loss.loss;
      }
      splits[loss.split] = split;
    }
    return PrintJson({{"checkpoint", model.checkpoint()},
                      {"step", model.step()},
                      {"data", options.data},
                      {"stride", options.stride > 0 ? Json(options.stride) : Json(nullptr)},
                      {"splits", splits}});
  }
  std::string text;
  for (size_t i = 0; i < losses.size(); ++i) {
    const SplitLoss& loss = losses[i];
    absl::StrAppendFormat(&text, "%-11s loss %.4f", loss.split, loss.loss);
    if (!coarse.empty()) {
      absl::StrAppendFormat(&text, "  %s %.4f  difference %+.5f", options.weights, coarse[i].loss,
                            coarse[i].loss - loss.loss);
    }
    absl::StrAppendFormat(&text, "  (%s, %s)\n", Count(loss.sequences, "sequence"),
                          Count(loss.targets, "target"));
  }
  return PrintResult(text);
}

absl::Status EvalRun(const EvalFlags& options, HostRuntime* runtime) {
  const absl::StatusOr<api::Weights> type =
      ParseWeights(options.weights.empty() ? "f32" : options.weights);
  if (!type.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--weights: ", type.status().message()));
  }
  PLUMB_ASSIGN_OR_RETURN(
      const std::unique_ptr<TrainedModel> model,
      WithWarnings(runtime,
                   TrainedModel::Open(runtime, options.subject, api::Weights::kF32, options.ema)));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<SplitLoss> losses,
                         model->Evaluate(options.data, api::Weights::kF32, options.stride));
  std::vector<SplitLoss> coarse;
  if (*type != api::Weights::kF32) {
    PLUMB_ASSIGN_OR_RETURN(
        coarse, WithWarnings(runtime, model->Evaluate(options.data, *type, options.stride)));
  }
  return PrintLosses(options, *model, losses, coarse);
}

// Opens MODEL.pbtxt with the weights of a file or, without --weights, a run.
absl::StatusOr<api::Model> BuildModel(const EvalFlags& options, HostRuntime* runtime) {
  if (options.weights.empty()) {
    PLUMB_ASSIGN_OR_RETURN(RunModel run, OpenRunModel(runtime, options.subject, options.ema));
    return std::move(run.model);
  }
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(options.subject));
  PLUMB_ASSIGN_OR_RETURN(api::Model model, CreateModel(runtime, spec));
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] { return model.Load(options.weights); }));
  return model;
}

absl::StatusOr<ModelOutputs> RunOnTokens(const EvalFlags& options, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(api::Model model, WithWarnings(runtime, BuildModel(options, runtime)));
  PLUMB_ASSIGN_OR_RETURN(const TokenBatch tokens, ReadTokens(options.tokens));
  return RunTokens(&model, tokens, options.wants_gradients());
}

absl::Status WriteOutputs(const EvalFlags& options, const ModelOutputs& outputs) {
  if (!options.logits.empty()) PLUMB_RETURN_IF_ERROR(outputs.WriteLogits(options.logits));
  if (!options.gradients.empty()) PLUMB_RETURN_IF_ERROR(outputs.WriteGradients(options.gradients));
  return options.grads.empty() ? absl::OkStatus() : WriteGradientNorms(outputs, options.grads);
}

absl::Status EvalTokens(const EvalFlags& options, HostRuntime* runtime) {
  PLUMB_RETURN_IF_ERROR(CheckOutputFiles({{"--logits", options.logits},
                                          {"--gradients", options.gradients},
                                          {"--grads", options.grads}},
                                         {{"SUBJECT", options.subject},
                                          {"--weights", options.weights},
                                          {"--tokens", options.tokens}}));
  PLUMB_ASSIGN_OR_RETURN(const ModelOutputs outputs, RunOnTokens(options, runtime));
  PLUMB_RETURN_IF_ERROR(WriteOutputs(options, outputs));
  if (options.json) {
    return PrintJson({{"loss", outputs.loss.has_value() ? Json(*outputs.loss) : Json(nullptr)},
                      {"batch", outputs.batch},
                      {"seq", outputs.seq},
                      {"vocab", outputs.vocab}});
  }
  if (!options.logits.empty() || options.wants_gradients()) return absl::OkStatus();
  if (!outputs.loss.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat(options.tokens, ": no token has a target, so there is no loss; ",
                     "add \"targets\" to the file, or write only --logits"));
  }
  return PrintResult(absl::StrFormat("loss %.4f\n", *outputs.loss));
}

absl::StatusOr<int> Eval(const EvalFlags& options, const Invocation& invocation) {
  const bool on_tokens =
      !options.tokens.empty() || !options.logits.empty() || options.wants_gradients();
  if (on_tokens == !options.data.empty()) {
    return absl::InvalidArgumentError(
        "write either plumb eval RUN --data FILE [--weights bf16|int8] [--stride N]\n"
        "or plumb eval RUN --tokens FILE [--logits OUT] [--gradients OUT] [--grads OUT]\n"
        "or plumb eval MODEL.pbtxt --weights FILE --tokens FILE [the same]");
  }
  if (on_tokens && options.tokens.empty()) {
    return absl::InvalidArgumentError(
        "--tokens is missing; a model file needs --weights FILE and --tokens FILE");
  }
  if (on_tokens && options.weights.empty() && absl::EndsWith(options.subject, ".pbtxt")) {
    return absl::InvalidArgumentError(
        "--weights is missing; a model file needs --weights FILE and --tokens FILE");
  }
  if (on_tokens && options.stride != 0) {
    return absl::InvalidArgumentError(
        "--stride needs --data; with --tokens, each row is one window");
  }
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  return ExitOk(on_tokens ? EvalTokens(options, runtime.get()) : EvalRun(options, runtime.get()));
}

}  // namespace

void AddEvalCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<EvalFlags>();
  CLI::App* app = program->add_subcommand("eval", "Measure a trained model's loss on data");
  AddRequired(app, "SUBJECT", &options->subject,
              "Directory or checkpoint of a run; or a model file (.pbtxt), with --tokens and "
              "--weights FILE");
  app->option_defaults()->group("Model");
  app->add_option("--weights", options->weights,
                  "For a run: bf16 or int8, to measure also the loss with weights of this "
                  "type, and the difference. For a model file: the weights (safetensors)")
      ->type_name("TYPE|FILE");
  app->add_flag("--ema", options->ema,
                "Use the moving average of the weights of a run (the recipe's ema_decay)");
  app->option_defaults()->group("Data");
  AddText(app, "--data", "FILE", &options->data, "Text to measure the loss on");
  AddInt(app, "--stride", &options->stride, 1, std::numeric_limits<int32_t>::max(),
         "Read text in overlapping windows with N new tokens each, so that every token has at "
         "least context_length - N tokens before it. Default: windows do not overlap");
  AddText(app, "--tokens", "FILE", &options->tokens,
          "File of token ids to run: JSON, [[..], ..] or {\"sequences\": [[..], ..], \"targets\": "
          "..., \"token_types\": ...}. A target of null or -100 is none. Default targets: the next "
          "tokens; none for a bidirectional model, whose sequences may differ in length");
  app->option_defaults()->group("Output");
  AddText(app, "--logits", "OUT", &options->logits,
          "Write the logits [batch, seq, vocab] to this file (safetensors)");
  AddText(
      app, "--gradients", "OUT", &options->gradients,
      "Write the gradient of the loss with respect to each parameter to this file (safetensors)");
  AddText(app, "--grads", "OUT", &options->grads,
          "Write the loss and the L2 norm of its gradient with respect to each parameter to this "
          "file (JSON). Norms over tokens use the statistics of these tokens, as in training");
  app->add_flag("--json", options->json, "Print the result as JSON");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb eval runs/pre --data names.txt\n"
      "  plumb eval runs/pre --data names.txt --weights int8\n"
      "  plumb eval runs/shakespeare --data shakespeare.txt --stride 16\n"
      "  plumb eval runs/pre --tokens t.json --gradients grads.safetensors\n"
      "  plumb eval pre.pbtxt --weights w.safetensors --tokens t.json --grads g.json");
  RunWhenSelected(app, options, Eval, invocation);
}

}  // namespace plumb::cli
