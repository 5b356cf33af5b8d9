// SPDX-License-Identifier: Apache-2.0
// plumb import and plumb export: convert checkpoints of other programs to plumb's runs and back.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/convert/export_pytorch.h"
#include "runtime/convert/export_run.h"
#include "runtime/convert/import_run.h"

namespace plumb::cli {
namespace {

struct ImportFlags {
  ImportRequest request;
  bool json = false;
};

// Returns text such as "stops at tokens 2, 5, 7 (generation_config.json)".
std::string EndTokens(const ImportReport& report) {
  if (report.end_tokens.empty()) return "no end token: samples stop at --max-tokens or --stop";
  return absl::StrCat(
      report.end_tokens.size() == 1 ? "stops at token " : "stops at tokens ",
      absl::StrJoin(report.end_tokens, ", "), " (",
      report.end_tokens_from.empty() ? "guessed among the special tokens" : report.end_tokens_from,
      ")");
}

absl::StatusOr<int> Import(const ImportFlags& flags, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(
      const ImportReport report,
      WithWarnings(runtime.get(), ImportCheckpoint(runtime.get(), flags.request)));
  if (flags.json) {
    return ExitOk(PrintJson({{"run", flags.request.out},
                             {"family", report.family},
                             {"family_file", report.family_file},
                             {"parameters", report.parameters},
                             {"tensors", report.tensors},
                             {"dtypes", report.dtypes},
                             {"mapped_bytes", report.mapped_bytes},
                             {"written_bytes", report.written_bytes},
                             {"ignored", report.ignored},
                             {"end_tokens", report.end_tokens},
                             {"end_tokens_from", report.end_tokens_from}}));
  }
  return ExitOk(PrintResult(
      absl::StrCat(report.family, ": ", WithCommas(report.parameters), " parameters in ",
                   Count(report.tensors, "tensor"), ", ", absl::StrJoin(report.dtypes, ", "), "\n",
                   Bytes(report.mapped_bytes), " stay in ", flags.request.directory, ", ",
                   Bytes(report.written_bytes), " were laid out again\n", EndTokens(report),
                   "\nwrote ", flags.request.out, "\n")));
}

struct ExportFlags {
  ExportRequest request;
  std::string format;  // "": a checkpoint of a family; "pytorch"
  std::vector<std::string> settings;
  bool json = false;
};

absl::Status ExportCode(const ExportFlags& flags, HostRuntime* runtime) {
  const ExportRequest& request = flags.request;
  if (!request.family.empty() || request.adapter) {
    return absl::InvalidArgumentError(
        "--family and --adapter are for checkpoints; drop them, or --format pytorch");
  }
  if (!absl::EndsWith(request.run, ".pbtxt")) {
    if (flags.settings.empty()) return ExportRunAsPyTorch(runtime, request);
    return absl::InvalidArgumentError(absl::StrCat(
        request.run, ": --set is for model files; the model of a run is that of its weights"));
  }
  if (request.average) {
    return absl::InvalidArgumentError(
        absl::StrCat(request.run, ": a model file has no averaged weights; drop --ema"));
  }
  PLUMB_ASSIGN_OR_RETURN(api::Model model, OpenModel(request.run, flags.settings, runtime));
  const uint64_t seed = 1;  // that of the default recipe
  PLUMB_RETURN_IF_ERROR(OrOutOfMemory("the weights", [&] { return model.Init(seed); }));
  return ExportPyTorch(model, /*recipe=*/"", /*step=*/0, request.out);
}

absl::StatusOr<int> Export(const ExportFlags& flags, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  const ExportRequest& request = flags.request;
  if (!flags.format.empty()) {
    PLUMB_RETURN_IF_ERROR(WithWarnings(runtime.get(), ExportCode(flags, runtime.get())));
    if (flags.json) {
      return ExitOk(PrintJson({{"directory", request.out}, {"format", flags.format}}));
    }
    return ExitOk(PrintResult(
        absl::StrCat("wrote ", request.out, ": model.py for PyTorch, and model.safetensors\n")));
  }
  if (!flags.settings.empty()) {
    return absl::InvalidArgumentError("--set is for --format pytorch with a model file");
  }
  PLUMB_ASSIGN_OR_RETURN(const ExportReport report,
                         WithWarnings(runtime.get(), ExportRun(runtime.get(), request)));
  if (flags.json) {
    return ExitOk(PrintJson({{"directory", request.out},
                             {"family", report.family},
                             {"tensors", report.tensors},
                             {"bytes", report.bytes}}));
  }
  return ExitOk(
      PrintResult(absl::StrCat("wrote ", request.out, ": ", report.family, ", ",
                               Count(report.tensors, "tensor"), ", ", Bytes(report.bytes), "\n")));
}

}  // namespace

void AddImportCommand(CLI::App* program, Invocation* invocation) {
  const auto flags = std::make_shared<ImportFlags>();
  CLI::App* app =
      program->add_subcommand("import", "Convert another program's checkpoint to a run");
  AddRequired(app, "DIR", &flags->request.directory,
              "Directory with config.json and model.safetensors, or shards with their index");
  app->option_defaults()->group("Output");
  app->add_option("--out", flags->request.out, "Directory of the run; new or empty")
      ->required()
      ->type_name("RUN");
  app->option_defaults()->group("Checkpoint");
  AddText(
      app, "--family", "FILE", &flags->request.family_file,
      "File that maps such checkpoints to plumb (plumb docs zoo). Default: the family that ships "
      "with plumb");
  AddText(app, "--adapter", "DIR", &flags->request.adapter,
          "Directory of a LoRA adapter of PEFT (adapter_config.json, adapter_model.safetensors) to "
          "merge into the weights. Default: none");
  app->add_flag("--copy", flags->request.copy,
                "Copy all weights into the run. Default: weights that plumb can read in place stay "
                "in DIR, which the run then needs");
  AddRepeated(app, "--allow-unread", "KEY", &flags->request.allow_unread,
              "Ignore this key of config.json; dots lead into objects; repeatable");
  app->option_defaults()->group("Output");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb import gpt2 --out runs/gpt2\n"
      "  plumb sample runs/gpt2 --prompt-tokens prompt.json --max-tokens 50\n\n"
      "sample, eval and train --init use the run like one that plumb trained. Its import.json\n"
      "records the use of every tensor of DIR.");
  RunWhenSelected(app, flags, Import, invocation);
}

void AddExportCommand(CLI::App* program, Invocation* invocation) {
  const auto flags = std::make_shared<ExportFlags>();
  CLI::App* app =
      program->add_subcommand("export", "Write a run as a checkpoint or code for other programs");
  AddRequired(
      app, "RUN", &flags->request.run,
      "Directory of a run, or one of its checkpoints; with --format also a model file (.pbtxt)");
  app->option_defaults()->group("Output");
  app->add_option("--out", flags->request.out, "Directory of the checkpoint; new or empty")
      ->required()
      ->type_name("DIR");
  app->add_option("--format", flags->format,
                  "pytorch: write model.py, which needs PyTorch only, and model.safetensors. "
                  "Default: a checkpoint of a family")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({"pytorch"}));
  app->option_defaults()->group("Model");
  AddRepeated(app, "--set", "FIELD=VALUE", &flags->settings,
              "Set a field of a model file, e.g. model.d_model=768; repeatable");
  app->option_defaults()->group("Checkpoint");
  AddText(app, "--family", "FAMILY|FILE", &flags->request.family,
          "Layout of the checkpoint: the name of a family, or a file of one. Default: that of the "
          "import that the run is, or began with (train --init)");
  app->add_flag("--ema", flags->request.average,
                "Write the moving average of the weights (the recipe's ema_decay)");
  app->add_flag("--adapter", flags->request.adapter,
                "Write only the model's adapter, for PEFT. Default: an adapter is merged into the "
                "weights");
  app->option_defaults()->group("Output");
  app->add_flag("--json", flags->json, "Print the result as JSON");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb export runs/gpt2 --out gpt2-tuned\n"
      "  plumb export runs/mine --family llama --out mine-llama\n"
      "  plumb export mine.pbtxt --format pytorch --out mine-torch\n\n"
      "A model that the family's config.json cannot describe is refused, with the first op that\n"
      "differs and the values that have another form. config.json follows from the model, unless\n"
      "that of the import describes it.");
  RunWhenSelected(app, flags, Export, invocation);
}

}  // namespace plumb::cli
