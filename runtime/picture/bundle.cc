// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/bundle.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

constexpr int kGone = -1;

std::vector<int> CountReaders(const FlowSection& section) {
  std::vector<int> readers(section.nodes.size(), 0);
  for (const FlowNode& node : section.nodes) {
    for (const FlowEdge& edge : node.inputs) ++readers[static_cast<size_t>(edge.from)];
  }
  return readers;
}

// Returns true if a term of a sum is a learned value times something without a label, and has no
// other reader.
bool IsWeighted(const FlowSection& section, const std::vector<int>& readers, const FlowEdge& term) {
  const size_t from = static_cast<size_t>(term.from);
  const FlowNode& node = section.nodes[from];
  return node.kind == FlowKind::kGain && readers[from] == 1 && term.label.empty() &&
         node.inputs[0].label.empty();
}

// Moves the factors to labels of edges. Their nodes have no readers afterwards.
FlowSection WithWeightsOnEdges(FlowSection section) {
  const std::vector<int> readers = CountReaders(section);
  for (FlowNode& node : section.nodes) {
    if (node.kind != FlowKind::kAdd) continue;
    const auto is_weighted = [&](const FlowEdge& term) {
      return IsWeighted(section, readers, term);
    };
    if (std::count_if(node.inputs.begin(), node.inputs.end(), is_weighted) < 2) continue;
    for (FlowEdge& term : node.inputs) {
      if (!is_weighted(term)) continue;
      const FlowNode& gain = section.nodes[static_cast<size_t>(term.from)];
      FlowEdge weighted = gain.inputs[0];
      if (!weighted.coefficient.Is(1) && !term.coefficient.Is(1)) continue;
      if (weighted.coefficient.Is(1)) weighted.coefficient = term.coefficient;
      weighted.label = gain.label;
      weighted.is_weight = true;
      weighted.place = gain.place;
      term = std::move(weighted);
    }
  }
  return section;
}

class Bundler {
 public:
  explicit Bundler(FlowSection section) : section_(std::move(section)) {}

  FlowSection Run() {
    const std::vector<int> readers = CountReaders(section_);
    made_.title = section_.title;
    for (size_t i = 0; i < section_.nodes.size(); ++i) {
      const bool is_unread = section_.nodes[i].kind == FlowKind::kGain && readers[i] == 0;
      class_of_.push_back(is_unread ? kGone : Put(section_.nodes[i]));
    }
    return std::move(made_);
  }

 private:
  // Returns the merged node for `node`: an earlier one that does the same for another index, or a
  // new one.
  int Put(FlowNode node) {
    bool indexed = node.index.has_value() || WithoutIndices(node.label) != node.label;
    std::vector<FlowEdge> inputs;
    for (FlowEdge edge : node.inputs) {
      edge.from = class_of_[static_cast<size_t>(edge.from)];
      const std::string label = WithoutIndices(edge.label);
      const bool of_many = label != edge.label || many_[static_cast<size_t>(edge.from)];
      edge.label = label;
      indexed = indexed || of_many || indexed_[static_cast<size_t>(edge.from)];
      const auto same = std::find_if(inputs.begin(), inputs.end(), [&edge](const FlowEdge& other) {
        return other.from == edge.from && other.label == edge.label;
      });
      if (of_many && same != inputs.end()) {
        same->coefficient.Add(edge.coefficient);
      } else {
        inputs.push_back(std::move(edge));
      }
    }
    node.inputs = std::move(inputs);
    node.label = WithoutIndices(node.label);
    const int own = static_cast<int>(made_.nodes.size());
    if (indexed) {
      const auto [known, is_new] = known_.emplace(Signature(node), own);
      if (!is_new) {
        Merge(node, known->second);
        return known->second;
      }
    }
    made_.nodes.push_back(std::move(node));
    many_.push_back(false);
    indexed_.push_back(indexed);
    return own;
  }

  void Merge(const FlowNode& node, int into) {
    FlowNode& made = made_.nodes[static_cast<size_t>(into)];
    many_[static_cast<size_t>(into)] = true;
    if (made.index.has_value() && node.index.has_value()) {
      made.index->first = std::min(made.index->first, node.index->first);
      made.index->last = std::max(made.index->last, node.index->last);
    }
    for (size_t i = 0; i < made.inputs.size(); ++i) {
      made.inputs[i].coefficient.Add(node.inputs[i].coefficient);
    }
  }

  // Returns a key that is equal for nodes that do the same with the same inputs.
  static std::string Signature(const FlowNode& node) {
    std::string text =
        absl::StrCat(static_cast<int>(node.kind), "|", node.label, "|", node.place, "|");
    for (const std::string& mark : node.marks) absl::StrAppend(&text, mark, "|");
    for (const FlowEdge& edge : node.inputs) {
      absl::StrAppend(&text, edge.from, ":", edge.label, ":", edge.place, "|");
    }
    return absl::StrCat(text, node.constant.low);
  }

  const FlowSection section_;
  FlowSection made_;
  std::vector<int> class_of_;  // for each node of section_: index in made_
  std::vector<bool> many_;     // for each node of made_: true if it represents several
  std::vector<bool> indexed_;  // for each node of made_: true if it or an input has an index
  std::map<std::string, int> known_;
};

}  // namespace

FlowSection Bundle(const FlowSection& section) {
  return Bundler(WithWeightsOnEdges(section)).Run();
}

std::string WithoutIndices(absl::string_view text) {
  std::string kept;
  int depth = 0;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (depth == 0) kept.push_back(c);
    if (c == ']' && depth > 0) --depth;
  }
  return kept;
}

}  // namespace plumb
