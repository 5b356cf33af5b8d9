// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/differentiate.h"

#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/graph/builder.h"
#include "tests/compile/graph_test.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/reference_run.h"
#include "tests/compile/run_graph.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using Coefs = std::vector<double>;

class DifferentiateTest : public GraphTest {
 protected:
  DifferentiateTest() { RegisterTestOps(&ops_); }

  // Compares every parameter's gradient with central differences of the loss, both in double.
  void ExpectRightGradients(const Graph& graph) {
    const absl::StatusOr<Graph> with_gradients = Differentiate(graph, ops_, "loss");
    ASSERT_TRUE(with_gradients.ok()) << with_gradients.status();
    const ReferenceTensors feeds = RandomFeeds(graph, 1);
    const absl::StatusOr<ReferenceTensors> got = ReferenceRun(*with_gradients, feeds);
    ASSERT_TRUE(got.ok()) << got.status();
    const auto loss_at = [&](const std::string& name, size_t i, double change) {
      ReferenceTensors changed = feeds;
      changed[name].f[i] += change;
      return ReferenceRun(graph, changed)->at("loss").f[0];
    };
    for (const Value& value : graph.values) {
      if (value.kind != ValueKind::kParameter) continue;
      ReferenceTensor want = got->at("grad." + value.name);
      constexpr double kStep = 1e-5;
      for (size_t i = 0; i < want.f.size(); ++i) {
        want.f[i] = (loss_at(value.name, i, kStep) - loss_at(value.name, i, -kStep)) / (2 * kStep);
      }
      EXPECT_LT(LargestDifference(got->at("grad." + value.name), want), 1e-6)
          << value.name << " in\n"
          << ToString(*with_gradients);
    }
  }

  static int CountNodes(const Graph& graph, absl::string_view op) {
    int count = 0;
    for (const Node& node : graph.nodes) count += node.op->name == op;
    return count;
  }

  std::string GetError(const Graph& graph, absl::string_view loss = "loss") {
    return std::string(Differentiate(graph, ops_, loss).status().message());
  }
};

TEST_F(DifferentiateTest, PrintsTheBackwardPassAfterTheForwardPass) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({2}));
    const ValueId x = b.Input("x", F32({2}));
    const ValueId y = b.Apply("mul", {w, x}, {}, "y");
    const ValueId z = b.Apply("combine", {y, w}, {{"coefs", Coefs{3, 1}}}, "z");
    b.Output("loss", b.Apply("sum", {z}, {}, "loss"));
  });
  const absl::StatusOr<Graph> got = Differentiate(graph, ops_, "loss");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(ToString(*got), R"(%0 f32[2] w = parameter
%1 f32[2] x = input
%2 f32[2] y = mul(%0, %1)
%3 f32[2] z = combine(%2, %0) {coefs=[3, 1]}
%4 f32[1] loss = sum(%3)
%5 f32[1] grad.loss = fill() {dims=[1], value=1}
%6 f32[2] grad.z = spread(%5) {dims=[2]}
%7 f32[2] grad.y = combine(%6) {coefs=[3]}
%8 f32[2] grad.w.2 = mul(%7, %1)
%9 f32[2] grad.w = combine(%6, %8) {coefs=[1, 1], constant=0}
output loss = %4
output grad.w = %9
)");
  ExpectRightGradients(graph);
}

TEST_F(DifferentiateTest, SumsTheGradientsOfAValueThatIsUsedThreeTimesInOneNode) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId h = b.Apply("mul", {w, w}, {}, "h");
    const ValueId p = b.Apply("mul", {h, h});
    const ValueId q = b.Apply("combine", {p, h}, {{"coefs", Coefs{0.5, -2}}});
    b.Output("loss", b.Apply("sum", {q}));
  });
  ExpectRightGradients(graph);
  const absl::StatusOr<Graph> got = Differentiate(graph, ops_, "loss");
  const ValueId grad = got->FindValue("grad.h");
  ASSERT_NE(grad, kNoValue);
  const Node& sum = got->nodes[static_cast<size_t>(got->value(grad).producer)];
  EXPECT_EQ(sum.op->name, "combine");
  EXPECT_EQ(sum.inputs.size(), 3u);
  EXPECT_EQ(got->value(sum.inputs[0]).name, "grad.h.1");
}

TEST_F(DifferentiateTest, SumsTheGradientsOfAParameterThatIsUsedTwice) {
  ExpectRightGradients(Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId x = b.Input("x", F32({4}));
    const ValueId y = b.Apply("reverse", {b.Apply("mul", {w, x})});
    b.Output("loss", b.Apply("sum", {b.Apply("mul", {y, w})}));
  }));
}

TEST_F(DifferentiateTest, TermsOfASumShareTheGradient) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId v = b.Parameter("v", F32({4}));
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId x = b.Apply("mul", {b.Parameter("u", F32({4})), v});
    b.Output("loss",
             b.Apply("sum", {b.Apply("combine", {v, w, x, x}, {{"coefs", Coefs{1, 1, 1, 1}}})}));
  });
  ExpectRightGradients(graph);
}

TEST_F(DifferentiateTest, UnreachedParameterHasZeroGradient) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId unused = b.Parameter("unused", F32({2, 3}));
    b.Output("other", b.Apply("reverse", {unused}));
    b.Output("loss", b.Apply("sum", {w}));
  });
  ExpectRightGradients(graph);
  const absl::StatusOr<Graph> got = Differentiate(graph, ops_, "loss");
  const Value& grad = got->value(got->FindOutput("grad.unused"));
  EXPECT_EQ(grad.type, F32({2, 3}));
  EXPECT_EQ(got->nodes[static_cast<size_t>(grad.producer)].op->name, "fill");
}

TEST_F(DifferentiateTest, FrozenParametersHaveNoGradient) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId low = b.Apply("reverse", {b.Parameter("low", F32({4}))});
    const ValueId product = b.Apply("mul", {low, b.Parameter("w", F32({4}))});
    b.Output("loss", b.Apply("sum", {b.Apply("mul", {product, b.Parameter("high", F32({4}))})}));
  });
  const absl::StatusOr<Graph> got = Differentiate(graph, ops_, "loss", {"low", "high"});
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_NE(got->FindOutput("grad.w"), kNoValue);
  EXPECT_EQ(got->outputs.size(), 2u) << "the loss and the gradient of w";
  int reversals = 0;
  for (const Node& node : got->nodes) reversals += node.op->name == "reverse";
  EXPECT_EQ(reversals, 1) << "of the forward pass only";
}

TEST_F(DifferentiateTest, ConstantLossHasZeroGradients) {
  const Graph graph = Build([](GraphBuilder& b) {
    b.Parameter("w", F32({4}));
    b.Output("loss", b.Apply("sum", {b.Input("x", F32({4}))}));
  });
  ExpectRightGradients(graph);
}

TEST_F(DifferentiateTest, ALossThatIsAParameterHasGradientOne) {
  ExpectRightGradients(
      Build([](GraphBuilder& b) { b.Output("loss", b.Parameter("w", F32({1}))); }));
}

TEST_F(DifferentiateTest, AVjpReceivesMissingGradients) {
  ExpectRightGradients(Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({6}));
    const std::vector<ValueId> halves = b.ApplyAll("split", {b.Apply("mul", {w, w})});
    b.Output("other", halves[0]);
    b.Output("loss", b.Apply("sum", {halves[1]}));
  }));
}

TEST_F(DifferentiateTest, ComputesOnlyGradientsOfParameters) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId x = b.Input("x", F32({4}));
    const ValueId y = b.Apply("mul", {x, x});
    b.Output("loss", b.Apply("sum", {b.Apply("mul", {y, w})}));
  });
  const absl::StatusOr<Graph> got = Differentiate(graph, ops_, "loss");
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(CountNodes(*got, "mul"), 3);  // two forward, and only grad.w backward
}

TEST_F(DifferentiateTest, RandomGraphsMatchDifferences) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomGraphOptions options;
    options.nodes = 12;
    options.states = false;
    ExpectRightGradients(RandomGraph(ops_, seed, options));
    if (HasFailure()) break;
  }
}

TEST_F(DifferentiateTest, NamesTheNodeThatCannotBeDifferentiated) {
  const auto build = [](GraphBuilder& b) {
    const ValueId picked =
        b.Apply("pick", {b.Parameter("w", F32({4})), b.Input("i", I32({1}))}, {}, "picked");
    b.Output("other", b.Apply("sum", {picked}));
    b.Output("loss", b.Apply("sum", {picked}));
  };
  EXPECT_EQ(GetError(Build(build)),
            "gradient of %2 f32[1] picked = pick(%0, %1): the op pick cannot be differentiated");
}

TEST_F(DifferentiateTest, AcceptsOpsWithoutGradientOffThePath) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId x = b.Input("x", F32({4}));
    const ValueId i = b.Input("i", I32({1}));
    b.Output("other", b.Apply("pick", {w, i}));
    const ValueId scale = b.Apply("spread", {b.Apply("pick", {x, i})}, {{"dims", Coefs{4}}});
    b.Output("loss", b.Apply("sum", {b.Apply("mul", {w, scale})}));
  });
  ExpectRightGradients(graph);
}

TEST_F(DifferentiateTest, RejectsAMissingOrNonScalarLoss) {
  const Graph graph = Build(
      [](GraphBuilder& b) { b.Output("y", b.Apply("reverse", {b.Parameter("w", F32({4}))})); });
  EXPECT_EQ(GetError(graph), "the graph has no output \"loss\"");
  EXPECT_THAT(GetError(graph, "y"), HasSubstr("\"y\" is f32[4], but only f32[1]"));
}

TEST_F(DifferentiateTest, RejectsAVjpOfTheWrongShape) {
  OpRegistry ops;
  RegisterTestOps(&ops);
  OpDef bad = *ops.Find("reverse");
  bad.name = "bad";
  bad.vjp = [](GraphBuilder& b, const Node&, absl::Span<const ValueId> dy,
               const std::vector<bool>&) { return std::vector<ValueId>{b.Apply("sum", {dy[0]})}; };
  ops.Add(bad);
  bad.name = "short";
  bad.vjp = [](GraphBuilder&, const Node&, absl::Span<const ValueId>, const std::vector<bool>&) {
    return std::vector<ValueId>{};
  };
  ops.Add(bad);
  bad.name = "broken";
  bad.vjp = [](GraphBuilder& b, const Node&, absl::Span<const ValueId> dy,
               const std::vector<bool>&) {
    return std::vector<ValueId>{b.Apply("split", {b.Apply("sum", {dy[0]})})};
  };
  ops.Add(bad);
  const auto error = [&ops](absl::string_view op) {
    GraphBuilder b(&ops);
    b.Output("loss", b.Apply("sum", {b.Apply(op, {b.Parameter("w", F32({4}))}, {}, "y")}));
    return std::string(Differentiate(*std::move(b).Finish(), ops, "loss").status().message());
  };
  EXPECT_THAT(error("bad"),
              HasSubstr("bad(%0): its VJP gave f32[1] for input 0, whose gradient is f32[4]"));
  EXPECT_THAT(error("short"), HasSubstr("its VJP gave 0 gradients for 1 inputs"));
  EXPECT_THAT(error("broken"), HasSubstr("gradient of %1 f32[4] y = broken(%0): split(f32[1])"));
}

}  // namespace
}  // namespace plumb
