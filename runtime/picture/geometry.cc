// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/geometry.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/picture/layout.h"

namespace plumb {
namespace {

constexpr double kMargin = 16;
constexpr double kColumnGap = 20;
constexpr double kRowGap = 20;      // minimum between two rows
constexpr double kChannelTop = 9;   // from a row to the first channel below it
constexpr double kChannelStep = 9;  // between two channels
constexpr double kChannelEnd = 15;  // from the last channel to the next row
constexpr double kLabelRoom = 8;    // added if there is a label above a node
constexpr double kTitleHeight = 34, kFrameEnd = 6, kSectionGap = 14;
constexpr double kLabelDistance = 6;
constexpr double kCircle = 18;
constexpr double kInsideShift = 12;  // between a sublayer's output and a value from inside it

bool IsStreamEnd(const FlowNode& node) {
  if (node.kind == FlowKind::kEnter) return node.label != kEmbeddingLabel;
  return node.kind == FlowKind::kLeave && node.label != kHeadLabel;
}

NodeBox SizeOf(const FlowNode& node) {
  NodeBox box;
  if (IsStreamEnd(node)) return box;
  const double text = TextWidth(NodeText(node), kTextSize);
  switch (node.kind) {
    case FlowKind::kAdd:
    case FlowKind::kMultiply:
      box.width = box.height = kCircle;
      break;
    case FlowKind::kSublayer:
    case FlowKind::kEnter:
    case FlowKind::kLeave:
      box.width = std::max(92.0, text + 24);
      box.height = kSublayerHeight;
      for (const std::string& mark : node.marks) {
        box.width = std::max(box.width, TextWidth(mark, kSmallTextSize) + 32);
      }
      if (!node.marks.empty()) {
        box.height += kMarkHeight * static_cast<double>(node.marks.size()) - 2;
      }
      break;
    default:
      box.width = text + 20;
      box.height = 22;
  }
  return box;
}

// Extent of a column's contents to the left and right of its center.
struct Reach {
  double left = 0, right = 0;
  void Add(double to_left, double to_right) {
    left = std::max(left, to_left);
    right = std::max(right, to_right);
  }
};

class PictureMeasure {
 public:
  explicit PictureMeasure(const FlowPicture& picture) : picture_(picture) {}

  PictureBox Run() {
    for (const FlowSection& section : picture_.sections) {
      layouts_.push_back(LayOut(section, picture_.streams));
    }
    SetColumns();
    double y = kMargin;
    for (size_t i = 0; i < layouts_.size(); ++i) {
      if (i > 0) y += kSectionGap;
      box_.sections.push_back(Place(picture_.sections[i], layouts_[i], &y));
    }
    JoinSections();
    box_.height = y + kMargin;
    return std::move(box_);
  }

 private:
  void SetColumns() {
    std::map<int, Reach> reaches;
    reaches[0];
    for (size_t i = 0; i < layouts_.size(); ++i) AddReaches(i, &reaches);
    double x = kMargin + 10;
    box_.frame_left = kMargin;
    for (const auto& [column, reach] : reaches) {
      x += reach.left;
      x_[column] = x;
      x += reach.right + kColumnGap;
    }
    box_.frame_right = x - kColumnGap + 10;
    box_.titles_left = x_.at(0) + kLabelDistance;
    for (const FlowSection& section : picture_.sections) {
      const double title = TextWidth(section.title, kSmallTextSize);
      box_.frame_right = std::max(box_.frame_right, box_.titles_left + title + kLabelDistance);
    }
    box_.width = box_.frame_right + kMargin;
  }

  void AddReaches(size_t index, std::map<int, Reach>* reaches) const {
    const FlowSection& section = picture_.sections[index];
    const FlowLayout& layout = layouts_[index];
    for (size_t i = 0; i < section.nodes.size(); ++i) {
      const FlowNode& node = section.nodes[i];
      const double half = SizeOf(node).width / 2;
      double left = half, right = half;
      if (IsStreamEnd(node)) left = TextWidth(node.Name(), kTextSize) + kLabelDistance;
      if (node.kind == FlowKind::kAdd && !NodeText(node).empty()) {
        right += TextWidth(NodeText(node), kSmallTextSize) + kLabelDistance;
      }
      (*reaches)[layout.cells[i].column].Add(left, right);
    }
    for (const FlowWire& wire : layout.wires) {
      const std::string text = WireText(GetEdge(section, wire));
      const double room = text.empty() ? 0 : TextWidth(text, kSmallTextSize) + kLabelDistance;
      (*reaches)[wire.column].Add(0, room);
    }
  }

  static const FlowEdge& GetEdge(const FlowSection& section, const FlowWire& wire) {
    return section.nodes[static_cast<size_t>(wire.to)].inputs[wire.input];
  }

  SectionBox Place(const FlowSection& section, const FlowLayout& layout, double* y) {
    SectionBox box;
    box.top = *y;
    if (!section.title.empty()) *y += kTitleHeight;
    const size_t rows = layout.channels.size();
    std::vector<double> heights(rows, 0), centers(rows, 0);
    std::vector<bool> labelled(rows + 1, false);
    for (size_t i = 0; i < section.nodes.size(); ++i) {
      box.nodes.push_back(SizeOf(section.nodes[i]));
      double& height = heights[static_cast<size_t>(layout.cells[i].row)];
      height = std::max(height, box.nodes.back().height);
    }
    for (const FlowWire& wire : layout.wires) {
      if (WireText(GetEdge(section, wire)).empty()) continue;
      labelled[static_cast<size_t>(layout.cells[static_cast<size_t>(wire.to)].row)] = true;
    }
    row_ends_.assign(rows, 0);
    for (size_t row = 0; row < rows; ++row) {
      centers[row] = *y + heights[row] / 2;
      *y += heights[row];
      row_ends_[row] = *y;
      if (row + 1 < rows) *y += GapBehind(layout, row, labelled[row + 1]);
    }
    if (!section.title.empty()) *y += kFrameEnd;
    box.bottom = *y;
    for (size_t i = 0; i < box.nodes.size(); ++i) {
      const FlowCell& cell = layout.cells[i];
      box.nodes[i].center = {x_.at(cell.column), centers[static_cast<size_t>(cell.row)]};
    }
    for (const FlowWire& wire : layout.wires) {
      box.wires.push_back(Draw(section, layout, wire, box.nodes));
    }
    box.dots = FindDots(box.wires);
    return box;
  }

  static double GapBehind(const FlowLayout& layout, size_t row, bool labelled) {
    const int channels = layout.channels[row];
    double gap = kRowGap;
    if (channels > 0) gap = kChannelTop + kChannelStep * (channels - 1) + kChannelEnd;
    return gap + (labelled ? kLabelRoom : 0);
  }

  WireLine Draw(const FlowSection& section, const FlowLayout& layout, const FlowWire& wire,
                const std::vector<NodeBox>& nodes) const {
    const NodeBox& from = nodes[static_cast<size_t>(wire.from)];
    const NodeBox& to = nodes[static_cast<size_t>(wire.to)];
    const FlowCell& source = layout.cells[static_cast<size_t>(wire.from)];
    const double channel =
        row_ends_[static_cast<size_t>(source.row)] + kChannelTop + kChannelStep * wire.channel;
    // A value from inside a sublayer leaves next to the output, so that they do not seem to be one.
    const bool shifted = GetEdge(section, wire).from_inside &&
                         wire.path == FlowWire::Path::kStraight &&
                         to.width > 2 * kInsideShift + kTextSize;
    const double shift = shifted ? kInsideShift : 0;
    const double x = x_.at(wire.column) + shift, start = from.center.x + shift;
    WireLine line;
    line.from = wire.from;
    line.to = wire.to;
    line.points = {{start, from.bottom()}};
    const bool aside = wire.path == FlowWire::Path::kMerge || wire.path == FlowWire::Path::kDetour;
    if (x != start) {
      line.points.push_back({start, channel});
      line.points.push_back({x, channel});
    }
    if (aside) {
      line.points.push_back({x, to.center.y});
      line.points.push_back({x > to.center.x ? to.right() : to.left(), to.center.y});
    } else {
      line.points.push_back({to.center.x + shift, to.top()});
    }
    const int streams = static_cast<int>(picture_.streams.size());
    const bool leaves = section.nodes[static_cast<size_t>(wire.to)].kind == FlowKind::kLeave;
    line.on_stream = (wire.path == FlowWire::Path::kStraight || leaves) && wire.column <= 0 &&
                     wire.column > -streams;
    line.label = WireText(GetEdge(section, wire));
    line.label_at = {x + kLabelDistance, (aside ? to.center.y : to.top()) - 7};
    return line;
  }

  // Adds lines between sections, from where a stream leaves one to where it enters the next.
  void JoinSections() {
    for (size_t i = 0; i + 1 < box_.sections.size(); ++i) {
      SectionBox& above = box_.sections[i];
      const SectionBox& below = box_.sections[i + 1];
      for (size_t k = 0; k < above.nodes.size(); ++k) {
        const FlowNode& leave = picture_.sections[i].nodes[k];
        if (leave.kind != FlowKind::kLeave) continue;
        for (size_t m = 0; m < below.nodes.size(); ++m) {
          const FlowNode& enter = picture_.sections[i + 1].nodes[m];
          if (enter.kind != FlowKind::kEnter || enter.label != leave.label) continue;
          WireLine line;
          line.from = line.to = static_cast<int>(k);
          line.points = {above.nodes[k].center, below.nodes[m].center};
          line.on_stream = true;
          above.wires.push_back(std::move(line));
        }
      }
    }
  }

  // Returns the points where wires of one node branch: at least three lines meet there.
  static std::vector<Point> FindDots(const std::vector<WireLine>& wires) {
    std::vector<Point> dots;
    for (const WireLine& wire : wires) {
      for (size_t i = 1; i + 1 < wire.points.size(); ++i) {
        const Point& at = wire.points[i];
        bool up = false, down = false, left = false, right = false;
        for (const WireLine& other : wires) {
          if (other.from != wire.from) continue;
          for (size_t k = 0; k + 1 < other.points.size(); ++k) {
            const Point& a = other.points[k];
            const Point& b = other.points[k + 1];
            if (a.x == at.x && b.x == at.x && std::min(a.y, b.y) <= at.y &&
                at.y <= std::max(a.y, b.y)) {
              up = up || std::min(a.y, b.y) < at.y;
              down = down || std::max(a.y, b.y) > at.y;
            }
            if (a.y == at.y && b.y == at.y && std::min(a.x, b.x) <= at.x &&
                at.x <= std::max(a.x, b.x)) {
              left = left || std::min(a.x, b.x) < at.x;
              right = right || std::max(a.x, b.x) > at.x;
            }
          }
        }
        const auto is_there = [&at](const Point& dot) { return dot.x == at.x && dot.y == at.y; };
        if (up + down + left + right >= 3 && std::none_of(dots.begin(), dots.end(), is_there)) {
          dots.push_back(at);
        }
      }
    }
    return dots;
  }

  const FlowPicture& picture_;
  std::vector<FlowLayout> layouts_;
  std::map<int, double> x_;       // x of each column
  std::vector<double> row_ends_;  // in the current section
  PictureBox box_;
};

}  // namespace

double TextWidth(const std::string& text, double size) {
  int characters = 0;
  for (const char c : text) characters += (static_cast<unsigned char>(c) & 0xc0) != 0x80 ? 1 : 0;
  return 0.6 * size * characters;
}

std::string WireText(const FlowEdge& edge) {
  const FlowNumber& number = edge.coefficient;
  std::string text = number.Is(1)    ? ""
                     : number.Is(-1) ? "−"
                                     : absl::StrCat("× ", number.ToString());
  if (edge.is_weight) {
    return absl::StrCat(number.Is(-1) ? "− " : "× ",
                        number.Is(1) || number.Is(-1) ? "" : absl::StrCat(number.ToString(), " "),
                        edge.label);
  }
  if (edge.label.empty()) return text;
  return text.empty() ? edge.label : absl::StrCat(edge.label, " ", text);
}

std::string NodeText(const FlowNode& node) {
  if (node.kind == FlowKind::kGain) return absl::StrCat("× ", node.label);
  if (node.kind != FlowKind::kAdd) return node.Name();
  return node.constant.Is(0) ? "" : absl::StrCat("+ ", node.constant.ToString());
}

PictureBox Measure(const FlowPicture& picture) { return PictureMeasure(picture).Run(); }

}  // namespace plumb
