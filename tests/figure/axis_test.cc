// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/axis.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

FigureAxis AxisOver(AxisScale scale, const std::vector<double>& values, double margin = 0) {
  FigureAxis axis(scale);
  for (const double value : values) axis.Include(value);
  axis.AddMargin(margin);
  return axis;
}

std::vector<std::string> Labels(const FigureAxis& axis, double length) {
  std::vector<std::string> labels;
  for (const AxisTick& tick : axis.Ticks(AxisDirection::kHorizontal, {length, 20, 20}, 8)) {
    labels.push_back(tick.label);
  }
  return labels;
}

TEST(FigureAxisTest, TicksAreRoundAndDenserOnLongerAxes) {
  const FigureAxis axis = AxisOver(AxisScale::kLinear, {0, 1});
  EXPECT_THAT(Labels(axis, 90), ElementsAre("0.0", "0.5", "1.0"));
  EXPECT_THAT(Labels(axis, 200), ElementsAre("0.0", "0.2", "0.4", "0.6", "0.8", "1.0"));
  EXPECT_THAT(Labels(axis, 330), ElementsAre("0.0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7",
                                             "0.8", "0.9", "1.0"));
  EXPECT_THAT(Labels(AxisOver(AxisScale::kLinear, {0, 4.2e9}), 200),
              ElementsAre("0", "1e9", "2e9", "3e9", "4e9"));
}

TEST(FigureAxisTest, LogTicksAreDecadesAndTheirParts) {
  EXPECT_THAT(Labels(AxisOver(AxisScale::kLog10, {1e-4, 1e-2}), 150),
              ElementsAre("1e-4", "3e-4", "1e-3", "3e-3", "1e-2"));
  EXPECT_THAT(Labels(AxisOver(AxisScale::kLog10, {1e-9, 1e6}), 150),
              ElementsAre("1e-9", "1e-6", "1e-3", "1e0", "1e3", "1e6"));
  EXPECT_THAT(Labels(AxisOver(AxisScale::kLog10, {2, 4}), 200),
              ElementsAre("2", "2.5", "3", "3.5", "4"));
}

TEST(FigureAxisTest, OneValueHasARangeAroundIt) {
  for (const double value : {3.2, 0.0, -1e-95, 1e99}) {
    const FigureAxis axis = AxisOver(AxisScale::kLinear, {value, value});
    EXPECT_NEAR(axis.Share(value), 0.5, 1e-9) << value;
    EXPECT_THAT(Labels(axis, 200), testing::Not(IsEmpty())) << value;
  }
}

TEST(FigureAxisTest, LabelsOfANarrowRangeDiffer) {
  for (const AxisScale scale : {AxisScale::kLinear, AxisScale::kLog10}) {
    for (const double range : {1e-14, 1e-12, 1e-10, 1e-8, 1e-3}) {
      for (const double value : {1.0, 3.3, 1e-40, 1e40}) {
        std::vector<std::string> labels =
            Labels(AxisOver(scale, {value, value * (1 + range)}), 400);
        ASSERT_THAT(labels, testing::Not(IsEmpty())) << value << " " << range;
        EXPECT_EQ(std::set<std::string>(labels.begin(), labels.end()).size(), labels.size())
            << value << " " << range;
      }
    }
  }
}

TEST(FigureAxisTest, ValuesWithoutAPlaceAreIgnored) {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(AxisOver(AxisScale::kLinear, {nan, infinity, -infinity, 1e200}).empty());
  EXPECT_TRUE(AxisOver(AxisScale::kLog10, {0, -1, 1e-200}).empty());
  EXPECT_THAT(Labels(AxisOver(AxisScale::kLinear, {nan}), 90), ElementsAre("0.0", "0.5", "1.0"));
}

TEST(FigureAxisTest, TheHighEndCanBeLowered) {
  FigureAxis axis = AxisOver(AxisScale::kLinear, {2, 1000});
  axis.LimitHigh(4);
  EXPECT_DOUBLE_EQ(axis.Share(3), 0.5);
  axis.LimitHigh(1);
  axis.LimitHigh(std::nan(""));
  EXPECT_DOUBLE_EQ(axis.Share(3), 0.5);
}

TEST(FigureAxisTest, ALabelThatFitsNowhereIsNotDrawn) {
  const FigureAxis axis = AxisOver(AxisScale::kLinear, {0, 1e-30});
  EXPECT_THAT(axis.Ticks(AxisDirection::kHorizontal, {4, 0, 0}, 8), IsEmpty());
}

}  // namespace
}  // namespace plumb
