// SPDX-License-Identifier: Apache-2.0
// plumb report: tables, figures and a report page of runs that were trained before.

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
  std::string out, x = "steps";
  std::vector<std::string> labels;
  int64_t width = 360;
  bool quiet = false;
};

std::string CommandText(const ReportFlags& options) {
  std::string text = "plumb report";
  for (const std::string& path : options.paths) absl::StrAppend(&text, " ", Quoted(path));
  if (options.x != "steps") absl::StrAppend(&text, " --x ", options.x);
  for (const std::string& label : options.labels) {
    absl::StrAppend(&text, " --label ", Quoted(label));
  }
  return absl::StrCat(text, " --out ", Quoted(options.out));
}

absl::StatusOr<FigureOptions> ToFigureOptions(const ReportFlags& options) {
  FigureOptions figures;
  PLUMB_ASSIGN_OR_RETURN(figures.curve_axis, ParseCurveAxis(options.x));
  figures.width = static_cast<double>(options.width);
  for (const std::string& label : options.labels) {
    const size_t equals = label.find('=');
    if (equals == std::string::npos || equals == 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("--label ", label, ": no \"=\"; write it like --label pre='Pre-LN'"));
    }
    figures.labels[label.substr(0, equals)] = label.substr(equals + 1);
  }
  return figures;
}

absl::StatusOr<int> Report(const ReportFlags& options, const Invocation& invocation) {
  const StudyTimer timer;
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const FigureOptions figures, ToFigureOptions(options));
  StudyRequest request;
  request.out = options.out;
  request.command = CommandText(options);
  StudyConsole console(&request, options.quiet, &invocation);
  PLUMB_ASSIGN_OR_RETURN(const StudyOutcome outcome, ReportRuns(request, options.paths, figures,
                                                                timer, &console, runtime.get()));
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
  app->option_defaults()->group("Figures");
  app->add_option("--x", options->x,
                  "Axis of the curves: steps, tokens, flops, seconds. Default: steps")
      ->type_name("AXIS")
      ->check(CLI::IsMember({"steps", "tokens", "flops", "seconds"}));
  AddRepeated(
      app, "--label", "NAME=TEXT", &options->labels,
      "Replace a text in figures and tables: the name of a model, a metric (\"last 100\"), a "
      "setting (\"learning_rate\") or an axis (\"steps\", \"training loss\"); repeatable");
  AddInt(app, "--width", &options->width, 200, 2000, "Width of figures in points. Default: 360");
  app->option_defaults()->group("Output");
  app->add_flag("--quiet", options->quiet, "Do not show warnings on stderr");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Examples:\n"
      "  plumb report runs/pre --out report      # one run, also while it trains\n"
      "  plumb report runs/pre runs/post --out report\n"
      "  plumb report studies/depth studies/width --out report\n"
      "  plumb report studies/norms --label pre=Pre-LN --x flops --out report\n\n"
      "Runs whose models differ in sizes only belong to one model; sizes and fields of the recipe\n"
      "that differ are settings. Runs with the same seed are paired. Writes the files of plumb\n"
      "compare except study.pbtxt and runs/, and figures/ with each figure as SVG and PDF. "
      "Changes\n"
      "nothing in the directories of the runs.");
  RunWhenSelected(app, options, &Report, invocation);
}

}  // namespace plumb::cli
