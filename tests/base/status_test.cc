// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace plumb {
namespace {

absl::Status Step(int* calls, absl::Status status) {
  ++*calls;
  return status;
}

absl::Status TwoSteps(int* calls, const absl::Status& first) {
  PLUMB_RETURN_IF_ERROR(Step(calls, first));
  PLUMB_RETURN_IF_ERROR(Step(calls, absl::OkStatus()));
  return absl::OkStatus();
}

TEST(StatusTest, ReturnIfErrorEvaluatesOnceAndStopsAtTheFirstError) {
  int calls = 0;
  EXPECT_TRUE(TwoSteps(&calls, absl::OkStatus()).ok());
  EXPECT_EQ(calls, 2);
  calls = 0;
  EXPECT_EQ(TwoSteps(&calls, absl::NotFoundError("x")), absl::NotFoundError("x"));
  EXPECT_EQ(calls, 1);
}

absl::StatusOr<std::unique_ptr<int>> Make(bool fails) {
  if (fails) return absl::OutOfRangeError("too far");
  return std::make_unique<int>(7);
}

absl::StatusOr<int> Sum(bool first_fails, bool second_fails) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<int> a, Make(first_fails));
  std::unique_ptr<int> b;
  PLUMB_ASSIGN_OR_RETURN(b, Make(second_fails));
  return *a + *b;
}

TEST(StatusTest, AssignOrReturnDeclaresOrAssignsAndMovesTheValue) {
  EXPECT_EQ(Sum(false, false).value(), 14);
  EXPECT_EQ(Sum(true, false).status(), absl::OutOfRangeError("too far"));
  EXPECT_EQ(Sum(false, true).status(), absl::OutOfRangeError("too far"));
}

TEST(StatusTest, AnnotateKeepsTheCodeAndPutsThePrefixFirst) {
  EXPECT_EQ(Annotate(absl::NotFoundError("gone"), "a.txt: "), absl::NotFoundError("a.txt: gone"));
  EXPECT_TRUE(Annotate(absl::OkStatus(), "a.txt: ").ok());
}

}  // namespace
}  // namespace plumb
