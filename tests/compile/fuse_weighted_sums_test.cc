// SPDX-License-Identifier: Apache-2.0
// fuse-weighted-sums: what it rewrites and what it leaves alone, forwards and in gradients.
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/compile/differentiate.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/reference_run.h"
#include "tests/compile/run_graph.h"

namespace plumb {
namespace {

class FuseWeightedSumsTest : public testing::Test {
 protected:
  FuseWeightedSumsTest() : b_(&ops_) { RegisterOps(&ops_); }

  ValueId Stream(const std::string& name) { return b_.Input(name, F32({2, 3, 8})); }
  ValueId Scalar(const std::string& name) { return b_.Parameter(name, F32({1})); }
  ValueId Product(ValueId a, ValueId b) { return b_.Apply("mul", {a, b}); }
  ValueId Sum(std::vector<ValueId> terms, std::vector<double> coefs) {
    return b_.Apply("combine", std::move(terms), {{"coefs", std::move(coefs)}, {"constant", 0.0}},
                    "sum");
  }

  // How often each op is in the graph after the pass: "combine 1, mul 2". The outputs stay.
  std::string OpsAfter() {
    const absl::StatusOr<Graph> before = std::move(b_).Finish();
    EXPECT_TRUE(before.ok()) << before.status();
    return OpsAfter(*before);
  }
  std::string OpsAfter(const Graph& before) {
    const absl::StatusOr<Graph> after = Optimize(before, ops_, OnlyPasses({"fuse-weighted-sums"}));
    EXPECT_TRUE(after.ok()) << after.status();
    const ReferenceTensors feeds = RandomFeeds(before, 3);
    const absl::StatusOr<ReferenceTensors> want = ReferenceRun(before, feeds);
    const absl::StatusOr<ReferenceTensors> got = ReferenceRun(*after, feeds);
    EXPECT_TRUE(want.ok() && got.ok()) << want.status() << got.status();
    for (const auto& [name, tensor] : *want) {
      EXPECT_LT(LargestDifference(got->at(name), tensor), 1e-9) << name;
    }
    std::map<std::string, int> counts;
    for (const Node& node : after->nodes) ++counts[node.op->name];
    return absl::StrJoin(counts, ", ", absl::PairFormatter(" "));
  }

  OpRegistry ops_;
  GraphBuilder b_;
};

TEST_F(FuseWeightedSumsTest, ASumOfProductsIsOneNode) {
  const ValueId x = Stream("x"), y = Stream("y"), z = Stream("z");
  b_.Output("sum", Sum({Product(x, Scalar("a")), Product(y, Scalar("b")), z}, {1, -0.5, 2}));
  EXPECT_EQ(OpsAfter(), "weighted_sum 1");
}

TEST_F(FuseWeightedSumsTest, OneProductAloneStays) {
  const ValueId x = Stream("x"), y = Stream("y");
  b_.Output("sum", Sum({x, Product(y, Scalar("a"))}, {1, 1}));
  EXPECT_EQ(OpsAfter(), "combine 1, mul 1");
}

TEST_F(FuseWeightedSumsTest, AProductThatIsReadElsewhereStays) {
  const ValueId x = Stream("x"), y = Stream("y"), z = Stream("z");
  const ValueId shared = Product(x, Scalar("a"));
  b_.Output("shared", shared);
  b_.Output("sum", Sum({shared, Product(y, Scalar("b")), Product(z, Scalar("c"))}, {1, 1, 1}));
  EXPECT_EQ(OpsAfter(), "mul 1, weighted_sum 1");
}

TEST_F(FuseWeightedSumsTest, GradientsOfALayerThatManyReadAreOneSum) {
  // Two sums read all layers, as in DenseFormer: the gradient of h has a part from each.
  const ValueId table = b_.Parameter("table", F32({2, 8}));
  const ValueId ids = b_.Input("ids", I32({2, 3}));
  const ValueId h = b_.Apply("embedding", {table, ids}, {}, "h");
  std::vector<ValueId> reads;
  for (const char* name : {"first", "second", "third"}) {
    const ValueId w = Scalar(name);
    const ValueId product = Product(h, w);
    reads.push_back(b_.Apply("act", {product}, {{"kind", std::string("tanh")}}));
  }
  const ValueId all = Sum(reads, {1, 1, 1});
  const ValueId loss = b_.Apply("mul_reduce", {all, all}, {{"size", int64_t{1}}});
  b_.Output("loss", loss);
  const absl::StatusOr<Graph> graph = std::move(b_).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const absl::StatusOr<Graph> backward = Differentiate(*graph, ops_, "loss");
  ASSERT_TRUE(backward.ok()) << backward.status();
  // Three products forwards, none backwards: the gradients of h and of the sum are one node each.
  EXPECT_EQ(OpsAfter(*backward),
            "act 3, act_grad 3, combine 1, embedding 1, embedding_grad 1, fill 1, mul 3, "
            "mul_reduce 4, weighted_sum 2");
}

TEST_F(FuseWeightedSumsTest, StopIsNothingOnceGradientsAreMade) {
  const ValueId x = Stream("x");
  const ValueId stopped = b_.Apply("stop", {x});
  b_.Output("y", Sum({x, stopped}, {1, 2}));
  const absl::StatusOr<Graph> graph = std::move(b_).Finish();
  ASSERT_TRUE(graph.ok()) << graph.status();
  const absl::StatusOr<Graph> merged = Optimize(*graph, ops_, OnlyPasses({"merge-combines"}));
  ASSERT_TRUE(merged.ok()) << merged.status();
  for (const Node& node : merged->nodes) EXPECT_NE(node.op->name, "stop");
}

}  // namespace
}  // namespace plumb
