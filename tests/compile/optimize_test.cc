// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/optimize.h"

#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/compile/differentiate.h"
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

class OptimizeTest : public GraphTest {
 protected:
  OptimizeTest() { RegisterTestOps(&ops_); }

  // Returns the graph after the one pass. Checks that it is valid and computes the same outputs.
  Graph RunPass(absl::string_view name, const Graph& graph) {
    for (const Pass& pass : AllPasses()) {
      if (pass.name != name) continue;
      absl::StatusOr<Graph> got = pass.run(graph, ops_);
      EXPECT_TRUE(got.ok()) << got.status();
      EXPECT_TRUE(Verify(*got).ok()) << Verify(*got) << "\n" << ToString(*got);
      ExpectSameOutputs(graph, *got);
      return *std::move(got);
    }
    ADD_FAILURE() << "there is no pass " << name;
    return graph;
  }

  std::string NodesAfter(absl::string_view pass, const std::function<void(GraphBuilder&)>& build) {
    const std::string text = ToString(RunPass(pass, Build(build)));
    return text.substr(text.rfind(" = parameter\n") + 13);
  }
};

TEST_F(OptimizeTest, MergesASumThatOnlyASumReads) {
  EXPECT_EQ(
      NodesAfter("merge-combines",
                 [](GraphBuilder& b) {
                   const ValueId x = b.Parameter("x", F32({4}));
                   const ValueId y = b.Parameter("y", F32({4}));
                   const ValueId inner =
                       b.Apply("combine", {x, y}, {{"coefs", Coefs{3, 4}}, {"constant", 5.0}});
                   b.Output("out", b.Apply("combine", {y, inner},
                                           {{"coefs", Coefs{1, 2}}, {"constant", 1.0}}, "sum"));
                 }),
      "%2 f32[4] sum = combine(%1, %0) {coefs=[9, 6], constant=11}\n"
      "output out = %2\n");
}

TEST_F(OptimizeTest, MergesChainsAndSumsThatAreReadTwiceByOneNode) {
  EXPECT_EQ(NodesAfter("merge-combines",
                       [](GraphBuilder& b) {
                         const ValueId x = b.Parameter("x", F32({4}));
                         ValueId sum = x;
                         for (int i = 0; i < 4; ++i) {
                           sum = b.Apply("combine", {sum, sum}, {{"coefs", Coefs{1, 1}}}, "sum");
                         }
                         b.Output("out", sum);
                       }),
            "%1 f32[4] sum_4 = combine(%0) {coefs=[16], constant=0}\n"
            "output out = %1\n");
}

TEST_F(OptimizeTest, DoesNotMergeASumThatSomethingElseReads) {
  const auto count_after = [this](const std::function<void(GraphBuilder&, ValueId)>& use) {
    return RunPass("merge-combines", Build([&](GraphBuilder& b) {
                     const ValueId x = b.Parameter("x", F32({4}));
                     const ValueId inner = b.Apply("combine", {x}, {{"coefs", Coefs{3}}});
                     b.Output("out", b.Apply("combine", {inner}, {{"coefs", Coefs{2}}}));
                     use(b, inner);
                   }))
        .nodes.size();
  };
  EXPECT_EQ(count_after([](GraphBuilder&, ValueId) {}), 1u);
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId inner) { b.Output("inner", inner); }), 2u);
  EXPECT_EQ(count_after([](GraphBuilder& b, ValueId inner) {
              b.Output("also", b.Apply("reverse", {inner}));
            }),
            3u);
}

TEST_F(OptimizeTest, SplitsLongSums) {
  const Graph graph = RunPass("merge-combines", Build([](GraphBuilder& b) {
                                const ValueId w = b.Parameter("w", F32({4}));
                                ValueId sum = w;
                                for (int i = 0; i < 20; ++i) {
                                  const ValueId x = b.Apply("mul", {w, w});
                                  sum = b.Apply("combine", {sum, x}, {{"coefs", Coefs{1, 1}}});
                                }
                                b.Output("out", sum);
                              }));
  int sums = 0;
  for (const Node& node : graph.nodes) {
    if (node.op->name != "combine") continue;
    ++sums;
    EXPECT_LE(node.inputs.size(), 8u);
  }
  EXPECT_EQ(sums, 3);  // w and 20 products: 8 terms, then twice a sum and 7 more (6 are left)
}

TEST_F(OptimizeTest, ReplacesIdentities) {
  EXPECT_EQ(NodesAfter("merge-combines",
                       [](GraphBuilder& b) {
                         const ValueId x = b.Parameter("x", F32({4}));
                         const ValueId a = b.Apply("combine", {x}, {{"coefs", Coefs{1}}});
                         const ValueId y = b.Apply("reverse", {a}, {}, "y");
                         b.Output("out", b.Apply("combine", {y}, {{"coefs", Coefs{1}}}));
                       }),
            "%1 f32[4] y = reverse(%0)\n"
            "output out = %1\n");
}

TEST_F(OptimizeTest, KeepsASumThatBecomesAnOutputInPlaceOfItsCopy) {
  EXPECT_EQ(NodesAfter("merge-combines",
                       [](GraphBuilder& b) {
                         const ValueId x = b.Parameter("x", F32({4}));
                         const ValueId y = b.Apply("combine", {x}, {{"coefs", Coefs{2}}}, "y");
                         b.Output("y", b.Apply("combine", {y}, {{"coefs", Coefs{1}}}, "copy"));
                         b.Output("z", b.Apply("combine", {y}, {{"coefs", Coefs{3}}}, "z"));
                       }),
            "%1 f32[4] y = combine(%0) {coefs=[2]}\n"
            "%2 f32[4] z = combine(%1) {coefs=[3]}\n"
            "output y = %1\n"
            "output z = %2\n");
}

TEST_F(OptimizeTest, KeepsIdentitiesThatGiveAnOutputMemoryOfItsOwn) {
  EXPECT_EQ(NodesAfter("merge-combines",
                       [](GraphBuilder& b) {
                         const ValueId x = b.Parameter("x", F32({4}));
                         const ValueId y = b.Apply("reverse", {x}, {}, "y");
                         const Attrs identity{{"coefs", Coefs{1}}};
                         b.Output("copy of x", b.Apply("combine", {x}, identity, "a"));
                         b.Output("y", y);
                         b.Output("copy of y", b.Apply("combine", {y}, identity, "b"));
                       }),
            "%1 f32[4] y = reverse(%0)\n"
            "%2 f32[4] a = combine(%0) {coefs=[1]}\n"
            "%3 f32[4] b = combine(%1) {coefs=[1]}\n"
            "output copy of x = %2\n"
            "output y = %1\n"
            "output copy of y = %3\n");
}

TEST_F(OptimizeTest, KeepsCopiesOfAStateThatIsOverwritten) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId s = b.State("s", F32({4}));
    const ValueId x = b.Parameter("x", F32({4}));
    const ValueId old = b.Apply("combine", {s}, {{"coefs", Coefs{1}}}, "old");
    const ValueId scaled = b.Apply("combine", {s}, {{"coefs", Coefs{2}}}, "scaled");
    const ValueId updated = b.Apply("accumulate", {s, x});
    b.Output("difference",
             b.Apply("combine", {updated, old, scaled}, {{"coefs", Coefs{1, -1, 0.5}}}));
  });
  EXPECT_EQ(RunPass("merge-combines", graph).nodes.size(), graph.nodes.size());
}

TEST_F(OptimizeTest, ComputesCommonValuesOnce) {
  EXPECT_EQ(NodesAfter("common-values",
                       [](GraphBuilder& b) {
                         const ValueId x = b.Parameter("x", F32({4}));
                         const ValueId y = b.Apply("reverse", {x}, {}, "y");
                         const ValueId z = b.Apply("reverse", {x}, {}, "z");
                         const Attrs two{{"coefs", Coefs{2}}};
                         const Attrs three{{"coefs", Coefs{3}}};
                         const ValueId y2 = b.Apply("combine", {y}, two, "y2");
                         const ValueId z2 = b.Apply("combine", {z}, two, "z2");
                         const ValueId z3 = b.Apply("combine", {z}, three, "z3");
                         b.Output("y2", y2);
                         b.Output("z2", z2);
                         b.Output("z3", z3);
                       }),
            "%1 f32[4] y = reverse(%0)\n"
            "%2 f32[4] y2 = combine(%1) {coefs=[2]}\n"
            "%3 f32[4] z3 = combine(%1) {coefs=[3]}\n"
            "output y2 = %2\n"
            "output z2 = %2\n"
            "output z3 = %3\n");
}

TEST_F(OptimizeTest, DoesNotMergeUpdates) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId x = b.Parameter("x", F32({4}));
    for (const char* name : {"s", "t"}) {
      b.Output(absl::StrCat("new ", name), b.Apply("accumulate", {b.State(name, F32({4})), x}));
    }
  });
  EXPECT_EQ(RunPass("common-values", graph).nodes.size(), 2u);
}

TEST_F(OptimizeTest, DropsDeadValues) {
  EXPECT_EQ(NodesAfter("dead-values",
                       [](GraphBuilder& b) {
                         const ValueId s = b.State("s", F32({2}));
                         const ValueId x = b.Parameter("x", F32({4}));
                         b.Apply("sum", {b.Apply("reverse", {x})});
                         const std::vector<ValueId> halves = b.ApplyAll("split", {x}, {}, "half");
                         b.Apply("sum", {halves[0]});
                         b.Apply("accumulate", {s, halves[1]}, {}, "s.new");
                       }),
            "%2 f32[2] half, %3 f32[2] half.1 = split(%1)\n"
            "%4 f32[2] s.new = accumulate(%0, %3)\n");
}

TEST_F(OptimizeTest, EveryPassKeepsTheOutputsOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const Graph graph = RandomGraph(ops_, seed);
    for (const Pass& pass : AllPasses()) RunPass(pass.name, graph);
    const absl::StatusOr<Graph> got = Optimize(graph, ops_);
    ASSERT_TRUE(got.ok()) << got.status();
    ExpectSameOutputs(graph, *got);
  }
}

TEST_F(OptimizeTest, KeepsTheGradientsOfRandomGraphs) {
  for (uint64_t seed = 0; seed < 50 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomGraphOptions options;
    options.states = false;
    const absl::StatusOr<Graph> graph =
        Differentiate(RandomGraph(ops_, seed, options), ops_, "loss");
    ASSERT_TRUE(graph.ok()) << graph.status();
    const absl::StatusOr<Graph> got = Optimize(*graph, ops_);
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_LE(got->nodes.size(), graph->nodes.size());
    ExpectSameOutputs(*graph, *got);
  }
}

TEST_F(OptimizeTest, SkipsDisabledPassesAndRejectsUnknownOnes) {
  const Graph graph = Build([](GraphBuilder& b) { b.Apply("sum", {b.Parameter("x", F32({4}))}); });
  EXPECT_EQ(Optimize(graph, ops_)->nodes.size(), 0u);
  EXPECT_EQ(Optimize(graph, ops_, {{"dead-values"}})->nodes.size(), 1u);
  EXPECT_THAT(std::string(Optimize(graph, ops_, {{"dead-value"}}).status().message()),
              HasSubstr("unknown pass \"dead-value\"; did you mean \"dead-values\"?"));
}

}  // namespace
}  // namespace plumb
