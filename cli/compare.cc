// plumb compare: trains models alike with the same seeds, and tells how they compare.

#include <memory>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/compare/plan.h"
#include "cli/compare/results.h"
#include "cli/compare/study_options.h"
#include "cli/output.h"
#include "cli/study_run.h"

namespace plumb::cli {
namespace {

struct CompareFlags {
  StudyOptions study;
  std::string out;
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
  if (study.seeds > 0) add("--seeds", absl::StrCat(study.seeds));
  for (const std::string& seed : study.seed_list) add("--seed", seed);
  if (study.samples >= 0) add("--samples", absl::StrCat(study.samples));
  if (study.probe) absl::StrAppend(&text, " --probe");
  if (study.probe_every >= 0) add("--probe-every", absl::StrCat(study.probe_every));
  if (study.tensorboard) absl::StrAppend(&text, " --tensorboard");
  add("--out", options.out);
  return text;
}

// The report without what is long.
Json Summary(const Plan& plan, const Json& report, const StudyResults& results) {
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
          {"seconds", report["provenance"]["seconds"]},
          {"groups", std::move(groups)},
          {"paired", report["paired"]}};
}

absl::StatusOr<int> Compare(const CompareFlags& options, const Invocation& invocation) {
  const StudyTimer timer;
  absl::StatusOr<std::unique_ptr<HostRuntime>> runtime = invocation.CreateRuntime();
  if (!runtime.ok()) return runtime.status();
  const absl::StatusOr<Study> study = MakeStudy(options.study);
  if (!study.ok()) return study.status();
  const StudyRequest request = {*study, options.out, CommandText(options), options.quiet};
  if (options.dry_run) {
    const absl::Status status = PrintStudyDryRun(request, options.json, invocation, runtime->get());
    return status.ok() ? absl::StatusOr<int>(kExitOk) : status;
  }
  const absl::StatusOr<StudyOutcome> outcome = RunStudy(request, timer, invocation, runtime->get());
  if (!outcome.ok()) {
    return absl::IsCancelled(outcome.status()) ? absl::StatusOr<int>(kExitInterrupted)
                                               : outcome.status();
  }
  const absl::Status printed =
      options.json ? PrintJson(Summary(outcome->plan, outcome->report, outcome->results))
                   : PrintResult(OutcomeText(*outcome));
  if (!printed.ok()) return printed;
  return kExitOk;
}

}  // namespace

void AddCompareCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<CompareFlags>();
  StudyOptions* study = &options->study;
  CLI::App* app =
      program->add_subcommand("compare", "Train models alike with the same seeds and compare them");
  app->add_option(
         "MODEL", study->files,
         "Descriptions of models (.pbtxt), or one study (.pbtxt, proto/plumb/v1/study.proto)")
      ->required()
      ->type_name("");
  app->add_option("--data", study->data, "Text to train on")->type_name("FILE");
  app->add_option("--train", study->train, "How to train (.pbtxt); default: the schema's defaults")
      ->type_name("FILE");
  app->add_option("--init", study->init,
                  "Every model begins with the weights of this run, trained or imported, or "
                  "checkpoint: tensors of the same name and shape are taken, the others drawn")
      ->type_name("RUN");
  AddRepeated(app, "--set", "FIELD=VALUE", &study->settings,
              "Set a field in every run, e.g. train.max_steps=200; repeatable");
  AddDType(app, &study->dtype);
  AddRepeated(app, "--grid", "FIELD=V,V,...", &study->grid,
              "Train every model with each of these values; repeatable: every combination");
  AddInt(app, "--seeds", &study->seeds, 1, 10000, "Train with the seeds 1 to N; default: 3");
  AddRepeated(app, "--seed", "N", &study->seed_list, "Train with this seed; repeatable");
  AddInt(app, "--samples", &study->samples, 0, 1000,
         "Samples to draw from each trained model; default: 8");
  app->add_flag(
      "--probe", study->probe,
      "Probe activations and gradients in every run, for the report's pages on their flow");
  AddInt(app, "--probe-every", &study->probe_every, 0, INT32_MAX,
         absl::StrCat("Probe step 1 and every N-th; default ", kDefaultProbeInterval));
  app->add_flag("--tensorboard", study->tensorboard, "Write TensorBoard event files into the runs");
  app->add_option("--out", options->out, "The study's directory")->required()->type_name("DIR");
  app->add_flag("--dry-run", options->dry_run,
                "Check everything, time some steps of each group, print what the study would take "
                "of memory, time and the disk, and write nothing");
  app->add_flag("--json", options->json, "Print the summary as JSON");
  app->add_flag("--quiet", options->quiet, "No progress on stderr");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb compare pre.pbtxt post.pbtxt none.pbtxt --data names.txt --train train.pbtxt \\\n"
      "    --seeds 20 --out studies/norms\n"
      "  plumb compare pre.pbtxt post.pbtxt --data names.txt --grid model.n_layer=4,8 --probe \\\n"
      "    --out studies/depth\n"
      "  plumb compare study.pbtxt --out studies/mine\n\n"
      "Writes report.html, table.md, table.csv, timing.csv, metrics.jsonl, report.json and runs/\n"
      "into DIR. Runs with the same seed see the same data in the same order and begin with the\n"
      "same weights where the models share them. Ctrl-C (exit code 130) or a crash loses little:\n"
      "the same command resumes. A run that diverges is a result; the others continue.");
  app->callback([options, invocation] {
    invocation->run = [options, invocation] { return Compare(*options, *invocation); };
  });
}

}  // namespace plumb::cli
