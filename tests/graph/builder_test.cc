// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph/builder.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

class BuilderTest : public testing::Test {
 protected:
  BuilderTest() { RegisterTestOps(&ops_); }
  OpRegistry ops_;
};

TEST_F(BuilderTest, RunsTheShapeRuleOfEachOp) {
  GraphBuilder b(&ops_);
  const ValueId x = b.Input("x", F32({2, 4}));
  const std::vector<ValueId> halves = b.ApplyAll("split", {x});
  ASSERT_EQ(halves.size(), 2u);
  EXPECT_EQ(b.type(halves[1]), F32({4}));
  EXPECT_EQ(b.type(b.Apply("sum", {x})), F32({1}));
  EXPECT_TRUE(std::move(b).Finish().ok());
}

TEST_F(BuilderTest, NamesAreMadeUnique) {
  GraphBuilder b(&ops_);
  const ValueId x = b.Parameter("x", F32({4}));
  const auto name = [&b](ValueId id) { return b.graph().value(id).name; };
  EXPECT_EQ(name(b.Apply("sum", {x}, {}, "total")), "total");
  EXPECT_EQ(name(b.Apply("sum", {x}, {}, "total")), "total_2");
  EXPECT_EQ(name(b.Apply("sum", {x}, {}, "x")), "x_2");
  EXPECT_EQ(name(b.Apply("sum", {x})), "sum");
  EXPECT_EQ(name(b.Apply("sum", {x})), "sum_2");
  EXPECT_EQ(name(b.Apply("sum", {x}, {}, "sum_3")), "sum_3");
  EXPECT_EQ(name(b.Apply("sum", {x})), "sum_4");
  const std::vector<ValueId> halves = b.ApplyAll("split", {x}, {}, "half");
  EXPECT_EQ(name(halves[0]), "half");
  EXPECT_EQ(name(halves[1]), "half.1");
}

TEST_F(BuilderTest, AppendsToAGraphWithoutTakingItsNames) {
  GraphBuilder first(&ops_);
  const ValueId x = first.Parameter("x", F32({4}));
  first.Output("total", first.Apply("sum", {x}, {}, "total"));
  absl::StatusOr<Graph> graph = std::move(first).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();

  GraphBuilder b(&ops_, *graph);
  const ValueId again = b.Apply("sum", {x}, {}, "total");
  EXPECT_EQ(b.graph().value(again).name, "total_2");
  b.Output("again", again);
  EXPECT_TRUE(std::move(b).Finish().ok());
}

TEST_F(BuilderTest, KeepsTheFirstError) {
  GraphBuilder b(&ops_);
  const ValueId x = b.Input("x", F32({3}));
  const std::vector<ValueId> halves = b.ApplyAll("split", {x}, {}, "half");
  EXPECT_FALSE(b.ok());
  EXPECT_EQ(halves[1], kNoValue);  // the caller may index the result
  EXPECT_EQ(b.type(halves[1]).shape[2], 1);
  EXPECT_EQ(b.Apply("unknown", {halves[0]}), kNoValue);
  EXPECT_EQ(b.Parameter("x", F32({1})), kNoValue);
  b.Output("y", halves[0]);
  const absl::Status status = std::move(b).Finish().status();
  EXPECT_EQ(status.message(), "half: split(f32[3]): an odd number of elements cannot be split");
}

TEST_F(BuilderTest, SuggestsTheOpThatWasMeant) {
  GraphBuilder b(&ops_);
  b.Apply("combin", {b.Input("x", F32({3}))});
  EXPECT_THAT(std::string(std::move(b).Finish().status().message()),
              HasSubstr("did you mean \"combine\"?"));
}

TEST_F(BuilderTest, RejectsTwoLeavesOfOneName) {
  GraphBuilder b(&ops_);
  b.Input("x", F32({3}));
  b.State("x", F32({3}));
  EXPECT_THAT(std::string(std::move(b).Finish().status().message()), HasSubstr("must be new"));
}

TEST_F(BuilderTest, RejectsWrongNumbersOfInputs) {
  const auto apply = [this](int inputs, bool absent) {
    GraphBuilder b(&ops_);
    std::vector<ValueId> ids(inputs, b.Input("x", F32({3})));
    if (absent) ids[1] = kNoValue;
    b.Apply("mul", ids);
    return std::string(std::move(b).Finish().status().message());
  };
  EXPECT_EQ(apply(2, false), "");
  EXPECT_THAT(apply(1, false), HasSubstr("needs at least 2"));
  EXPECT_THAT(apply(3, false), HasSubstr("takes at most 2"));
  EXPECT_THAT(apply(2, true), HasSubstr("input 1 is absent"));
}

TEST_F(BuilderTest, LetsOptionalInputsBeAbsent) {
  GraphBuilder b(&ops_);
  const ValueId x = b.Input("x", F32({3}));
  const ValueId y = b.Apply("join", {kNoValue, x}, {{"half", int64_t{3}}});
  EXPECT_EQ(b.type(y), F32({6}));
  EXPECT_TRUE(std::move(b).Finish().ok());
}

TEST_F(BuilderTest, RejectsAnOutputThatIsNoValue) {
  GraphBuilder b(&ops_);
  b.Output("loss", kNoValue);
  EXPECT_THAT(std::string(std::move(b).Finish().status().message()), HasSubstr("output loss"));
}

TEST_F(BuilderTest, RegistryListsOpsByName) {
  std::vector<std::string> names;
  for (const OpDef* op : ops_.All()) names.push_back(op->name);
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
  EXPECT_EQ(ops_.Find("mul")->name, "mul");
  EXPECT_EQ(ops_.Find("mull"), nullptr);
}

}  // namespace
}  // namespace plumb
