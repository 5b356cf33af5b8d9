// SPDX-License-Identifier: Apache-2.0
// Figures of a study: curves, losses by setting, a heat map and a ranking.
#ifndef PLUMB_RUNTIME_STUDY_STUDY_FIGURES_H_
#define PLUMB_RUNTIME_STUDY_STUDY_FIGURES_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/app/figure/drawing.h"
#include "runtime/study/plan.h"
#include "runtime/study/results.h"

namespace plumb {

// Horizontal axis of curves. The amounts are cumulative; FLOPs are those of plumb_model_work.
enum class CurveAxis { kSteps, kTokens, kFlops, kSeconds };

// Parses "steps", "tokens", "flops" or "seconds". Errors: kInvalidArgument.
absl::StatusOr<CurveAxis> ParseCurveAxis(absl::string_view text);

struct FigureOptions {
  CurveAxis curve_axis = CurveAxis::kSteps;
  double width = 360;  // points
  // Texts that replace those of figures, by the original: names of models, of metrics ("last 100"),
  // of settings ("learning_rate"), of axes ("steps", "training loss",
  // "attention entropy").
  std::map<std::string, std::string> labels;
};

// Fails with a suggestion if a label is for a text that the figures of a plan and its records do
// not have.
absl::Status CheckLabels(const StudyPlan& plan, const std::vector<RunRecord>& records,
                         const std::map<std::string, std::string>& labels);

struct StudyFigure {
  std::string name;     // "loss_by_learning_rate", a file name without extension
  std::string caption;  // what the figure shows, in one sentence
  Drawing drawing;
  bool is_drawn_by_page = false;  // report.html draws the same from its data
};

// Returns the figures of a study, as far as it has their data:
// - "ranking": the judged loss of each model with its 95 % interval, at its best setting;
// - "loss_by_SETTING" for each setting with numbers: the loss at the best of the other settings;
// - "losses": a heat map of models by settings;
// - "curves": training losses, smoothed over a fortieth of the run, as mean ± standard deviation
//   over the seeds;
// - "PROBE_by_layer" and "PROBE_by_step" for each kind of probe, such as "attention_entropy": its
//   figure at the last probed step by layer, and the mean over the layers, or the largest, by step.
// Curves and probes are of at most eight models; of more only the best three, the first and the
// last are drawn, each at its best setting.
std::vector<StudyFigure> StudyFigures(const StudyPlan& plan, const StudyResults& results,
                                      const FigureOptions& options);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_STUDY_STUDY_FIGURES_H_
