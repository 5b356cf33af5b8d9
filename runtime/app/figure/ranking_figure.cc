// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/ranking_figure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "runtime/app/figure/frame.h"
#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

constexpr double kMaxNameShare = 0.45;  // of the width of the drawing
constexpr double kMaxNoteShare = 0.2;
constexpr double kDotRadius = 2.2;
constexpr double kIntervalWidth = 1.2;
constexpr double kRankingMargin = 0.04;
constexpr size_t kMinRowsForTopAxis = 25;

FigureAxis AxisOf(const RankingFigure& figure) {
  FigureAxis axis(figure.x_scale);
  for (const RankingRow& row : figure.rows) {
    axis.Include(row.mean);
    if (!axis.CanShow(row.low) || !axis.CanShow(row.high)) continue;
    axis.Include(row.low);
    axis.Include(row.high);
  }
  return axis;
}

}  // namespace

Drawing RankingFigure::Draw() const {
  Drawing drawing = EmptyDrawing(title, width);
  FigureAxis axis = AxisOf(*this);
  const bool has_data = !axis.empty();
  if (reference.has_value()) axis.Include(*reference);
  axis.AddMargin(kRankingMargin);
  const bool has_reference = reference.has_value() && axis.CanShow(*reference);
  const bool with_top = rows.size() >= kMinRowsForTopAxis;

  double names = 0, notes = 0;
  for (const RankingRow& row : rows) {
    names = std::max(names, TextWidth(OneLine(row.name), kFontSize));
    notes = std::max(notes, TextWidth(OneLine(row.note), kFontSize));
  }
  names = std::min(names, kMaxNameShare * drawing.width);
  notes = std::min(notes, kMaxNoteShare * drawing.width);
  DrawingBox area;
  area.left = kMargin + names + 2 * kLabelGap;
  area.right = drawing.width - kMargin - (notes > 0 ? notes + 2 * kLabelGap : 2 * kLabelGap);
  area.top = AddTitle(title, &drawing);
  const double reference_y = area.top + kFontSize * kTextAscent;
  if (has_reference && !reference_label.empty()) area.top += kLineHeight + 2;
  if (with_top) area.top += kLineHeight;
  area.bottom =
      area.top + static_cast<double>(std::max<size_t>(rows.size(), 1)) * kLineHeight + kLabelGap;

  double y = AddXTicks(axis, with_top, area, &drawing);
  y = AddXLabel(x_label, area, y, &drawing);
  const auto x_of = [&](double value) {
    return area.left + axis.Share(value) * (area.right - area.left);
  };
  if (has_reference) {
    const double x = x_of(*reference);
    const std::string label =
        ShortenText(OneLine(reference_label), kFontSize, drawing.width - 2 * kMargin);
    const double half = TextWidth(label, kFontSize) / 2;
    AddLabel({std::max(kMargin + half, std::min(drawing.width - kMargin - half, x)), reference_y},
             label, kMutedColor, TextAnchor::kMiddle, &drawing);
    drawing.shapes.emplace_back(
        DrawnLine{{{x, area.top}, {x, area.bottom}}, kMutedColor, 0.8, {3, 2}, 1});
  }
  const DrawingColor color = StyleOfSeries(0).color;
  for (size_t i = 0; i < rows.size(); ++i) {
    const RankingRow& row = rows[i];
    const double middle = area.top + kLabelGap / 2 + (static_cast<double>(i) + 0.5) * kLineHeight;
    const double baseline = middle + kFontSize * 0.35;
    AddLabel({area.left - 2 * kLabelGap, baseline},
             ShortenText(OneLine(row.name), kFontSize, names), kInkColor, TextAnchor::kEnd,
             &drawing);
    AddLabel({area.right + 2 * kLabelGap, baseline},
             ShortenText(OneLine(row.note), kFontSize, notes), kMutedColor, TextAnchor::kStart,
             &drawing);
    drawing.shapes.emplace_back(
        DrawnLine{{{area.left, middle}, {area.right, middle}}, kGridColor, kThinLine, {1, 2}, 1});
    if (axis.CanShow(row.low) && axis.CanShow(row.high)) {
      drawing.shapes.emplace_back(DrawnLine{
          {{x_of(row.low), middle}, {x_of(row.high), middle}}, color, kIntervalWidth, {}, 1});
    }
    if (axis.CanShow(row.mean)) {
      drawing.shapes.emplace_back(DrawnCircle{{x_of(row.mean), middle}, kDotRadius, color});
    }
  }
  if (!has_data) AddNoData(area, &drawing);
  drawing.height = std::ceil(y + kMargin);
  return drawing;
}

}  // namespace plumb
