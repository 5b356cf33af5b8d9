// SPDX-License-Identifier: Apache-2.0
// Geometry: rectangles for a picture's nodes and polylines for its wires, in pixels, y downwards.
// Stateless and deterministic.
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
  double width = 0, height = 0;  // 0 for streams at the top or bottom of a section
  double left() const { return center.x - width / 2; }
  double right() const { return center.x + width / 2; }
  double top() const { return center.y - height / 2; }
  double bottom() const { return center.y + height / 2; }
};

struct WireLine {
  int from = 0, to = 0;
  std::vector<Point> points;  // vertical and horizontal segments in turn, vertical first
  bool on_stream = false;     // connects two nodes in one stream's column
  std::string label;          // "0.5", "q"
  Point label_at;             // left end of the label, on the baseline
};

struct SectionBox {
  double top = 0, bottom = 0;
  std::vector<NodeBox> nodes;
  std::vector<WireLine> wires;
  std::vector<Point> dots;  // points where a wire branches
};

struct PictureBox {
  double width = 0, height = 0;
  double frame_left = 0, frame_right = 0;
  double titles_left = 0;
  std::vector<SectionBox> sections;
};

inline constexpr double kTextSize = 13, kSmallTextSize = 11;
inline constexpr double kMarkHeight = 15, kSublayerHeight = 32;

// Returns the text next to a wire: its label, its coefficient, or "".
std::string WireText(const FlowEdge& edge);
// Returns the text in or next to a node.
std::string NodeText(const FlowNode& node);
// Returns an estimate of the width, which tends to be too large.
double TextWidth(const std::string& text, double size);

PictureBox Measure(const FlowPicture& picture);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PICTURE_GEOMETRY_H_
