// SPDX-License-Identifier: Apache-2.0
// The passes over matrix products, accumulate-embeddings and recompute-blocks: which nodes they
// rewrite and which they do not.
#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "runtime/kernels/gemv/quantize.h"
#include "runtime/ops/ops.h"
#include "tests/compile/graph_test.h"
#include "tests/compile/reference_run.h"
#include "tests/compile/run_graph.h"

namespace plumb {
namespace {

using Coefs = std::vector<double>;

constexpr int64_t kRows = 3, kDim = 4;

class FuseProductsTest : public GraphTest {
 protected:
  FuseProductsTest() { RegisterOps(&ops_); }

  // Returns the nodes after the one pass, "op(operands) -> results" in a line each. Checks that the
  // graph is valid and computes the same outputs.
  std::string NodesAfter(absl::string_view name, const std::function<void(GraphBuilder&)>& build) {
    const Graph graph = Build(build);
    for (const Pass& pass : AllPasses()) {
      if (pass.name != name) continue;
      const absl::StatusOr<Graph> got = pass.run(graph, ops_);
      EXPECT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(Verify(*got).ok()) << Verify(*got) << "\n" << ToString(*got);
      ExpectSameOutputs(graph, *got);
      std::string text;
      for (const Node& node : got->nodes) absl::StrAppend(&text, Line(*got, node), "\n");
      return text;
    }
    ADD_FAILURE() << "there is no pass " << name;
    return "";
  }

  static std::string Line(const Graph& graph, const Node& node) {
    const auto append = [&graph](std::string* out, ValueId id) {
      out->append(id == kNoValue ? "_" : graph.value(id).name);
    };
    return absl::StrCat(node.op->name, "(", absl::StrJoin(node.inputs, " ", append), ") -> ",
                        absl::StrJoin(node.outputs, " ", append));
  }

  static ValueId X(GraphBuilder& b, const std::string& name = "x") {
    return b.Input(name, F32({kRows, kDim}));
  }
  static ValueId Weight(GraphBuilder& b, const std::string& name, int64_t rows = kDim) {
    return b.Parameter(name, F32({rows, kDim}));
  }
  static ValueId Linear(GraphBuilder& b, ValueId x, ValueId w, const std::string& name,
                        ValueId bias = kNoValue) {
    std::vector<ValueId> inputs = {x, w};
    if (bias != kNoValue) inputs.push_back(bias);
    return b.Apply("matmul", inputs, {{"transpose_b", true}}, name);
  }
  static ValueId Product(GraphBuilder& b, ValueId x, ValueId w, const std::string& name) {
    return b.Apply("matmul", {x, w}, {}, name);
  }
  static ValueId Sum(GraphBuilder& b, std::vector<ValueId> terms, const std::string& name,
                     double last = 1) {
    Coefs coefs(terms.size(), 1.0);
    coefs.back() = last;
    return b.Apply("combine", std::move(terms), {{"coefs", coefs}, {"constant", 0.0}}, name);
  }
  static ValueId Act(GraphBuilder& b, ValueId x, const std::string& name) {
    return b.Apply("act", {x}, {{"kind", std::string("silu")}}, name);
  }
  static ValueId ActGrad(GraphBuilder& b, ValueId x, ValueId dy, const std::string& name) {
    return b.Apply("act_grad", {x, dy}, {{"kind", std::string("silu")}}, name);
  }
};

TEST_F(FuseProductsTest, FusesActivations) {
  EXPECT_EQ(NodesAfter("fuse-activations",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId bias = b.Parameter("bias", F32({kDim}));
                         const ValueId pre = Linear(b, x, w, "pre", bias);
                         b.Output("out", Act(b, pre, "y"));
                       }),
            "matmul_act(x w bias) -> y\n");
}

TEST_F(FuseProductsTest, KeepsTheDerivativeForGradients) {
  EXPECT_EQ(NodesAfter("fuse-activations",
                       [](GraphBuilder& b) {
                         const ValueId pre = Linear(b, X(b), Weight(b, "w"), "pre");
                         b.Output("y", Act(b, pre, "y"));
                         b.Output("out", ActGrad(b, pre, X(b, "dy"), "dpre"));
                       }),
            "matmul_act(x w) -> y y.derivative\n"
            "mul(dy y.derivative) -> dpre\n");
}

TEST_F(FuseProductsTest, FusesActivationGradientsInPlace) {
  EXPECT_EQ(NodesAfter("fuse-activations",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId pre = Linear(b, x, w, "pre");
                         b.Output("y", Act(b, pre, "y"));
                         const ValueId dy = Product(b, x, w, "dy");
                         b.Output("rows", b.Apply("mul_reduce", {x}, {}, "rows"));
                         b.Output("out", ActGrad(b, pre, dy, "dpre"));
                       }),
            "matmul_act(x w) -> y y.derivative\n"
            "mul_reduce(x) -> rows\n"
            "matmul_act_grad(x w y.derivative) -> dpre\n");
}

TEST_F(FuseProductsTest, DoesNotFuseSharedGradients) {
  EXPECT_EQ(NodesAfter("fuse-activations",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId pre = Linear(b, x, w, "pre");
                         b.Output("y", Act(b, pre, "y"));
                         const ValueId dy = Product(b, x, w, "dy");
                         b.Output("rows", b.Apply("mul_reduce", {dy}, {}, "rows"));
                         b.Output("out", ActGrad(b, pre, dy, "dpre"));
                       }),
            "matmul_act(x w) -> y y.derivative\n"
            "matmul(x w) -> dy\n"
            "mul_reduce(dy) -> rows\n"
            "mul(dy y.derivative) -> dpre\n");
}

TEST_F(FuseProductsTest, DoesNotFuseActivationsOfSharedValues) {
  const auto nodes = [this](const std::function<void(GraphBuilder&, ValueId)>& more) {
    return NodesAfter("fuse-activations", [&](GraphBuilder& b) {
      const ValueId pre = Linear(b, X(b), Weight(b, "w"), "pre");
      b.Output("y", Act(b, pre, "y"));
      more(b, pre);
    });
  };
  const std::string apart =
      "matmul(x w) -> pre\n"
      "act(pre) -> y\n";
  EXPECT_EQ(nodes([](GraphBuilder& b, ValueId pre) { b.Output("pre", pre); }), apart);
  EXPECT_EQ(nodes([](GraphBuilder& b, ValueId pre) { b.Output("z", Act(b, pre, "z")); }),
            apart + "act(pre) -> z\n");
  EXPECT_EQ(
      nodes([](GraphBuilder& b, ValueId pre) {  // derivative at another point
        b.Output("z", b.Apply("act_grad", {pre, X(b, "dz")}, {{"kind", std::string("gelu")}}, "z"));
      }),
      apart + "act_grad(pre dz) -> z\n");
  EXPECT_EQ(nodes([](GraphBuilder& b, ValueId pre) { b.Output("z", ActGrad(b, pre, pre, "z")); }),
            apart + "act_grad(pre pre) -> z\n");
}

TEST_F(FuseProductsTest, FusesResidualSums) {
  EXPECT_EQ(NodesAfter("sum-products",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId bias = b.Parameter("bias", F32({kDim}));
                         b.Output("out", Sum(b, {x, Linear(b, x, w, "f", bias)}, "y"));
                       }),
            "matmul_add(x w bias x) -> y\n");
}

TEST_F(FuseProductsTest, SumsProductsOfOneForm) {
  const auto sum = [](GraphBuilder& b, bool addend) {
    const ValueId x = X(b), y = X(b, "y"), v = Weight(b, "v"), w = Weight(b, "w");
    std::vector<ValueId> terms = {Product(b, x, v, "xv"), Product(b, y, w, "yw")};
    if (addend) terms.insert(terms.begin() + 1, X(b, "z"));
    b.Output("out", Sum(b, terms, "sum"));
  };
  EXPECT_EQ(NodesAfter("sum-products", [&](GraphBuilder& b) { sum(b, false); }),
            "matmul_sum(_ x v y w) -> sum\n");
  EXPECT_EQ(NodesAfter("sum-products", [&](GraphBuilder& b) { sum(b, true); }),
            "matmul_sum(z x v y w) -> sum\n");
}

TEST_F(FuseProductsTest, ProductsOfOtherFormsAreAddedOneAfterTheOther) {
  // One with a bias, and two that read their right operands differently.
  EXPECT_EQ(NodesAfter("sum-products",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId bias = b.Parameter("bias", F32({kDim}));
                         const ValueId f = Linear(b, x, w, "f", bias), g = Linear(b, x, w, "g");
                         const ValueId h = Product(b, x, w, "h");
                         b.Output("out", Sum(b, {f, g, X(b, "z"), h}, "sum"));
                       }),
            "matmul_add(x w bias z) -> f\n"
            "matmul_add(x w _ f) -> g\n"
            "matmul_add(x w _ g) -> sum\n");
  // Gradients of a weight that is used twice.
  EXPECT_EQ(NodesAfter("sum-products",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), y = X(b, "y");
                         const ValueId f = b.Apply("matmul", {x, y}, {{"transpose_a", true}}, "f");
                         const ValueId g = b.Apply("matmul", {y, x}, {{"transpose_a", true}}, "g");
                         b.Output("out", Sum(b, {f, g}, "sum"));
                       }),
            "matmul(x y) -> f\n"
            "matmul_add(y x _ f) -> sum\n");
}

TEST_F(FuseProductsTest, KeepsScaledSums) {
  const auto count_after = [this](const std::function<void(GraphBuilder&, ValueId, ValueId)>& sum) {
    const std::string text = NodesAfter("sum-products", [&](GraphBuilder& b) {
      const ValueId x = X(b);
      sum(b, x, Linear(b, x, Weight(b, "w"), "f"));
    });
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId x, ValueId f) {
              b.Output("out", Sum(b, {x, f}, "y", 0.5));
            }),
            2);
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId x, ValueId f) {  // the product is an output
              b.Output("out", Sum(b, {x, f}, "y"));
              b.Output("f", f);
            }),
            2);
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId x, ValueId f) {  // two other addends
              b.Output("out", Sum(b, {x, f, X(b, "z")}, "y"));
            }),
            2);
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId, ValueId f) {
              b.Output("out", Sum(b, {f, f}, "y"));
            }),
            2);
}

TEST_F(FuseProductsTest, SharesTheInputOfLayers) {
  EXPECT_EQ(NodesAfter("share-operands",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), other = X(b, "other");
                         const ValueId bias = b.Parameter("bias", F32({kDim}));
                         b.Output("q", Act(b, Linear(b, x, Weight(b, "wq"), "q"), "qa"));
                         b.Output("k", Linear(b, x, Weight(b, "wk", 2), "k"));
                         b.Output("v", Linear(b, x, Weight(b, "wv"), "v", bias));
                         b.Output("o", Linear(b, other, Weight(b, "wo"), "o"));
                       }),
            "matmul_shared(x wq wk wv _ _ bias) -> q k v\n"
            "act(q) -> qa\n"
            "matmul(other wo) -> o\n");
}

TEST_F(FuseProductsTest, SharesTheInputOfInt8Layers) {
  EXPECT_EQ(NodesAfter("share-operands",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), bias = b.Parameter("bias", F32({kDim}));
                         const auto layer = [&](const char* name, std::vector<ValueId> more) {
                           const Shape w = {kDim, kDim};
                           std::vector<ValueId> inputs = {
                               x, b.Parameter(absl::StrCat("w", name), Int8Elements(w)),
                               b.Parameter(absl::StrCat("s", name), Int8Scales(w))};
                           inputs.insert(inputs.end(), more.begin(), more.end());
                           b.Output(name, b.Apply("matmul_int8", inputs,
                                                  {{"rows", std::vector<double>{kDim}}}, name));
                         };
                         layer("q", {});
                         layer("k", {bias});
                         b.Output("f", Linear(b, x, Weight(b, "wf"), "f"));
                       }),
            "matmul_int8(x wq sq wk sk _ bias) -> q k\n"
            "matmul(x wf) -> f\n");
}

TEST_F(FuseProductsTest, KeepsTheOrderOfHeavyOps) {
  EXPECT_EQ(NodesAfter("share-operands",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), other = X(b, "other");
                         b.Output("q", Linear(b, x, Weight(b, "wq"), "q"));
                         b.Output("o", Linear(b, other, Weight(b, "wo"), "o"));
                         b.Output("k", Linear(b, x, Weight(b, "wk"), "k"));
                       }),
            "matmul(x wq) -> q\n"
            "matmul(other wo) -> o\n"
            "matmul(x wk) -> k\n");
  EXPECT_EQ(NodesAfter("share-operands",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b);
                         b.Output("q", Linear(b, x, Weight(b, "wq"), "q"));
                         const ValueId bias = b.Apply("mul_reduce", {x}, {}, "bias");
                         b.Output("k", Linear(b, x, Weight(b, "wk"), "k", bias));
                       }),
            "matmul(x wq) -> q\n"
            "mul_reduce(x) -> bias\n"
            "matmul(x wk bias) -> k\n");
}

TEST_F(FuseProductsTest, AccumulatesEmbeddingGradients) {
  const auto nodes = [this](int others, bool read_elsewhere) {
    return NodesAfter("accumulate-embeddings", [&](GraphBuilder& b) {
      const ValueId ids = b.Input("ids", I32({kRows})), dy = X(b, "dy");
      const ValueId e = b.Apply("embedding_grad", {ids, dy}, {{"rows", int64_t{kRows}}}, "e");
      std::vector<ValueId> terms = {e};
      for (int i = 0; i < others; ++i) terms.push_back(X(b, absl::StrCat("g", i)));
      if (others == 0) {
        terms.push_back(
            b.Apply("embedding_grad", {ids, terms[0]}, {{"rows", int64_t{kRows}}}, "e2"));
      }
      b.Output("out", Sum(b, terms, "sum"));
      if (read_elsewhere) b.Output("e", e);
    });
  };
  EXPECT_EQ(nodes(1, false), "embedding_grad(ids dy g0) -> sum\n");
  EXPECT_EQ(nodes(2, false),
            "combine(g0 g1) -> sum.rest\n"
            "embedding_grad(ids dy sum.rest) -> sum\n");
  EXPECT_EQ(nodes(0, false),  // e2 reads e too
            "embedding_grad(ids dy) -> e\n"
            "embedding_grad(ids e e) -> sum\n");
  EXPECT_EQ(nodes(1, true),
            "embedding_grad(ids dy) -> e\n"
            "combine(e g0) -> sum\n");
}

TEST_F(FuseProductsTest, RecomputesValuesOfTheBackwardPass) {
  EXPECT_EQ(NodesAfter("recompute-blocks",
                       [](GraphBuilder& b) {
                         const ValueId x = X(b), w = Weight(b, "w");
                         const ValueId p = Linear(b, x, w, "layers.0.p");
                         const ValueId a = Act(b, p, "layers.0.a");
                         const ValueId y = Sum(b, {x, a}, "layers.0.y");
                         const ValueId q = Linear(b, y, w, "layers.1.q");
                         const ValueId z = Sum(b, {y, q}, "layers.1.z");
                         const ValueId dz = Act(b, z, "grad.z");
                         const ValueId dq = ActGrad(b, q, dz, "grad.q");
                         const ValueId dy = ActGrad(b, y, dq, "grad.y");
                         const ValueId da = ActGrad(b, a, dy, "grad.a");
                         b.Output("out", ActGrad(b, p, da, "grad.p"));
                       }),
            "matmul(x w) -> layers.0.p\n"
            "act(layers.0.p) -> layers.0.a\n"
            "combine(x layers.0.a) -> layers.0.y\n"
            "matmul(layers.0.y w) -> layers.1.q\n"
            "combine(layers.0.y layers.1.q) -> layers.1.z\n"
            "matmul(layers.0.y w) -> again.layers.1.q\n"
            "combine(layers.0.y again.layers.1.q) -> again.layers.1.z\n"
            "act(again.layers.1.z) -> grad.z\n"
            "act_grad(again.layers.1.q grad.z) -> grad.q\n"
            "act_grad(layers.0.y grad.q) -> grad.y\n"
            "matmul(x w) -> again.layers.0.p\n"
            "act(again.layers.0.p) -> again.layers.0.a\n"
            "act_grad(again.layers.0.a grad.y) -> grad.a\n"
            "act_grad(again.layers.0.p grad.a) -> grad.p\n");
}

TEST_F(FuseProductsTest, DropsUnreadDerivatives) {
  EXPECT_EQ(NodesAfter("dead-values",
                       [](GraphBuilder& b) {
                         const std::vector<ValueId> y = b.ApplyAll(
                             "matmul_act", {X(b), Weight(b, "w")},
                             {{"transpose_b", true}, {"kind", std::string("silu")}, {"keep", true}},
                             "y");
                         Act(b, y[1], "dead");
                         b.Output("out", y[0]);
                       }),
            "matmul_act(x w) -> y\n");
}

TEST_F(FuseProductsTest, CostsAreCountedInMultiplyAddsAndBytes) {
  GraphBuilder b(&ops_);
  const ValueId q = b.Input("q", F32({2, 5, 12})), kv = b.Input("kv", F32({2, 5, 4}));
  const std::vector<ValueId> context =
      b.ApplyAll("attention", {q, kv, kv},
                 {{"n_head", int64_t{3}}, {"n_kv_head", int64_t{1}}, {"scale", 0.5}}, "context");
  const ValueId w = b.Parameter("w", F32({7, 12}));
  b.Output("y", b.Apply("matmul", {context[0], w}, {{"transpose_b", true}}, "y"));
  const std::vector<NodeTime> costs = NodeCosts(*std::move(b).Finish());
  ASSERT_EQ(costs.size(), 2u);
  EXPECT_EQ(costs[0].op, "attention");
  EXPECT_EQ(costs[0].name, "context");
  // 15 pairs of a query and a key, two products of 4 multiply-adds, 3 heads, 2 sequences.
  EXPECT_EQ(costs[0].flops, 15 * 2 * 8 * 3 * 2);
  EXPECT_EQ(costs[0].bytes, 4 * (2 * 120 + 40 + 30));
  EXPECT_EQ(costs[1].flops, 2.0 * 10 * 7 * 12);
  EXPECT_EQ(costs[1].bytes, 4 * (120 + 84 + 70));
  EXPECT_EQ(costs[1].seconds, 0);
}

TEST_F(FuseProductsTest, CostsOfFewerQueriesThanKeys) {
  GraphBuilder b(&ops_);
  const ValueId q = b.Input("q", F32({2, 2, 12})), kv = b.Input("kv", F32({2, 5, 4}));
  const ValueId cache = b.State("cache", F32({2, 1, 8, 4}));
  const ValueId v_cache = b.State("v_cache", F32({2, 1, 8, 4}));
  b.Apply("attention_cached", {q, kv, kv, cache, v_cache, b.Input("positions", I32({2, 5}))},
          {{"n_head", int64_t{3}}, {"n_kv_head", int64_t{1}}, {"scale", 0.5}});
  // 4 + 5 pairs, two products of 4 multiply-adds, 3 heads, 2 sequences.
  EXPECT_EQ(NodeCosts(*std::move(b).Finish())[0].flops, 9 * 2 * 8 * 3 * 2);
}

TEST_F(FuseProductsTest, CostsOfAWindow) {
  const auto flops = [this](int64_t queries, int64_t window) {
    GraphBuilder b(&ops_);
    const ValueId q = b.Input("q", F32({1, queries, 4})), kv = b.Input("kv", F32({1, 5, 4}));
    const TensorType rows = F32({1, 1, std::max<int64_t>(window, 8), 4});
    const ValueId cache = b.State("cache", rows), v_cache = b.State("v_cache", rows);
    b.Apply(
        "attention_cached", {q, kv, kv, cache, v_cache, b.Input("positions", I32({1, 5}))},
        {{"n_head", int64_t{1}}, {"n_kv_head", int64_t{1}}, {"scale", 1.0}, {"window", window}});
    return NodeCosts(*std::move(b).Finish())[0].flops / (2 * 8);
  };
  EXPECT_EQ(flops(5, 2), 1 + 2 + 2 + 2 + 2);
  EXPECT_EQ(flops(2, 2), 2 + 2);
  EXPECT_EQ(flops(2, 4), 4 + 4);
  EXPECT_EQ(flops(2, 9), 4 + 5);
  EXPECT_EQ(flops(5, 0), 1 + 2 + 3 + 4 + 5);
}

}  // namespace
}  // namespace plumb
