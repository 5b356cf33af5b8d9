// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/drawing.h"

#include <gmock/gmock.h>

#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/app/figure/palette.h"
#include "tests/figure/pdf_structure.h"
#include "tests/picture/xml_nesting.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

Drawing SmallDrawing() {
  Drawing drawing;
  drawing.width = 100;
  drawing.height = 50;
  drawing.title = "a < b";
  drawing.shapes = {DrawnLine{{{10, 10}, {90, 10.25}}, kInkColor, 0.5, {5, 2}, 1},
                    DrawnArea{{{10, 20}, {20, 20}, {20, 30}}, HeatColor(1), 0.25},
                    DrawnCircle{{50, 25}, 2, kInkColor},
                    DrawnText{{95, 45}, "(β) é", 8, kMutedColor, TextAnchor::kEnd, false},
                    DrawnText{{5, 25}, "loss", 8, kMutedColor, TextAnchor::kMiddle, true}};
  return drawing;
}

TEST(DrawingTest, SvgIsThisText) {
  EXPECT_EQ(
      ToSvg(SmallDrawing()),
      R"svg(<svg xmlns="http://www.w3.org/2000/svg" class="plumb-figure" role="img" width="100pt" height="50pt" viewBox="0 0 100 50" font-family="Helvetica, Arial, 'Liberation Sans', 'Nimbus Sans', sans-serif" stroke-linejoin="round">
<title>a &lt; b</title>
<style>
@media (prefers-color-scheme: dark) {
.plumb-figure .f14171a { fill: #14171a; }
.plumb-figure .fa3abb3 { fill: #a3abb3; }
.plumb-figure .fe7e9e6 { fill: #e7e9e6; }
.plumb-figure .se7e9e6 { stroke: #e7e9e6; }
}
</style>
<path class="f14171a" fill="#ffffff" d="M0 0L100 0L100 50L0 50Z"/>
<path class="se7e9e6" fill="none" stroke="#1b1e22" d="M10 10L90 10.25" stroke-width="0.5" stroke-dasharray="5 2"/>
<path fill="#fde725" d="M10 20L20 20L20 30Z" opacity="0.25"/>
<circle class="fe7e9e6" fill="#1b1e22" cx="50" cy="25" r="2"/>
<text class="fa3abb3" fill="#5a626b" x="95" y="45" font-size="8" textLength="16.39" lengthAdjust="spacingAndGlyphs" text-anchor="end">(β) é</text>
<text class="fa3abb3" fill="#5a626b" transform="translate(5 25) rotate(-90)" font-size="8" textLength="14.22" lengthAdjust="spacingAndGlyphs" text-anchor="middle">loss</text>
</svg>
)svg");
}

TEST(DrawingTest, PdfContentIsThisText) {
  const std::string pdf = ToPdf(SmallDrawing());
  const size_t begin = pdf.find("stream\n") + 7;
  EXPECT_EQ(pdf.substr(begin, pdf.find("\nendstream") - begin), R"pdf(1 j
0.106 0.118 0.133 RG 0.5 w [5 2 ] 0 d
10 40 m
90 39.75 l
S
/G1 gs
0.992 0.906 0.145 rg
10 30 m
20 30 l
20 20 l
f
/G0 gs
0.106 0.118 0.133 rg
52 25 m
52 23.9 51.1 23 50 23 c
48.9 23 48 23.9 48 25 c
48 26.1 48.9 27 50 27 c
51.1 27 52 26.1 52 25 c
f
0.353 0.384 0.420 rg
BT 1 0 0 1 78.61 5 Tm
/F1 8 Tf (\() Tj
/F2 8 Tf (b) Tj
/F1 8 Tf (\) \351) Tj
ET
0.353 0.384 0.420 rg
BT 0 1 -1 0 5 17.89 Tm
/F1 8 Tf (loss) Tj
ET
)pdf");
}

TEST(DrawingTest, PdfOffsetsAreThoseOfItsObjects) {
  const std::string pdf = ToPdf(SmallDrawing());
  EXPECT_THAT(PdfErrors(pdf), IsEmpty());
  EXPECT_THAT(pdf, HasSubstr("/MediaBox [0 0 100 50]"));
  EXPECT_THAT(PdfErrors(absl::StrCat("%", pdf)), testing::Not(IsEmpty()));
}

TEST(DrawingTest, BoundsContainTheLineWidthAndTheText) {
  const DrawingBox line = BoundsOf(DrawnLine{{{10, 10}, {20, 30}}, kInkColor, 2, {}, 1});
  EXPECT_EQ(line.left, 9);
  EXPECT_EQ(line.bottom, 31);
  const DrawingBox text =
      BoundsOf(DrawnText{{50, 50}, "mm", 10, kInkColor, TextAnchor::kEnd, true});
  EXPECT_DOUBLE_EQ(text.top, 50);
  EXPECT_DOUBLE_EQ(text.bottom, 50 + 2 * 8.33);
}

TEST(PaletteTest, SeriesLookDifferent) {
  for (size_t i = 0; i < kSeriesStyles; ++i) {
    for (size_t j = 0; j < i; ++j) {
      const SeriesStyle a = StyleOfSeries(i), b = StyleOfSeries(j);
      EXPECT_FALSE(a.color == b.color && a.dashes == b.dashes) << i << " and " << j;
    }
  }
}

TEST(PaletteTest, ColorsAreThoseOfTheReport) {
  std::ifstream file(std::string(PLUMB_SOURCE_DIR) + "/runtime/report/js/view.js");
  std::stringstream script;
  script << file.rdbuf();
  for (size_t i = 0; i < 7; ++i) {
    const DrawingColor color = StyleOfSeries(i).color;
    EXPECT_THAT(script.str(), HasSubstr(absl::StrFormat("\"#%06x\"", color.light)));
    EXPECT_THAT(script.str(), HasSubstr(absl::StrFormat("\"#%06x\"", color.dark)));
  }
}

TEST(PaletteTest, HeatIsDarkToLightWithReadableText) {
  EXPECT_EQ(HeatColor(0).light, 0x440154u);
  EXPECT_EQ(HeatColor(1).light, 0xfde725u);
  EXPECT_EQ(HeatColor(-5).light, HeatColor(0).light);
  EXPECT_EQ(TextColorOn(HeatColor(0)).light, 0xffffffu);
  EXPECT_EQ(TextColorOn(HeatColor(1)).light, 0x000000u);
}

}  // namespace
}  // namespace plumb
