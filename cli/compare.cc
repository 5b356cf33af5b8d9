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
#include "runtime/base/status.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"
#include "runtime/study/study.h"

namespace plumb::cli {
namespace {

// Values of options as the parser stores them; the changes of the study are what counts.
struct Words {
  std::string text;
  std::vector<std::string> list;
  int64_t number = 0;
  double real = 0;
  bool flag = false;
};

struct CompareFlags {
  std::vector<std::string> files;
  std::vector<StudyChange> changes;  // in the order of the command line
  std::string out, store;
  RankOptions ranks;
  bool overwrite = false, dry_run = false, json = false, quiet = false;
  Words words;
};

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
  PLUMB_ASSIGN_OR_RETURN(const Study study, MakeStudy(options.files, options.changes));
  const StudyRequest request = {study,         options.out,       invocation.command,
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
  Words* const words = &options->words;
  // Makes an option change a field of the study.
  const auto changes = [options](CLI::Option* option, const char* field) {
    const std::string name = option->get_name();
    option->each([options, name, field](const std::string& value) {
      options->changes.push_back({name, field, value});
    });
  };
  CLI::App* app = program->add_subcommand(
      "compare", "Train models with the same seeds and data, and compare them");
  app->add_option("MODEL", options->files,
                  "Model files (.pbtxt), or one study (.pbtxt), see plumb help study")
      ->type_name("");
  app->option_defaults()->group("Data");
  changes(AddText(app, "--data", "FILE", &words->text,
                  "Training data: a text file, or tokens (plumb tokenize encode --out)"),
          "data");
  app->option_defaults()->group("Training");
  changes(AddText(app, "--train", "FILE", &words->text,
                  "Recipe (.pbtxt), see plumb help recipe. Default: its defaults"),
          "train");
  changes(AddText(app, "--init", "RUN", &words->text,
                  "Start every model from the weights of this run or checkpoint, trained or "
                  "imported: copies tensors of the same name and shape, initializes the others"),
          "init");
  changes(AddRepeated(app, "--set", "FIELD=VALUE", &words->list,
                      "Set a field of every run, e.g. train.max_steps=200; repeatable"),
          "set");
  changes(AddDType(app, &words->text), "dtype");
  app->option_defaults()->group("Study");
  changes(
      AddRepeated(
          app, "--grid", "FIELD=V,V,...", &words->list,
          "Train every model with each of these values; repeatable: with every combination. "
          "Values of a field that is neither of the recipe nor a size make models of their own. "
          "Learning rates may be a range, A..B: rates that differ by a factor of 2, and further "
          "ones for models whose best rate is at an end. "
          "Values with commas need a study, see plumb help study"),
      "grid");
  changes(
      app->add_option(
             "--baseline", words->text,
             "Model, by its file or name, with which the others are compared. Default: the first")
          ->type_name("MODEL"),
      "baseline");
  changes(AddDouble(app, "--margin", &words->real, 0, 1e6,
                    "Also look for models that are equal to the baseline within NATS. "
                    "Default: no margin")
              ->type_name("NATS"),
          "margin");
  changes(
      app->add_option(
             "--match", words->text,
             "Cost that models have in common with the first one in their cell: steps; tokens or "
             "flops (by the number of steps); parameters (by d_ff). "
             "Default: steps")
          ->type_name("COST")
          ->check([](const std::string& cost) -> std::string {
            return cost == "seconds" ? "seconds was removed; use flops" : "";
          })
          ->check(CLI::IsMember({"steps", "tokens", "flops", "parameters"})),
      "match");
  changes(
      AddInt(app, "--seeds", &words->number, 1, 10000, "Train with the seeds 1 to N. Default: 3"),
      "seeds");
  changes(AddRepeated(app, "--seed", "N", &words->list, "Train with this seed; repeatable"),
          "seed");
  changes(AddInt(app, "--choosing-seeds", &words->number, 1, 10000,
                 "Train every cell of the grid with the first N seeds alone, and the other seeds "
                 "only in the best cell of each model, by which it is compared. Default: train "
                 "all, half choose"),
          "choosing_seeds");
  changes(AddInt(app, "--samples", &words->number, 0, 1000,
                 "Number of samples to draw from each trained model. Default: 8"),
          "samples");
  app->option_defaults()->group("Probes");
  changes(app->add_flag("--probe", words->flag,
                        "Probe activations and gradients in every run, for the report's plots of "
                        "them"),
          "probe");
  changes(
      AddInt(app, "--probe-every", &words->number, 0, INT32_MAX,
             absl::StrCat("Probe step 1 and every N-th step. Default: ", kDefaultProbeInterval)),
      "probe_every");
  changes(
      AddRepeated(app, "--probe-point", "GLOB", &words->list,
                  "Probe these points or groups, see plumb train --help; repeatable. The report's "
                  "plots need default"),
      "probe_point");
  app->option_defaults()->group("Output");
  changes(app->add_flag("--keep-checkpoints", words->flag,
                        "Keep the checkpoints of every run that is trained, with optimizer state. "
                        "Default: the last weights of the first seed of each model and setting"),
          "keep_checkpoints");
  changes(AddText(app, "--title", "TEXT", &words->text,
                  "Title of the report and of table.md. Default: the names of the models"),
          "title");
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
  AddRemoved(app, "--tensorboard",
             "convert the runs with python -m plumb_runtime tensorboard RUN..");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb compare pre.pbtxt post.pbtxt no_norm.pbtxt --data names.txt \\\n"
      "    --train train.pbtxt --seeds 20 --out studies/norms\n"
      "  plumb compare pre.pbtxt post.pbtxt --data names.txt --probe \\\n"
      "    --grid model.n_layer=4,8 --out studies/depth\n"
      "  plumb compare study.pbtxt --out studies/mine\n"
      "  mpirun -n 16 plumb compare study.pbtxt --out studies/mine\n"
      "  plumb compare study.pbtxt --seed 1 --store store --out part1  # one job\n\n"
      "Writes report.html, tables (.md, .csv, .tex), runs.csv, provenance.json and runs/ into\n"
      "DIR: plumb docs report. Runs with the same seed see the same data in the same\n"
      "order and start from the same weights where the models share them. After Ctrl-C (exit\n"
      "code 130) or a crash, the same command resumes. A run that diverges is a result; the\n"
      "others continue.");
  app->callback([options, invocation] {
    if (options->files.empty()) throw CLI::RequiredError("MODEL");
    invocation->run = [options, invocation] {
      return RunRanks(options->ranks, options->dry_run ? "compare --dry-run" : "compare",
                      *invocation, [&options](Launch* launch, const Invocation& mine) {
                        return Compare(*options, mine, launch);
                      });
    };
  });
}

}  // namespace plumb::cli
