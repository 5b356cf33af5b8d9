// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/text_metrics.h"

#include <gmock/gmock.h>

#include <string>

#include "runtime/app/figure/number_text.h"

namespace plumb {
namespace {

using testing::ElementsAre;

TEST(TextMetricsTest, WidthsAreThoseOfTheFont) {
  EXPECT_DOUBLE_EQ(TextWidth("", 8), 0);
  EXPECT_DOUBLE_EQ(TextWidth("iW", 10), 2.22 + 9.44);
  EXPECT_DOUBLE_EQ(TextWidth("é–€", 10), 5.56 + 5.56 + 5.56);  // Latin-1 and Windows-1252
  EXPECT_DOUBLE_EQ(TextWidth("α−", 10), 6.31 + 5.49);          // Symbol
  EXPECT_DOUBLE_EQ(TextWidth("漢", 10), 10);
}

TEST(TextMetricsTest, LongTextLosesItsMiddle) {
  EXPECT_EQ(ShortenText("post_norm", 8, 100), "post_norm");
  const std::string shortened = ShortenText("sandwich_norm_with_residual_scale", 8, 60);
  EXPECT_EQ(shortened, "sandwi…_scale");
  EXPECT_LE(TextWidth(shortened, 8), 60);
  EXPECT_EQ(ShortenText("ααααααααα", 10, 23), "α…α");
  EXPECT_EQ(ShortenText("abc", 8, 1), "");
}

TEST(TextMetricsTest, WrapsAtSpaces) {
  EXPECT_THAT(WrapText("one two three", 10, 45, 3), ElementsAre("one two", "three"));
  EXPECT_THAT(WrapText("one two three", 10, 45, 1),
              ElementsAre(ShortenText("one two three", 10, 45)));
  EXPECT_THAT(WrapText("", 10, 45, 3), ElementsAre());
}

TEST(TextMetricsTest, PdfFontsHaveGreekAndReplaceTheRest) {
  const std::vector<PdfTextRun> runs = PdfRuns("β2 − é漢");
  ASSERT_EQ(runs.size(), 4u);
  EXPECT_TRUE(runs[0].is_symbol);
  EXPECT_EQ(runs[0].codes, "b");
  EXPECT_EQ(runs[1].codes, "2 ");
  EXPECT_TRUE(runs[2].is_symbol);
  EXPECT_EQ(runs[2].codes, "-");
  EXPECT_EQ(runs[3].codes, " \xe9?");
}

TEST(TextMetricsTest, OneLineHasNoControls) {
  EXPECT_EQ(OneLine("a\nb\tc\x1b\xff"), "a b c\\u{1b}\\xff");
}

TEST(NumberTextTest, CoordinatesHaveTwoDecimals) {
  EXPECT_EQ(CoordinateText(12), "12");
  EXPECT_EQ(CoordinateText(12.5), "12.5");
  EXPECT_EQ(CoordinateText(-0.001), "0");
  EXPECT_EQ(CoordinateText(100), "100");
}

TEST(NumberTextTest, CellsHaveFourDigits) {
  EXPECT_EQ(SignificantText(3.41249), "3.412");
  EXPECT_EQ(SignificantText(10.826), "10.83");
  EXPECT_EQ(SignificantText(9.99996), "10.00");
  EXPECT_EQ(SignificantText(0.0123), "0.01230");
  EXPECT_EQ(SignificantText(-1234.6), "−1235");
  EXPECT_EQ(SignificantText(1.23e-7), "1.23e-7");
  EXPECT_EQ(SignificantText(1e30), "1e30");
  EXPECT_EQ(SignificantText(0), "0");
}

TEST(NumberTextTest, TickLabelsAreShort) {
  EXPECT_THAT(TickLabels({0, 0.5, 1}, true), ElementsAre("0.0", "0.5", "1.0"));
  EXPECT_THAT(TickLabels({-20, 0, 20}, true), ElementsAre("−20", "0", "20"));
  EXPECT_THAT(TickLabels({0, 1.5e9, 3e9}, true), ElementsAre("0", "1.5e9", "3e9"));
  EXPECT_THAT(TickLabels({3.00001, 3.00002}, true), ElementsAre("3.00001", "3.00002"));
  EXPECT_THAT(TickLabels({1e-4, 1e-3, 1e-2}, false), ElementsAre("1e-4", "1e-3", "1e-2"));
  EXPECT_THAT(TickLabels({0.001, 0.003, 0.01}, false), ElementsAre("0.001", "0.003", "0.01"));
  EXPECT_THAT(TickLabels({}, true), ElementsAre());
}

}  // namespace
}  // namespace plumb
