// SPDX-License-Identifier: Apache-2.0
// UnitTree: the fixed order in which the gradients of a step's units are summed, on any number of
// ranks: a binary tree over [0, units) whose node [begin, end) is the sum of [begin, m) and [m,
// end), with m = begin + the largest power of two below end - begin. Values and pure functions.
#ifndef PLUMB_RUNTIME_SESSION_UNIT_TREE_H_
#define PLUMB_RUNTIME_SESSION_UNIT_TREE_H_

#include <cstdint>
#include <vector>

namespace plumb {

// Units [begin, end).
struct UnitRange {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const UnitRange& other) const { return begin == other.begin && end == other.end; }
};

// Returns the units of rank `rank` of `ranks`: nearly equal ranges in the order of the ranks.
inline UnitRange UnitsOfRank(int64_t units, int rank, int ranks) {
  return {rank * units / ranks, (rank + 1) * units / ranks};
}

// Returns true if the tree over `units` units has a node that is the sum of nodes `left` and
// `right`.
bool AreSiblings(int64_t units, const UnitRange& left, const UnitRange& right);

// Returns the maximal nodes of the tree within `range`, in order.
std::vector<UnitRange> MaximalNodes(int64_t units, const UnitRange& range);
// Returns their number. Neither function visits every unit.
int64_t CountMaximalNodes(int64_t units, const UnitRange& range);

// Returns the number of sums stored in addition to the current unit's gradients, if the units of
// `range` are computed one after the other.
int64_t SumsToKeep(int64_t units, const UnitRange& range);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_UNIT_TREE_H_
