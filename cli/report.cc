// SPDX-License-Identifier: Apache-2.0
// plumb report: tables and a report page of runs that were trained before.

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/study_run.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct ReportFlags {
  std::vector<std::string> paths;
  std::string out, title;
  bool quiet = false;
};

std::string CommandText(const ReportFlags& options) {
  std::string text = "plumb report";
  for (const std::string& path : options.paths) absl::StrAppend(&text, " ", Quoted(path));
  if (!options.title.empty()) absl::StrAppend(&text, " --title ", Quoted(options.title));
  return absl::StrCat(text, " --out ", Quoted(options.out));
}

absl::StatusOr<int> Report(const ReportFlags& options, const Invocation& invocation) {
  const StudyTimer timer;
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  StudyRequest request;
  request.study.fields.set_title(options.title);
  request.out = options.out;
  request.command = CommandText(options);
  StudyConsole console(&request, options.quiet, &invocation);
  PLUMB_ASSIGN_OR_RETURN(const StudyOutcome outcome,
                         ReportRuns(request, options.paths, timer, &console, runtime.get()));
  return ExitOk(PrintResult(OutcomeText(outcome)));
}

}  // namespace

void AddReportCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<ReportFlags>();
  CLI::App* app = program->add_subcommand(
      "report", "Compare runs that were trained before, by any commands, in a report");
  app->add_option("PATH", options->paths, "Runs, and studies with all their runs")
      ->required()
      ->type_name("");
  app->add_option("--out", options->out, "Directory of the report")->required()->type_name("DIR");
  for (const char* name : {"--x", "--label", "--width"}) {
    AddRemoved(app, name, "plumb.figures in Python draws figures for papers (plumb docs python)");
  }
  app->option_defaults()->group("Output");
  AddText(app, "--title", "TEXT", &options->title,
          "Title of the report and of table.md. Default: the names of the models");
  app->add_flag("--quiet", options->quiet, "Do not show warnings on stderr");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb report runs/pre --out report      # one run, also while it trains\n"
      "  plumb report runs/pre runs/post --out report\n"
      "  plumb report studies/depth studies/width --out report\n"
      "\n"
      "Runs whose models differ in sizes only belong to one model; sizes and fields of the recipe\n"
      "that differ are settings. Runs with the same seed are paired. Writes the files of plumb\n"
      "compare except study.pbtxt and runs/. Changes nothing in the directories of the runs.");
  RunWhenSelected(app, options, &Report, invocation);
}

}  // namespace plumb::cli
