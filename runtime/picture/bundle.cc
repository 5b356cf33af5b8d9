// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/bundle.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

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

constexpr absl::string_view kAny = "…";

// Consumes a number or the placeholder for any number from the front of `text`.
absl::string_view TakeNumber(absl::string_view* text) {
  const absl::string_view all = *text;
  if (absl::ConsumePrefix(text, kAny)) return kAny;
  size_t end = 0;
  while (end < all.size() && (absl::ascii_isdigit(all[end]) || all[end] == '.')) ++end;
  if (end > 0 && end + 1 < all.size() && all[end] == 'e') {  // "1e-05"
    size_t exponent = end + 1 + (all[end + 1] == '-' || all[end + 1] == '+' ? 1 : 0);
    const size_t digits = exponent;
    while (exponent < all.size() && absl::ascii_isdigit(all[exponent])) ++exponent;
    if (exponent > digits) end = exponent;
  }
  text->remove_prefix(end);
  return all.substr(0, end);
}

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

std::optional<std::string> CommonLabel(absl::string_view a, absl::string_view b) {
  std::string common;
  while (!a.empty() || !b.empty()) {
    const bool in_name =
        !common.empty() && (absl::ascii_isalnum(common.back()) || common.back() == '_');
    if (!in_name) {
      const absl::string_view of_a = TakeNumber(&a), of_b = TakeNumber(&b);
      if (of_a.empty() != of_b.empty()) return std::nullopt;
      if (!of_a.empty()) {
        absl::StrAppend(&common, of_a == of_b ? of_a : kAny);
        continue;
      }
    }
    if (a.empty() || b.empty() || a.front() != b.front()) return std::nullopt;
    common.push_back(a.front());
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return common;
}

namespace {

// Returns the text of a * layer + b, or "..." for values that do not have this form.
std::string Linear(const std::vector<int64_t>& layers, const std::vector<int64_t>& values) {
  const auto all_are = [&](int64_t a, int64_t b) {
    for (size_t i = 0; i < layers.size(); ++i) {
      if (values[i] != a * (layers[i] + 1) + b) return false;
    }
    return true;
  };
  if (all_are(0, values[0])) return absl::StrCat(values[0]);
  if (layers.size() < 2 || layers[1] == layers[0]) return "...";
  const int64_t a = (values[1] - values[0]) / (layers[1] - layers[0]);
  const int64_t b = values[0] - a * (layers[0] + 1);
  if (a == 0 || !all_are(a, b)) return "...";
  const std::string of_layer = a == 1 ? "layer" : absl::StrCat(a, " * layer");
  if (a < 0) return a == -1 ? absl::StrCat(b, " - layer") : absl::StrCat(b, " - ", -a, " * layer");
  if (b == 0) return of_layer;
  return absl::StrCat(of_layer, b < 0 ? " - " : " + ", b < 0 ? -b : b);
}

}  // namespace

std::string IndexText(const std::vector<int64_t>& layers, const std::vector<FlowIndex>& indices) {
  std::vector<int64_t> firsts, lasts;
  for (const FlowIndex& index : indices) {
    firsts.push_back(index.first);
    lasts.push_back(index.last);
  }
  const std::string first = Linear(layers, firsts), last = Linear(layers, lasts);
  if (first == last) return first;
  return first == "..." || last == "..." ? "..." : absl::StrCat(first, "..", last);
}

}  // namespace plumb
