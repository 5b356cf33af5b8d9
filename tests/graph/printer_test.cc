// SPDX-License-Identifier: Apache-2.0
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/graph.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

TEST(GraphPrinterTest, PrintsLeavesNodesAndOutputs) {
  OpRegistry ops;
  RegisterTestOps(&ops);
  GraphBuilder b(&ops);
  const ValueId w = b.Parameter("w", F32({2, 3}));
  const ValueId x = b.Input("x", F32({2, 3}));
  const ValueId i = b.Input("i", I32({1}));
  const ValueId cache = b.State("cache", F32({3}));
  const ValueId y =
      b.Apply("combine", {w, x}, {{"coefs", std::vector<double>{1, 0.1}}, {"constant", 0.0}}, "y");
  const std::vector<ValueId> halves = b.ApplyAll("split", {y}, {}, "half");
  const ValueId joined = b.Apply("join", {kNoValue, halves[1]}, {{"half", int64_t{3}}});
  const ValueId updated = b.Apply("accumulate", {cache, halves[0]}, {}, "cache.new");
  b.Output("picked", b.Apply("pick", {joined, i}));
  b.Output("cache", updated);
  absl::StatusOr<Graph> graph = std::move(b).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  EXPECT_EQ(ToString(*graph), R"(%0 f32[2, 3] w = parameter
%1 f32[2, 3] x = input
%2 i32[1] i = input
%3 f32[3] cache = state
%4 f32[2, 3] y = combine(%0, %1) {coefs=[1, 0.1], constant=0}
%5 f32[3] half, %6 f32[3] half.1 = split(%4)
%7 f32[6] join = join(_, %6) {half=3}
%8 f32[3] cache.new = accumulate(%3, %5)
%9 f32[1] pick = pick(%7, %2)
output picked = %9
output cache = %8
)");
}

TEST(GraphTest, FindsOutputsBeforeValues) {
  OpRegistry ops;
  RegisterTestOps(&ops);
  GraphBuilder b(&ops);
  const ValueId x = b.Input("x", F32({3}));
  const ValueId a = b.Apply("reverse", {x}, {}, "a");
  const ValueId c = b.Apply("reverse", {a}, {}, "b");
  b.Output("a", c);
  EXPECT_EQ(b.graph().FindOutput("a"), c);
  EXPECT_EQ(b.graph().FindOutput("x"), x);
  EXPECT_EQ(b.graph().FindOutput("none"), kNoValue);
  EXPECT_EQ(b.graph().FindValue("a"), a);
}

}  // namespace
}  // namespace plumb
