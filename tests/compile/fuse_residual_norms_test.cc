// SPDX-License-Identifier: Apache-2.0
// The pass fuse-residual-norms: which nodes it fuses, which it does not, and that no bit changes.
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/compile/differentiate.h"
#include "runtime/compile/executable.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/run_graph.h"
#include "tests/ops/norm_cases.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using Coefs = std::vector<double>;

constexpr int64_t kDim = 8;
const Shape kRows = {37, kDim};

class FuseResidualNormsTest : public testing::Test {
 protected:
  FuseResidualNormsTest() : norm_(MakeNormAttr("test.tanh", kDim)) { RegisterOps(&ops_); }

  static ValueId Leaf(GraphBuilder& b, const std::string& name) {
    return b.Parameter(name, F32(kRows));
  }

  std::vector<ValueId> Norm(GraphBuilder& b, ValueId x, const std::string& name) {
    std::vector<ValueId> inputs = {x};
    for (const NormParam& param : norm_->instance().params()) {
      inputs.push_back(b.Parameter(absl::StrCat(name, ".", param.name), F32(Shape(param.dims))));
    }
    return b.ApplyAll("norm", inputs,
                      {{"instance", std::shared_ptr<const AttrObject>(norm_)}, {"train", true}},
                      name);
  }

  static ValueId Sum(GraphBuilder& b, std::vector<ValueId> terms, const std::string& name = "",
                     double coef = 1, double constant = 0) {
    Coefs coefs(terms.size(), 1.0);
    coefs.back() = coef;
    return b.Apply("combine", std::move(terms), {{"coefs", coefs}, {"constant", constant}}, name);
  }

  // Adds a loss to which every element of x contributes differently.
  static void Loss(GraphBuilder& b, ValueId x) {
    const ValueId square = b.Apply("mul", {x, x});
    const ValueId columns = b.Apply("mul_reduce", {square});
    const ValueId weight = b.Parameter("loss.weight", F32({kDim}));
    b.Output("loss", b.Apply("mul_reduce", {columns, weight}, {{"size", int64_t{1}}}));
  }

  Graph Build(const std::function<void(GraphBuilder&)>& build, bool gradients = false) {
    GraphBuilder b(&ops_);
    build(b);
    absl::StatusOr<Graph> graph = std::move(b).Finish();
    EXPECT_TRUE(graph.ok()) << graph.status();
    if (!gradients) return *std::move(graph);
    graph = Differentiate(*std::move(graph), ops_, "loss");
    EXPECT_TRUE(graph.ok()) << graph.status();
    return *std::move(graph);
  }

  // Returns the graph after all passes. Checks that without the fusion all outputs are
  // bit-identical.
  Graph Optimized(const Graph& graph) {
    const absl::StatusOr<Graph> fused = Optimize(graph, ops_);
    const absl::StatusOr<Graph> plain = Optimize(graph, ops_, {{"fuse-residual-norms"}});
    EXPECT_TRUE(fused.ok() && plain.ok()) << fused.status() << plain.status();
    const ReferenceTensors feeds = RandomFeeds(graph, 5);
    const auto want = Outputs(*plain, feeds);
    const auto got = Outputs(*fused, feeds);
    for (const auto& [name, values] : want) EXPECT_EQ(got.at(name), values) << name;
    return *fused;
  }

  static std::map<std::string, std::vector<double>> Outputs(const Graph& graph,
                                                            const ReferenceTensors& feeds) {
    std::map<std::string, std::vector<double>> outputs;
    const auto executable = Executable::Compile(graph);
    EXPECT_TRUE(executable.ok()) << executable.status();
    const BoundMemory memory(executable->get(), feeds);
    EXPECT_TRUE((*executable)->Run(2).ok());
    for (const GraphOutput& output : graph.outputs) {
      outputs[output.name] = memory.Read(output.name).f;
    }
    return outputs;
  }

  std::string OpsAfter(const std::function<void(GraphBuilder&)>& build, bool gradients = false) {
    const Graph graph = Optimized(Build(build, gradients));
    return absl::StrJoin(graph.nodes, " ", [](std::string* out, const Node& node) {
      out->append(node.op->name);
      if (node.op->name == "norm_grad" && node.inputs[4] != kNoValue) out->append("+dsum");
    });
  }

  OpRegistry ops_;
  std::shared_ptr<const NormAttr> norm_;
};

// -- Forward

TEST_F(FuseResidualNormsTest, FusesASumAndItsNorm) {
  const Graph graph = Optimized(Build([this](GraphBuilder& b) {
    const ValueId sum = Sum(b, {Leaf(b, "x"), Leaf(b, "f")}, "sum");
    const ValueId between = b.Apply("act", {sum}, {{"kind", std::string("relu")}}, "between");
    b.Output("out", b.Apply("mul", {Norm(b, sum, "n")[0], between}, {}, "product"));
  }));
  const std::string text = ToString(graph);
  EXPECT_THAT(text, HasSubstr("f32[37, 8] sum, "));
  EXPECT_THAT(text, HasSubstr("f32[37, 8] n = add_norm(%0, %1, %4, %5) {instance=test.tanh()[8], "
                              "train=true}\n"));
  EXPECT_LT(text.find("add_norm"), text.find("act("));
  EXPECT_EQ(text.find("combine"), std::string::npos);
}

TEST_F(FuseResidualNormsTest, GivesTheSumToTheFirstOfSeveralNorms) {
  EXPECT_EQ(OpsAfter([this](GraphBuilder& b) {
              const ValueId sum = Sum(b, {Leaf(b, "x"), Leaf(b, "f")});
              const ValueId first = Norm(b, sum, "first")[0];
              b.Output("out", b.Apply("mul", {first, Norm(b, sum, "second")[0]}));
            }),
            "add_norm norm mul");
}

TEST_F(FuseResidualNormsTest, KeepsASumThatIsAnOutput) {
  EXPECT_EQ(OpsAfter([this](GraphBuilder& b) {
              const ValueId sum = Sum(b, {Leaf(b, "x"), Leaf(b, "f")});
              b.Output("sum", sum);
              b.Output("out", Norm(b, sum, "n")[0]);
            }),
            "add_norm");
}

TEST_F(FuseResidualNormsTest, KeepsOtherSums) {
  const auto ops_of = [this](size_t terms, double coef, double constant) {
    return OpsAfter([&](GraphBuilder& b) {
      std::vector<ValueId> leaves;
      for (size_t i = 0; i < terms; ++i) leaves.push_back(Leaf(b, absl::StrCat("x", i)));
      b.Output("out", Norm(b, Sum(b, leaves, "", coef, constant), "n")[0]);
    });
  };
  EXPECT_EQ(ops_of(2, 1, 0), "add_norm");
  EXPECT_EQ(ops_of(2, 0.5, 0), "combine norm");
  EXPECT_EQ(ops_of(2, 1, 3), "combine norm");
  EXPECT_EQ(ops_of(3, 1, 0), "combine norm");
}

TEST_F(FuseResidualNormsTest, KeepsASumThatNoNormReads) {
  EXPECT_EQ(OpsAfter([](GraphBuilder& b) {
              const ValueId sum = Sum(b, {Leaf(b, "x"), Leaf(b, "f")});
              b.Output("out", b.Apply("act", {sum}, {{"kind", std::string("relu")}}));
            }),
            "combine act");
}

// A norm whose parameter is computed after the sum.
TEST_F(FuseResidualNormsTest, KeepsANormWithLaterParameters) {
  EXPECT_EQ(OpsAfter([this](GraphBuilder& b) {
              const ValueId sum = Sum(b, {Leaf(b, "x"), Leaf(b, "f")});
              const ValueId shift = b.Apply("mul_reduce", {sum});
              const Shape scalar((absl::Span<const int64_t>()));
              b.Output("out", b.Apply("norm", {sum, b.Parameter("scale", F32(scalar)), shift},
                                      {{"instance", std::shared_ptr<const AttrObject>(norm_)}}));
            }),
            "combine mul_reduce norm");
}

// The sum may take the memory of a term, so the norm must not read that term.
TEST_F(FuseResidualNormsTest, KeepsASumWithTheNormsSecondInput) {
  const auto pair = MakeNormAttr("test.pair", kDim);
  const auto ops_with = [&](const char* second) {
    return OpsAfter([&](GraphBuilder& b) {
      const ValueId x = Leaf(b, "x"), f = Leaf(b, "f"), g = Leaf(b, "g");
      const ValueId x2 = second == std::string("f") ? f : g;
      b.Output("out", b.Apply("norm", {Sum(b, {x, f}), b.Parameter("gain", F32({kDim})), x2},
                              {{"instance", std::shared_ptr<const AttrObject>(pair)}}));
    });
  };
  EXPECT_EQ(ops_with("g"), "add_norm");
  EXPECT_EQ(ops_with("f"), "combine norm");
}

// -- Backward

TEST_F(FuseResidualNormsTest, FusesTheBypassGradient) {
  // x + f(norm(x)) after a sum, as in a stack of pre-norm layers.
  const std::string ops = OpsAfter(
      [this](GraphBuilder& b) {
        const ValueId x = Sum(b, {Leaf(b, "a"), Leaf(b, "b")});
        const ValueId f = b.Apply("act", {Norm(b, x, "n")[0]}, {{"kind", std::string("tanh")}});
        Loss(b, Sum(b, {x, f}));
      },
      true);
  EXPECT_THAT(ops, HasSubstr("add_norm"));
  EXPECT_THAT(ops, HasSubstr("norm_grad+dsum"));
  EXPECT_EQ(ops.find("combine", ops.find("norm_grad")), std::string::npos) << ops;
}

TEST_F(FuseResidualNormsTest, FusesGradientsOfSeveralNorms) {
  // x + f(norm(x)) + g(norm'(x)), two parallel branches.
  const std::string ops = OpsAfter(
      [this](GraphBuilder& b) {
        const ValueId x = Leaf(b, "x");
        const ValueId f = b.Apply("act", {Norm(b, x, "n")[0]}, {{"kind", std::string("tanh")}});
        const ValueId g = b.Apply("act", {Norm(b, x, "m")[0]}, {{"kind", std::string("silu")}});
        Loss(b, Sum(b, {x, f, g}));
      },
      true);
  const size_t first = ops.find("norm_grad+dsum");
  ASSERT_NE(first, std::string::npos) << ops;
  EXPECT_NE(ops.find("norm_grad+dsum", first + 1), std::string::npos) << ops;
}

TEST_F(FuseResidualNormsTest, KeepsTheOrderOfGradientSums) {
  // Three gradients are added, and one of them is not a norm's.
  const std::string ops = OpsAfter(
      [this](GraphBuilder& b) {
        const ValueId x = Leaf(b, "x");
        const ValueId f = b.Apply("act", {Norm(b, x, "n")[0]}, {{"kind", std::string("tanh")}});
        const ValueId g = b.Apply("act", {x}, {{"kind", std::string("silu")}});
        Loss(b, Sum(b, {x, f, g}));
      },
      true);
  EXPECT_EQ(ops.find("dsum"), std::string::npos) << ops;
}

TEST_F(FuseResidualNormsTest, KeepsAGradientThatIsAnOutput) {
  Graph graph = Build(
      [this](GraphBuilder& b) {
        const ValueId x = Leaf(b, "x");
        Loss(b, Sum(b, {x, Norm(b, x, "n")[0]}));
      },
      true);
  for (const Node& node : graph.nodes) {
    if (node.op->name == "norm_grad") graph.outputs.push_back({"asked", node.outputs[0]});
  }
  const Graph optimized = Optimized(graph);
  for (const Node& node : optimized.nodes) {
    EXPECT_TRUE(node.op->name != "norm_grad" || node.inputs[4] == kNoValue);
  }
}

// -- The pass

TEST_F(FuseResidualNormsTest, CanBeSwitchedOff) {
  const Graph graph = Build([this](GraphBuilder& b) {
    b.Output("out", Norm(b, Sum(b, {Leaf(b, "x"), Leaf(b, "f")}), "n")[0]);
  });
  EXPECT_EQ(Optimize(graph, ops_)->nodes.size(), 1u);
  EXPECT_EQ(Optimize(graph, ops_, {{"fuse-residual-norms"}})->nodes.size(), 2u);
}

TEST_F(FuseResidualNormsTest, TakesNoMoreMemory) {
  const Graph graph = Build(
      [this](GraphBuilder& b) {
        ValueId x = Sum(b, {Leaf(b, "a"), Leaf(b, "b")});
        for (int i = 0; i < 4; ++i) {
          const ValueId f = b.Apply("act", {Norm(b, x, absl::StrCat("n", i))[0]},
                                    {{"kind", std::string("tanh")}});
          x = Sum(b, {x, f});
        }
        Loss(b, x);
      },
      true);
  const auto fused = Executable::Compile(*Optimize(graph, ops_));
  const auto plain = Executable::Compile(*Optimize(graph, ops_, {{"fuse-residual-norms"}}));
  ASSERT_TRUE(fused.ok() && plain.ok());
  EXPECT_LE((*fused)->workspace_bytes(), (*plain)->workspace_bytes());
}

}  // namespace
}  // namespace plumb
