// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/unit_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

// Returns the tree according to its definition, in parentheses.
std::string Text(int64_t begin, int64_t end) {
  if (end - begin == 1) return absl::StrCat(begin);
  int64_t half = 1;
  while (2 * half < end - begin) half *= 2;
  return absl::StrCat("(", Text(begin, begin + half), "+", Text(begin + half, end), ")");
}

// Pushes `next` on the stack of sums of a rank that computes unit after unit, and replaces the
// topmost two while they are the parts of one node. Returns the number of replacements.
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

TEST(UnitTreeTest, StackMatchesTheDefinition) {
  for (int64_t units = 1; units <= 70; ++units) {
    std::vector<UnitRange> stack;
    std::vector<std::string> texts;
    for (int64_t unit = 0; unit < units; ++unit) {
      texts.push_back(absl::StrCat(unit));
      for (int sums = PushNode(units, {unit, unit + 1}, &stack); sums > 0; --sums) {
        const std::string right = texts.back();
        texts.pop_back();
        texts.back() = absl::StrCat("(", texts.back(), "+", right, ")");
      }
    }
    ASSERT_EQ(texts.size(), 1u) << units;
    EXPECT_EQ(texts[0], Text(0, units));
  }
}

TEST(UnitTreeTest, RanksBuildTheSameTree) {
  for (int64_t units = 1; units <= 33; ++units) {
    for (int ranks = 1; ranks <= units; ++ranks) {
      std::vector<UnitRange> stack;
      int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const UnitRange mine = UnitsOfRank(units, rank, ranks);
        EXPECT_EQ(mine.begin, next);
        EXPECT_GE(mine.size(), units / ranks);
        next = mine.end;
        for (const UnitRange& node : MaximalNodes(units, mine)) PushNode(units, node, &stack);
      }
      EXPECT_EQ(next, units);
      ASSERT_EQ(stack.size(), 1u) << units << " units, " << ranks << " ranks";
      EXPECT_EQ(stack[0], (UnitRange{0, units}));
    }
  }
}

TEST(UnitTreeTest, RangesMatchAStackOfTheirUnits) {
  for (int64_t units = 1; units <= 40; ++units) {
    for (int64_t begin = 0; begin < units; ++begin) {
      std::vector<UnitRange> stack;
      int64_t max = 0;
      for (int64_t end = begin + 1; end <= units; ++end) {
        const UnitRange range = {begin, end};
        EXPECT_EQ(SumsToKeep(units, range), max) << units << ": " << begin << ".." << end;
        PushNode(units, {end - 1, end}, &stack);
        EXPECT_EQ(MaximalNodes(units, range), stack) << units << ": " << begin << ".." << end;
        EXPECT_EQ(CountMaximalNodes(units, range), static_cast<int64_t>(stack.size()));
        max = std::max(max, static_cast<int64_t>(stack.size()));
      }
    }
  }
  // Huge numbers of units take no time.
  EXPECT_EQ(SumsToKeep(int64_t{1} << 40, {0, int64_t{1} << 40}), 40);
}

TEST(UnitTreeTest, KeepsLogarithmicallyManySums) {
  EXPECT_EQ(SumsToKeep(1, {0, 1}), 0);
  EXPECT_EQ(SumsToKeep(2, {0, 2}), 1);
  EXPECT_EQ(SumsToKeep(3, {0, 3}), 1);
  EXPECT_EQ(SumsToKeep(4, {0, 4}), 2);
  EXPECT_EQ(SumsToKeep(8, {0, 8}), 3);
  EXPECT_EQ(SumsToKeep(1024, {0, 1024}), 10);
  EXPECT_EQ(SumsToKeep(8, {4, 5}), 0);
}

}  // namespace
}  // namespace plumb
