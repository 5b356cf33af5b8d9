// SPDX-License-Identifier: Apache-2.0
// Geometry: a picture's nodes as rectangles and its wires as polylines, in pixels, y downwards.
// Pure and deterministic.
#ifndef PLUMB_RUNTIME_PICTURE_GEOMETRY_H_
#define PLUMB_RUNTIME_PICTURE_GEOMETRY_H_

#include <cstddef>
#include <string>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {

struct Point {
  double x = 0, y = 0;
};

struct NodeBox {
  Point center;
  double width = 0, height = 0;  // 0 for streams that come in or go on
  double left() const { return center.x - width / 2; }
  double right() const { return center.x + width / 2; }
  double top() const { return center.y - height / 2; }
  double bottom() const { return center.y + height / 2; }
};

struct WireLine {
  int from = 0, to = 0;
  std::vector<Point> points;  // every second segment is horizontal; the first and the last may be
  bool on_stream = false;     // between two nodes of one stream's column
  std::string label;          // "0.5", "q"
  Point label_at;             // its left end, on the baseline
};

struct SectionBox {
  double top = 0, bottom = 0;
  std::vector<NodeBox> nodes;
  std::vector<WireLine> wires;
  std::vector<Point> dots;  // where a wire parts
};

struct PictureBox {
  double width = 0, height = 0;
  double frame_left = 0, frame_right = 0;
  double titles_left = 0;
  std::vector<SectionBox> sections;
};

inline constexpr double kTextSize = 13, kSmallTextSize = 11;
inline constexpr double kMarkHeight = 15, kSublayerHeight = 32;

// What a label next to a wire says of it: its label, its coefficient, or nothing.
std::string WireText(const FlowEdge& edge);
// What stands in or beside a node.
std::string NodeText(const FlowNode& node);
// An estimate that is rather too wide.
double TextWidth(const std::string& text, double size);

PictureBox Measure(const FlowPicture& picture);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_GEOMETRY_H_
