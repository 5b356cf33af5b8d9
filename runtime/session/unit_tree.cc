#include "runtime/session/unit_tree.h"

#include <algorithm>

namespace plumb {
namespace {

// Where the node [begin, end), of two units or more, is split.
int64_t MiddleOf(const UnitRange& node) {
  int64_t half = 1;
  while (2 * half < node.size()) half *= 2;
  return node.begin + half;
}

}  // namespace

bool AreSiblings(int64_t units, const UnitRange& left, const UnitRange& right) {
  if (left.end != right.begin) return false;
  const UnitRange parent = {left.begin, right.end};
  UnitRange node = {0, units};
  while (!(node == parent)) {
    if (node.size() < 2) return false;
    const int64_t middle = MiddleOf(node);
    if (parent.end <= middle) {
      node.end = middle;
    } else if (parent.begin >= middle) {
      node.begin = middle;
    } else {
      return false;
    }
  }
  return MiddleOf(node) == left.end;
}

int PushNode(int64_t units, const UnitRange& next, std::vector<UnitRange>* stack) {
  stack->push_back(next);
  int sums = 0;
  while (stack->size() > 1 && AreSiblings(units, stack->end()[-2], stack->back())) {
    const int64_t end = stack->back().end;
    stack->pop_back();
    stack->back().end = end;
    ++sums;
  }
  return sums;
}

std::vector<UnitRange> MaximalNodes(int64_t units, const UnitRange& range) {
  std::vector<UnitRange> stack;
  for (int64_t unit = range.begin; unit < range.end; ++unit) {
    PushNode(units, {unit, unit + 1}, &stack);
  }
  return stack;
}

int64_t SumsToKeep(int64_t units, const UnitRange& range) {
  std::vector<UnitRange> stack;
  size_t most = 0;
  for (int64_t unit = range.begin; unit + 1 < range.end; ++unit) {
    PushNode(units, {unit, unit + 1}, &stack);
    most = std::max(most, stack.size());
  }
  return static_cast<int64_t>(most);
}

}  // namespace plumb
