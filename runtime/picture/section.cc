// SPDX-License-Identifier: Apache-2.0
// FlowRecorder::Section: extracts one section from a recording.
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/picture/bundle.h"
#include "runtime/picture/recorder.h"

namespace plumb {

// Builds one section as a separate graph: nodes for entering streams first, then the recorded nodes
// in their order, then nodes for leaving streams and names that are read later.
class FlowRecorder::Extraction {
 public:
  Extraction(const FlowRecorder& recorder, int64_t index) : recorder_(recorder), index_(index) {}

  FlowSection Run() {
    const bool is_end = index_ + 1 == recorder_.sections();
    std::vector<std::pair<std::string, Reading>> leaving;
    if (is_end) {
      Need({recorder_.head_});
    } else {
      leaving = Leaving();
      std::vector<TensorHandle> read;
      for (const auto& [name, reading] : leaving) {
        if (reading.name.empty()) {
          read.push_back(Shown(reading.tensor));
        } else {
          read_.insert(reading.name);
        }
      }
      Need(std::move(read));
    }
    for (const std::string& name : recorder_.names_) {
      if (read_.count(name) > 0) Enter(name);
    }
    for (const TensorHandle tensor : needed_) Place(tensor);
    for (const auto& [name, reading] : leaving) {
      FlowNode leave = Named(FlowKind::kLeave, FlowKind::kKeep, name);
      leave.inputs = {EdgeTo(reading)};
      section_.nodes.push_back(std::move(leave));
    }
    return std::move(section_);
  }

 private:
  // Returns the values that later sections use: streams, with the value assigned here or the one on
  // entry, and names that are assigned here and read there.
  std::vector<std::pair<std::string, Reading>> Leaving() const {
    std::vector<std::pair<std::string, Reading>> leaving;
    for (const std::string& name : recorder_.names_) {
      const auto& values = recorder_.ends_[static_cast<size_t>(index_)];
      const auto value = values.find(name);
      if (value == values.end()) continue;
      const bool is_stream = recorder_.IsStream(name);
      const bool is_own = recorder_.at(value->second).section == index_;
      if (!is_stream && (!is_own || recorder_.read_later_.count(value->second) == 0)) continue;
      Reading reading;
      if (is_own) {
        reading = recorder_.at(value->second).inputs[0];
      } else {
        reading.name = name;
      }
      leaving.emplace_back(name, std::move(reading));
    }
    return leaving;
  }

  // Values made inside a sublayer are shown as coming from the sublayer, on wires whose labels say
  // which value they take (EdgeTo).
  TensorHandle Shown(TensorHandle tensor) const {
    const TensorHandle sublayer = recorder_.at(tensor).inside_of;
    return sublayer == kNone ? tensor : sublayer;
  }

  // Marks tensors and everything in this section that they depend on.
  void Need(std::vector<TensorHandle> open) {
    while (!open.empty()) {
      const TensorHandle next = open.back();
      open.pop_back();
      if (!needed_.insert(next).second) continue;
      for (const Reading& reading : recorder_.at(next).inputs) {
        if (reading.name.empty()) {
          open.push_back(Shown(reading.tensor));
        } else {
          read_.insert(reading.name);
        }
      }
    }
  }

  // Returns a node for a name, of kind `of_stream` or `otherwise`.
  FlowNode Named(FlowKind of_stream, FlowKind otherwise, const std::string& name) const {
    FlowNode node;
    node.kind = recorder_.IsStream(name) ? of_stream : otherwise;
    node.label = WithoutIndices(name);
    int64_t index = 0;
    const size_t open = name.find('[');
    if (open != std::string::npos &&
        absl::SimpleAtoi(name.substr(open + 1, name.size() - open - 2), &index)) {
      node.index = FlowIndex{index, index, ""};
    }
    return node;
  }

  void Enter(const std::string& name) {
    entered_[name] = static_cast<int>(section_.nodes.size());
    section_.nodes.push_back(Named(FlowKind::kEnter, FlowKind::kEarlier, name));
  }

  void Place(TensorHandle handle) {
    const Tensor& tensor = recorder_.at(handle);
    FlowNode node;
    node.kind = tensor.kind;
    node.label = tensor.label;
    node.constant.low = node.constant.high = tensor.constant;
    node.marks = tensor.marks;
    node.place = tensor.place;
    for (const Reading& reading : tensor.inputs) node.inputs.push_back(EdgeTo(reading));
    placed_[handle] = static_cast<int>(section_.nodes.size());
    section_.nodes.push_back(std::move(node));
  }

  FlowEdge EdgeTo(const Reading& reading) const {
    FlowEdge edge;
    edge.from =
        reading.name.empty() ? placed_.at(Shown(reading.tensor)) : entered_.at(reading.name);
    edge.coefficient.low = edge.coefficient.high = reading.coefficient;
    edge.label = reading.label;
    if (reading.name.empty() && Shown(reading.tensor) != reading.tensor) {
      edge.from_inside = true;
      const std::string& inside = recorder_.at(reading.tensor).formula;
      edge.label = edge.label.empty() ? inside : absl::StrCat(inside, " → ", edge.label);
    }
    return edge;
  }

  const FlowRecorder& recorder_;
  const int64_t index_;
  FlowSection section_;
  std::set<TensorHandle> needed_;
  std::set<std::string> read_;  // names
  std::map<std::string, int> entered_;
  std::map<TensorHandle, int> placed_;
};

FlowSection FlowRecorder::Section(int64_t index) const { return Extraction(*this, index).Run(); }

}  // namespace plumb
