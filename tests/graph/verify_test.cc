// SPDX-License-Identifier: Apache-2.0
#include <functional>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "runtime/graph/graph.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

using testing::HasSubstr;

// Fixture with a valid graph, which each test breaks in one place.
class VerifyTest : public testing::Test {
 protected:
  VerifyTest() {
    RegisterTestOps(&ops_);
    GraphBuilder b(&ops_);
    w_ = b.Parameter("w", F32({4}));
    state_ = b.State("state", F32({4}));
    a_ = b.Apply("reverse", {w_}, {}, "a");                         // node 0
    b_ = b.Apply("mul", {a_, state_}, {}, "b");                     // node 1
    updated_ = b.Apply("accumulate", {state_, b_}, {}, "updated");  // node 2
    c_ = b.Apply("sum", {b_}, {}, "c");                             // node 3
    b.Output("loss", c_);
    b.Output("updated", updated_);
    absl::StatusOr<Graph> graph = std::move(b).Finish();
    EXPECT_TRUE(graph.ok()) << graph.status();
    graph_ = *std::move(graph);
  }

  Node& node(int i) { return graph_.nodes[static_cast<size_t>(i)]; }
  Value& value(ValueId id) { return graph_.values[static_cast<size_t>(id)]; }
  std::string Error() const { return std::string(Verify(graph_).message()); }

  OpRegistry ops_;
  Graph graph_;
  ValueId w_, state_, a_, b_, c_, updated_;
};

TEST_F(VerifyTest, AcceptsTheSoundGraph) { EXPECT_EQ(Error(), ""); }

TEST_F(VerifyTest, NamesTheNode) {
  value(b_).type = F32({5});
  EXPECT_EQ(Error(), "node 1: %3 f32[5] b = mul(%2, %1): b is f32[5], its shape rule gives f32[4]");
}

TEST_F(VerifyTest, RejectsTwoValuesOfOneName) {
  value(b_).name = "a";
  EXPECT_THAT(Error(), HasSubstr("two values are named a"));
}

TEST_F(VerifyTest, RejectsAValueWithoutName) {
  value(b_).name = "";
  EXPECT_THAT(Error(), HasSubstr("no name"));
}

TEST_F(VerifyTest, RejectsAnEmptyTensor) {
  value(w_).type = F32({0, 4});
  EXPECT_THAT(Error(), HasSubstr("empty type f32[0, 4]"));
}

TEST_F(VerifyTest, RejectsALeafWithAProducer) {
  value(w_).producer = 0;
  EXPECT_THAT(Error(), HasSubstr("w is a leaf"));
}

TEST_F(VerifyTest, RejectsANodeWithoutOp) {
  node(1).op = nullptr;
  EXPECT_THAT(Error(), HasSubstr("node 1: %3 f32[4] b = ?(%2, %1): has no op"));
}

TEST_F(VerifyTest, RejectsReadingBeforeDefinition) {
  node(0).inputs[0] = b_;
  EXPECT_THAT(Error(), HasSubstr("reads b before it is defined"));
}

TEST_F(VerifyTest, RejectsReadingItself) {
  node(0).inputs[0] = a_;
  EXPECT_THAT(Error(), HasSubstr("reads a before it is defined"));
}

TEST_F(VerifyTest, RejectsInputsOutOfRange) {
  node(0).inputs[0] = 99;
  EXPECT_THAT(Error(), HasSubstr("an input is out of range"));
  node(0).inputs[0] = -7;
  EXPECT_THAT(Error(), HasSubstr("an input is out of range"));
}

TEST_F(VerifyTest, RejectsWrongArity) {
  node(1).inputs.pop_back();
  EXPECT_THAT(Error(), HasSubstr("needs at least 2"));
}

TEST_F(VerifyTest, RejectsAnAbsentRequiredInput) {
  node(1).inputs[0] = kNoValue;
  EXPECT_THAT(Error(), HasSubstr("input 0 is absent"));
}

TEST_F(VerifyTest, RejectsInputsThatTheShapeRuleRejects) {
  value(state_).type = F32({5});
  EXPECT_THAT(Error(), HasSubstr("input 1 is f32[5], not f32[4]"));
}

TEST_F(VerifyTest, RejectsMissingOutputs) {
  node(1).outputs.clear();
  EXPECT_THAT(Error(), HasSubstr("has 0 outputs, its shape rule gives 1"));
}

TEST_F(VerifyTest, RejectsOutputsOutOfRange) {
  node(1).outputs[0] = 99;
  EXPECT_THAT(Error(), HasSubstr("an output is out of range"));
}

TEST_F(VerifyTest, RejectsAValueDefinedByTwoNodes) {
  node(2).outputs[0] = b_;
  EXPECT_THAT(Error(), HasSubstr("defines b, which has another producer"));
}

TEST_F(VerifyTest, RejectsAWrongProducer) {
  value(b_).producer = 2;
  EXPECT_THAT(Error(), HasSubstr("defines b, which has another producer"));
}

TEST_F(VerifyTest, RejectsAComputedValueThatNothingDefines) {
  graph_.values.push_back({"orphan", F32({1}), ValueKind::kComputed, 1});
  EXPECT_THAT(Error(), HasSubstr("value orphan is computed but no node defines it"));
}

TEST_F(VerifyTest, RejectsOutputsOfTheGraphOutOfRange) {
  graph_.outputs[0].value = 99;
  EXPECT_THAT(Error(), HasSubstr("output loss is out of range"));
}

TEST_F(VerifyTest, RejectsTwoOutputsOfOneName) {
  graph_.outputs[1].name = "loss";
  EXPECT_THAT(Error(), HasSubstr("two outputs are named loss"));
}

TEST_F(VerifyTest, RejectsReadingAStateThatIsOverwritten) {
  node(3).inputs[0] = state_;
  EXPECT_THAT(Error(), HasSubstr("reads state after node 2 has overwritten it"));
}

TEST_F(VerifyTest, RejectsAnOutputThatIsOverwritten) {
  graph_.outputs[1].value = state_;
  EXPECT_THAT(Error(), HasSubstr("output updated is state, which node 2 has overwritten"));
}

TEST_F(VerifyTest, RejectsUpdatingAnythingButAState) {
  value(state_).kind = ValueKind::kParameter;
  EXPECT_THAT(Error(), HasSubstr("updates state, which is not a state"));
  value(state_).kind = ValueKind::kState;
  node(2).inputs = {b_, state_};
  EXPECT_THAT(Error(), HasSubstr("updates b, which is not a state"));
}

TEST_F(VerifyTest, RejectsUpdatingAValueThatTheNodeReadsTwice) {
  node(2).inputs[1] = state_;
  EXPECT_THAT(Error(), HasSubstr("updates state, which it also reads"));
}

TEST_F(VerifyTest, AcceptsUpdatingAStateTwice) {
  graph_.outputs.pop_back();  // the state is overwritten without an output
  GraphBuilder b(&ops_, graph_);
  b.Output("twice", b.Apply("accumulate", {updated_, b_}));
  EXPECT_TRUE(std::move(b).Finish().ok());
}

TEST_F(VerifyTest, RejectsAnOutputThatALaterUpdateOverwrites) {
  GraphBuilder b(&ops_, graph_);
  b.Apply("accumulate", {updated_, b_});
  EXPECT_THAT(std::string(std::move(b).Finish().status().message()),
              HasSubstr("output updated is updated, which node 4 has overwritten"));
}

TEST_F(VerifyTest, RejectsAliasTablesOutOfRange) {
  OpDef odd = *ops_.Find("accumulate");
  const auto error_with = [&](std::function<void(OpDef*)> change) {
    OpDef op = odd;
    change(&op);
    node(2).op = &op;
    return Error();
  };
  EXPECT_EQ(error_with([](OpDef*) {}), "");
  EXPECT_THAT(error_with([](OpDef* op) {
                op->updates = {{1, 0}};
              }),
              HasSubstr("updates table is out of range"));
  EXPECT_THAT(error_with([](OpDef* op) {
                op->updates = {{0, 2}};
              }),
              HasSubstr("updates table is out of range"));
  EXPECT_THAT(error_with([](OpDef* op) {
                op->may_alias = {{0, 2}};
              }),
              HasSubstr("may_alias table is out of range"));
  EXPECT_THAT(error_with([](OpDef* op) {
                op->may_alias = {{-1, 0}};
              }),
              HasSubstr("may_alias table is out of range"));
}

}  // namespace
}  // namespace plumb
