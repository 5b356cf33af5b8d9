// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/geometry.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/picture/picture_models.h"

namespace plumb {
namespace {

// Horizontal or vertical segment of a wire, as a rectangle without area.
struct Piece {
  const WireLine* wire;
  double left, top, right, bottom;
};

std::vector<Piece> GetPieces(const SectionBox& section) {
  std::vector<Piece> pieces;
  for (const WireLine& wire : section.wires) {
    for (size_t i = 0; i + 1 < wire.points.size(); ++i) {
      const Point &a = wire.points[i], &b = wire.points[i + 1];
      EXPECT_TRUE(a.x == b.x || a.y == b.y) << "neither across nor down";
      pieces.push_back(
          {&wire, std::min(a.x, b.x), std::min(a.y, b.y), std::max(a.x, b.x), std::max(a.y, b.y)});
    }
  }
  return pieces;
}

bool RunsThrough(const Piece& piece, const NodeBox& box) {
  return piece.left < box.right() && piece.right > box.left() && piece.top < box.bottom() &&
         piece.bottom > box.top();
}

// Returns true if two segments share more than a point.
bool Overlap(const Piece& a, const Piece& b) {
  const double width = std::min(a.right, b.right) - std::max(a.left, b.left);
  const double height = std::min(a.bottom, b.bottom) - std::max(a.top, b.top);
  return width >= 0 && height >= 0 && width + height > 0;
}

TEST(GeometryTest, NoWireRunsThroughANodeOrUpwards) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    for (const SectionBox& section : Measure(flow.picture).sections) {
      for (const Piece& piece : GetPieces(section)) {
        for (const NodeBox& box : section.nodes) {
          EXPECT_FALSE(RunsThrough(piece, box)) << flow.name;
        }
      }
      for (const WireLine& wire : section.wires) {
        for (size_t i = 0; i + 1 < wire.points.size(); ++i) {
          EXPECT_LE(wire.points[i].y, wire.points[i + 1].y) << flow.name;
        }
      }
    }
  }
}

TEST(GeometryTest, NodesDoNotTouch) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    for (const SectionBox& section : Measure(flow.picture).sections) {
      for (const NodeBox& a : section.nodes) {
        for (const NodeBox& b : section.nodes) {
          if (&a == &b) continue;
          EXPECT_TRUE(a.right() < b.left() || b.right() < a.left() || a.bottom() < b.top() ||
                      b.bottom() < a.top())
              << flow.name;
        }
      }
    }
  }
}

// Overlapping lines cannot be distinguished.
TEST(GeometryTest, WiresOverlapOnlyAtACommonNode) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    for (const SectionBox& section : Measure(flow.picture).sections) {
      const std::vector<Piece> pieces = GetPieces(section);
      for (const Piece& a : pieces) {
        for (const Piece& b : pieces) {
          if (a.wire->from == b.wire->from || a.wire->to == b.wire->to) continue;
          EXPECT_FALSE(Overlap(a, b)) << flow.name << ": " << a.wire->from << " to " << a.wire->to
                                      << " and " << b.wire->from << " to " << b.wire->to << "\n"
                                      << flow.picture.ToString();
        }
      }
    }
  }
}

TEST(GeometryTest, EverythingIsOnThePage) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    const PictureBox picture = Measure(flow.picture);
    double y = 0;
    for (const SectionBox& section : picture.sections) {
      EXPECT_GT(section.top, y) << flow.name;
      y = section.bottom;
      for (const NodeBox& box : section.nodes) {
        EXPECT_GE(box.left(), picture.frame_left) << flow.name;
        EXPECT_LE(box.right(), picture.frame_right) << flow.name;
        EXPECT_GE(box.top(), section.top) << flow.name;
        EXPECT_LE(box.bottom(), section.bottom) << flow.name;
      }
      for (const WireLine& wire : section.wires) {
        if (wire.label.empty()) continue;
        EXPECT_LE(wire.label_at.x + TextWidth(wire.label, kSmallTextSize), picture.frame_right)
            << flow.name;
      }
    }
    EXPECT_LT(y, picture.height);
    EXPECT_LT(picture.frame_right, picture.width);
  }
}

// The sections have the maximum size of a picture. The assignment of lanes must terminate.
TEST(GeometryTest, LargeSectionsAreLaidOut) {
  FlowPicture picture;
  picture.streams = {"s0", "s1", "s2"};
  picture.sections = {LargeSection(380)};
  EXPECT_EQ(Measure(picture).sections[0].nodes.size(), picture.sections[0].nodes.size());
}

// A stream is one vertical line from the embedding to the head.
TEST(GeometryTest, AStreamHasOneColumnInAllSections) {
  for (const NamedFlow& flow : FlowsOfAllSorts()) {
    const PictureBox picture = Measure(flow.picture);
    for (const std::string& stream : flow.picture.streams) {
      double x = -1;
      for (size_t i = 0; i < picture.sections.size(); ++i) {
        const std::vector<FlowNode>& nodes = flow.picture.sections[i].nodes;
        for (size_t k = 0; k < nodes.size(); ++k) {
          const bool is_end =
              nodes[k].kind == FlowKind::kEnter || nodes[k].kind == FlowKind::kLeave;
          if (!is_end || nodes[k].label != stream) continue;
          const double at = picture.sections[i].nodes[k].center.x;
          EXPECT_EQ(at, x < 0 ? at : x) << flow.name << ", " << stream;
          x = at;
        }
      }
    }
  }
}

}  // namespace
}  // namespace plumb
