// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/picture/geometry.h"
#include "runtime/picture/picture.h"

namespace plumb {

namespace {

constexpr char kStyle[] = R"(
text { font: 13px system-ui, "Segoe UI", "Helvetica Neue", Arial, sans-serif; fill: #1f2328; }
.middle { text-anchor: middle; }
.end { text-anchor: end; }
.small { font-size: 11px; }
.title { font-size: 11px; fill: #59636e; }
.stream-name { font-style: italic; }
.mark { font: 10.5px ui-monospace, "SF Mono", Menlo, Consolas, monospace; }
.label { font-size: 11px; paint-order: stroke; stroke: #f6f8fa; stroke-width: 3px; }
.page { fill: #ffffff; }
.frame { fill: #f6f8fa; stroke: #d1d9e0; }
.wire { fill: none; stroke: #59636e; stroke-width: 1.5; }
.stream { stroke: #1f2328; stroke-width: 2.5; }
.tip { fill: #59636e; }
.dot { fill: #1f2328; }
.box { stroke-width: 1.5; }
.sublayer { fill: #fff1e0; stroke: #bc6a00; }
.norm { fill: #ddeaff; stroke: #2f6feb; }
.add { fill: #ffffff; stroke: #1f2328; }
.sign { fill: none; stroke: #1f2328; stroke-width: 1.5; }
.gain { fill: #dff5e3; stroke: #1a7f37; }
.function { fill: #f0e8fd; stroke: #8250df; }
.linear { fill: #fbe4ef; stroke: #bf3989; }
.end-box { fill: #ffffff; stroke: #59636e; }
.earlier { fill: none; stroke: #59636e; stroke-dasharray: 4 3; }
.mark-dot { fill: #2f6feb; }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3; }
.title { fill: #9198a1; }
.label { stroke: #161b22; }
.page { fill: #0d1117; }
.frame { fill: #161b22; stroke: #3d444d; }
.wire { stroke: #9198a1; }
.stream { stroke: #e6edf3; }
.tip { fill: #9198a1; }
.dot { fill: #e6edf3; }
.sublayer { fill: #3a2509; stroke: #e09b3d; }
.norm { fill: #12284d; stroke: #6ea8ff; }
.add { fill: #0d1117; stroke: #e6edf3; }
.sign { stroke: #e6edf3; }
.gain { fill: #0f2f19; stroke: #4ac26b; }
.function { fill: #2a1a4a; stroke: #b98aff; }
.linear { fill: #42062a; stroke: #e275ad; }
.end-box { fill: #0d1117; stroke: #9198a1; }
.earlier { stroke: #9198a1; }
.mark-dot { fill: #6ea8ff; }
}
)";

constexpr double kCorner = 6;         // radius of a wire's corner
constexpr double kTip = 5;            // length of an arrow's head
constexpr double kMinTipSegment = 9;  // min length of the last segment for an arrowhead

// Returns "12" or "12.5".
std::string Px(double value) { return absl::StrFormat("%g", std::round(value * 10) / 10); }

void AppendText(const char* classes, double x, double y, const std::string& text,
                std::string* svg) {
  absl::StrAppend(svg, "<text");
  if (*classes != '\0') absl::StrAppend(svg, " class=\"", classes, "\"");
  absl::StrAppend(svg, " x=\"", Px(x), "\" y=\"", Px(y), "\">", XmlText(text), "</text>\n");
}

void AppendRect(const char* classes, const NodeBox& box, double radius, std::string* svg) {
  absl::StrAppend(svg, "<rect class=\"", classes, "\" x=\"", Px(box.left()), "\" y=\"",
                  Px(box.top()), "\" width=\"", Px(box.width), "\" height=\"", Px(box.height),
                  "\" rx=\"", Px(radius), "\"/>\n");
}

// Returns the point at `distance` from `from` in the direction of `to`.
Point Towards(const Point& from, const Point& to, double distance) {
  const double length = std::hypot(to.x - from.x, to.y - from.y);
  if (length == 0) return from;
  const double share = std::min(1.0, distance / length);
  return {from.x + (to.x - from.x) * share, from.y + (to.y - from.y) * share};
}

void AppendWire(const WireLine& wire, bool with_tip, std::string* svg) {
  const std::vector<Point>& points = wire.points;
  std::string path = absl::StrCat("M", Px(points[0].x), " ", Px(points[0].y));
  for (size_t i = 1; i < points.size(); ++i) {
    const Point& at = points[i];
    if (i + 1 == points.size()) {
      absl::StrAppend(&path, "L", Px(at.x), " ", Px(at.y));
      continue;
    }
    const Point in = Towards(at, points[i - 1], kCorner), out = Towards(at, points[i + 1], kCorner);
    absl::StrAppend(&path, "L", Px(in.x), " ", Px(in.y), "Q", Px(at.x), " ", Px(at.y), " ",
                    Px(out.x), " ", Px(out.y));
  }
  absl::StrAppend(svg, "<path class=\"wire", wire.on_stream ? " stream" : "", "\" d=\"", path,
                  "\"/>\n");
  const Point& end = points.back();
  const Point& before = points[points.size() - 2];
  if (!with_tip || std::hypot(end.x - before.x, end.y - before.y) < kMinTipSegment) return;
  const Point back = Towards(end, before, kTip);
  const double dx = (end.y - back.y) * 0.7, dy = (end.x - back.x) * 0.7;
  absl::StrAppend(svg, "<path class=\"", wire.on_stream ? "dot" : "tip", "\" d=\"M", Px(end.x), " ",
                  Px(end.y), "L", Px(back.x + dx), " ", Px(back.y - dy), "L", Px(back.x - dx), " ",
                  Px(back.y + dy), "Z\"/>\n");
}

void AppendCircle(const FlowNode& node, const NodeBox& box, std::string* svg) {
  const double radius = box.width / 2;
  const Point& c = box.center;
  absl::StrAppend(svg, "<circle class=\"box add\" cx=\"", Px(c.x), "\" cy=\"", Px(c.y), "\" r=\"",
                  Px(radius), "\"/>\n");
  const double arm = node.kind == FlowKind::kAdd ? radius - 4 : (radius - 3) * 0.7;
  if (node.kind == FlowKind::kAdd && node.inputs.size() == 1 && node.constant.Is(0)) {
    return AppendText("middle", c.x, c.y + 4.5, "Σ", svg);  // a sum over bundled nodes
  }
  if (node.kind == FlowKind::kAdd) {
    absl::StrAppend(svg, "<path class=\"sign\" d=\"M", Px(c.x - arm), " ", Px(c.y), "H",
                    Px(c.x + arm), "M", Px(c.x), " ", Px(c.y - arm), "V", Px(c.y + arm), "\"/>\n");
    if (!NodeText(node).empty()) {
      AppendText("label", box.right() + 6, c.y + 14, NodeText(node), svg);
    }
    return;
  }
  absl::StrAppend(svg, "<path class=\"sign\" d=\"M", Px(c.x - arm), " ", Px(c.y - arm), "L",
                  Px(c.x + arm), " ", Px(c.y + arm), "M", Px(c.x - arm), " ", Px(c.y + arm), "L",
                  Px(c.x + arm), " ", Px(c.y - arm), "\"/>\n");
}

// Draws a sublayer with its marks, the embedding, or the head.
void AppendBox(const FlowNode& node, const NodeBox& box, std::string* svg) {
  AppendRect(node.kind == FlowKind::kSublayer ? "box sublayer" : "box end-box", box, 5, svg);
  double y = box.top() + kSublayerHeight / 2 + 4.5;
  AppendText("middle", box.center.x, y, node.label, svg);
  y += 1.5;
  for (const std::string& mark : node.marks) {
    y += kMarkHeight;
    if (absl::StrContains(mark, " = ")) {
      absl::StrAppend(svg, "<circle class=\"mark-dot\" cx=\"", Px(box.left() + 12), "\" cy=\"",
                      Px(y - 3.5), "\" r=\"3\"/>\n");
    }
    AppendText("mark", box.left() + 20, y, mark, svg);
  }
}

void AppendNode(const FlowNode& node, const NodeBox& box, std::string* svg) {
  switch (node.kind) {
    case FlowKind::kAdd:
    case FlowKind::kMultiply:
      return AppendCircle(node, box, svg);
    case FlowKind::kSublayer:
    case FlowKind::kEnter:
    case FlowKind::kLeave:
      return box.width == 0 ? void() : AppendBox(node, box, svg);
    case FlowKind::kNorm:
      AppendRect("box norm", box, box.height / 2, svg);
      break;
    case FlowKind::kGain:
      AppendRect("box gain", box, 3, svg);
      break;
    case FlowKind::kFunction:
      AppendRect("box function", box, 3, svg);
      break;
    case FlowKind::kLinear:
      AppendRect("box linear", box, 3, svg);
      break;
    case FlowKind::kParameter:
    case FlowKind::kEarlier:
    case FlowKind::kKeep:
      AppendRect("box earlier", box, 3, svg);
      break;
  }
  AppendText("middle", box.center.x, box.center.y + 4.5, NodeText(node), svg);
}

void AppendSection(const FlowSection& section, const SectionBox& box, std::string* svg) {
  for (const WireLine& wire : box.wires) {
    AppendWire(wire, box.nodes[static_cast<size_t>(wire.to)].width > 0 && wire.from != wire.to,
               svg);
  }
  for (const Point& dot : box.dots) {
    absl::StrAppend(svg, "<circle class=\"dot\" cx=\"", Px(dot.x), "\" cy=\"", Px(dot.y),
                    "\" r=\"2.6\"/>\n");
  }
  for (size_t i = 0; i < section.nodes.size(); ++i) {
    const FlowNode& node = section.nodes[i];
    AppendNode(node, box.nodes[i], svg);
    if (node.kind == FlowKind::kEnter && box.nodes[i].width == 0 && !section.title.empty()) {
      AppendText("end stream-name", box.nodes[i].center.x - 6, box.nodes[i].center.y + 4,
                 node.label, svg);
    }
  }
  for (const WireLine& wire : box.wires) {
    if (!wire.label.empty()) AppendText("label", wire.label_at.x, wire.label_at.y, wire.label, svg);
  }
}

}  // namespace

std::string ToSvg(const FlowPicture& picture) {
  const PictureBox box = Measure(picture);
  const std::string size = absl::StrCat(Px(box.width), "\" height=\"", Px(box.height));
  std::string svg =
      absl::StrCat("<svg xmlns=\"http://www.w3.org/2000/svg\" role=\"img\" width=\"", size,
                   "\" viewBox=\"0 0 ", Px(box.width), " ", Px(box.height), "\">\n<title>",
                   XmlText(picture.name), ": the data flow of its blocks</title>\n<style>", kStyle,
                   "</style>\n<rect class=\"page\" width=\"", size, "\"/>\n");
  for (size_t i = 0; i < box.sections.size(); ++i) {
    const FlowSection& section = picture.sections[i];
    const SectionBox& at = box.sections[i];
    if (section.title.empty()) continue;
    NodeBox frame;
    frame.width = box.frame_right - box.frame_left;
    frame.height = at.bottom - at.top;
    frame.center = {(box.frame_left + box.frame_right) / 2, (at.top + at.bottom) / 2};
    AppendRect("frame", frame, 6, &svg);
    AppendText("title", box.titles_left, frame.top() + 15, section.title, &svg);
  }
  for (size_t i = 0; i < box.sections.size(); ++i) {
    AppendSection(picture.sections[i], box.sections[i], &svg);
  }
  absl::StrAppend(&svg, "</svg>\n");
  return svg;
}

absl::StatusOr<std::string> DrawModel(const ResolvedModel& model, const PictureOptions& options) {
  PLUMB_ASSIGN_OR_RETURN(const FlowPicture picture, RecordFlow(model, options));
  return ToSvg(picture);
}

}  // namespace plumb
