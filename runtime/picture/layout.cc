// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/layout.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "runtime/picture/flow.h"

namespace plumb {
namespace {

// Nodes that are drawn down one column. There is a chain per stream, from its start to its end, and
// chains for branches.
struct Chain {
  std::vector<int> nodes;   // in the order of the data
  int stream = -1;          // index of the stream that owns the column, or -1
  bool ends_early = false;  // another chain continues in the column below
};

struct Chains {
  std::vector<Chain> chains;
  // Indexed by node; -1 for none.
  std::vector<int> chain_of, previous, next;
};

// Cost of a path through the section. The path of a stream has the fewest sublayers, and otherwise
// the most nodes, since a stream passes through additions and norms.
using Cost = std::tuple<int, int, int>;  // sublayers, functions, minus the number of nodes

Cost ComputeCost(const FlowNode& node) {
  switch (node.kind) {
    case FlowKind::kSublayer:
      return {1, 0, -1};
    case FlowKind::kFunction:
    case FlowKind::kLinear:
    case FlowKind::kMultiply:
      return {0, 1, -1};
    default:
      return {0, 0, -1};
  }
}

Cost operator+(const Cost& a, const Cost& b) {
  return {std::get<0>(a) + std::get<0>(b), std::get<1>(a) + std::get<1>(b),
          std::get<2>(a) + std::get<2>(b)};
}

class ChainMaker {
 public:
  ChainMaker(const FlowSection& section, const std::vector<std::string>& streams)
      : nodes_(section.nodes), streams_(streams) {
    for (auto* links : {&made_.chain_of, &made_.previous, &made_.next}) {
      links->assign(nodes_.size(), -1);
    }
  }

  Chains Make() {
    for (size_t i = 0; i < streams_.size(); ++i) AddStream(static_cast<int>(i));
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (made_.chain_of[i] < 0) AddBranch(static_cast<int>(i));
    }
    return std::move(made_);
  }

 private:
  const FlowNode& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  int& link(std::vector<int>& links, int index) { return links[static_cast<size_t>(index)]; }

  int Find(FlowKind kind, const std::string& stream, const char* instead) const {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (nodes_[i].kind != kind) continue;
      const std::string& label = nodes_[i].label;
      if (label == stream || (stream == streams_[0] && label == instead)) {
        return static_cast<int>(i);
      }
    }
    return -1;
  }

  void AddStream(int stream) {
    const std::string& name = streams_[static_cast<size_t>(stream)];
    const int enter = Find(FlowKind::kEnter, name, kEmbeddingLabel);
    const int leave = Find(FlowKind::kLeave, name, kHeadLabel);
    std::vector<int> way;
    if (enter >= 0 && leave >= 0) way = Way(enter, leave);
    if (!way.empty()) {
      AddChain(std::move(way), stream);
      return;
    }
    if (enter >= 0) {
      AddChain({enter}, stream);
      made_.chains.back().ends_early = leave >= 0;
    }
    if (leave >= 0) AddChain({leave}, stream);
  }

  // Returns the cheapest path to a later node through nodes that are in no chain yet; empty if
  // there is none.
  std::vector<int> Way(int from, int to) const {
    std::vector<std::optional<Cost>> costs(nodes_.size());
    std::vector<int> before(nodes_.size(), -1);
    costs[static_cast<size_t>(from)] = Cost{0, 0, 0};
    for (int i = from + 1; i <= to; ++i) {
      const size_t at = static_cast<size_t>(i);
      if (made_.chain_of[at] >= 0) continue;
      for (const FlowEdge& edge : node(i).inputs) {
        const std::optional<Cost>& cost = costs[static_cast<size_t>(edge.from)];
        if (!cost.has_value()) continue;
        const Cost with = *cost + ComputeCost(node(i));
        if (costs[at].has_value() && !(with < *costs[at])) continue;
        costs[at] = with;
        before[at] = edge.from;
      }
    }
    if (!costs[static_cast<size_t>(to)].has_value()) return {};
    std::vector<int> way;
    for (int i = to; i >= 0; i = before[static_cast<size_t>(i)]) way.push_back(i);
    std::reverse(way.begin(), way.end());
    return way;
  }

  void AddChain(std::vector<int> nodes, int stream) {
    const int chain = static_cast<int>(made_.chains.size());
    for (size_t i = 0; i < nodes.size(); ++i) {
      link(made_.chain_of, nodes[i]) = chain;
      if (i == 0) continue;
      link(made_.previous, nodes[i]) = nodes[i - 1];
      link(made_.next, nodes[i - 1]) = nodes[i];
    }
    made_.chains.push_back({std::move(nodes), stream, false});
  }

  // Appends a node to a branch that it reads and that ends there, or begins a new branch.
  void AddBranch(int index) {
    for (const FlowEdge& edge : node(index).inputs) {
      const int chain = link(made_.chain_of, edge.from);
      if (made_.chains[static_cast<size_t>(chain)].stream >= 0) continue;
      if (link(made_.next, edge.from) >= 0) continue;
      link(made_.next, edge.from) = index;
      link(made_.previous, index) = edge.from;
      link(made_.chain_of, index) = chain;
      made_.chains[static_cast<size_t>(chain)].nodes.push_back(index);
      return;
    }
    AddChain({index}, -1);
  }

  const std::vector<FlowNode>& nodes_;
  const std::vector<std::string>& streams_;
  Chains made_;
};

// Positions in a column are doubled: row r is 2 r, the gap below it 2 r + 1.
struct Span {
  int first = 0, last = 0;
  bool Meets(const Span& other) const { return first <= other.last && other.first <= last; }
  void Add(int at) {
    first = std::min(first, at);
    last = std::max(last, at);
  }
};

// Occupant of a column: a chain, or the detour of a wire.
struct Lane {
  int column = 0;
  bool fixed = false;  // the lane of a stream
  Span span;           // occupied positions of the column
};

class LayoutMaker {
 public:
  LayoutMaker(const FlowSection& section, const std::vector<std::string>& streams)
      : nodes_(section.nodes),
        chains_(ChainMaker(section, streams).Make()),
        streams_(static_cast<int>(streams.size())) {
    layout_.cells.resize(nodes_.size());
    before_.resize(nodes_.size());
    MakeWires();
    MakeLanes();
  }

  FlowLayout Make() {
    // Rows depend on columns, because wires run across; columns depend on rows, because lanes share
    // them.
    do {
      SetRows();
      SetSpans();
    } while (MoveOneLane());
    for (size_t i = 0; i < wires().size(); ++i) wires()[i].column = FindLane(i).column;
    SetChannels();
    return std::move(layout_);
  }

 private:
  std::vector<FlowWire>& wires() { return layout_.wires; }
  const FlowNode& node(int index) const { return nodes_[static_cast<size_t>(index)]; }
  FlowCell& cell(int index) { return layout_.cells[static_cast<size_t>(index)]; }
  int chain_of(int index) const { return chains_.chain_of[static_cast<size_t>(index)]; }
  int next(int index) const { return chains_.next[static_cast<size_t>(index)]; }
  int previous(int index) const { return chains_.previous[static_cast<size_t>(index)]; }
  const Chain& chain(int index) const { return chains_.chains[static_cast<size_t>(index)]; }

  // -- Wires

  void MakeWires() {
    for (size_t i = 0; i < nodes_.size(); ++i) {
      const int to = static_cast<int>(i);
      bool entered = false;  // true if a wire comes from above
      for (size_t k = 0; k < nodes_[i].inputs.size(); ++k) {
        const int from = nodes_[i].inputs[k].from;
        before_[i].push_back(from);
        FlowWire wire{from, to, k, FlowWire::Path::kDetour, 0, 0};
        if (!entered && from == previous(to)) {
          wire.path = FlowWire::Path::kStraight;
          entered = true;
        } else if (!entered && previous(to) < 0 && !ClosesACycle(to)) {
          wire.path = FlowWire::Path::kFork;
          entered = true;
        }
        wires().push_back(wire);
      }
    }
    for (FlowWire& wire : wires()) {
      if (wire.path == FlowWire::Path::kDetour && MayMerge(wire)) {
        wire.path = FlowWire::Path::kMerge;
      }
    }
  }

  // Returns true if streams swap places in a cycle of which `leave` is the first stream's end. If
  // all of them crossed in the gap below their start, two wires would overlap.
  bool ClosesACycle(int leave) const {
    const int first = chain(chain_of(leave)).stream;
    int at = leave;
    for (int i = 0; i < streams_; ++i) {
      if (node(at).kind != FlowKind::kLeave) return false;
      const int source = node(at).inputs[0].from;
      const int stream = chain(chain_of(source)).stream;
      if (node(source).kind != FlowKind::kEnter || stream < first) return false;
      if (stream == first) return i > 0;
      at = FindLeaveNode(stream);
      if (at < 0) return false;
    }
    return false;
  }

  int FindLeaveNode(int stream) const {
    for (const Chain& made : chains_.chains) {
      if (made.stream == stream && node(made.nodes.back()).kind == FlowKind::kLeave) {
        return made.nodes.back();
      }
    }
    return -1;
  }

  // Returns true if the wire can run down below its source: the source has no follower in
  // its column, or one that can be placed below the wire. Adds that constraint to before_.
  bool MayMerge(const FlowWire& wire) {
    const int own = chain_of(wire.from);
    if (own == chain_of(wire.to) || chain(own).ends_early) return false;
    if (node(wire.to).kind == FlowKind::kLeave) return false;
    const int follower = next(wire.from);
    if (follower < 0) return true;
    if (IsBefore(follower, wire.to)) return false;
    before_[static_cast<size_t>(follower)].push_back(wire.to);
    return true;
  }

  // Returns true if `index` must be above `of`.
  bool IsBefore(int index, int of) const {
    std::vector<int> open = {of};
    std::vector<bool> seen(nodes_.size(), false);
    while (!open.empty()) {
      const int at = open.back();
      open.pop_back();
      if (at == index) return true;
      if (seen[static_cast<size_t>(at)]) continue;
      seen[static_cast<size_t>(at)] = true;
      const std::vector<int>& above = before_[static_cast<size_t>(at)];
      open.insert(open.end(), above.begin(), above.end());
    }
    return false;
  }

  // -- Rows

  // Returns the nodes from top to bottom, in an order that respects before_.
  std::vector<int> Order() const {
    std::vector<int> order;
    std::vector<bool> done(nodes_.size(), false);
    while (order.size() < nodes_.size()) {
      for (size_t i = 0; i < nodes_.size(); ++i) {
        const auto is_done = [&done](int above) { return done[static_cast<size_t>(above)]; };
        if (done[i] || !std::all_of(before_[i].begin(), before_[i].end(), is_done)) continue;
        done[i] = true;
        order.push_back(static_cast<int>(i));
      }
    }
    return order;
  }

  void SetRows() {
    const std::vector<int> order = Order();
    std::vector<int> least(nodes_.size(), 0);
    PlaceInRows(order, least);
    // Nodes without inputs are placed directly above their first reader.
    for (size_t i = 0; i < nodes_.size(); ++i) {
      if (!nodes_[i].inputs.empty() || nodes_[i].kind == FlowKind::kEnter) continue;
      int first = rows_;
      for (const FlowWire& wire : wires()) {
        if (wire.from == static_cast<int>(i)) first = std::min(first, cell(wire.to).row);
      }
      least[i] = std::max(0, first - 1);
    }
    PlaceInRows(order, least);
  }

  void PlaceInRows(const std::vector<int>& order, const std::vector<int>& least) {
    taken_.clear();
    rows_ = 1;
    std::vector<int> leaves;
    for (const int index : order) {
      cell(index).column = lanes_[static_cast<size_t>(chain_of(index))].column;
      if (node(index).kind == FlowKind::kLeave) {
        leaves.push_back(index);
        continue;
      }
      int row = least[static_cast<size_t>(index)];
      for (const int above : before_[static_cast<size_t>(index)]) {
        row = std::max(row, cell(above).row + 1);
      }
      const Span across = Across(index);
      while (IsTaken(row, across)) ++row;
      taken_[row].push_back(across);
      cell(index).row = row;
      rows_ = std::max(rows_, row + 1);
    }
    for (const int index : leaves) cell(index).row = rows_;
    if (!leaves.empty()) ++rows_;
  }

  // Returns the columns of a node and of the wires that run across its row into it.
  Span Across(int index) const {
    const int own = lanes_[static_cast<size_t>(chain_of(index))].column;
    Span across{own, own};
    for (size_t i = 0; i < layout_.wires.size(); ++i) {
      const FlowWire& wire = layout_.wires[i];
      if (wire.to != index) continue;
      if (wire.path == FlowWire::Path::kMerge || wire.path == FlowWire::Path::kDetour) {
        across.Add(FindLane(i).column);
      }
    }
    return across;
  }

  bool IsTaken(int row, const Span& across) const {
    const auto taken = taken_.find(row);
    return taken != taken_.end() &&
           std::any_of(taken->second.begin(), taken->second.end(),
                       [&across](const Span& other) { return across.Meets(other); });
  }

  // -- Columns

  void MakeLanes() {
    int column = 0;
    for (const Chain& made : chains_.chains) {
      Lane lane;
      lane.fixed = made.stream >= 0;
      lane.column = lane.fixed ? -made.stream : ++column;
      lanes_.push_back(lane);
    }
    SetRows();
    for (size_t i = 0; i < wires().size(); ++i) {
      if (wires()[i].path != FlowWire::Path::kDetour) continue;
      detours_[i] = lanes_.size();
      Lane lane;
      lane.column = column + 1;
      lanes_.push_back(lane);
    }
    // Places each lane as close to the streams as possible. Detours between nodes of streams go to
    // the left.
    SetSpans();
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].fixed) continue;
      const int step = IsNextToAStream(i) ? -1 : 1;
      lanes_[i].column = step < 0 ? -streams_ : 1;
      while (MeetsAnother(i, i)) lanes_[i].column += step;
    }
  }

  bool IsNextToAStream(size_t lane) const {
    for (const auto& [wire, own] : detours_) {
      if (own != lane) continue;
      const FlowWire& detour = layout_.wires[wire];
      return chain(chain_of(detour.from)).stream >= 0 && chain(chain_of(detour.to)).stream >= 0;
    }
    return false;
  }

  const Lane& FindLane(size_t wire) const {
    if (const auto detour = detours_.find(wire); detour != detours_.end()) {
      return lanes_[detour->second];
    }
    const FlowWire& w = layout_.wires[wire];
    const bool in_source = w.path == FlowWire::Path::kMerge;
    return lanes_[static_cast<size_t>(chain_of(in_source ? w.from : w.to))];
  }

  void SetSpans() {
    for (size_t i = 0; i < chains_.chains.size(); ++i) {
      const int head = chains_.chains[i].nodes.front();
      lanes_[i].span = {2 * cell(head).row, 2 * cell(chains_.chains[i].nodes.back()).row};
    }
    for (size_t i = 0; i < wires().size(); ++i) {
      const FlowWire& wire = wires()[i];
      const int from = 2 * cell(wire.from).row + 1, to = 2 * cell(wire.to).row;
      if (wire.path == FlowWire::Path::kFork) {
        lanes_[static_cast<size_t>(chain_of(wire.to))].span.Add(from);
      } else if (wire.path == FlowWire::Path::kMerge) {
        lanes_[static_cast<size_t>(chain_of(wire.from))].span.Add(to);
      } else if (wire.path == FlowWire::Path::kDetour) {
        if (const auto detour = detours_.find(i); detour != detours_.end()) {
          lanes_[detour->second].span = {from, to};
        }
      }
    }
  }

  // Returns true if a lane overlaps one of the first `count` lanes.
  bool MeetsAnother(size_t lane, size_t count) const {
    for (size_t i = 0; i < count; ++i) {
      if (i != lane && lanes_[i].column == lanes_[lane].column &&
          lanes_[i].span.Meets(lanes_[lane].span)) {
        return true;
      }
    }
    return false;
  }

  // If two lanes overlap, moves the later one outwards by one column. This terminates: no lane
  // moves further than one column beyond all lanes before it.
  bool MoveOneLane() {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      if (lanes_[i].fixed || !MeetsAnother(i, i)) continue;
      lanes_[i].column += lanes_[i].column < 0 ? -1 : 1;
      return true;
    }
    return false;
  }

  // -- Channels

  // Wires that run across below one node.
  struct Net {
    int from = 0;
    Span columns;
    std::vector<int> targets;  // columns in which its wires run down
    std::vector<size_t> wires;
  };

  void SetChannels() {
    layout_.channels.assign(static_cast<size_t>(rows_), 0);
    std::map<int, std::vector<Net>> nets_of;  // keyed by row
    for (size_t i = 0; i < wires().size(); ++i) {
      const FlowWire& wire = wires()[i];
      const bool across =
          (wire.path == FlowWire::Path::kFork && wire.column != cell(wire.from).column) ||
          wire.path == FlowWire::Path::kDetour;
      if (!across) continue;
      std::vector<Net>& nets = nets_of[cell(wire.from).row];
      auto net = std::find_if(nets.begin(), nets.end(),
                              [&wire](const Net& n) { return n.from == wire.from; });
      const int own = cell(wire.from).column;
      if (net == nets.end()) net = nets.insert(nets.end(), Net{wire.from, {own, own}, {}, {}});
      net->columns.Add(wire.column);
      net->targets.push_back(wire.column);
      net->wires.push_back(i);
    }
    for (auto& [row, nets] : nets_of) {
      layout_.channels[static_cast<size_t>(row)] = SetChannelsOfGap(std::move(nets));
    }
  }

  // Places a net below all nets whose source is in a column where this net runs down.
  int SetChannelsOfGap(std::vector<Net> nets) {
    std::vector<Net> placed;
    std::vector<int> channel_of;
    int channels = 0;
    while (!nets.empty()) {
      const auto is_free = [this, &nets](const Net& net) {
        return std::none_of(nets.begin(), nets.end(), [this, &net](const Net& other) {
          return other.from != net.from &&
                 std::count(net.targets.begin(), net.targets.end(), cell(other.from).column) > 0;
        });
      };
      auto free = std::find_if(nets.begin(), nets.end(), is_free);
      if (free == nets.end()) free = nets.begin();  // two nets that swap places
      int channel = 0;
      for (size_t i = 0; i < placed.size(); ++i) {
        if (placed[i].columns.Meets(free->columns)) channel = std::max(channel, channel_of[i] + 1);
      }
      for (const size_t wire : free->wires) wires()[wire].channel = channel;
      channels = std::max(channels, channel + 1);
      channel_of.push_back(channel);
      placed.push_back(std::move(*free));
      nets.erase(free);
    }
    return channels;
  }

  const std::vector<FlowNode>& nodes_;
  const Chains chains_;
  const int streams_;
  std::vector<std::vector<int>> before_;    // for each node, the nodes that must be above it
  std::vector<Lane> lanes_;                 // one per chain, followed by one per detour
  std::map<size_t, size_t> detours_;        // index of the wire to index of the lane
  std::map<int, std::vector<Span>> taken_;  // occupied columns of each row
  int rows_ = 0;
  FlowLayout layout_;
};

}  // namespace

FlowLayout LayOut(const FlowSection& section, const std::vector<std::string>& streams) {
  return LayoutMaker(section, streams).Make();
}

}  // namespace plumb
