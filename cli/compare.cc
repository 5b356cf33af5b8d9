// SPDX-License-Identifier: Apache-2.0
// plumb compare: trains models with the same data, recipe and seeds, and compares them.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/study_run.h"
#include "runtime/app/study/plan.h"
#include "runtime/app/study/results.h"
#include "runtime/app/study/study_directory.h"
#include "runtime/app/study/study_options.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct CompareFlags {
  StudyOptions study;
  std::string out, store;
  StudyShard shard = {};
  std::vector<std::string> merge;
  RankOptions ranks;
  bool dry_run = false, json = false, quiet = false;
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
  if (study.tensorboard) absl::StrAppend(&text, " --tensorboard");
  if (options.shard.count > 1) {
    add("--shard", absl::StrCat(options.shard.index, "/", options.shard.count));
  }
  if (!options.merge.empty()) absl::StrAppend(&text, " --merge");
  for (const std::string& directory : options.merge) absl::StrAppend(&text, " ", Quoted(directory));
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

absl::Status PrintShard(const StudyPlan& plan, bool json) {
  const StudyShard& shard = plan.shard;
  int64_t runs = 0;
  for (size_t i = 0; i < plan.runs.size(); ++i) runs += shard.Has(i) ? 1 : 0;
  if (json) {
    return PrintJson({{"out", plan.out},
                      {"shard", {{"index", shard.index}, {"count", shard.count}}},
                      {"runs", runs},
                      {"runs_of_the_study", plan.runs.size()}});
  }
  return PrintResult(absl::StrCat(
      "shard ", shard.index, "/", shard.count, ": ", runs, " of ",
      Count(static_cast<int64_t>(plan.runs.size()), "run"), ", done\nruns    ", plan.out,
      "/runs\nwhen all shards are: plumb compare --merge ", Quoted(plan.out), " … --out DIR\n"));
}

absl::StatusOr<int> Compare(const CompareFlags& options, const Invocation& invocation,
                            Launch* launch) {
  // Commands that train nothing run on rank 0 only.
  if (!launch->is_first() && (options.dry_run || !options.merge.empty())) return kExitOk;
  const StudyTimer timer;
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const Study study, options.merge.empty()
                                                ? MakeStudy(options.study)
                                                : StudyOfDirectories(options.merge));
  const StudyRequest request = {study,         options.out,   CommandText(options),
                                options.store, options.shard, launch};
  StudyConsole console(&request, options.quiet, &invocation);
  if (!launch->is_first()) {
    return console.ExitCode(FollowStudy(request, &console, runtime.get()));
  }
  if (options.dry_run) {
    return ExitOk(PrintStudyDryRun(request, options.json, options.quiet, &console, runtime.get()));
  }
  if (options.shard.count > 1) {
    const absl::StatusOr<StudyPlan> plan = RunShard(request, &console, runtime.get());
    return console.ExitCode(plan.ok() ? PrintShard(*plan, options.json) : plan.status());
  }
  const absl::StatusOr<StudyOutcome> outcome =
      options.merge.empty() ? RunStudy(request, timer, &console, runtime.get())
                            : MergeStudy(request, options.merge, timer, &console, runtime.get());
  return console.ExitCode(outcome.ok() ? PrintOutcome(*outcome, options.json) : outcome.status());
}

// Parses a shard such as "1/3". Returns an error message, or "".
std::string ParseShard(const std::string& text, StudyShard* shard) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('/', 1));
  int64_t index = -1, count = 0;
  if (!absl::SimpleAtoi(parts.first, &index) || !absl::SimpleAtoi(parts.second, &count) ||
      count < 1 || index < 0 || index >= count) {
    return absl::StrCat("\"", text, "\": write I/N, with I from 0 to N - 1, such as 0/3");
  }
  *shard = {static_cast<size_t>(index), static_cast<size_t>(count)};
  return "";
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
         "Cost that models have in common with the first one in their cell: steps; tokens, "
         "flops or measured seconds (by the number of steps); parameters (by d_ff). "
         "Default: steps")
      ->type_name("COST")
      ->check(CLI::IsMember({"steps", "tokens", "flops", "seconds", "parameters"}));
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
  app->add_flag("--tensorboard", study->tensorboard, "Write TensorBoard event files into the runs");
  app->add_option("--store", options->store,
                  "Take runs that were trained before from this directory, and add new ones to it. "
                  "Studies may share it")
      ->type_name("DIR");
  app->option_defaults()->group("Shards of a study");
  app->add_option_function<std::string>(
         "--shard",
         [options](const std::string& text) {
           const std::string wrong = ParseShard(text, &options->shard);
           if (!wrong.empty()) throw CLI::ValidationError("--shard", wrong);
         },
         "Train only runs I, I + N, I + 2N, ... of the study (I from 0 to N - 1) and write no "
         "tables. Give each of the N jobs its own --out, then use --merge")
      ->type_name("I/N");
  std::vector<CLI::Option*> of_a_study = app->get_options();
  of_a_study.erase(of_a_study.begin());  // --help
  CLI::Option* const merge = app->add_option("--merge", options->merge,
                                             "Copy the runs of these directories of --shard into "
                                             "--out, and write tables and report")
                                 ->expected(1, -1)
                                 ->type_name("DIR");
  for (CLI::Option* option : of_a_study) merge->excludes(option);
  app->option_defaults()->group("Output");
  app->add_option("--out", options->out, "Directory of the study")->required()->type_name("DIR");
  app->add_flag("--dry-run", options->dry_run,
                "Check all input, time a few steps of each group, print the memory, time and disk "
                "space of the study, and write nothing");
  app->add_flag("--json", options->json, "Print the summary as JSON");
  app->add_flag("--quiet", options->quiet, "Do not show progress on stderr");
  app->option_defaults()->group("Under mpirun");
  AddRankOptions(app, &options->ranks);
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb compare pre.pbtxt post.pbtxt none.pbtxt --data names.txt \\\n"
      "    --train train.pbtxt --seeds 20 --out studies/norms\n"
      "  plumb compare pre.pbtxt post.pbtxt --data names.txt --probe \\\n"
      "    --grid model.n_layer=4,8 --out studies/depth\n"
      "  plumb compare study.pbtxt --out studies/mine\n"
      "  mpirun -n 16 plumb compare study.pbtxt --out studies/mine\n"
      "  plumb compare study.pbtxt --shard 0/3 --out part0  # also 1/3 and 2/3\n"
      "  plumb compare --merge part0 part1 part2 --out studies/mine\n\n"
      "Writes report.html, tables (.md, .csv, .tex), runs.csv, metrics.jsonl, provenance.json and\n"
      "runs/ into DIR: plumb docs report. Runs with the same seed see the same data in the same\n"
      "order and start from the same weights where the models share them. After Ctrl-C (exit\n"
      "code 130) or a crash, the same command resumes. A run that diverges is a result; the\n"
      "others continue.");
  app->callback([options, invocation] {
    if (options->study.files.empty() && options->merge.empty()) throw CLI::RequiredError("MODEL");
    if (options->dry_run && !options->merge.empty()) {
      throw CLI::ValidationError("--dry-run", "not with --merge, which trains nothing");
    }
    invocation->run = [options, invocation] {
      const std::string command = absl::StrCat("compare", options->dry_run ? " --dry-run" : "",
                                               options->merge.empty() ? "" : " --merge");
      return RunRanks(options->ranks, command, *invocation,
                      [&options](Launch* launch, const Invocation& mine) {
                        return Compare(*options, mine, launch);
                      });
    };
  });
}

}  // namespace plumb::cli
