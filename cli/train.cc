// SPDX-License-Identifier: Apache-2.0
// plumb train: trains in a run directory, from the start or from the last checkpoint.

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/figures.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/progress.h"
#include "cli/ranks.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"
#include "runtime/client/probe.h"
#include "runtime/study/plan.h"
#include "runtime/train/loss_summary.h"
#include "runtime/train/train_run.h"

namespace plumb::cli {
namespace {

struct TrainFlags {
  std::string model, data, train, out, init;
  std::vector<std::string> settings;
  RunFormat format;
  std::optional<uint64_t> seed;
  int64_t stop_at = std::numeric_limits<int64_t>::max();
  bool probe = false;
  int64_t probe_every = -1;  // -1: not given
  std::vector<std::string> probe_points;
  bool profile = false;
  bool resume = false, accept_edits = false, dry_run = false;
  bool json = false, quiet = false;
  RankOptions ranks;
  bool require_same_bits = false;
};

enum class Ending { kFinished, kStopped, kInterrupted, kDiverged };

const char* EndingName(Ending ending) {
  switch (ending) {
    case Ending::kFinished:
      return "finished";
    case Ending::kStopped:
      return "stopped";
    case Ending::kInterrupted:
      return "interrupted";
    case Ending::kDiverged:
      break;
  }
  return "diverged";
}

// Events of this process, and the losses of the whole run.
struct Outcome {
  LossSummary losses;
  int64_t tokens = 0;
  double step_seconds = 0;  // sum of the step times
  double seconds = 0;       // total
  std::string checkpoint;
  bool stop_wanted = false;  // requested by another rank
  Ending ending = Ending::kFinished;
  absl::Status error;  // set if kDiverged

  double TokensPerSecond() const {
    return step_seconds > 0 ? static_cast<double>(tokens) / step_seconds : 0;
  }
};

// Returns the model's name as its author wrote it, or else the name of its file.
std::string ModelName(const std::string& path, const Overrides& overrides, HostRuntime* runtime) {
  std::string stem = path.substr(path.rfind('/') + 1);
  if (absl::EndsWith(stem, ".pbtxt")) stem.resize(stem.size() - 6);
  absl::StatusOr<api::Spec> spec = ReadSpec(path);
  if (!spec.ok()) return stem;
  // Errors are ignored here, because opening the run reports them.
  for (const auto& [field, value] : overrides) SetField(field, value, &*spec).IgnoreError();
  if (GetVocabSize(*spec) == 0) SetField("vocab_size", "1", &*spec).IgnoreError();
  const absl::StatusOr<api::Model> model = CreateModel(runtime, *spec);
  if (!model.ok()) return stem;
  const absl::StatusOr<Json> description = DescribeModel(*model);
  const std::string name = description.ok() ? (*description)["name"].get<std::string>() : "";
  return name.empty() ? stem : name;
}

// Returns the probe options; --probe-every and --probe-point imply --probe.
ProbeOptions ToProbe(const TrainFlags& options) {
  ProbeOptions probe;
  probe.points = options.probe_points;
  if (options.probe_every >= 0) {
    probe.every = options.probe_every == 0 ? -1 : options.probe_every;
  } else if (options.probe || !options.probe_points.empty()) {
    probe.every = kDefaultProbeInterval;
  }
  return probe;
}

absl::StatusOr<TrainRequest> MakeRequest(const TrainFlags& options, HostRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(Assignments settings, ParseSettings(options.settings));
  if (options.model.empty() && !options.resume) {
    return absl::InvalidArgumentError(
        "MODEL is missing; write plumb train MODEL.pbtxt --data FILE (only --resume works without "
        "it)");
  }
  TrainRequest request;
  request.model_path = options.model;
  request.data_path = options.data;
  request.train_path = options.train;
  request.model_overrides = std::move(settings.model);
  request.train_overrides = std::move(settings.train);
  for (auto& setting : options.format.Settings()) {
    request.train_overrides.push_back(std::move(setting));
  }
  request.seed = options.seed;
  request.init = options.init;
  request.resume = options.resume;
  request.accept_edits = options.accept_edits;
  request.probe = ToProbe(options);
  request.dry_run = options.dry_run;
  request.require_same_bits = options.require_same_bits;
  request.out = options.out;
  if (request.out.empty()) {
    if (options.model.empty()) {
      return absl::InvalidArgumentError("--out is missing; --resume without MODEL needs --out RUN");
    }
    request.out = absl::StrCat(
        "runs/", DirectoryName(ModelName(options.model, request.model_overrides, runtime)));
  }
  return request;
}

// Returns three lines of text.
std::string Summary(const TrainInfo& info) {
  return absl::StrCat(info.model_name, ": ", Count(info.parameters, "parameter"), ", ", info.dtype,
                      ", ", Count(info.threads, "thread"), ", seed ", info.seed,
                      "\ndata: ", info.data, "\noptimizer: ", info.optimizer);
}

void PrintOpening(const TrainInfo& info, TrainProgress* progress) {
  progress->Note(Summary(info));
  progress->Note(absl::StrCat(
      info.first_step > 0 ? "resuming " : "writing to ", info.out,
      info.first_step > 0 ? absl::StrCat(" after step ", info.first_step) : std::string()));
  if (info.probe_every > 0) {
    progress->Note(absl::StrCat("probing step 1 and every ", info.probe_every, " into ", info.out,
                                "/probes.jsonl"));
  }
  if (info.cropped_documents > 0) {
    progress->Note(absl::StrCat("warning: ", Count(info.cropped_documents, "training document"),
                                info.cropped_documents == 1 ? " is" : " are",
                                " longer than the context of ", info.context_length,
                                " tokens; the rest of them is not used"));
  }
  if (!info.data_advice.empty()) progress->Note(absl::StrCat("warning: ", info.data_advice));
  if (info.skipped_documents > 0) {
    progress->Note(absl::StrCat("warning: skipping ",
                                Count(info.skipped_documents, "training document"),
                                " whose prompt fills the context of ", info.context_length,
                                " tokens and leaves no target"));
  }
}

// Trains until the run is done, stop_at is reached, or a stop is requested.
absl::Status RunSteps(TrainRun* run, int64_t stop_at, const Interrupts& interrupts,
                      TrainProgress* progress, Outcome* outcome) {
  while (!run->done() && run->step() < stop_at && !interrupts.requested() &&
         !outcome->stop_wanted) {
    PLUMB_ASSIGN_OR_RETURN(const StepReport report, run->Step());
    for (const TrainIncident& incident : report.incidents) {
      progress->Note(absl::StrCat("warning: ", incident.message));
    }
    outcome->losses.Add(report.step, report.loss, report.val_loss);
    outcome->tokens += report.tokens;
    outcome->step_seconds += report.seconds;
    progress->Step(report);
    outcome->stop_wanted = report.stop_wanted;
  }
  return absl::OkStatus();
}

// Describes the initial weights of a run with --init: the new tensors, one per line, and the
// tensors of the other run that are not used.
std::string InitialText(const InitialWeights& initial) {
  std::string text =
      absl::StrCat("started from ", Count(initial.taken, "tensor"), " of ", initial.run);
  for (const std::string& name : initial.drawn) absl::StrAppend(&text, "\n  new, drawn: ", name);
  for (const std::string& name : initial.left) absl::StrAppend(&text, "\n  not used: ", name);
  return text;
}

Json ToJson(const Outcome& outcome, const TrainRun& run) {
  const TrainInfo& info = run.info();
  const auto number = [](std::optional<double> value) { return value ? Json(*value) : Json(); };
  const auto validation = outcome.losses.LastValidation();
  Json json = {{"status", EndingName(outcome.ending)},
               {"model", info.model_name},
               {"out", info.out},
               {"parameters", info.parameters},
               {"seed", info.seed},
               {"dtype", info.dtype},
               {"threads", info.threads},
               {"steps", run.step()},
               {"max_steps", info.max_steps},
               {"first_step", info.first_step},
               {"loss_last_100", number(outcome.losses.MeanOfLast100())},
               {"loss_first_50", number(outcome.losses.MeanOfFirst50())},
               {"loss_max_first_20", number(outcome.losses.MaxOfFirst20())},
               {"loss_min", number(outcome.losses.Min())},
               {"val_loss", validation ? Json(validation->loss) : Json()},
               {"val_step", validation ? Json(validation->step) : Json()},
               {"tokens", outcome.tokens},
               {"seconds", outcome.seconds},
               {"tokens_per_second", outcome.TokensPerSecond()}};
  const IncidentCounts incidents = run.incidents();
  json["spikes"] = incidents.spikes;
  json["skips"] = incidents.skips;
  if (const InitialWeights& initial = info.initial; !initial.run.empty()) {
    json["init"] = {{"run", initial.run},
                    {"taken", initial.taken},
                    {"drawn", initial.drawn},
                    {"left", initial.left}};
  }
  json["checkpoint"] = outcome.checkpoint.empty() ? Json() : Json(outcome.checkpoint);
  if (!outcome.error.ok()) json["error"] = std::string(outcome.error.message());
  return json;
}

// Returns text such as "2 loss spikes, 1 batch skipped"; "" if there were no incidents.
std::string IncidentText(const IncidentCounts& counts) {
  std::vector<std::string> texts;
  if (counts.spikes > 0) texts.push_back(Count(counts.spikes, "loss spike"));
  if (counts.skips > 0) {
    texts.push_back(absl::StrCat(WithCommas(counts.skips),
                                 counts.skips == 1 ? " batch" : " batches", " skipped"));
  }
  return absl::StrJoin(texts, ", ");
}

std::string ToText(const Outcome& outcome, const TrainRun& run) {
  std::string text = absl::StrCat("steps          ", WithCommas(run.step()));
  if (!run.done()) absl::StrAppend(&text, " of ", WithCommas(run.info().max_steps));
  absl::StrAppend(&text, "\n");
  if (const std::optional<double> loss = outcome.losses.MeanOfLast100()) {
    absl::StrAppendFormat(&text, "loss           %.4f  (mean of the last %d steps)\n", *loss,
                          std::min<int64_t>(100, run.step()));
  }
  if (const auto validation = outcome.losses.LastValidation()) {
    absl::StrAppendFormat(&text, "val loss       %.4f", validation->loss);
    if (validation->step != run.step()) absl::StrAppend(&text, "  (step ", validation->step, ")");
    absl::StrAppend(&text, "\n");
  }
  if (const std::string incidents = IncidentText(run.incidents()); !incidents.empty()) {
    absl::StrAppend(&text, "incidents      ", incidents, "\n");
  }
  absl::StrAppend(&text, "time           ", Duration(outcome.seconds), "\n");
  absl::StrAppend(&text, "tokens/s       ", Rate(outcome.TokensPerSecond()), "\n");
  absl::StrAppend(&text, "checkpoint     ", outcome.checkpoint, "\n");
  return text;
}

// Saves the checkpoint and prints the summary. Returns the exit code.
absl::StatusOr<int> Conclude(const TrainFlags& options, TrainRun* run, Outcome* outcome) {
  if (outcome->ending != Ending::kDiverged) {
    PLUMB_ASSIGN_OR_RETURN(std::string checkpoint, run->SaveCheckpoint());
    outcome->checkpoint = std::move(checkpoint);
  }
  const bool diverged = outcome->ending == Ending::kDiverged;
  if (options.json) {
    Json json = ToJson(*outcome, *run);
    if (options.profile) json["profile"] = ProfileJson(run->profile());
    const absl::Status printed = PrintJson(json);
    if (!printed.ok() && !diverged) return printed;
  }
  if (diverged) return outcome->error;
  if (!options.json) {
    PLUMB_RETURN_IF_ERROR(PrintResult(
        absl::StrCat(ToText(*outcome, *run),
                     options.profile ? absl::StrCat("\n", ProfileTable(run->profile())) : "")));
  }
  if (!run->done() && !options.quiet) {
    PrintNote(absl::StrCat(EndingName(outcome->ending), " after step ", run->step(),
                           "; resume with: plumb train --resume --out ", run->info().out,
                           " --data ", options.data));
  }
  return outcome->ending == Ending::kInterrupted ? kExitInterrupted : kExitOk;
}

absl::StatusOr<int> DryRun(const TrainFlags& options, TrainRun* run) {
  const TrainInfo& info = run->info();
  PLUMB_ASSIGN_OR_RETURN(const StepTime time, TimeStep(run));
  return ExitOk(options.json
                    ? PrintJson(DryRunJson(info, time))
                    : PrintResult(absl::StrCat(Summary(info), "\n\n", DryRunText(info, time))));
}

// Trains, as rank 0 or as the only process.
absl::StatusOr<int> Lead(const TrainFlags& options, std::chrono::steady_clock::time_point begin,
                         TrainRun* run) {
  const TrainInfo& info = run->info();
  if (!info.initial.run.empty() && !options.quiet) PrintNote(InitialText(info.initial));
  if (info.chosen_units > 0 && !options.quiet) {
    PrintNote(absl::StrCat("train.units: ", info.chosen_units,
                           ", chosen for the ranks of this job and stored in the run; --set "
                           "train.units=N sets another number"));
  }
  if (options.dry_run) return DryRun(options, run);
  Interrupts interrupts("the training step");

  Outcome outcome;
  if (info.first_step > 0) {
    outcome.losses.AddMetricsFile(absl::StrCat(info.out, "/metrics.csv"), info.first_step);
  }
  TrainProgress progress(std::min(options.stop_at, info.max_steps), info.max_steps, options.quiet);
  PrintOpening(info, &progress);
  if (options.profile) PLUMB_RETURN_IF_ERROR(run->StartProfile());
  const absl::Status status = RunSteps(run, options.stop_at, interrupts, &progress, &outcome);
  progress.End();
  interrupts.WaitingFor("the checkpoint");
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (absl::IsAborted(status)) {
    outcome.ending = Ending::kDiverged;
    outcome.error = status;
  } else if (!status.ok()) {
    return status;
  } else if (!run->done()) {
    const bool interrupted = interrupts.requested() || outcome.stop_wanted;
    outcome.ending = interrupted ? Ending::kInterrupted : Ending::kStopped;
  }
  return Conclude(options, run, &outcome);
}

absl::StatusOr<int> Train(const TrainFlags& options, const Invocation& invocation, Launch* launch) {
  const auto begin = std::chrono::steady_clock::now();
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(TrainRequest request, MakeRequest(options, runtime.get()));
  request.launch = launch;
  absl::StatusOr<std::unique_ptr<TrainRun>> opened = TrainRun::Open(runtime.get(), request);
  if (launch->is_first()) PrintWarnings(runtime.get());
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<TrainRun> run, std::move(opened));
  if (!launch->is_first()) {
    const Interrupts interrupts("the training step");
    return run->Follow([&interrupts] { return interrupts.requested(); });
  }
  absl::StatusOr<int> code = Lead(options, begin, run.get());
  if (launch->size() > 1 && absl::IsAborted(code.status())) {
    // The ranks work but the run diverged, so the job ends normally.
    PrintError(code.status().message());
    code = kExitDiverged;
  }
  if (!code.ok()) return code;
  PLUMB_RETURN_IF_ERROR(run->EndFollowers(*code));
  return code;
}

}  // namespace

void AddTrainCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<TrainFlags>();
  CLI::App* app = program->add_subcommand("train", "Train a model");
  app->add_option("MODEL", options->model, "Model file (.pbtxt); optional with --resume")
      ->type_name("");
  app->option_defaults()->group("Data");
  app->add_option("--data", options->data,
                  "Training data: a text file, or tokens (plumb tokenize encode --out)")
      ->required()
      ->type_name("FILE");
  app->option_defaults()->group("Training");
  AddText(app, "--train", "FILE", &options->train,
          "Recipe (.pbtxt), see plumb help recipe. Default: its defaults");
  AddRepeated(app, "--set", "FIELD=VALUE", &options->settings,
              "Set a field of the model or the recipe, e.g. model.n_layer=4 or "
              "train.max_steps=200; repeatable");
  AddDType(app, &options->format.dtype);
  AddRecompute(app, &options->format.recompute);
  AddSeed(app, &options->seed, "Seed of all random numbers. Default: train.seed");
  AddText(app, "--init", "RUN", &options->init,
          "Start from the weights of this run or checkpoint, trained or imported: copies tensors "
          "of the same name and shape, initializes and lists the others");
  app->option_defaults()->group("Run directory");
  AddText(app, "--out", "RUN", &options->out, "Directory of the run. Default: runs/<model name>");
  app->add_flag("--resume", options->resume,
                "Resume from the last checkpoint of the run, or start if there is none yet");
  app->add_flag("--accept-edits", options->accept_edits,
                "Resume even if model.pbtxt or train.pbtxt of the run was edited after the "
                "checkpoint, or if plumb, a norm or the tokenizer has changed; not for fields that "
                "no resumed run may change (plumb docs recipes)");
  app->add_flag("--dry-run", options->dry_run,
                "Check all input, time a few steps, print the memory, time and disk space of the "
                "run, and write nothing")
      ->excludes("--resume");
  AddInt(
      app, "--stop-at", &options->stop_at, 1, std::numeric_limits<int32_t>::max(),
      "Write a checkpoint and stop after this step; the schedule is still that of the whole run");
  app->option_defaults()->group("Probes");
  app->add_flag("--probe", options->probe,
                "Write statistics of activations, gradients and parameters to RUN/probes.jsonl");
  AddInt(app, "--probe-every", &options->probe_every, 0, std::numeric_limits<int32_t>::max(),
         absl::StrCat("Probe step 1 and every N-th step. Default: ", kDefaultProbeInterval,
                      "; 0: no probes, even if the resumed run had some"));
  AddRepeated(
      app, "--probe-point", "GLOB", &options->probe_points,
      "Probe only these points, e.g. *.residual or grad.layers.0.*, or groups; repeatable. plumb "
      "explain MODEL --stage probes lists points. Groups, and the time that they add to a probed "
      "step of a small model, in steps: default 1.2; attention (entropy of its weights, largest "
      "logit) 0.3; sublayers (their outputs) 0.2; of parameters: gates (learned values) 1, updates "
      "(change over weight) 1.4, spectral (norms of matrices) 25");
  app->option_defaults()->group("Output");
  AddRemoved(app, "--tensorboard", "convert the run with python -m plumb_runtime tensorboard RUN");
  app->add_flag("--profile", options->profile,
                "Time every op and print a table of the time of a step");
  app->add_flag("--json", options->json, "Print the summary as JSON");
  app->add_flag("--quiet", options->quiet, "Do not show progress on stderr");
  app->option_defaults()->group("Under mpirun");
  AddRankOptions(app, &options->ranks);
  app->add_flag("--require-same-bits", options->require_same_bits,
                "Fail if the processors of the ranks round differently");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Example:\n"
      "  plumb train pre.pbtxt --train train.pbtxt --data names.txt --out runs/pre\n"
      "  plumb train --resume --out runs/pre --data names.txt\n"
      "  plumb train post.pbtxt --init runs/gpt2 --data names.txt\n"
      "  mpirun -n 4 plumb train pre.pbtxt --data names.txt --set train.batch_size=32\n\n"
      "Ctrl-C, SIGTERM and SIGHUP finish the step, write a checkpoint and exit with 130. A second\n"
      "signal ends the process at once; so does a norm plugin that has not returned 10 s after "
      "the\n"
      "first. Checkpoints are also written every minute; --set train.checkpoint_seconds=600 "
      "changes "
      "that.");
  app->callback([options, invocation] {
    invocation->run = [options, invocation] {
      const std::string command = absl::StrCat("train", options->resume ? " --resume" : "",
                                               options->dry_run ? " --dry-run" : "");
      return RunRanks(options->ranks, command, *invocation,
                      [options](Launch* launch, const Invocation& own) {
                        return Train(*options, own, launch);
                      });
    };
  });
}

}  // namespace plumb::cli
