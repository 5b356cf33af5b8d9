// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/line_figure.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "runtime/app/figure/frame.h"
#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

constexpr double kLineWidth = 1.1;
constexpr double kMarkerRadius = 1.7;
constexpr double kBandOpacity = 0.16;
constexpr double kAxisMargin = 0.03;  // share of the range at both ends
constexpr double kColumnWidth = 0.5;  // see Thinned()
constexpr double kSampleWidth = 20;   // of a line in the legend
constexpr double kMaxLegendShare = 0.34;
constexpr double kLegendGap = 10;
constexpr double kRightRoom = 10;  // for half of the last label of the x axis

using Points = std::vector<DrawingPoint>;

// Maps values to positions in the area of a plot.
struct PlotMap {
  FigureAxis x, y;
  DrawingBox area;

  bool CanShow(const LinePoint& point) const { return x.CanShow(point.x) && y.CanShow(point.mean); }
  bool HasBand(const LinePoint& point) const {
    return CanShow(point) && y.CanShow(point.low) && y.CanShow(point.high);
  }
  DrawingPoint At(double x_value, double y_value) const {
    return {area.left + x.Share(x_value) * (area.right - area.left),
            area.bottom - y.Share(y_value) * (area.bottom - area.top)};
  }
};

// Returns the point at height `y` between two points on both sides of it.
DrawingPoint Crossing(const DrawingPoint& a, const DrawingPoint& b, double y) {
  return {a.x + (b.x - a.x) * ((y - a.y) / (b.y - a.y)), y};
}

// Returns the parts of a line that are at or below `top`.
std::vector<Points> PartsBelow(const Points& line, double top) {
  std::vector<Points> parts;
  bool is_inside = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const bool was_inside = std::exchange(is_inside, line[i].y >= top);
    const bool crosses = i > 0 && was_inside != is_inside;
    if (is_inside && !was_inside) parts.emplace_back();
    if (crosses) parts.back().push_back(Crossing(line[i - 1], line[i], top));
    if (is_inside) parts.back().push_back(line[i]);
  }
  return parts;
}

// Returns the part of a polygon that is at or below `top` (Sutherland, Hodgman 1974).
Points AreaBelow(const Points& polygon, double top) {
  Points kept;
  for (size_t i = 0; i < polygon.size(); ++i) {
    const DrawingPoint& before = polygon[i == 0 ? polygon.size() - 1 : i - 1];
    if ((before.y >= top) != (polygon[i].y >= top)) {
      kept.push_back(Crossing(before, polygon[i], top));
    }
    if (polygon[i].y >= top) kept.push_back(polygon[i]);
  }
  return kept;
}

// Returns a line that looks the same and has at most four points in each column of kColumnWidth:
// the first, the highest, the lowest and the last (M4; Jugel et al., VLDB 2014).
Points Thinned(const Points& line) {
  const auto column = [](const DrawingPoint& point) { return std::floor(point.x / kColumnWidth); };
  const auto is_lower = [](const DrawingPoint& a, const DrawingPoint& b) { return a.y > b.y; };
  Points thinned;
  for (auto begin = line.begin(); begin != line.end();) {
    const auto end = std::find_if(begin, line.end(), [&](const DrawingPoint& point) {
      return column(point) != column(*begin);
    });
    const auto extremes = std::minmax_element(begin, end, is_lower);
    std::vector<Points::const_iterator> kept = {begin, extremes.first, extremes.second, end - 1};
    std::sort(kept.begin(), kept.end());
    kept.erase(std::unique(kept.begin(), kept.end()), kept.end());
    for (const auto at : kept) thinned.push_back(*at);
    begin = end;
  }
  return thinned;
}

// Calls visit(begin, end) for each longest run of points that satisfy a condition.
template <typename Condition, typename Visit>
void VisitRuns(const std::vector<LinePoint>& points, Condition condition, Visit visit) {
  auto end = points.begin();
  while (end != points.end()) {
    const auto begin = std::find_if(end, points.end(), condition);
    end = std::find_if_not(begin, points.end(), condition);
    if (begin != end) visit(begin, end);
  }
}

void AddBand(const LineSeries& series, const SeriesStyle& style, const PlotMap& map,
             Drawing* drawing) {
  VisitRuns(
      series.points, [&](const LinePoint& point) { return map.HasBand(point); },
      [&](auto begin, auto end) {
        Points high, low;
        for (auto at = begin; at != end; ++at) {
          high.push_back(map.At(at->x, at->high));
          low.push_back(map.At(at->x, at->low));
        }
        Points polygon = Thinned(high);
        const Points back = Thinned(low);
        polygon.insert(polygon.end(), back.rbegin(), back.rend());
        if (end - begin == 1) {  // A line is all that there is of a band at one point.
          for (Points& part : PartsBelow(polygon, map.area.top)) {
            if (part.size() < 2) continue;
            drawing->shapes.emplace_back(
                DrawnLine{std::move(part), style.color, kLineWidth, {}, 3 * kBandOpacity});
          }
          return;
        }
        polygon = AreaBelow(polygon, map.area.top);
        if (polygon.size() < 3) return;
        drawing->shapes.emplace_back(DrawnArea{std::move(polygon), style.color, kBandOpacity});
      });
}

void AddLine(const LineSeries& series, const SeriesStyle& style, bool with_markers,
             const PlotMap& map, Drawing* drawing) {
  VisitRuns(
      series.points, [&](const LinePoint& point) { return map.CanShow(point); },
      [&](auto begin, auto end) {
        Points line;
        for (auto at = begin; at != end; ++at) line.push_back(map.At(at->x, at->mean));
        for (Points& part : PartsBelow(Thinned(line), map.area.top)) {
          if (part.size() < 2) continue;
          drawing->shapes.emplace_back(
              DrawnLine{std::move(part), style.color, kLineWidth, style.dashes, 1});
        }
        if (!with_markers && line.size() > 1) return;
        for (const DrawingPoint& point : line) {
          if (point.y < map.area.top) continue;
          drawing->shapes.emplace_back(DrawnCircle{point, kMarkerRadius, style.color});
        }
      });
}

// Sample of a line and a name, for each series.
class Legend {
 public:
  Legend(const std::vector<LineSeries>& series, bool with_markers) : with_markers_(with_markers) {
    // One line without a name needs no legend.
    if (series.size() == 1 && series[0].name.empty()) return;
    for (const LineSeries& one : series) {
      names_.push_back(OneLine(one.name));
      width_ = std::max(width_, EntryWidth(names_.back()));
    }
  }

  bool empty() const { return names_.empty(); }
  double width() const { return width_; }
  double height() const { return static_cast<double>(names_.size()) * kLineHeight; }

  // Appends the entries in as many columns as fit. Returns the position below them.
  double Draw(double left, double top, double max_width, Drawing* drawing) const {
    const double width = std::min(width_, max_width), pitch = width + kLegendGap;
    const auto columns = static_cast<size_t>(std::floor((max_width + kLegendGap) / pitch));
    const size_t lines = (names_.size() + columns - 1) / columns;
    for (size_t i = 0; i < names_.size(); ++i) {
      const size_t column = i / lines;
      const double x = left + static_cast<double>(column) * pitch;
      const double y = top + (static_cast<double>(i % lines) + 0.5) * kLineHeight;
      const SeriesStyle style = StyleOfSeries(i);
      drawing->shapes.emplace_back(
          DrawnLine{{{x, y}, {x + kSampleWidth, y}}, style.color, kLineWidth, style.dashes, 1});
      if (with_markers_) {
        drawing->shapes.emplace_back(
            DrawnCircle{{x + kSampleWidth / 2, y}, kMarkerRadius, style.color});
      }
      AddLabel({x + kSampleWidth + kLabelGap, y + kFontSize * 0.35},
               ShortenText(names_[i], kFontSize, width - kSampleWidth - kLabelGap), kInkColor,
               TextAnchor::kStart, drawing);
    }
    return top + static_cast<double>(lines) * kLineHeight;
  }

 private:
  static double EntryWidth(const std::string& name) {
    return kSampleWidth + kLabelGap + TextWidth(name, kFontSize);
  }

  bool with_markers_;
  std::vector<std::string> names_;
  double width_ = 0;
};

// Returns the axes with the ranges of the data.
PlotMap AxesOf(const LineFigure& figure) {
  PlotMap map{FigureAxis(figure.x_scale), FigureAxis(figure.y_scale), {}};
  for (const LineSeries& series : figure.series) {
    for (const LinePoint& point : series.points) {
      if (!map.CanShow(point)) continue;
      map.x.Include(point.x);
      map.y.Include(point.mean);
      if (!map.HasBand(point)) continue;
      map.y.Include(point.low);
      map.y.Include(point.high);
    }
  }
  map.x.AddMargin(kAxisMargin);
  map.y.AddMargin(kAxisMargin);
  if (figure.y_limit.has_value()) map.y.LimitHigh(*figure.y_limit);
  return map;
}

}  // namespace

Drawing LineFigure::Draw() const {
  Drawing drawing = EmptyDrawing(title, width);
  PlotMap map = AxesOf(*this);
  const Legend legend(series, with_markers);
  const double height = std::isfinite(plot_height) ? std::max(40.0, plot_height) : 190;
  map.area.top = AddTitle(title, &drawing);
  map.area.bottom = map.area.top + height;
  const std::vector<AxisTick> y_ticks =
      map.y.Ticks(AxisDirection::kVertical, {height, kFontSize, kFontSize / 2}, kFontSize);
  map.area.left = kMargin + YLabelWidth(y_label) + WidthOf(y_ticks) + kLabelGap;
  const bool is_legend_right = !legend.empty() && legend.height() <= height &&
                               legend.width() <= kMaxLegendShare * drawing.width;
  map.area.right = drawing.width - kMargin - kRightRoom;
  if (is_legend_right) map.area.right = drawing.width - kMargin - legend.width() - kLegendGap;

  AddYTicks(map.y, y_ticks, map.area, &drawing);
  AddYLabel(y_label, map.area, map.area.top - kLabelGap, map.area.bottom + kLineHeight, &drawing);
  double y = AddXTicks(map.x, /*with_top=*/false, map.area, &drawing);
  y = AddXLabel(x_label, map.area, y, &drawing);
  // The first series is above the others.
  for (size_t i = series.size(); i-- > 0;) {
    AddBand(series[i], StyleOfSeries(i), map, &drawing);
  }
  for (size_t i = series.size(); i-- > 0;) {
    AddLine(series[i], StyleOfSeries(i), with_markers, map, &drawing);
  }
  if (map.y.empty()) AddNoData(map.area, &drawing);
  if (is_legend_right) {
    legend.Draw(map.area.right + kLegendGap, map.area.top, legend.width(), &drawing);
  } else if (!legend.empty()) {
    y = legend.Draw(map.area.left, y + kLabelGap, drawing.width - kMargin - map.area.left,
                    &drawing);
  }
  drawing.height = std::ceil(y + kMargin);
  return drawing;
}

}  // namespace plumb
