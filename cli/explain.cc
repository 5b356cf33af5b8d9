// SPDX-License-Identifier: Apache-2.0
// plumb explain: prints the compiler's stages for a model.

#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"

namespace plumb::cli {
namespace {

struct ExplainFlags {
  std::string model, stage;
  int64_t batch = 1;
  int64_t seq = 0;  // 0: the model's context length
  RunFormat format;
  std::vector<std::string> settings;
};

absl::StatusOr<int> Explain(const ExplainFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const api::Model model,
                         OpenModel(options.model, options.settings, runtime.get()));
  PLUMB_ASSIGN_OR_RETURN(
      const std::string text,
      WithWarnings(runtime.get(), ExplainModel(model, options.stage, options.batch, options.seq,
                                               options.format.Settings())));
  return ExitOk(PrintResult(text));
}

}  // namespace

void AddExplainCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<ExplainFlags>();
  CLI::App* app = program->add_subcommand("explain", "Show the stages of compiling a model");
  AddRequired(app, "MODEL", &options->model, "Model file (.pbtxt)");
  const std::vector<std::string> stages = ExplainStages();
  app->add_option("--stage", options->stage,
                  absl::StrCat("Stage to print: ", absl::StrJoin(stages, ", ")))
      ->required()
      ->type_name("STAGE")
      ->check([stages](const std::string& stage) {
        for (const std::string& known : stages) {
          if (stage == known) return std::string();
        }
        return absl::StrCat("\"", stage, "\" is not one of ", absl::StrJoin(stages, ", "),
                            DidYouMean(stage, stages));
      });
  app->option_defaults()->group("Model");
  AddRepeated(app, "--set", "FIELD=VALUE", &options->settings,
              "Set a field of the model, e.g. model.n_layer=4; repeatable");
  app->option_defaults()->group("Graph");
  AddInt(app, "--batch", &options->batch, 1, 1 << 20, "Sequences per batch. Default: 1");
  AddInt(app, "--seq", &options->seq, 1, std::numeric_limits<int32_t>::max(),
         "Tokens per sequence. Default: the model's context_length");
  AddDType(app, &options->format.dtype, "f32");
  AddRecompute(app, &options->format.recompute, "none");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb explain pre.pbtxt --stage plan --set model.n_layer=1\n"
      "  plumb explain pre.pbtxt --stage optimized --dtype bf16");
  RunWhenSelected(app, options, Explain, invocation);
}

}  // namespace plumb::cli
