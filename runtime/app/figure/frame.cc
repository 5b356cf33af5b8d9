// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/frame.h"

#include <algorithm>
#include <cmath>

#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

constexpr double kTitleSize = 9;
constexpr double kTitleLineHeight = 12;
constexpr size_t kMaxTitleLines = 3;
constexpr double kMinWidth = 200;
constexpr double kMaxWidth = 10000;
// Below the x axis, so that its first label is below the lowest label of the y axis.
constexpr double kXLabelGap = 5;

// Returns the position closest to `middle` at which a text of this width stays within the limits.
double Centered(double middle, double width, double low, double high) {
  return std::max(low + width / 2, std::min(high - width / 2, middle));
}

void AddThinLine(const DrawingPoint& from, const DrawingPoint& to, const DrawingColor& color,
                 Drawing* drawing) {
  drawing->shapes.emplace_back(DrawnLine{{from, to}, color, kThinLine, {}, 1});
}

}  // namespace

Drawing EmptyDrawing(const std::string& title, double width) {
  Drawing drawing;
  drawing.title = OneLine(title);
  drawing.width =
      std::isfinite(width) ? std::max(kMinWidth, std::min(kMaxWidth, width)) : kMinWidth;
  return drawing;
}

void AddLabel(const DrawingPoint& at, absl::string_view text, const DrawingColor& color,
              TextAnchor anchor, Drawing* drawing) {
  if (text.empty()) return;
  drawing->shapes.emplace_back(
      DrawnText{at, std::string(text), kFontSize, color, anchor, /*is_vertical=*/false});
}

double AddTitle(const std::string& title, Drawing* drawing) {
  double y = kMargin;
  for (const std::string& line :
       WrapText(OneLine(title), kTitleSize, drawing->width - 2 * kMargin, kMaxTitleLines)) {
    drawing->shapes.emplace_back(DrawnText{{kMargin, y + kTitleSize * kTextAscent},
                                           line,
                                           kTitleSize,
                                           kInkColor,
                                           TextAnchor::kStart,
                                           /*is_vertical=*/false});
    y += kTitleLineHeight;
  }
  return y + kLabelGap;
}

double WidthOf(const std::vector<AxisTick>& ticks) {
  double width = 0;
  for (const AxisTick& tick : ticks) width = std::max(width, TextWidth(tick.label, kFontSize));
  return width;
}

double YLabelWidth(const std::string& label) { return label.empty() ? 0 : kLineHeight + 2; }

void AddYLabel(const std::string& label, const DrawingBox& area, double top, double bottom,
               Drawing* drawing) {
  if (label.empty()) return;
  const std::string text = ShortenText(OneLine(label), kFontSize, bottom - top);
  const double y = Centered((area.top + area.bottom) / 2, TextWidth(text, kFontSize), top, bottom);
  drawing->shapes.emplace_back(DrawnText{{kMargin + kFontSize * kTextAscent, y},
                                         text,
                                         kFontSize,
                                         kMutedColor,
                                         TextAnchor::kMiddle,
                                         /*is_vertical=*/true});
}

double AddXLabel(const std::string& label, const DrawingBox& area, double top, Drawing* drawing) {
  if (label.empty()) return top;
  const double low = kMargin, high = drawing->width - kMargin;
  const std::string text = ShortenText(OneLine(label), kFontSize, high - low);
  const double x = Centered((area.left + area.right) / 2, TextWidth(text, kFontSize), low, high);
  AddLabel({x, top + kFontSize}, text, kMutedColor, TextAnchor::kMiddle, drawing);
  return top + kLineHeight;
}

void AddYTicks(const FigureAxis& axis, const std::vector<AxisTick>& ticks, const DrawingBox& area,
               Drawing* drawing) {
  for (const AxisTick& tick : ticks) {
    const double y = area.bottom - axis.Share(tick.value) * (area.bottom - area.top);
    AddThinLine({area.left, y}, {area.right, y}, kGridColor, drawing);
    AddLabel({area.left - kLabelGap, y + kFontSize * 0.35}, tick.label, kMutedColor,
             TextAnchor::kEnd, drawing);
  }
}

double AddXTicks(const FigureAxis& axis, bool with_top, const DrawingBox& area, Drawing* drawing) {
  const AxisRoom room{area.right - area.left, area.left - kMargin,
                      drawing->width - kMargin - area.right};
  for (const AxisTick& tick : axis.Ticks(AxisDirection::kHorizontal, room, kFontSize)) {
    const double x = area.left + axis.Share(tick.value) * room.length;
    AddThinLine({x, area.top}, {x, area.bottom}, kGridColor, drawing);
    AddLabel({x, area.bottom + kXLabelGap + kFontSize * kTextAscent}, tick.label, kMutedColor,
             TextAnchor::kMiddle, drawing);
    if (with_top) {
      AddLabel({x, area.top - kLabelGap}, tick.label, kMutedColor, TextAnchor::kMiddle, drawing);
    }
  }
  AddThinLine({area.left, area.bottom}, {area.right, area.bottom}, kAxisColor, drawing);
  return area.bottom + kXLabelGap + kLineHeight;
}

void AddNoData(const DrawingBox& area, Drawing* drawing) {
  AddLabel({(area.left + area.right) / 2, (area.top + area.bottom) / 2 + kFontSize * 0.35},
           "no data", kMutedColor, TextAnchor::kMiddle, drawing);
}

}  // namespace plumb
