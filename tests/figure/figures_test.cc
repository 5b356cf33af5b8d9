// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/app/figure/heat_map_figure.h"
#include "runtime/app/figure/line_figure.h"
#include "runtime/app/figure/palette.h"
#include "runtime/app/figure/ranking_figure.h"
#include "runtime/base/rng.h"
#include "tests/figure/pdf_structure.h"
#include "tests/picture/xml_nesting.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// Source of random data for one figure.
class RandomData {
 public:
  explicit RandomData(uint64_t seed) : stream_(seed, "figure") {
    exponent_ = Between(-60, 60);
    spread_ = Between(0, 8);
    kind_ = Below(6);
  }

  uint64_t Below(uint64_t n) { return stream_.Below(next_++, n); }
  bool Flip() { return Below(2) == 1; }
  double Between(double low, double high) { return low + (high - low) * stream_.Uniform(next_++); }

  // Returns a value of the figure's kind: any sign, positive over many orders of magnitude, close
  // to a constant, constant, all NaN, or with some values that cannot be shown.
  double Value() {
    switch (kind_) {
      case 0:
        return Between(-1, 1) * std::pow(10, exponent_);
      case 1:
        return std::pow(10, exponent_ + Between(0, spread_));
      case 2:
        return 3.2 + std::pow(10, -2 * spread_) * Between(0, 1);
      case 3:
        return 3.2;
      case 4:
        return kNan;
      default: {
        const double odd[] = {kNan, std::numeric_limits<double>::infinity(), 0, -1e300, 5e-324};
        return Flip() ? odd[Below(5)] : Between(2, 11);
      }
    }
  }

  std::string Name() {
    const std::string letters = "abcXYZ_ W1&<é\n\"α漢";
    std::string name;
    const uint64_t length = Flip() ? Below(12) : Below(61);
    for (uint64_t i = 0; i < length; ++i) name += letters[Below(12)];
    return Below(4) == 0 ? name + "é α−漢\n\x01\xff" : name;
  }

 private:
  RngStream stream_;
  uint64_t next_ = 0;
  double exponent_ = 0, spread_ = 0;
  uint64_t kind_ = 0;
};

LineFigure RandomLines(uint64_t seed) {
  RandomData random(seed);
  LineFigure figure;
  figure.title = random.Name() + " " + random.Name();
  figure.x_label = random.Name();
  figure.y_label = random.Name();
  figure.x_scale = random.Flip() ? AxisScale::kLog10 : AxisScale::kLinear;
  figure.y_scale = random.Below(4) == 0 ? AxisScale::kLog10 : AxisScale::kLinear;
  figure.with_markers = random.Flip();
  if (random.Below(4) == 0) figure.y_limit = random.Value();
  figure.width = random.Between(150, 600);
  figure.series.resize(random.Below(31));
  const uint64_t points = random.Below(3) == 0 ? random.Below(2) : random.Below(30);
  for (LineSeries& series : figure.series) {
    series.name = random.Name();
    for (uint64_t i = 0; i < points; ++i) {
      LinePoint point;
      point.x = random.Flip() ? random.Value() : static_cast<double>(i);
      point.mean = random.Value();
      if (random.Flip()) {
        point.low = random.Value();
        point.high = random.Value();
      }
      series.points.push_back(point);
    }
  }
  return figure;
}

RankingFigure RandomRanking(uint64_t seed) {
  RandomData random(seed);
  RankingFigure figure;
  figure.title = random.Name();
  figure.x_label = random.Name();
  figure.x_scale = random.Below(4) == 0 ? AxisScale::kLog10 : AxisScale::kLinear;
  figure.width = random.Between(150, 600);
  figure.rows.resize(random.Below(90));
  for (RankingRow& row : figure.rows) {
    row.name = random.Name();
    row.mean = random.Value();
    if (random.Flip()) row.low = random.Value();
    row.high = random.Value();
    if (random.Below(3) == 0) row.note = random.Name();
  }
  if (random.Flip()) figure.reference = random.Value();
  figure.reference_label = random.Name();
  return figure;
}

HeatMapFigure RandomHeatMap(uint64_t seed) {
  RandomData random(seed);
  HeatMapFigure figure;
  figure.title = random.Name();
  figure.x_label = random.Name();
  figure.y_label = random.Name();
  figure.value_label = random.Name();
  figure.width = random.Between(150, 600);
  figure.framed = static_cast<FramedValue>(random.Below(3));
  if (random.Flip()) figure.missing_text = random.Name();
  if (random.Below(3) == 0) figure.color_limit = random.Value();
  figure.rows.resize(random.Below(40));
  figure.columns.resize(random.Below(random.Flip() ? 10 : 60));
  for (std::string& name : figure.rows) name = random.Name();
  for (std::string& name : figure.columns) name = random.Name();
  figure.values.resize(random.Below(figure.rows.size() + 3));
  for (std::vector<double>& row : figure.values) {
    row.resize(random.Below(8) == 0 ? 0 : figure.columns.size());
    for (double& value : row) value = random.Value();
  }
  return figure;
}

// Properties of figures of random data: everything is inside the drawing, texts do not overlap, and
// the files are well-formed.

// Returns true if two boxes share more than a touch.
bool Overlap(const DrawingBox& a, const DrawingBox& b) {
  constexpr double kTouch = 0.01;
  return a.left < b.right - kTouch && b.left < a.right - kTouch && a.top < b.bottom - kTouch &&
         b.top < a.bottom - kTouch;
}

void CheckDrawing(const Drawing& drawing, const std::string& name) {
  std::vector<const DrawnText*> texts;
  std::vector<DrawingBox> boxes;
  for (const DrawnShape& shape : drawing.shapes) {
    const DrawingBox box = BoundsOf(shape);
    // NaN fails all comparisons.
    EXPECT_TRUE(box.left >= -1e-6 && box.top >= -1e-6 && box.right <= drawing.width + 1e-6 &&
                box.bottom <= drawing.height + 1e-6)
        << name << ": a shape of kind " << shape.index() << " at " << box.left << " " << box.top
        << " " << box.right << " " << box.bottom << " in " << drawing.width << " x "
        << drawing.height;
    if (const auto* text = std::get_if<DrawnText>(&shape)) {
      texts.push_back(text);
      boxes.push_back(box);
    }
  }
  for (size_t i = 0; i < texts.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      EXPECT_FALSE(Overlap(boxes[i], boxes[j]))
          << name << ": \"" << texts[i]->text << "\" overlaps \"" << texts[j]->text << "\"";
    }
  }
  const std::string svg = ToSvg(drawing);
  EXPECT_THAT(BadlyNested(svg), IsEmpty()) << name;
  EXPECT_THAT(svg, testing::Not(testing::AnyOf(HasSubstr("nan"), HasSubstr("inf")))) << name;
  EXPECT_THAT(PdfErrors(ToPdf(drawing)), IsEmpty()) << name;
}

TEST(RandomFiguresTest, LinesStayInsideWithoutOverlaps) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CheckDrawing(RandomLines(seed).Draw(), absl::StrCat("lines ", seed));
    if (HasFailure()) return;
  }
}

TEST(RandomFiguresTest, RankingsStayInsideWithoutOverlaps) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CheckDrawing(RandomRanking(seed).Draw(), absl::StrCat("ranking ", seed));
    if (HasFailure()) return;
  }
}

TEST(RandomFiguresTest, HeatMapsStayInsideWithoutOverlaps) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    CheckDrawing(RandomHeatMap(seed).Draw(), absl::StrCat("heat map ", seed));
    if (HasFailure()) return;
  }
}

TEST(LineFigureTest, ManyPointsAreFewInTheDrawing) {
  const RngStream stream(1, "noise");
  LineFigure figure;
  figure.series.resize(1);
  for (uint64_t i = 0; i < 100000; ++i) {
    figure.series[0].points.push_back({static_cast<double>(i), 3 + 0.1 * stream.Normal(i)});
  }
  figure.series[0].points[77777].mean = 9;
  const Drawing drawing = figure.Draw();
  const auto* line = std::get_if<DrawnLine>(&drawing.shapes.back());
  ASSERT_NE(line, nullptr);
  EXPECT_LT(line->points.size(), 4 * 2 * drawing.width);
  EXPECT_GT(line->points.size(), 1000u);
  const auto highest =
      std::min_element(line->points.begin(), line->points.end(),
                       [](const DrawingPoint& a, const DrawingPoint& b) { return a.y < b.y; });
  const double share =
      (highest->x - line->points[0].x) / (line->points.back().x - line->points[0].x);
  EXPECT_NEAR(share, 0.77777, 1e-3);
}

TEST(LineFigureTest, LinesLeaveAtTheLimit) {
  LineFigure figure;
  figure.y_limit = 2;
  figure.series = {{"a", {{0, 1, 0.5, 1.5}, {1, 3, 2.5, 3.5}, {2, 1, 0.5, 1.5}}}};
  const Drawing drawing = figure.Draw();
  std::vector<const DrawnLine*> lines;
  std::vector<const DrawnArea*> areas;
  for (const DrawnShape& shape : drawing.shapes) {
    const auto* line = std::get_if<DrawnLine>(&shape);
    if (line != nullptr && line->color == StyleOfSeries(0).color) lines.push_back(line);
    if (const auto* area = std::get_if<DrawnArea>(&shape)) areas.push_back(area);
  }
  ASSERT_EQ(lines.size(), 3u);  // two parts and the sample of the legend
  EXPECT_DOUBLE_EQ(lines[0]->points[1].y, lines[1]->points[0].y);
  // The line reaches 2 half way between 0 and 1, and between 1 and 2.
  EXPECT_NEAR(lines[0]->points[1].x - lines[0]->points[0].x,
              lines[1]->points[1].x - lines[1]->points[0].x, 1e-9);
  EXPECT_NEAR(lines[1]->points[0].x - lines[0]->points[0].x,
              3 * (lines[0]->points[1].x - lines[0]->points[0].x), 1e-9);
  ASSERT_EQ(areas.size(), 1u);
  for (const DrawingPoint& point : areas[0]->points) EXPECT_GE(point.y, lines[0]->points[1].y);
}

TEST(LineFigureTest, AMissingPointIsAGap) {
  LineFigure figure;
  figure.series = {{"", {{0, 1}, {1, 2}, {2, kNan}, {3, 2}, {4, kNan}, {5, 1}, {6, 2}}}};
  size_t lines = 0, circles = 0;
  for (const DrawnShape& shape : figure.Draw().shapes) {
    const auto* line = std::get_if<DrawnLine>(&shape);
    if (line != nullptr && line->color == StyleOfSeries(0).color) ++lines;
    if (std::holds_alternative<DrawnCircle>(shape)) ++circles;
  }
  EXPECT_EQ(lines, 2u);
  EXPECT_EQ(circles, 1u);
}

TEST(HeatMapFigureTest, FramesTheBestAndNamesTheLimit) {
  HeatMapFigure figure;
  figure.rows = {"a", "b"};
  figure.columns = {"1e-3", "1e-2", "1e-1"};
  figure.values = {{3.5, 3.25, 7}, {3.75, kNan}};
  figure.color_limit = 4;
  const auto frames = [&] {
    std::vector<double> lefts;
    for (const DrawnShape& shape : figure.Draw().shapes) {
      const auto* line = std::get_if<DrawnLine>(&shape);
      if (line != nullptr && line->points.size() > 2) lefts.push_back(BoundsOf(shape).left);
    }
    return lefts;
  };
  std::vector<double> lefts = frames();
  ASSERT_EQ(lefts.size(), 2u);
  EXPECT_GT(lefts[0], lefts[1]);
  const std::string svg = ToSvg(figure.Draw());
  for (const char* text : {">3.250<", ">7.000<", ">diverged<", "≥ 4.000 in one color<"}) {
    EXPECT_THAT(svg, HasSubstr(text));
  }
  figure.framed = FramedValue::kHighest;
  const double left = lefts[0];
  EXPECT_GT(frames()[0], left);
  figure.framed = FramedValue::kNone;
  EXPECT_THAT(frames(), IsEmpty());
}

TEST(FiguresTest, EmptyFiguresSaySo) {
  EXPECT_THAT(ToSvg(LineFigure().Draw()), HasSubstr(">no data</text>"));
  EXPECT_THAT(ToSvg(RankingFigure().Draw()), HasSubstr(">no data</text>"));
  EXPECT_THAT(ToSvg(HeatMapFigure().Draw()), HasSubstr(">no data</text>"));
}

}  // namespace
}  // namespace plumb
