// SPDX-License-Identifier: Apache-2.0
#include "tests/compile/reference_run.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class ReferenceRunTest : public testing::Test {
 protected:
  ReferenceRunTest() {
    RegisterTestOps(&ops_);
    GraphBuilder b(&ops_);
    const ValueId x = b.Input("x", F32({2}));
    const ValueId i = b.Input("i", I32({1}));
    const ValueId s = b.State("s", F32({2}));
    const ValueId before = b.Apply("reverse", {s});
    const ValueId once = b.Apply("accumulate", {s, x});
    const ValueId twice = b.Apply("accumulate", {once, before});
    b.Output("picked", b.Apply("pick", {twice, i}, {}, "p"));
    b.Output("x again", x);
    absl::StatusOr<Graph> graph = std::move(b).Finish();
    EXPECT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
    feeds_["x"] = {F32({2}), {1, 2}, {}};
    feeds_["s"] = {F32({2}), {10, 20}, {}};
    feeds_["i"] = {I32({1}), {}, {1}};
  }

  std::string Error() const { return std::string(ReferenceRun(graph_, feeds_).status().message()); }

  OpRegistry ops_;
  Graph graph_;
  ReferenceTensors feeds_;
};

TEST_F(ReferenceRunTest, ReturnsOutputsAndUpdatedStates) {
  const absl::StatusOr<ReferenceTensors> got = ReferenceRun(graph_, feeds_);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(got->size(), 3u);
  EXPECT_THAT(got->at("s").f, ElementsAre(10 + 1 + 20, 20 + 2 + 10));
  EXPECT_THAT(got->at("picked").f, ElementsAre(32));
  EXPECT_THAT(got->at("x again").f, ElementsAre(1, 2));
}

TEST_F(ReferenceRunTest, NamesTheNodeThatFails) {
  feeds_["i"].i[0] = 2;
  EXPECT_EQ(Error(), "%6 f32[1] p = pick(%5, %1): index 2 is outside [0, 2)");
}

TEST_F(ReferenceRunTest, RejectsFeedsThatAreMissingOrDoNotFit) {
  feeds_["x"].type = F32({1, 2});
  EXPECT_EQ(Error(), "feed x is f32[1, 2], needs f32[2]");
  feeds_["x"] = {F32({2}), {1}, {}};
  EXPECT_EQ(Error(), "feed x has 1 elements, needs 2");
  feeds_.erase("x");
  EXPECT_EQ(Error(), "there is no feed for x");
}

}  // namespace
}  // namespace plumb
