// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture/bundle.h"

#include <gmock/gmock.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/picture/picture_models.h"

namespace plumb {
namespace {

using testing::HasSubstr;

FlowEdge From(int from, std::string label = "", double coefficient = 1) {
  FlowEdge edge;
  edge.from = from;
  edge.label = std::move(label);
  edge.coefficient.low = edge.coefficient.high = coefficient;
  return edge;
}

FlowNode Node(FlowKind kind, std::string label, std::vector<FlowEdge> inputs = {}) {
  FlowNode node;
  node.kind = kind;
  node.label = std::move(label);
  node.inputs = std::move(inputs);
  return node;
}

FlowNode Indexed(FlowKind kind, int64_t index, std::vector<FlowEdge> inputs = {}) {
  FlowNode node = Node(kind, "h", std::move(inputs));
  node.index = FlowIndex{index, index, ""};
  return node;
}

TEST(BundleTest, WeightsOfSumsLabelTheirEdges) {
  const std::string body =
      "learned { name: \"a\" init: 1 } learned { name: \"b\" init: 1 } "
      "each: \"x = a * x + 2 * sigmoid(b) * f(x)\"";
  EXPECT_THAT(
      FlowOfBody(body).ToString(),
      HasSubstr("0 enter x\n1 sublayer attention <- 0\n2 add <- a: 0, 2 * sigmoid(b): 1\n"));
}

// A single learned factor remains a gain on its branch.
TEST(BundleTest, OneWeightStaysAGain) {
  EXPECT_THAT(FlowOfPlacement("layer_scale").ToString(),
              HasSubstr("3 gain gamma <- 2\n4 add <- 0, 3\n"));
}

// A factor that is read by another node as well remains a node.
TEST(BundleTest, SharedGainsRemainNodes) {
  const std::string body =
      "learned { name: \"a\" init: 1 } learned { name: \"b\" init: 1 } "
      "each: \"y = a * f(x)\" each: \"x = b * x + a * x + y + tanh(y)\"";
  EXPECT_THAT(FlowOfBody(body).ToString(), HasSubstr("gain a <- 1\n"));
}

// In static hyper-connections each of n streams is a weighted sum of all streams and of the
// sublayer's output.
TEST(BundleTest, StreamsOfOneNameAreMerged) {
  FlowSection section;
  std::vector<FlowEdge> read;
  for (int i = 0; i < 3; ++i) {
    section.nodes.push_back(Indexed(FlowKind::kEnter, i));
    read.push_back(From(i, absl::StrCat("m[", i, "]")));
  }
  section.nodes.push_back(Node(FlowKind::kAdd, "", read));                     // 3
  section.nodes.push_back(Node(FlowKind::kNorm, "norm", {From(3)}));           // 4
  section.nodes.push_back(Node(FlowKind::kSublayer, "attention", {From(4)}));  // 5
  for (int i = 0; i < 3; ++i) {
    std::vector<FlowEdge> mixed;
    for (int j = 0; j < 3; ++j) mixed.push_back(From(j, absl::StrCat("r[", i, ", ", j, "]")));
    mixed.push_back(From(5, absl::StrCat("b[", i, "]")));
    section.nodes.push_back(Node(FlowKind::kAdd, "", mixed));
  }
  for (int i = 0; i < 3; ++i) section.nodes.push_back(Indexed(FlowKind::kLeave, i, {From(6 + i)}));
  EXPECT_EQ(Bundle(section).ToString(), R"(0 enter h[0..2]
1 add <- m: 0
2 norm norm <- 1
3 sublayer attention <- 2
4 add <- r: 0, b: 3
5 leave h[0..2] <- 4
)");
}

// The value is a sum over all earlier layers and this layer's output.
TEST(BundleTest, EarlierValuesAreMerged) {
  FlowSection section;
  section.nodes.push_back(Node(FlowKind::kEnter, "x"));
  section.nodes.push_back(Node(FlowKind::kSublayer, "mlp", {From(0)}));
  section.nodes.push_back(Indexed(FlowKind::kEarlier, 0));
  section.nodes.push_back(Indexed(FlowKind::kEarlier, 1));
  section.nodes.push_back(
      Node(FlowKind::kAdd, "", {From(2, "w[0]"), From(3, "w[1]", 0.5), From(1, "w[2]")}));
  section.nodes.push_back(Node(FlowKind::kLeave, "x", {From(4)}));
  EXPECT_EQ(Bundle(section).ToString(), R"(0 enter x
1 sublayer mlp <- 0
2 earlier h[0..1]
3 add <- w: 0.5 … 1 * 2, w: 1
4 leave x <- 3
)");
}

// Equal nodes without an index are not merged, because a slot that is applied twice has different
// parameters each time.
TEST(BundleTest, NodesWithoutAnIndexAreNotMerged) {
  FlowSection section;
  section.nodes.push_back(Node(FlowKind::kEnter, "x"));
  section.nodes.push_back(Node(FlowKind::kNorm, "norm", {From(0)}));
  section.nodes.push_back(Node(FlowKind::kNorm, "norm", {From(0)}));
  section.nodes.push_back(Node(FlowKind::kMultiply, "", {From(1), From(1)}));
  section.nodes.push_back(Node(FlowKind::kAdd, "", {From(3), From(2)}));
  section.nodes.push_back(Node(FlowKind::kLeave, "x", {From(4)}));
  EXPECT_EQ(Bundle(section).ToString(), section.ToString());
}

TEST(BundleTest, IndicesAreCutOutOfNames) {
  EXPECT_EQ(WithoutIndices("tanh(pr[2](h[1, 0]))"), "tanh(pr(h))");
  EXPECT_EQ(WithoutIndices("gamma"), "gamma");
  EXPECT_EQ(WithoutIndices("a[b"), "a");
  EXPECT_EQ(WithoutIndices("a]b"), "a]b");
}

TEST(IndexTextTest, IsAFormula) {
  const std::vector<int64_t> layers = {0, 1, 2};
  EXPECT_EQ(IndexText(layers, {{0, 0, ""}, {0, 1, ""}, {0, 2, ""}}), "0..layer - 1");
  EXPECT_EQ(IndexText(layers, {{1, 1, ""}, {2, 2, ""}, {3, 3, ""}}), "layer");
  EXPECT_EQ(IndexText(layers, {{0, 1, ""}, {0, 3, ""}, {0, 5, ""}}), "0..2 * layer - 1");
  EXPECT_EQ(IndexText(layers, {{4, 4, ""}, {3, 3, ""}, {2, 2, ""}}), "5 - layer");
  EXPECT_EQ(IndexText(layers, {{0, 3, ""}, {0, 3, ""}, {0, 3, ""}}), "0..3");
  EXPECT_EQ(IndexText(layers, {{0, 0, ""}, {0, 3, ""}, {0, 4, ""}}), "...");
}

TEST(CommonLabelTest, DropsNumbersThatDiffer) {
  EXPECT_EQ(CommonLabel("min(0.001 * step, 1)", "min(1e-05 * step, 1)"), "min(… * step, 1)");
  EXPECT_EQ(CommonLabel("min(… * step, 1)", "min(3 * step, 1)"), "min(… * step, 1)");
  EXPECT_EQ(CommonLabel("window of 4", "window of 16"), "window of …");
  EXPECT_EQ(CommonLabel("gamma", "gamma"), "gamma");
  EXPECT_EQ(CommonLabel("", ""), "");
  EXPECT_EQ(CommonLabel("norm_1", "norm_2"), std::nullopt);
  EXPECT_EQ(CommonLabel("norm", "norm_2"), std::nullopt);
  EXPECT_EQ(CommonLabel("a 1", "a"), std::nullopt);
  EXPECT_EQ(CommonLabel("1", "x"), std::nullopt);
}

}  // namespace
}  // namespace plumb
