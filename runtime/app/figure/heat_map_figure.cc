// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/heat_map_figure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/app/figure/axis.h"
#include "runtime/app/figure/frame.h"
#include "runtime/app/figure/number_text.h"
#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

constexpr double kMaxRowNameShare = 0.45;  // of the width of the drawing
constexpr double kMaxColumnNameHeight = 100;
constexpr double kMaxCellWidth = 56;
constexpr double kCellHeight = 13;
constexpr double kCellGap = 0.6;
constexpr double kCellPadding = 3;  // left and right of a number, in total
constexpr double kMaxCellFont = 7.5;
constexpr double kMinCellFont = 4.5;
constexpr double kFrameWidth = 1;
constexpr double kScaleWidth = 130;  // of the color scale
constexpr double kScaleHeight = 7;
constexpr int kScaleSteps = 65;

// Draws the cells, names and color scale of a figure.
class HeatMapPainter {
 public:
  HeatMapPainter(const HeatMapFigure& figure, Drawing* drawing)
      : figure_(figure), drawing_(drawing) {
    for (size_t row = 0; row < figure.rows.size(); ++row) {
      for (size_t column = 0; column < figure.columns.size(); ++column) {
        colors_.Include(Value(row, column));
        if (!colors_.CanShow(Value(row, column))) has_missing_ = true;
      }
    }
    colors_.AddMargin(0);
    if (figure.color_limit.has_value()) colors_.LimitHigh(*figure.color_limit);
  }

  // Appends the figure below `top`. Returns the position below it.
  double Draw(double top) {
    double names = 0;
    for (const std::string& name : figure_.rows) {
      names = std::max(names, TextWidth(OneLine(name), kFontSize));
    }
    row_name_width_ = std::min(names, kMaxRowNameShare * drawing_->width);
    area_.left = kMargin + YLabelWidth(figure_.y_label) + row_name_width_ + kLabelGap;
    const double room = drawing_->width - kMargin - area_.left;
    cell_width_ = std::min(kMaxCellWidth, room / static_cast<double>(figure_.columns.size()));
    area_.right = area_.left + cell_width_ * static_cast<double>(figure_.columns.size());
    top = AddXLabel(figure_.x_label, area_, top, drawing_);
    area_.top = AddColumnNames(top);
    area_.bottom = area_.top + kCellHeight * static_cast<double>(figure_.rows.size());
    AddYLabel(figure_.y_label, area_, top, area_.bottom + kLabelGap, drawing_);
    ChooseFonts();
    for (size_t row = 0; row < figure_.rows.size(); ++row) {
      AddLabel({area_.left - kLabelGap, Cell(row, 0).bottom - kCellHeight / 2 + kFontSize * 0.35},
               ShortenText(OneLine(figure_.rows[row]), kFontSize, row_name_width_), kInkColor,
               TextAnchor::kEnd, drawing_);
      AddCells(row);
    }
    return AddKey();
  }

 private:
  double Value(size_t row, size_t column) const {
    if (row >= figure_.values.size() || column >= figure_.values[row].size()) {
      return std::numeric_limits<double>::quiet_NaN();
    }
    return figure_.values[row][column];
  }

  DrawingBox Cell(size_t row, size_t column) const {
    const double left = area_.left + cell_width_ * static_cast<double>(column);
    const double top = area_.top + kCellHeight * static_cast<double>(row);
    return {left, top, left + cell_width_, top + kCellHeight};
  }

  // Appends the names below `top`, turned if they are wider than a cell. Returns the top of the
  // cells.
  double AddColumnNames(double top) {
    double width = 0;
    for (const std::string& name : figure_.columns) {
      width = std::max(width, TextWidth(OneLine(name), kFontSize));
    }
    const bool is_vertical = width > cell_width_ - kCellPadding;
    const double height = is_vertical ? std::min(width, kMaxColumnNameHeight) : kFontSize;
    // Cells that are narrower than a line of text share names.
    const auto every = static_cast<size_t>(std::ceil((kFontSize + 1) / cell_width_));
    for (size_t i = 0; i < figure_.columns.size(); i += is_vertical ? every : 1) {
      const double middle = area_.left + (static_cast<double>(i) + 0.5) * cell_width_;
      const std::string name =
          ShortenText(OneLine(figure_.columns[i]), kFontSize, is_vertical ? height : cell_width_);
      if (name.empty()) continue;
      const double across = is_vertical ? kFontSize * 0.35 : 0;
      drawing_->shapes.emplace_back(
          DrawnText{{middle + across, top + height - (is_vertical ? 0 : 1)},
                    name,
                    kFontSize,
                    kInkColor,
                    is_vertical ? TextAnchor::kStart : TextAnchor::kMiddle,
                    is_vertical});
    }
    return top + height + kLabelGap - 1;
  }

  // Returns the largest size in which a text fits into a cell.
  double FittingFont(const std::string& text) const {
    return std::min(kMaxCellFont, (cell_width_ - kCellPadding) / std::max(0.1, TextWidth(text, 1)));
  }

  void ChooseFonts() {
    number_font_ = kMaxCellFont;
    for (size_t row = 0; row < figure_.rows.size(); ++row) {
      for (size_t column = 0; column < figure_.columns.size(); ++column) {
        const double value = Value(row, column);
        if (!colors_.CanShow(value)) continue;
        number_font_ = std::min(number_font_, FittingFont(SignificantText(value)));
      }
    }
    missing_text_ = OneLine(figure_.missing_text);
    missing_font_ = std::min(number_font_, FittingFont(missing_text_));
  }

  void AddCellText(const DrawingBox& cell, const std::string& text, double size,
                   const DrawingColor& color) {
    if (size < kMinCellFont || text.empty()) return;
    const DrawingPoint at{(cell.left + cell.right) / 2, (cell.top + cell.bottom) / 2 + size * 0.35};
    drawing_->shapes.emplace_back(
        DrawnText{at, text, size, color, TextAnchor::kMiddle, /*is_vertical=*/false});
  }

  void AddCells(size_t row) {
    const absl::optional<double> framed = Framed(row);
    for (size_t column = 0; column < figure_.columns.size(); ++column) {
      const double value = Value(row, column);
      const DrawingBox cell = Cell(row, column);
      const double gap = std::min(kCellGap, 0.1 * cell_width_) / 2;
      const DrawingBox inner{cell.left + gap, cell.top + kCellGap / 2, cell.right - gap,
                             cell.bottom - kCellGap / 2};
      if (!colors_.CanShow(value)) {
        AddRectangle(inner, kEmptyColor, drawing_);
        AddCellText(cell, missing_text_, missing_font_, kMutedColor);
        continue;
      }
      const double share = colors_.Share(value);
      if (share > 1 + 1e-9) has_values_above_ = true;
      const DrawingColor color = HeatColor(share);
      AddRectangle(inner, color, drawing_);
      if (value == framed) AddFrame(inner, TextColorOn(color));
      AddCellText(cell, SignificantText(value), number_font_, TextColorOn(color));
    }
  }

  // Returns the value that has a frame; nullopt if there is none.
  absl::optional<double> Framed(size_t row) const {
    absl::optional<double> framed;
    if (figure_.framed == FramedValue::kNone) return framed;
    for (size_t column = 0; column < figure_.columns.size(); ++column) {
      const double value = Value(row, column);
      if (!colors_.CanShow(value)) continue;
      const bool is_lower = figure_.framed == FramedValue::kLowest;
      if (!framed.has_value() || (is_lower ? value < *framed : value > *framed)) framed = value;
    }
    return framed;
  }

  // Appends a frame inside a cell.
  void AddFrame(const DrawingBox& cell, const DrawingColor& color) {
    const double in = kFrameWidth / 2 + 0.5;
    const double left = cell.left + in, right = cell.right - in;
    const double top = cell.top + in, bottom = cell.bottom - in;
    if (left >= right) return;
    drawing_->shapes.emplace_back(DrawnLine{
        {{left, top}, {right, top}, {right, bottom}, {left, bottom}, {left, top - in / 3}},
        color,
        kFrameWidth,
        {},
        1});
  }

  // Returns the label of the color scale, with the color limit if some values are above it.
  std::string ScaleLabel() const {
    const std::string label = OneLine(figure_.value_label);
    if (!has_values_above_) return label;
    return absl::StrCat(label, label.empty() ? "" : ", ", "\u2265 ",
                        SignificantText(*figure_.color_limit), " in one color");
  }

  // Appends the color scale and the meaning of gray cells. Returns the position below them.
  double AddKey() {
    double y = area_.bottom + 2 * kLabelGap;
    const double room = drawing_->width - 2 * kMargin;
    if (!colors_.empty()) {
      const double left = kMargin, width = std::min(kScaleWidth, room / 2);
      for (int i = 0; i < kScaleSteps; ++i) {
        // Each step ends under the next one, so that no gap shows between them.
        const double right = left + width * std::min<double>(i + 1.5, kScaleSteps) / kScaleSteps;
        AddRectangle({left + width * i / kScaleSteps, y, right, y + kScaleHeight},
                     HeatColor((i + 0.5) / kScaleSteps), drawing_);
      }
      AddLabel({left + width + 2 * kLabelGap, y + kScaleHeight / 2 + kFontSize * 0.35},
               ShortenText(ScaleLabel(), kFontSize, room - width - 2 * kLabelGap), kMutedColor,
               TextAnchor::kStart, drawing_);
      y += kScaleHeight;
      const AxisRoom ticks{width, left - kMargin, room - width};
      for (const AxisTick& tick : colors_.Ticks(AxisDirection::kHorizontal, ticks, kFontSize)) {
        const double x = left + colors_.Share(tick.value) * width;
        drawing_->shapes.emplace_back(
            DrawnLine{{{x, y}, {x, y + 2}}, kAxisColor, kThinLine, {}, 1});
        AddLabel({x, y + 3 + kFontSize * kTextAscent}, tick.label, kMutedColor, TextAnchor::kMiddle,
                 drawing_);
      }
      y += 3 + kLineHeight;
    }
    if (has_missing_ && missing_font_ < kMinCellFont && !missing_text_.empty()) {
      AddRectangle({kMargin, y, kMargin + 12, y + kScaleHeight}, kEmptyColor, drawing_);
      AddLabel({kMargin + 12 + kLabelGap, y + kScaleHeight / 2 + kFontSize * 0.35},
               ShortenText(missing_text_, kFontSize, room - 12 - kLabelGap), kMutedColor,
               TextAnchor::kStart, drawing_);
      y += kLineHeight;
    }
    return y;
  }

  const HeatMapFigure& figure_;
  Drawing* drawing_;
  FigureAxis colors_;
  bool has_missing_ = false;
  bool has_values_above_ = false;  // the color limit
  DrawingBox area_;
  double row_name_width_ = 0, cell_width_ = 0;
  double number_font_ = 0, missing_font_ = 0;
  std::string missing_text_;
};

}  // namespace

Drawing HeatMapFigure::Draw() const {
  Drawing drawing = EmptyDrawing(title, width);
  double y = AddTitle(title, &drawing);
  if (rows.empty() || columns.empty()) {
    const DrawingBox area{kMargin, y, drawing.width - kMargin, y + 4 * kLineHeight};
    AddNoData(area, &drawing);
    y = area.bottom;
  } else {
    y = HeatMapPainter(*this, &drawing).Draw(y);
  }
  drawing.height = std::ceil(y + kMargin);
  return drawing;
}

}  // namespace plumb
