// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/chains.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

namespace plumb {
namespace {

// Cost of a path through the section. The path of a stream has the fewest sublayers, and otherwise
// the most nodes, since a stream passes through additions and norms.
using Cost = std::tuple<int, int, int>;  // sublayers, functions, minus the number of nodes

Cost CostOf(const FlowNode& node) {
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
        const Cost with = *cost + CostOf(node(i));
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

}  // namespace

Chains MakeChains(const FlowSection& section, const std::vector<std::string>& streams) {
  return ChainMaker(section, streams).Make();
}

}  // namespace plumb
