// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/compile/graph_edit.h"
#include "runtime/compile/rewrite.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/program.h"

namespace plumb {
namespace {

// Smaller programs are not faster, and other passes optimize sums better.
constexpr int kMinNodes = 3;

// Assigns nodes to programs by levels. A node that no program can contain, such as a norm, is one
// level above the program nodes that it reads; a program node is on the highest level that its
// readers allow. Nodes of one level do not depend on each other through other nodes, so they may
// run as one program. A stream ends a program.
class Levels {
 public:
  explicit Levels(const Graph& graph)
      : graph_(graph),
        readers_(FindReaders(graph)),
        may_join_(graph.nodes.size(), false),
        level_(graph.nodes.size(), 0),
        rows_(graph.nodes.size(), 0) {
    const std::vector<bool> overwritten = OverwrittenValues(graph);
    for (size_t i = 0; i < graph.nodes.size(); ++i) {
      may_join_[i] =
          MayJoin(graph.nodes[i]) &&
          std::none_of(graph.nodes[i].inputs.begin(), graph.nodes[i].inputs.end(),
                       [&](ValueId id) { return id != kNoValue && overwritten[Index(id)]; });
    }
    SetEarliest();
    SetLatest();
  }

  // Returns the group of a node: equal for nodes that may run as one. Requires: may_join(node).
  std::pair<int, int64_t> group(size_t node) const { return {level_[node], rows_[node]}; }
  bool may_join(size_t node) const { return may_join_[node]; }
  const std::vector<int32_t>& readers(ValueId id) const { return readers_[Index(id)]; }

 private:
  bool MayJoin(const Node& node) const {
    static const std::set<std::string>* const ops = new std::set<std::string>{
        "act", "combine", "concat",  "expand", "extremum", "fill",
        "map", "mul",     "row_dot", "split",  "stop",     "weighted_sum"};
    if (ops->count(node.op->name) == 0) return false;
    // A product applies the activation of its result itself.
    if (node.op->name != "act") return true;
    const int32_t producer = graph_.value(node.inputs[0]).producer;
    return producer < 0 || graph_.nodes[Index(producer)].op->name != "matmul" ||
           readers_[Index(node.inputs[0])].size() != 1;
  }

  void SetEarliest() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        const int32_t producer = id == kNoValue ? -1 : graph_.value(id).producer;
        if (producer < 0) continue;
        const bool ends = !may_join_[i] || graph_.value(id).is_stream;
        const int after = may_join_[Index(producer)] && ends ? 1 : 0;
        level_[i] = std::max(level_[i], level_[Index(producer)] + after);
        last_ = std::max(last_, level_[i]);
      }
    }
  }

  void SetLatest() {
    for (size_t i = graph_.nodes.size(); i-- > 0;) {
      if (!may_join_[i]) continue;
      rows_[i] = GetRows(graph_.nodes[i]);
      int latest = std::numeric_limits<int>::max();
      int64_t rows = -1;  // rows of all readers; -1: no reader yet, 0: they differ
      for (const ValueId id : graph_.nodes[i].outputs) {
        for (const int32_t reader : readers_[Index(id)]) {
          const bool joins = may_join_[Index(reader)] && !graph_.value(id).is_stream;
          const int level = level_[Index(reader)] - (joins ? 0 : 1);
          const int64_t its_rows = joins ? rows_[Index(reader)] : 0;
          if (level < latest) rows = -1;
          if (level <= latest) rows = rows == -1 || rows == its_rows ? its_rows : 0;
          latest = std::min(latest, level);
        }
      }
      level_[i] = latest == std::numeric_limits<int>::max() ? last_ : std::max(latest, level_[i]);
      // A vector is computed in the program that reads it.
      if (rows_[i] == 0) rows_[i] = std::max<int64_t>(rows, 0);
    }
  }

  // Returns the rows of a node's tensors; 0 if they are vectors.
  int64_t GetRows(const Node& node) const {
    const bool is_flat = node.op->name == "split" && node.attrs.GetBool("flat", false);
    const TensorType& type = graph_.value(node.outputs[0]).type;
    const bool is_vector =
        type.shape.rank() < 2 || is_flat || (node.op->name == "concat" && node.attrs.Has("dims"));
    return is_vector ? 0 : type.shape.rows();
  }

  const Graph& graph_;
  const std::vector<std::vector<int32_t>> readers_;  // indexed by ValueId: nodes, in order
  std::vector<bool> may_join_;                       // indexed by node, as are the following
  std::vector<int> level_;
  std::vector<int64_t> rows_;
  int last_ = 0;
};

bool Computes(const Node& node) {
  const std::string& op = node.op->name;
  return op != "split" && op != "concat" && op != "expand" && op != "stop" && op != "fill";
}

// Replaces groups of nodes by programs.
class Former {
 public:
  Former(const Graph& graph, const OpRegistry& registry)
      : graph_(graph), registry_(registry), levels_(graph), group_of_(graph.nodes.size(), -1) {
    FindGroups();
  }

  bool has_programs() const { return !groups_.empty(); }

  absl::StatusOr<Graph> Run() {
    Graph formed;
    formed.values = graph_.values;
    formed.outputs = graph_.outputs;
    const size_t nodes = graph_.nodes.size();
    for (const size_t unit : Order()) {
      Node node;
      if (unit < nodes) {
        node = graph_.nodes[unit];
      } else {
        PLUMB_ASSIGN_OR_RETURN(node, ProgramOfGroup(static_cast<int>(unit - nodes)));
      }
      formed.nodes.push_back(std::move(node));
    }
    return GraphEdit(std::move(formed)).Finish();  // drops the values inside of programs
  }

 private:
  void FindGroups() {
    std::map<std::pair<int, int64_t>, std::vector<size_t>> by_level;
    for (size_t i = 0; i < graph_.nodes.size(); ++i) {
      if (levels_.may_join(i)) by_level[levels_.group(i)].push_back(i);
    }
    for (auto& [key, nodes] : by_level) {
      const auto computing = std::count_if(nodes.begin(), nodes.end(),
                                           [this](size_t i) { return Computes(graph_.nodes[i]); });
      if (computing < kMinNodes) continue;
      for (const size_t i : nodes) group_of_[i] = static_cast<int>(groups_.size());
      groups_.push_back(std::move(nodes));
    }
  }

  // Returns the unit of a node: the node itself if it is in no group, else nodes.size() + its
  // group.
  size_t GetUnit(size_t node) const {
    return group_of_[node] < 0 ? node : graph_.nodes.size() + Index(group_of_[node]);
  }

  // Returns the units, each after those that it reads; otherwise in the order of the graph, with a
  // group at the position of its last node.
  std::vector<size_t> Order() const {
    const size_t nodes = graph_.nodes.size(), units = nodes + groups_.size();
    std::vector<std::vector<size_t>> after(units);
    std::vector<int> waits(units, 0);
    const auto precedes = [&](size_t node, size_t later) {
      const size_t unit = GetUnit(node), next = GetUnit(later);
      if (unit == next) return;
      after[unit].push_back(next);
      ++waits[next];
    };
    for (size_t i = 0; i < nodes; ++i) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        const int32_t producer = id == kNoValue ? -1 : graph_.value(id).producer;
        if (producer >= 0) precedes(Index(producer), i);
      }
      // Readers of a value must precede the node that overwrites it.
      for (const auto& [out, in] : graph_.nodes[i].op->updates) {
        for (const int32_t reader : levels_.readers(graph_.nodes[i].inputs[Index(in)])) {
          if (Index(reader) < i) precedes(Index(reader), i);
        }
      }
    }
    using Ready = std::pair<size_t, size_t>;  // position, unit
    std::priority_queue<Ready, std::vector<Ready>, std::greater<Ready>> ready;
    const auto position = [&](size_t unit) {
      return unit < nodes ? unit : groups_[unit - nodes].back();
    };
    for (size_t unit = 0; unit < units; ++unit) {
      const bool is_member = unit < nodes && group_of_[unit] >= 0;
      if (!is_member && waits[unit] == 0) ready.emplace(position(unit), unit);
    }
    std::vector<size_t> order;
    while (!ready.empty()) {
      const size_t unit = ready.top().second;
      ready.pop();
      order.push_back(unit);
      for (const size_t next : after[unit]) {
        if (--waits[next] == 0) ready.emplace(position(next), next);
      }
    }
    return order;
  }

  static std::string GetName(const Graph& inner) { return absl::StrCat("v", inner.values.size()); }

  absl::StatusOr<Node> ProgramOfGroup(int group) {
    Graph inner;
    Node node;
    std::map<ValueId, ValueId> id_in;
    std::set<ValueId> results;
    for (const size_t i : groups_[Index(group)]) {
      for (const ValueId id : graph_.nodes[i].outputs) results.insert(id);
    }
    // Leaves are first.
    for (const size_t i : groups_[Index(group)]) {
      for (const ValueId id : graph_.nodes[i].inputs) {
        if (id == kNoValue || results.count(id) > 0 || id_in.count(id) > 0) continue;
        id_in[id] = static_cast<ValueId>(inner.values.size());
        inner.values.push_back({GetName(inner), graph_.value(id).type, ValueKind::kInput, -1});
        node.inputs.push_back(id);
      }
    }
    for (const size_t i : groups_[Index(group)]) {
      Node copy = graph_.nodes[i];
      for (ValueId& id : copy.inputs) id = id == kNoValue ? id : id_in[id];
      for (ValueId& id : copy.outputs) {
        const ValueId outer = id;
        id = id_in[outer] = static_cast<ValueId>(inner.values.size());
        inner.values.push_back({GetName(inner), graph_.value(outer).type, ValueKind::kComputed,
                                static_cast<int32_t>(inner.nodes.size())});
        if (!IsReadOutside(outer, group)) continue;
        inner.outputs.push_back({"", id});
        node.outputs.push_back(outer);
      }
      inner.nodes.push_back(std::move(copy));
    }
    // Before differentiation, so that a common value has one gradient.
    PLUMB_ASSIGN_OR_RETURN(inner, MergeCommonValues(inner, registry_));
    node.op = registry_.Find("program");
    auto program = std::make_shared<const ProgramAttr>(std::move(inner));
    // Equal layers share one program, and everything derived from it.
    const std::shared_ptr<const AttrObject> attr =
        programs_.try_emplace(program->ToString(), program).first->second;
    node.attrs = Attrs({{"graph", attr}});
    return node;
  }

  bool IsReadOutside(ValueId id, int group) const {
    const auto& readers = levels_.readers(id);
    const bool read = std::any_of(readers.begin(), readers.end(), [&](int32_t reader) {
      return group_of_[Index(reader)] != group;
    });
    return read || std::any_of(graph_.outputs.begin(), graph_.outputs.end(),
                               [id](const GraphOutput& output) { return output.value == id; });
  }

  const Graph& graph_;
  const OpRegistry& registry_;
  const Levels levels_;
  std::vector<int> group_of_;                                           // indexed by node; -1: none
  std::vector<std::vector<size_t>> groups_;                             // nodes, in order
  std::map<std::string, std::shared_ptr<const ProgramAttr>> programs_;  // keyed by text
};

}  // namespace

absl::StatusOr<Graph> FormPrograms(Graph graph, const OpRegistry& registry) {
  if (registry.Find("program") == nullptr) return graph;  // a test's registry
  Former former(graph, registry);
  if (!former.has_programs()) return graph;
  return former.Run();
}

}  // namespace plumb
