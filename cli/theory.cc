// SPDX-License-Identifier: Apache-2.0
// plumb theory: measures stream and gradients of a model at initialization and compares them with
// theory.

#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/theory/measure.h"
#include "cli/theory/predict.h"
#include "cli/theory/results.h"
#include "runtime/base/status.h"
#include "runtime/client/model.h"

namespace plumb::cli {
namespace {

constexpr int64_t kDefaultSeq = 16;
constexpr int64_t kMaxDepth = 4096;

struct TheoryFlags {
  std::string model, depths;
  std::vector<std::string> settings;
  int64_t seeds = 10;
  int64_t seq = 0;  // 0: not given
  bool json = false, csv = false;
};

// Parses "8,16,32". Returns the depths sorted and without duplicates; {0}, which means the model's
// own depth, for "".
absl::StatusOr<std::vector<int64_t>> ParseDepths(const std::string& text) {
  if (text.empty()) return std::vector<int64_t>{0};
  std::vector<int64_t> depths;
  for (const absl::string_view word : absl::StrSplit(text, ',')) {
    int64_t depth = 0;
    if (!absl::SimpleAtoi(word, &depth) || absl::StrCat(depth) != word || depth < 1 ||
        depth > kMaxDepth) {
      return absl::InvalidArgumentError(
          absl::StrCat("--depths: \"", word, "\" is not a whole number in 1..", kMaxDepth,
                       "; give numbers of layers separated by commas, as in 8,16,32"));
    }
    depths.push_back(depth);
  }
  std::sort(depths.begin(), depths.end());
  depths.erase(std::unique(depths.begin(), depths.end()), depths.end());
  return depths;
}

absl::StatusOr<api::Model> OpenAtDepth(const TheoryFlags& options, int64_t depth,
                                       HostRuntime* runtime) {
  std::vector<std::string> settings = options.settings;
  if (depth > 0) settings.push_back(absl::StrCat("model.n_layer=", depth));
  return OpenModel(options.model, settings, runtime);
}

void Introduce(const TheoryFlags& options, const Json& description, TheoryResults* results) {
  results->model = description["name"];
  results->file = options.model;
  const auto add = [results](const Json& lines) {
    for (const Json& line : lines) results->equations.push_back(line);
  };
  add(description["begin"]);
  for (const Json& group : description["layers"]) add(group["equations"]);
  add(description["end"]);
  results->reading = ReadModel(description);
}

absl::StatusOr<TheoryResults> MeasureDepths(const TheoryFlags& options,
                                            const std::vector<int64_t>& depths,
                                            HostRuntime* runtime, const Interrupts& interrupts) {
  TheoryResults results;
  results.seeds = options.seeds;
  MeasureOptions measure;
  measure.seeds = options.seeds;
  measure.stop = [&interrupts] { return interrupts.requested(); };
  for (const int64_t depth : depths) {
    PLUMB_ASSIGN_OR_RETURN(api::Model model, OpenAtDepth(options, depth, runtime));
    measure.seq =
        options.seq > 0 ? options.seq : std::min(kDefaultSeq, model.Info().context_length);
    results.seq = measure.seq;
    if (results.depths.empty()) {
      PLUMB_ASSIGN_OR_RETURN(const Json description, DescribeModel(model));
      Introduce(options, description, &results);
    }
    PLUMB_ASSIGN_OR_RETURN(Measurement measurement, Measure(&model, measure));
    results.depths.push_back(std::move(measurement));
  }
  return results;
}

absl::StatusOr<int> Theory(const TheoryFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<int64_t> depths, ParseDepths(options.depths));
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  const Interrupts interrupts("the forward and backward pass of a seed");
  const absl::StatusOr<TheoryResults> results =
      MeasureDepths(options, depths, runtime.get(), interrupts);
  if (absl::IsCancelled(results.status())) {
    PrintNote("interrupted; nothing was printed");
    return kExitInterrupted;
  }
  PLUMB_RETURN_IF_ERROR(results.status());
  if (options.json) return ExitOk(PrintJson(ToJson(*results)));
  return ExitOk(PrintResult(options.csv ? ToCsv(*results) : ToText(*results)));
}

}  // namespace

void AddTheoryCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<TheoryFlags>();
  CLI::App* app = program->add_subcommand(
      "theory",
      "Measure residual stream and gradients at initialization, and compare them with theory");
  AddRequired(app, "MODEL", &options->model, "Model file (.pbtxt)");
  app->option_defaults()->group("Model");
  AddRepeated(app, "--set", "FIELD=VALUE", &options->settings,
              "Set a field of the model, e.g. model.vocab_size=64; repeatable");
  AddText(app, "--depths", "N,N,...", &options->depths,
          "Values of n_layer to measure, e.g. 8,16,32,64, for the slope of the last gradient over "
          "depth. Default: the model's own");
  app->option_defaults()->group("Measurement");
  AddInt(app, "--seeds", &options->seeds, 1, 100000,
         "Number of draws of weights and tokens, with the seeds 1 to N. Default: 10");
  AddInt(app, "--seq", &options->seq, 2, std::numeric_limits<int32_t>::max(),
         "Number of tokens, all different. Default: 16, or the model's context_length if that is "
         "less");
  app->option_defaults()->group("Output");
  CLI::Option* const json = app->add_flag(
      "--json", options->json, "Print everything as JSON, with every layer and sublayer");
  app->add_flag("--csv", options->csv, "Print every number as a line of CSV")->excludes(json);
  AddRemoved(app, "--out", "--csv prints what theory.csv had, and --json everything");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Measured, as means over seeds: v_l = E|x_l|^2/d of the residual stream x after each layer;\n"
      "the Frobenius norm of the loss's gradient by each MLP's output weights, and its log-log\n"
      "slope over depth; and the gain of each sublayer, which is the RMS of the loss's gradient "
      "by\n"
      "the stream before the sublayer over that by the stream after it (geometric mean over "
      "seeds;\n"
      "gains of successive sublayers multiply). plumb docs papers has the equations.\n\n"
      "Example:\n"
      "  plumb theory pre.pbtxt --depths 8,16,32,64 --set model.vocab_size=64");
  RunWhenSelected(app, options, Theory, invocation);
}

}  // namespace plumb::cli
