// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/unit_tree.h"

#include <algorithm>

namespace plumb {
namespace {

// Returns the split point of a node [begin, end) of at least two units.
int64_t SplitPoint(const UnitRange& node) {
  int64_t half = 1;
  while (2 * half < node.size()) half *= 2;
  return node.begin + half;
}

void AddMaximalNodes(const UnitRange& node, const UnitRange& range, std::vector<UnitRange>* nodes) {
  if (node.end <= range.begin || node.begin >= range.end) return;
  if (node.begin >= range.begin && node.end <= range.end) {
    nodes->push_back(node);
    return;
  }
  const int64_t middle = SplitPoint(node);
  AddMaximalNodes({node.begin, middle}, range, nodes);
  AddMaximalNodes({middle, node.end}, range, nodes);
}

// Returns the max number of sums on the stack after any unit but the last of a whole node of `n`
// units.
int64_t MaxOfWhole(int64_t n) {
  int64_t log = 0;
  while ((int64_t{1} << log) < n) ++log;
  if ((int64_t{1} << log) == n) return log;
  // The first half is a power of two.
  return std::max({log - 1, int64_t{1}, 1 + MaxOfWhole(n - (int64_t{1} << (log - 1)))});
}

struct Stack {
  int64_t max = 0;   // max after any unit but the last of the range
  int64_t left = 0;  // number after the last
};

// Returns the stack of the units of `range` that are in `node`.
Stack MakeStack(const UnitRange& node, const UnitRange& range) {
  if (node.end <= range.begin || node.begin >= range.end) return {};
  if (node.begin >= range.begin && node.end <= range.end) {
    const int64_t max = MaxOfWhole(node.size());
    return {node.end == range.end ? max : std::max<int64_t>(max, 1), 1};
  }
  const int64_t middle = SplitPoint(node);
  const Stack first = MakeStack({node.begin, middle}, range);
  const Stack second = MakeStack({middle, node.end}, range);
  return {std::max(first.max, second.left == 0 ? 0 : first.left + second.max),
          first.left + second.left};
}

}  // namespace

bool AreSiblings(int64_t units, const UnitRange& left, const UnitRange& right) {
  if (left.end != right.begin) return false;
  const UnitRange parent = {left.begin, right.end};
  UnitRange node = {0, units};
  while (!(node == parent)) {
    if (node.size() < 2) return false;
    const int64_t middle = SplitPoint(node);
    if (parent.end <= middle) {
      node.end = middle;
    } else if (parent.begin >= middle) {
      node.begin = middle;
    } else {
      return false;
    }
  }
  return SplitPoint(node) == left.end;
}

std::vector<UnitRange> MaximalNodes(int64_t units, const UnitRange& range) {
  std::vector<UnitRange> nodes;
  if (range.size() > 0) AddMaximalNodes({0, units}, range, &nodes);
  return nodes;
}

int64_t CountMaximalNodes(int64_t units, const UnitRange& range) {
  return range.size() == 0 ? 0 : MakeStack({0, units}, range).left;
}

int64_t SumsToKeep(int64_t units, const UnitRange& range) {
  if (range.size() == 0) return 0;
  return MakeStack({0, units}, range).max;
}

}  // namespace plumb
