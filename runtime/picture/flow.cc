// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/flow.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace plumb {
namespace {

const char* KindName(FlowKind kind) {
  switch (kind) {
    case FlowKind::kEnter:
      return "enter";
    case FlowKind::kLeave:
      return "leave";
    case FlowKind::kEarlier:
      return "earlier";
    case FlowKind::kKeep:
      return "keep";
    case FlowKind::kNorm:
      return "norm";
    case FlowKind::kSublayer:
      return "sublayer";
    case FlowKind::kAdd:
      return "add";
    case FlowKind::kMultiply:
      return "multiply";
    case FlowKind::kGain:
      return "gain";
    case FlowKind::kFunction:
      return "function";
    case FlowKind::kLinear:
      return "linear";
    case FlowKind::kParameter:
      return "parameter";
  }
  return "?";
}

std::string EdgeText(const FlowEdge& edge) {
  return absl::StrCat(
      edge.label.empty() ? "" : absl::StrCat(edge.label, ": "),
      edge.coefficient.Is(1) ? "" : absl::StrCat(edge.coefficient.ToString(), " * "), edge.from);
}

}  // namespace

std::string NumberText(double value) { return absl::StrFormat("%.3g", value); }

void FlowNumber::Add(const FlowNumber& other) {
  low = std::min(low, other.low);
  high = std::max(high, other.high);
  if (name != other.name) name.clear();
}

std::string FlowNumber::ToString() const {
  if (!name.empty()) return name;
  if (low == high || NumberText(low) == NumberText(high)) return NumberText(low);
  return absl::StrCat(NumberText(low), " … ", NumberText(high));
}

std::string FlowNode::Name() const {
  if (!index.has_value()) return label;
  if (!index->text.empty()) return absl::StrCat(label, "[", index->text, "]");
  if (index->first == index->last) return absl::StrCat(label, "[", index->first, "]");
  return absl::StrCat(label, "[", index->first, "..", index->last, "]");
}

std::string FlowSection::ToString() const {
  std::string text = title.empty() ? "" : absl::StrCat(title, "\n");
  for (size_t i = 0; i < nodes.size(); ++i) {
    const FlowNode& node = nodes[i];
    absl::StrAppend(&text, i, " ", KindName(node.kind), node.label.empty() ? "" : " ", node.Name());
    if (!node.inputs.empty()) {
      absl::StrAppend(&text, " <- ",
                      absl::StrJoin(node.inputs, ", ", [](std::string* out, const FlowEdge& edge) {
                        absl::StrAppend(out, EdgeText(edge));
                      }));
    }
    if (!node.constant.Is(0)) {
      absl::StrAppend(&text, " + ", node.constant.ToString());
    }
    if (!node.marks.empty()) absl::StrAppend(&text, " {", absl::StrJoin(node.marks, "; "), "}");
    absl::StrAppend(&text, "\n");
  }
  return text;
}

std::string FlowPicture::ToString() const {
  return absl::StrJoin(sections, "--\n", [](std::string* out, const FlowSection& section) {
    absl::StrAppend(out, section.ToString());
  });
}

}  // namespace plumb
