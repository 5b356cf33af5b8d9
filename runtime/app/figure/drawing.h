// SPDX-License-Identifier: Apache-2.0
// Vector drawing of lines, areas, circles and text, and its SVG and PDF files. A drawing is a
// value; the functions are pure.
#ifndef PLUMB_RUNTIME_APP_FIGURE_DRAWING_H_
#define PLUMB_RUNTIME_APP_FIGURE_DRAWING_H_

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace plumb {

// Position in points (1/72 inch), y downwards.
struct DrawingPoint {
  double x = 0;
  double y = 0;
};

// Color 0xRRGGBB on a light page and on a dark page. PDFs use the one for a light page.
struct DrawingColor {
  uint32_t light = 0;
  uint32_t dark = 0;
};
inline bool operator==(const DrawingColor& a, const DrawingColor& b) {
  return a.light == b.light && a.dark == b.dark;
}

// Polyline with round joins. Requires: at least two points.
struct DrawnLine {
  std::vector<DrawingPoint> points;
  DrawingColor color;
  double width = 1;
  std::vector<double> dashes;  // lengths of dashes and gaps in turn; empty: solid
  double opacity = 1;
};

// Filled polygon. Requires: at least three points.
struct DrawnArea {
  std::vector<DrawingPoint> points;
  DrawingColor color;
  double opacity = 1;
};

// Filled circle.
struct DrawnCircle {
  DrawingPoint center;
  double radius = 0;
  DrawingColor color;
};

enum class TextAnchor { kStart, kMiddle, kEnd };

// Line of text in Helvetica. Requires: the text is a result of OneLine().
struct DrawnText {
  DrawingPoint at;  // on the baseline
  std::string text;
  double size = 8;
  DrawingColor color;
  TextAnchor anchor = TextAnchor::kStart;
  bool is_vertical = false;  // turned by 90 degrees, to be read from below
};

using DrawnShape = std::variant<DrawnLine, DrawnArea, DrawnCircle, DrawnText>;

struct Drawing {
  double width = 0;
  double height = 0;
  std::string title;               // for screen readers; not drawn
  std::vector<DrawnShape> shapes;  // the later ones are above the earlier ones
};

// Rectangle that contains a shape with the width of its lines.
struct DrawingBox {
  double left = 0;
  double top = 0;
  double right = 0;
  double bottom = 0;
};
DrawingBox BoundsOf(const DrawnShape& shape);

// Appends a filled rectangle.
void AddRectangle(const DrawingBox& box, const DrawingColor& color, Drawing* drawing);

// Returns an SVG file that needs no other file. Text stays text. It follows the reader's choice of
// light or dark (prefers-color-scheme); programs that do not know this show the light colors. The
// text may also be a part of an HTML page: all of its rules apply to the class plumb-figure.
std::string ToSvg(const Drawing& drawing);

// Returns a PDF 1.4 file of one page of the drawing's size, without a background. It uses the
// standard fonts Helvetica and Symbol, which are not embedded. Text is limited to their characters
// (PdfRuns). The same drawing gives the same bytes.
std::string ToPdf(const Drawing& drawing);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_FIGURE_DRAWING_H_
