// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/picture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/picture/bundle.h"
#include "runtime/picture/recorder.h"
#include "runtime/spec/interpret.h"
#include "runtime/spec/scalar.h"

namespace plumb {
namespace {

constexpr size_t kMaxNodes = 400, kMaxWires = 1000;  // per section
constexpr size_t kMaxKindsOfLayer = 6;

// Layers that differ only in numbers.
struct Kind {
  FlowSection section;
  std::string placement;
  std::vector<int64_t> layers;
  std::vector<std::vector<FlowIndex>> indices;  // [node of the section][layer]
};

bool SameEdge(const FlowEdge& a, const FlowEdge& b) {
  return a.from == b.from && CommonLabel(a.label, b.label).has_value();
}

bool SameMark(const std::string& a, const std::string& b) { return CommonLabel(a, b).has_value(); }

// Compares two nodes, ignoring numbers.
bool SameNode(const FlowNode& a, const FlowNode& b) {
  return a.kind == b.kind && a.index.has_value() == b.index.has_value() &&
         CommonLabel(a.label, b.label).has_value() &&
         std::equal(a.marks.begin(), a.marks.end(), b.marks.begin(), b.marks.end(), SameMark) &&
         std::equal(a.inputs.begin(), a.inputs.end(), b.inputs.begin(), b.inputs.end(), SameEdge);
}

bool SameShape(const FlowSection& a, const FlowSection& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(), SameNode);
}

// Extends the numbers of `section` to ranges that include those of `with`. Requires: SameShape.
void WidenNumbers(const FlowSection& with, FlowSection* section) {
  for (size_t i = 0; i < section->nodes.size(); ++i) {
    FlowNode& node = section->nodes[i];
    const FlowNode& other = with.nodes[i];
    node.label = *CommonLabel(node.label, other.label);
    node.constant.Add(other.constant);
    for (size_t k = 0; k < node.marks.size(); ++k) {
      node.marks[k] = *CommonLabel(node.marks[k], other.marks[k]);
    }
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      node.inputs[k].coefficient.Add(other.inputs[k].coefficient);
      node.inputs[k].label = *CommonLabel(node.inputs[k].label, other.inputs[k].label);
    }
  }
}

// Labels the section's numbers with the `let`s that have their values, since "alpha" is more
// helpful than 2.21. Skips values that two lets share.
void NameNumbers(const ScalarScope& scope, FlowSection* section) {
  std::map<double, std::vector<std::string>> names;
  for (const Statement& let : scope.placement->lets) {
    const absl::StatusOr<std::optional<double>> value = scope.Lookup(let.target);
    if (!value.ok() || !value->has_value() || **value == 0 || std::abs(**value) == 1) continue;
    names[**value].push_back(let.target);
  }
  for (FlowNode& node : section->nodes) {
    for (FlowEdge& edge : node.inputs) {
      const auto named = names.find(edge.coefficient.low);
      if (named != names.end() && named->second.size() == 1) {
        edge.coefficient.name = named->second[0];
      }
    }
  }
}

// Returns "layers 0..4, 6..10: swin_v2".
std::string Title(const Kind& kind) {
  return absl::StrCat(kind.layers.size() == 1 ? "layer " : "layers ", RangesText(kind.layers, ", "),
                      ": ", kind.placement);
}

// Appends the indices of a section of this kind.
void AddIndices(const FlowSection& section, Kind* kind) {
  for (size_t i = 0; i < section.nodes.size(); ++i) {
    if (section.nodes[i].index.has_value()) kind->indices[i].push_back(*section.nodes[i].index);
  }
}

void NameIndices(Kind* kind) {
  if (kind->layers.size() < 2) return;
  for (size_t i = 0; i < kind->indices.size(); ++i) {
    std::optional<FlowIndex>& index = kind->section.nodes[i].index;
    if (index.has_value()) index->text = IndexText(kind->layers, kind->indices[i]);
  }
}

std::vector<Kind> KindsOfLayer(const ResolvedModel& model, const FlowRecorder& recorder,
                               const std::optional<int64_t>& only) {
  std::vector<Kind> kinds;
  for (int64_t layer = 0; layer < model.dims.n_layer; ++layer) {
    if (only.has_value() && layer != *only) continue;
    const PlacementSpec& spec = *model.layers[static_cast<size_t>(layer)]->placement;
    const std::string& placement = spec.name;
    FlowSection section = Bundle(recorder.Section(layer + 1));
    ScalarScope scope;
    scope.dims = &model.dims;
    scope.placement = &spec;
    scope.layer = layer + 1;
    NameNumbers(scope, &section);
    const auto alike = std::find_if(kinds.begin(), kinds.end(), [&](const Kind& kind) {
      return kind.placement == placement && SameShape(kind.section, section);
    });
    if (alike == kinds.end()) {
      if (kinds.size() > kMaxKindsOfLayer) break;
      kinds.push_back({std::move(section), placement, {layer}, {}});
      kinds.back().indices.resize(kinds.back().section.nodes.size());
      AddIndices(kinds.back().section, &kinds.back());
    } else {
      WidenNumbers(section, &alike->section);
      AddIndices(section, &*alike);
      alike->layers.push_back(layer);
    }
  }
  return kinds;
}

}  // namespace

absl::StatusOr<FlowPicture> RecordFlow(const ResolvedModel& model, const PictureOptions& options) {
  if (options.layer.has_value() && (*options.layer < 0 || *options.layer >= model.dims.n_layer)) {
    return absl::InvalidArgumentError(absl::StrCat("there is no layer ", *options.layer,
                                                   "; layers are 0..", model.dims.n_layer - 1));
  }
  FlowRecorder recorder;
  PLUMB_RETURN_IF_ERROR(RunStack(model, &recorder));
  FlowPicture picture;
  picture.name = model.name;
  picture.streams = recorder.streams();
  picture.sections.push_back(Bundle(recorder.Section(0)));
  std::vector<Kind> kinds = KindsOfLayer(model, recorder, options.layer);
  if (kinds.size() > kMaxKindsOfLayer) {
    return absl::InvalidArgumentError(
        absl::StrCat("the layers are of more than ", kMaxKindsOfLayer,
                     " kinds, which is more than a picture shows; choose one layer"));
  }
  for (Kind& kind : kinds) {
    kind.section.title = Title(kind);
    NameIndices(&kind);
    picture.sections.push_back(std::move(kind.section));
  }
  picture.sections.push_back(Bundle(recorder.Section(recorder.sections() - 1)));
  for (const FlowSection& section : picture.sections) {
    size_t wires = 0;
    for (const FlowNode& node : section.nodes) wires += node.inputs.size();
    if (section.nodes.size() <= kMaxNodes && wires <= kMaxWires) continue;
    return absl::InvalidArgumentError(absl::StrCat("a block of ", section.nodes.size(),
                                                   " operations and ", wires,
                                                   " wires is too large for a picture; at most ",
                                                   kMaxNodes, " and ", kMaxWires, " are drawn"));
  }
  return picture;
}

}  // namespace plumb
