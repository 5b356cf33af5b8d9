// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study_figures.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "runtime/app/figure/heat_map_figure.h"
#include "runtime/app/figure/line_figure.h"
#include "runtime/app/figure/ranking_figure.h"
#include "runtime/study/comparison.h"
#include "runtime/study/statistics.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/text_format.h"

namespace plumb {
namespace {

// Names of CurveAxis, in its order.
constexpr const char* kAxisNames[] = {"steps", "tokens", "FLOPs", "seconds"};

// Max number of models whose curves are all drawn.
constexpr size_t kMaxModelsOfCurves = 8;

// Returns the number of steps over which curves are smoothed: a fortieth of the run, at most 50, as
// the report page does at first.
int64_t SmoothingWindow(int64_t steps) { return std::clamp<int64_t>(steps / 40, 1, 50); }

std::string CapitalFirst(std::string text) {
  text[0] = absl::ascii_toupper(static_cast<unsigned char>(text[0]));
  return text;
}

class StudyArtist {
 public:
  StudyArtist(const StudyPlan& plan, const StudyResults& results, const FigureOptions& options)
      : plan_(plan), results_(results), options_(options) {}

  std::vector<StudyFigure> Draw() {
    DrawRanking();
    std::set<std::string> fields;
    for (const auto& setting : plan_.cells.front()) fields.insert(setting.first);
    for (const std::string& field : fields) DrawBySetting(field);
    DrawHeatMap();
    DrawCurves();
    DrawProbes();
    return std::move(figures_);
  }

 private:
  std::string Label(const std::string& text) const {
    const auto own = options_.labels.find(text);
    return own == options_.labels.end() ? text : own->second;
  }
  std::string ModelLabel(size_t model) const { return Label(plan_.models[model].name); }
  std::string Judged() const { return kMetricNames[results_.judged]; }
  // Returns "loss (last 100)", or its label.
  std::string LossLabel() const {
    const auto own = options_.labels.find(Judged());
    return own != options_.labels.end() ? own->second : absl::StrCat("loss (", Judged(), ")");
  }
  static std::string NameOf(const std::string& field) { return field.substr(field.find('.') + 1); }

  // Return the names of the settings, "n_layer, learning_rate", and their values in a cell, "4,
  // 0.01".
  std::string CellNames() const {
    return absl::StrJoin(plan_.cells.front(), ", ", [this](std::string* out, const auto& setting) {
      out->append(Label(NameOf(setting.first)));
    });
  }
  std::string CellValues(size_t cell) const {
    return absl::StrJoin(plan_.cells[cell], ", ", [](std::string* out, const auto& setting) {
      out->append(setting.second);
    });
  }

  const GroupFigures& GroupOf(size_t model, size_t cell) const {
    return results_.groups[model * plan_.cells.size() + cell];
  }
  const MeanAndSd& LossOf(size_t model, size_t cell) const {
    return GroupOf(model, cell).metric[results_.judged];
  }

  // Returns the cell at which a model is shown.
  size_t CellOf(size_t model) const { return results_.best ? results_.best->cells[model] : 0; }

  void Add(std::string name, std::string caption, Drawing drawing, bool is_drawn_by_page = false) {
    figures_.push_back({std::move(name), std::move(caption), std::move(drawing), is_drawn_by_page});
  }

  void DrawRanking() {
    const Comparison* const decisive = results_.Decisive();
    if (decisive == nullptr || plan_.models.size() < 2) return;
    RankingFigure figure;
    figure.width = options_.width;
    figure.x_label = LossLabel();
    for (const size_t model : Judge(*decisive).ranked) {
      RankingRow row;
      row.name = ModelLabel(model);
      row.mean = decisive->models[model].mean;
      const Interval interval = ConfidenceInterval95(decisive->models[model]);
      row.low = interval.low;
      row.high = interval.high;
      const GroupFigures& group = GroupOf(model, CellOf(model));
      std::vector<std::string> notes;
      if (results_.best) notes.push_back(CellValues(CellOf(model)));
      if (group.collapsed > 0) notes.push_back(absl::StrCat(group.collapsed, " collapsed"));
      if (!group.diverged.empty()) {
        notes.push_back(absl::StrCat(group.diverged.size(), " diverged"));
      }
      row.note = absl::StrJoin(notes, ", ");
      figure.rows.push_back(std::move(row));
    }
    if (decisive->models[0].n > 0) {
      figure.reference = decisive->models[0].mean;
      figure.reference_label = ModelLabel(0);
    }
    Add("ranking",
        absl::StrCat(
            "Mean of ", Judged(), " with 95 % interval",
            results_.best ? absl::StrCat(", each model at its best ", CellNames(), ".") : "."),
        figure.Draw(), /*is_drawn_by_page=*/true);
  }

  // Draws the loss of each model by a setting, if that has at least two numbers.
  void DrawBySetting(const std::string& field) {
    std::map<double, std::vector<size_t>> cells;  // by value
    for (size_t cell = 0; cell < plan_.cells.size(); ++cell) {
      for (const auto& [name, text] : plan_.cells[cell]) {
        double value = 0;
        if (name != field) continue;
        if (!absl::SimpleAtod(text, &value)) return;
        cells[value].push_back(cell);
      }
    }
    if (cells.size() < 2) return;
    LineFigure figure;
    figure.width = options_.width;
    figure.with_markers = true;
    figure.x_label = Label(NameOf(field));
    figure.y_label = LossLabel();
    const double lowest = cells.begin()->first, highest = cells.rbegin()->first;
    if (lowest > 0 && highest >= 8 * lowest) figure.x_scale = AxisScale::kLog10;
    for (size_t model = 0; model < plan_.models.size(); ++model) {
      LineSeries series;
      series.name = ModelLabel(model);
      for (const auto& [value, group] : cells) series.points.push_back(BestOf(model, value, group));
      figure.series.push_back(std::move(series));
    }
    const bool has_others = plan_.cells.front().size() > 1;
    Add(absl::StrCat("loss_by_", DirectoryName(NameOf(field))),
        absl::StrCat("Mean of ", Judged(), " by ", NameOf(field), " with 95 % bands",
                     has_others ? ", at the best of the other settings." : "."),
        figure.Draw());
  }

  // Returns the lowest loss of a model among cells with the same value of a setting.
  LinePoint BestOf(size_t model, double value, const std::vector<size_t>& cells) const {
    LinePoint point;
    point.x = value;
    point.mean = kNaN;
    for (const size_t cell : cells) {
      const MeanAndSd& loss = LossOf(model, cell);
      if (loss.n == 0 || loss.mean >= point.mean) continue;
      point.mean = loss.mean;
      const Interval interval = ConfidenceInterval95(loss);
      point.low = interval.low;
      point.high = interval.high;
    }
    return point;
  }

  void DrawHeatMap() {
    if (plan_.models.size() < 2 || plan_.cells.size() < 2) return;
    HeatMapFigure figure;
    figure.width = options_.width;
    figure.value_label = LossLabel();
    figure.x_label = CellNames();
    for (size_t cell = 0; cell < plan_.cells.size(); ++cell) {
      figure.columns.push_back(CellValues(cell));
    }
    for (const size_t model : Ranked()) {
      figure.rows.push_back(ModelLabel(model));
      figure.values.emplace_back();
      for (size_t cell = 0; cell < plan_.cells.size(); ++cell) {
        const MeanAndSd& loss = LossOf(model, cell);
        figure.values.back().push_back(loss.n > 0 ? loss.mean : kNaN);
      }
    }
    Add("losses",
        absl::StrCat("Mean of ", Judged(),
                     " by model and setting; the lowest of each "
                     "model is framed."),
        figure.Draw());
  }

  // Returns the models in the order of their results, those without a result last.
  std::vector<size_t> Ranked() const {
    std::vector<size_t> ranked;
    if (const Comparison* const decisive = results_.Decisive(); decisive != nullptr) {
      ranked = Judge(*decisive).ranked;
    }
    for (size_t model = 0; model < plan_.models.size(); ++model) {
      if (std::count(ranked.begin(), ranked.end(), model) == 0) ranked.push_back(model);
    }
    return ranked;
  }

  std::vector<size_t> ModelsOfCurves() const {
    const std::vector<size_t> ranked = Ranked();
    if (ranked.size() <= kMaxModelsOfCurves) return ranked;
    std::vector<size_t> chosen(ranked.begin(), ranked.begin() + 3);
    for (const size_t model : {size_t{0}, ranked.back()}) {
      if (std::count(chosen.begin(), chosen.end(), model) == 0) chosen.push_back(model);
    }
    return chosen;
  }

  void DrawCurves() {
    LineFigure figure;
    figure.width = options_.width;
    const size_t axis = static_cast<size_t>(options_.curve_axis);
    figure.x_label = Label(kAxisNames[axis]);
    figure.y_label = Label("training loss");
    int64_t window = 1;
    for (const size_t model : ModelsOfCurves()) {
      LineSeries series;
      series.name = ModelLabel(model);
      series.points = CurveOf(CurveGroup(model), &window);
      if (!series.points.empty()) figure.series.push_back(std::move(series));
    }
    if (figure.series.empty()) return;
    Add("curves",
        absl::StrCat("Training loss by ", kAxisNames[axis], ", averaged over ",
                     Count(window, "step"), ": mean ± standard deviation over the seeds",
                     results_.best ? ", each model at its best setting." : "."),
        figure.Draw(), /*is_drawn_by_page=*/true);
  }

  // Draws each kind of probe that the models have by layer and by step.
  void DrawProbes() {
    std::vector<std::pair<size_t, RunProbes>> probes;  // by model
    for (const size_t model : ModelsOfCurves()) {
      const std::vector<const RunProbes*> runs = ProbesOfGroup(plan_, results_, CurveGroup(model));
      if (!runs.empty()) probes.emplace_back(model, MeanProbes(runs));
    }
    std::vector<const RunProbes*> all;
    for (const auto& own : probes) all.push_back(&own.second);
    for (const ProbeSeries* kind : KindsOf(all)) DrawProbe(*kind, probes);
  }

  void DrawProbe(const ProbeSeries& kind, const std::vector<std::pair<size_t, RunProbes>>& probes) {
    LineFigure by_layer, by_step;
    const size_t axis = static_cast<size_t>(options_.curve_axis);
    for (LineFigure* figure : {&by_layer, &by_step}) {
      figure->width = options_.width;
      figure->y_label = Label(kind.name);
      figure->y_scale = kind.is_log ? AxisScale::kLog10 : AxisScale::kLinear;
    }
    by_layer.x_label = Label("layer");
    by_layer.with_markers = true;
    by_step.x_label = Label(kAxisNames[axis]);
    for (const auto& [model, own] : probes) {
      const ProbeSeries* const series = own.Find(kind.name);
      if (series == nullptr) continue;
      const std::vector<double> amounts = MeanAmounts(CurveGroup(model));
      LineSeries layers = {ModelLabel(model), {}}, steps = {ModelLabel(model), {}};
      // A step that diverged may have no figure.
      size_t last = own.steps.size() - 1;
      while (last > 0 && std::isnan(series->OverLayers(last))) --last;
      for (size_t layer = 0; layer < own.layers.size(); ++layer) {
        layers.points.push_back({static_cast<double>(layer), series->values[last][layer]});
      }
      for (size_t i = 0; i < own.steps.size(); ++i) {
        const auto step = static_cast<size_t>(own.steps[i]);
        if (step <= amounts.size()) {
          steps.points.push_back({amounts[step - 1], series->OverLayers(i)});
        }
      }
      by_layer.series.push_back(std::move(layers));
      by_step.series.push_back(std::move(steps));
    }
    std::string name = absl::AsciiStrToLower(DirectoryName(kind.name));
    absl::StrReplaceAll({{"-", "_"}}, &name);
    Add(absl::StrCat(name, "_by_layer"),
        absl::StrCat(CapitalFirst(kind.name),
                     " by layer at the last probed step, mean over the seeds."),
        by_layer.Draw(), /*is_drawn_by_page=*/true);
    Add(absl::StrCat(name, "_by_step"),
        absl::StrCat(CapitalFirst(kind.name), " by ", kAxisNames[axis], ", ",
                     kind.is_largest ? "largest of" : "mean over",
                     " the layers, mean over the seeds."),
        by_step.Draw(), /*is_drawn_by_page=*/true);
  }

  // Returns the group whose curves a model has.
  size_t CurveGroup(size_t model) const { return model * plan_.cells.size() + CellOf(model); }

  // Returns the mean position of each step of a group's runs on the axis of curves.
  std::vector<double> MeanAmounts(size_t group) const {
    std::vector<std::vector<double>> amounts;  // by step
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      if (plan_.runs[i].group != group) continue;
      const std::vector<double> own =
          AmountsOf(results_.records[i], plan_.groups[group].flops_per_token);
      if (own.size() > amounts.size()) amounts.resize(own.size());
      for (size_t step = 0; step < own.size(); ++step) amounts[step].push_back(own[step]);
    }
    std::vector<double> means;
    for (const std::vector<double>& at : amounts) means.push_back(Summarize(at).mean);
    return means;
  }

  // Returns the mean over a group's finished runs at each step.
  std::vector<LinePoint> CurveOf(size_t group, int64_t* window) const {
    std::vector<std::vector<double>> losses, amounts;  // of each run
    size_t steps = 0;
    for (size_t i = 0; i < plan_.runs.size(); ++i) {
      const RunRecord& record = results_.records[i];
      if (plan_.runs[i].group != group || record.losses.empty() ||
          record.result.status != RunStatus::kFinished) {
        continue;
      }
      *window = SmoothingWindow(static_cast<int64_t>(record.losses.size()));
      losses.push_back(Smoothed(record.losses, *window));
      amounts.push_back(AmountsOf(record, plan_.groups[group].flops_per_token));
      steps = losses.size() == 1 ? record.losses.size() : std::min(steps, record.losses.size());
    }
    std::vector<LinePoint> points;
    for (size_t step = 0; step < steps; ++step) {
      std::vector<double> values, xs;
      for (size_t run = 0; run < losses.size(); ++run) {
        values.push_back(losses[run][step]);
        xs.push_back(amounts[run][step]);
      }
      const MeanAndSd loss = Summarize(values);
      LinePoint point;
      point.x = Summarize(xs).mean;
      point.mean = loss.mean;
      if (loss.n > 1) {
        point.low = loss.mean - loss.sd;
        point.high = loss.mean + loss.sd;
      }
      points.push_back(point);
    }
    return points;
  }

  // Returns the exponential moving average over about `window` values, without a bias to the first.
  static std::vector<double> Smoothed(const std::vector<double>& values, int64_t window) {
    const double keep = 1 - 1 / static_cast<double>(window);
    double sum = 0, weight = 0;
    std::vector<double> smoothed;
    for (const double value : values) {
      sum = keep * sum + value;
      weight = keep * weight + 1;
      smoothed.push_back(sum / weight);
    }
    return smoothed;
  }

  // Returns the position of each step on the axis of curves.
  std::vector<double> AmountsOf(const RunRecord& record, double flops_per_token) const {
    std::vector<double> amounts;
    for (size_t step = 0; step < record.losses.size(); ++step) {
      const std::vector<double>& tokens = record.tokens_by_step;
      switch (options_.curve_axis) {
        case CurveAxis::kSteps:
          amounts.push_back(static_cast<double>(step + 1));
          break;
        case CurveAxis::kTokens:
          amounts.push_back(tokens[step]);
          break;
        case CurveAxis::kFlops:
          amounts.push_back(tokens[step] * flops_per_token);
          break;
        case CurveAxis::kSeconds:
          amounts.push_back(record.seconds_by_step[step]);
          break;
      }
    }
    return amounts;
  }

  const StudyPlan& plan_;
  const StudyResults& results_;
  const FigureOptions& options_;
  std::vector<StudyFigure> figures_;
};

}  // namespace

absl::StatusOr<CurveAxis> ParseCurveAxis(absl::string_view text) {
  for (size_t i = 0; i < std::size(kAxisNames); ++i) {
    if (absl::EqualsIgnoreCase(text, kAxisNames[i])) return static_cast<CurveAxis>(i);
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", text, "\" is no axis of curves; there are steps, tokens, flops and seconds"));
}

absl::Status CheckLabels(const StudyPlan& plan, const std::vector<RunRecord>& records,
                         const std::map<std::string, std::string>& labels) {
  std::vector<std::string> known(std::begin(kAxisNames), std::end(kAxisNames));
  known.insert(known.end(), std::begin(kMetricNames), std::end(kMetricNames));
  known.emplace_back("training loss");
  for (const RunRecord& record : records) {
    if (!record.probes) continue;
    for (const ProbeSeries& series : record.probes->series) known.push_back(series.name);
    known.emplace_back("layer");
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  for (const PlanModel& model : plan.models) known.push_back(model.name);
  for (const auto& setting : plan.cells.front()) {
    known.push_back(setting.first.substr(setting.first.find('.') + 1));
  }
  for (const auto& label : labels) {
    if (std::count(known.begin(), known.end(), label.first) > 0) continue;
    return absl::InvalidArgumentError(absl::StrCat("--label: nothing is called \"", label.first,
                                                   "\"", DidYouMean(label.first, known),
                                                   "; there are ", absl::StrJoin(known, ", ")));
  }
  return absl::OkStatus();
}

std::vector<StudyFigure> StudyFigures(const StudyPlan& plan, const StudyResults& results,
                                      const FigureOptions& options) {
  return StudyArtist(plan, results, options).Draw();
}

}  // namespace plumb
