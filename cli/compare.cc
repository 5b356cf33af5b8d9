// SPDX-License-Identifier: Apache-2.0
// plumb compare: trains models with the same data, recipe and seeds, and compares them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/study_run.h"
#include "runtime/app/study/plan.h"
#include "runtime/app/study/results.h"
#include "runtime/app/study/study_options.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct CompareFlags {
  StudyOptions study;
  std::string out, store;
  RankOptions ranks;
  bool overwrite = false, dry_run = false, json = false, quiet = false;
};

std::string CommandText(const CompareFlags& options) {
  const StudyOptions& study = options.study;
  std::string text = "plumb compare";
  const auto add = [&text](const char* name, const std::string& value) {
    absl::StrAppend(&text, " ", name, *name != '\0' ? " " : "", Quoted(value));
  };
  for (const std::string& file : study.files) absl::StrAppend(&text, " ", Quoted(file));
  if (!study.data.empty()) add("--data", study.data);
  if (!study.train.empty()) add("--train", study.train);
  if (!study.init.empty()) add("--init", study.init);
  for (const std::string& setting : study.settings) add("--set", setting);
  if (!study.dtype.empty()) add("--dtype", study.dtype);
  for (const std::string& axis : study.grid) add("--grid", axis);
  if (!study.baseline.empty()) add("--baseline", study.baseline);
  if (!study.match.empty()) add("--match", study.match);
  if (study.seeds > 0) add("--seeds", absl::StrCat(study.seeds));
  for (const std::string& seed : study.seed_list) add("--seed", seed);
  if (study.choosing_seeds > 0) {
    add("--choosing-seeds", absl::StrCat(study.choosing_seeds));
  }
  if (study.samples >= 0) add("--samples", absl::StrCat(study.samples));
  if (study.probe) absl::StrAppend(&text, " --probe");
  if (study.probe_every >= 0) add("--probe-every", absl::StrCat(study.probe_every));
  for (const std::string& point : study.probe_points) add("--probe-point", point);
  if (!options.store.empty()) add("--store", options.store);
  add("--out", options.out);
  return text;
}

// Returns the report without its long parts.
Json Summary(const StudyOutcome& outcome) {
  const auto& [plan, results, report, provenance] = outcome;
  Json groups = Json::array();
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    const GroupFigures& group = results.groups[i];
    Json figures = {{"name", plan.groups[i].name},
                    {"settings", report["groups"][i]["settings"]},
                    {"parameters", plan.groups[i].parameters},
                    {"runs", group.runs},
                    {"finished", group.finished},
                    {"diverged", group.diverged.size()},
                    {"collapsed", group.collapsed},
                    {"spikes", group.spikes},
                    {"survived", group.survived},
                    {"unigram_entropy", group.unigram_entropy}};
    for (int m = 0; m < kMetrics; ++m) {
      const std::string name = absl::StrReplaceAll(kMetricNames[m], {{" ", "_"}});
      figures[name] = {{"mean", group.metric[m].mean}, {"sd", group.metric[m].sd}};
    }
    figures["tokens_per_second"] = {{"mean", group.tokens_per_second.mean},
                                    {"sd", group.tokens_per_second.sd}};
    groups.push_back(std::move(figures));
  }
  return {{"out", plan.out},
          {"report", absl::StrCat(plan.out, "/report.html")},
          {"seconds", provenance["seconds"]},
          {"groups", std::move(groups)},
          {"paired", report["paired"]}};
}

absl::Status PrintOutcome(const StudyOutcome& outcome, bool json) {
  return json ? PrintJson(Summary(outcome)) : PrintResult(OutcomeText(outcome));
}

absl::StatusOr<int> Compare(const CompareFlags& options, const Invocation& invocation,
                            Launch* launch) {
  // A dry run trains nothing, so only rank 0 runs it.
  if (!launch->is_first() && options.dry_run) return kExitOk;
  const StudyTimer timer;
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const Study study, MakeStudy(options.study));
  const StudyRequest request = {study,         options.out,       CommandText(options),
                                options.store, options.overwrite, launch};
  StudyConsole console(&request, options.quiet, &invocation);
  if (!launch->is_first()) {
    return console.ExitCode(FollowStudy(request, &console, runtime.get()));
  }
  if (options.dry_run) {
    return ExitOk(PrintStudyDryRun(request, options.json, options.quiet, &console, runtime.get()));
  }
  const absl::StatusOr<StudyOutcome> outcome = RunStudy(request, timer, &console, runtime.get());
  return console.ExitCode(outcome.ok() ? PrintOutcome(*outcome, options.json) : outcome.status());
}

}  // namespace

void AddCompareCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<CompareFlags>();
  StudyOptions* study = &options->study;
  CLI::App* app = program->add_subcommand(
      "compare", "Train models with the same seeds and data, and compare them");
  app->add_option("MODEL", study->files,
                  "Model files (.pbtxt), or one study (.pbtxt), see plumb help study")
      ->type_name("");
  app->option_defaults()->group("Data");
  AddText(app, "--data", "FILE", &study->data,
          "Training data: a text file, or tokens (plumb tokenize encode --out)");
  app->option_defaults()->group("Training");
  AddText(app, "--train", "FILE", &study->train,
          "Recipe (.pbtxt), see plumb help recipe. Default: its defaults");
  AddText(app, "--init", "RUN", &study->init,
          "Start every model from the weights of this run or checkpoint, trained or imported: "
          "copies tensors of the same name and shape, initializes the others");
  AddRepeated(app, "--set", "FIELD=VALUE", &study->settings,
              "Set a field of every run, e.g. train.max_steps=200; repeatable");
  AddDType(app, &study->dtype);
  app->option_defaults()->group("Study");
  AddRepeated(
      app, "--grid", "FIELD=V,V,...", &study->grid,
      "Train every model with each of these values; repeatable: with every combination. "
      "Values of a field that is neither of the recipe nor a size make models of their own. "
      "Values with commas need a study, see plumb help study");
  app->add_option("--baseline", study->baseline,
                  "Model, by its file or name, to which differences are shown. Default: the first")
      ->type_name("MODEL");
  app->add_option(
         "--match", study->match,
         "Cost that models have in common with the first one in their cell: steps; tokens or "
         "flops (by the number of steps); parameters (by d_ff). "
         "Default: steps")
      ->type_name("COST")
      ->check([](const std::string& cost) -> std::string {
        return cost == "seconds" ? "seconds was removed; use flops" : "";
      })
      ->check(CLI::IsMember({"steps", "tokens", "flops", "parameters"}));
  AddInt(app, "--seeds", &study->seeds, 1, 10000, "Train with the seeds 1 to N. Default: 3");
  AddRepeated(app, "--seed", "N", &study->seed_list, "Train with this seed; repeatable");
  AddInt(app, "--choosing-seeds", &study->choosing_seeds, 1, 10000,
         "Train every cell of the grid with the first N seeds alone, and the other seeds only in "
         "the best cell of each model, by which it is compared. Default: train all, half choose");
  AddInt(app, "--samples", &study->samples, 0, 1000,
         "Number of samples to draw from each trained model. Default: 8");
  app->option_defaults()->group("Probes");
  app->add_flag("--probe", study->probe,
                "Probe activations and gradients in every run, for the report's plots of them");
  AddInt(app, "--probe-every", &study->probe_every, 0, INT32_MAX,
         absl::StrCat("Probe step 1 and every N-th step. Default: ", kDefaultProbeInterval));
  AddRepeated(
      app, "--probe-point", "GLOB", &study->probe_points,
      "Probe these points or groups, see plumb train --help; repeatable. The report's plots "
      "need default");
  app->option_defaults()->group("Output");
  AddRemoved(app, "--tensorboard", "convert the runs with python -m plumb tensorboard RUN..");
  app->add_option("--store", options->store,
                  "Take runs that were trained before from this directory, and add new ones to it. "
                  "Studies may share it")
      ->type_name("DIR");
  app->add_option("--out", options->out, "Directory of the study")->required()->type_name("DIR");
  app->add_flag("--overwrite", options->overwrite,
                "Train runs of --out again whose inputs have changed (model, recipe, data, "
                "tokenizer, norms, --init, plumb); all others are kept");
  app->add_flag("--dry-run", options->dry_run,
                "Check all input, time a few steps of each group, print the memory, time and disk "
                "space of the study, and write nothing");
  app->add_flag("--json", options->json, "Print the summary as JSON");
  app->add_flag("--quiet", options->quiet, "Do not show progress on stderr");
  app->option_defaults()->group("Under mpirun");
  AddRankOptions(app, &options->ranks);
  const char* const several_jobs =
      "give each job its own seeds or models (--seed) and --store DIR; the whole command with the "
      "same --store then collects the runs";
  AddRemoved(app, "--shard", several_jobs);
  AddRemoved(app, "--merge", several_jobs);
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb compare pre.pbtxt post.pbtxt none.pbtxt --data names.txt \\\n"
      "    --train train.pbtxt --seeds 20 --out studies/norms\n"
      "  plumb compare pre.pbtxt post.pbtxt --data names.txt --probe \\\n"
      "    --grid model.n_layer=4,8 --out studies/depth\n"
      "  plumb compare study.pbtxt --out studies/mine\n"
      "  mpirun -n 16 plumb compare study.pbtxt --out studies/mine\n"
      "  plumb compare study.pbtxt --seed 1 --store store --out part1  # one job\n\n"
      "Writes report.html, tables (.md, .csv, .tex), runs.csv, metrics.jsonl, provenance.json and\n"
      "runs/ into DIR: plumb docs report. Runs with the same seed see the same data in the same\n"
      "order and start from the same weights where the models share them. After Ctrl-C (exit\n"
      "code 130) or a crash, the same command resumes. A run that diverges is a result; the\n"
      "others continue.");
  app->callback([options, invocation] {
    if (options->study.files.empty()) throw CLI::RequiredError("MODEL");
    invocation->run = [options, invocation] {
      return RunRanks(options->ranks, options->dry_run ? "compare --dry-run" : "compare",
                      *invocation, [&options](Launch* launch, const Invocation& mine) {
                        return Compare(*options, mine, launch);
                      });
    };
  });
}

}  // namespace plumb::cli
