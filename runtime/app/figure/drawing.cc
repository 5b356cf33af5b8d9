// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/figure/drawing.h"

#include <algorithm>

#include "runtime/app/figure/text_metrics.h"

namespace plumb {

namespace {

// Returns the box around points, larger by `margin` on all sides.
DrawingBox BoxAround(const std::vector<DrawingPoint>& points, double margin) {
  DrawingBox box{points[0].x, points[0].y, points[0].x, points[0].y};
  for (const DrawingPoint& point : points) {
    box.left = std::min(box.left, point.x);
    box.right = std::max(box.right, point.x);
    box.top = std::min(box.top, point.y);
    box.bottom = std::max(box.bottom, point.y);
  }
  return {box.left - margin, box.top - margin, box.right + margin, box.bottom + margin};
}

struct ShapeBounds {
  DrawingBox operator()(const DrawnLine& line) const {
    return BoxAround(line.points, line.width / 2);
  }
  DrawingBox operator()(const DrawnArea& area) const { return BoxAround(area.points, 0); }
  DrawingBox operator()(const DrawnCircle& circle) const {
    return BoxAround({circle.center}, circle.radius);
  }
  DrawingBox operator()(const DrawnText& text) const {
    const double width = TextWidth(text.text, text.size);
    const double before = text.anchor == TextAnchor::kStart    ? 0
                          : text.anchor == TextAnchor::kMiddle ? width / 2
                                                               : width;
    const double up = kTextAscent * text.size, down = kTextDescent * text.size;
    const DrawingPoint& at = text.at;
    if (text.is_vertical) return {at.x - up, at.y - (width - before), at.x + down, at.y + before};
    return {at.x - before, at.y - up, at.x + width - before, at.y + down};
  }
};

}  // namespace

DrawingBox BoundsOf(const DrawnShape& shape) { return std::visit(ShapeBounds(), shape); }

void AddRectangle(const DrawingBox& box, const DrawingColor& color, Drawing* drawing) {
  DrawnArea area;
  area.points = {
      {box.left, box.top}, {box.right, box.top}, {box.right, box.bottom}, {box.left, box.bottom}};
  area.color = color;
  drawing->shapes.emplace_back(std::move(area));
}

}  // namespace plumb
