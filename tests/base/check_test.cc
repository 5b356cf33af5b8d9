// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/check.h"

#include <gtest/gtest.h>

namespace plumb {
namespace {

TEST(CheckTest, EvaluatesItsConditionOnce) {
  int evaluated = 0;
  PLUMB_CHECK(++evaluated == 1, "first");
  EXPECT_EQ(evaluated, 1);
}

TEST(CheckDeathTest, NamesPlaceConditionAndReason) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(PLUMB_CHECK(1 + 1 == 3, "numbers add up"),
               "check_test.cc:[0-9]+: plumb bug: 1 \\+ 1 == 3 does not hold: numbers add up");
}

}  // namespace
}  // namespace plumb
