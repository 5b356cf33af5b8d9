// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/memory_plan.h"

#include <algorithm>
#include <functional>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/differentiate.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "tests/compile/graph_test.h"
#include "tests/compile/random_graph.h"
#include "tests/graph/test_ops.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using Coefs = std::vector<double>;
using Kind = MemoryPlan::Place::Kind;

class MemoryPlanTest : public GraphTest {
 protected:
  MemoryPlanTest() { RegisterTestOps(&ops_); }

  static const MemoryPlan::Place& GetPlace(const MemoryPlan& plan, const Graph& graph,
                                           absl::string_view name) {
    return plan.places[static_cast<size_t>(graph.FindValue(name))];
  }

  // Counts values with external memory, except outputs and states.
  static int CountMovedOut(const Graph& graph, const MemoryPlan& plan) {
    int count = 0;
    for (size_t id = 0; id < graph.values.size(); ++id) {
      if (plan.places[id].kind != Kind::kExternal) continue;
      const ValueId owner = plan.externals[static_cast<size_t>(plan.places[id].external)];
      count += graph.value(owner).kind == ValueKind::kComputed && owner != static_cast<int>(id);
    }
    return count;
  }

  // Returns true if two computed values of the graph share their memory.
  bool Share(const Graph& graph, absl::string_view a, absl::string_view b) {
    const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
    EXPECT_TRUE(plan.ok()) << plan.status();
    const auto &x = GetPlace(*plan, graph, a), &y = GetPlace(*plan, graph, b);
    return x.kind == y.kind && x.offset == y.offset && x.external == y.external;
  }
};

// Simulates the program on a map from each 64-byte line of the arena and of the externals to the
// value that it contains. Every node must find all of its inputs intact, and may overwrite an input
// only if its op allows it; outputs must be intact at the end.
class Simulation {
 public:
  Simulation(const Graph& graph, const MemoryPlan& plan) : graph_(graph), plan_(plan) {
    memory_.emplace_back(Lines(plan.arena_bytes), kNoValue);
    for (const ValueId id : plan.externals) {
      const bool is_leaf = graph.value(id).kind != ValueKind::kComputed;
      memory_.emplace_back(Lines(graph.value(id).type.bytes()), is_leaf ? id : kNoValue);
    }
  }

  std::string Run() {
    for (const Node& node : graph_.nodes) {
      for (const ValueId id : node.inputs) {
        if (id != kNoValue && !IsWhole(id)) return Complain(node, id, "is destroyed before");
      }
      for (size_t out = 0; out < node.outputs.size(); ++out) {
        const ValueId id = node.outputs[out];
        for (size_t in = 0; in < node.inputs.size(); ++in) {
          const ValueId input = node.inputs[in];
          if (input == kNoValue || !Overlap(id, input)) continue;
          if (!MayOverwrite(node, out, in) || place(id).offset != place(input).offset) {
            return Complain(node, input, "is overwritten by");
          }
        }
        if (place(id).offset % kAlignment != 0) return Complain(node, id, "is not aligned by");
        if (Lines(End(id)) > static_cast<std::ptrdiff_t>(memory_[Region(id)].size())) {
          return Complain(node, id, "is outside of the memory of");
        }
        std::vector<ValueId>& lines = memory_[Region(id)];
        std::fill(lines.begin() + Lines(place(id).offset), lines.begin() + Lines(End(id)), id);
      }
      for (const ValueId id : node.outputs) {
        if (!IsWhole(id)) return Complain(node, id, "is overwritten by another output of");
      }
    }
    for (const GraphOutput& output : graph_.outputs) {
      if (!IsWhole(output.value)) return absl::StrCat("output ", output.name, " is destroyed");
    }
    return "";
  }

 private:
  static std::ptrdiff_t Lines(int64_t bytes) { return AlignUp(bytes) / kAlignment; }
  const MemoryPlan::Place& place(ValueId id) const { return plan_.places[static_cast<size_t>(id)]; }
  size_t Region(ValueId id) const {
    return place(id).kind == Kind::kArena ? 0 : 1 + static_cast<size_t>(place(id).external);
  }
  int64_t End(ValueId id) const {
    return place(id).offset + AlignUp(graph_.value(id).type.bytes());
  }
  bool Overlap(ValueId a, ValueId b) const {
    return Region(a) == Region(b) && place(a).offset < End(b) && place(b).offset < End(a);
  }
  static bool MayOverwrite(const Node& node, size_t out, size_t in) {
    const std::pair<int, int> pair(static_cast<int>(out), static_cast<int>(in));
    const auto allows = [&pair](const std::vector<std::pair<int, int>>& pairs) {
      return std::find(pairs.begin(), pairs.end(), pair) != pairs.end();
    };
    return allows(node.op->may_alias) || allows(node.op->updates);
  }
  bool IsWhole(ValueId id) const {
    const std::vector<ValueId>& lines = memory_[Region(id)];
    return std::all_of(lines.begin() + Lines(place(id).offset), lines.begin() + Lines(End(id)),
                       [id](ValueId owner) { return owner == id; });
  }
  std::string Complain(const Node& node, ValueId id, const char* what) const {
    return absl::StrCat(graph_.value(id).name, " ", what, " ", ToString(graph_, node), "\n",
                        ToString(graph_), ToString(plan_, graph_));
  }

  const Graph& graph_;
  const MemoryPlan& plan_;
  std::vector<std::vector<ValueId>> memory_;  // the arena, then the externals
};

TEST_F(MemoryPlanTest, NeverHarmsALiveValueOfARandomGraph) {
  int moved_out = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    RandomGraphOptions options;
    options.nodes = 10 + static_cast<int>(seed % 40);
    options.states = seed % 3 != 0;
    options.outputs = 3 + static_cast<int>(seed % 9);
    Graph graph = RandomGraph(ops_, seed, options);
    if (!options.states) graph = *Differentiate(graph, ops_, "loss");
    if (seed % 2 == 0) graph = *Optimize(graph, ops_);
    const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
    ASSERT_TRUE(plan.ok()) << plan.status();
    ASSERT_EQ(Simulation(graph, *plan).Run(), "") << "seed " << seed;
    EXPECT_GE(plan->arena_bytes, plan->live_bytes);
    EXPECT_LE(plan->arena_bytes, 2 * plan->live_bytes);
    moved_out += CountMovedOut(graph, *plan);
  }
  EXPECT_GT(moved_out, 100);  // the graphs cover this case too
}

// More buffers than the planner tries in both orders.
TEST_F(MemoryPlanTest, NeverHarmsALiveValueOfALargeGraph) {
  RandomGraphOptions options;
  options.nodes = 20000;
  const Graph graph = RandomGraph(ops_, 1, options);
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  ASSERT_TRUE(plan.ok()) << plan.status();
  size_t buffers = 0;
  for (const MemoryPlan::Place& place : plan->places) buffers += place.kind == Kind::kArena;
  ASSERT_GT(buffers, 12000u);
  EXPECT_TRUE(Simulation(graph, *plan).Run().empty());
  EXPECT_LE(plan->arena_bytes, 2 * plan->live_bytes);
}

TEST_F(MemoryPlanTest, PlansValuesInTheOutputThatOverwritesThem) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    const ValueId a = b.Apply("reverse", {w}, {}, "a");
    const ValueId c = b.Apply("mul", {a, w}, {}, "c");
    b.Output("y", b.Apply("mul", {c, w}, {}, "y"));
  });
  EXPECT_TRUE(Share(graph, "a", "c"));
  EXPECT_TRUE(Share(graph, "c", "y"));
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  EXPECT_EQ(plan->arena_bytes, 0);
  EXPECT_EQ(plan->live_bytes, 0);
  EXPECT_EQ(PlaceName(*plan, graph, graph.FindValue("a")), "output y");
}

TEST_F(MemoryPlanTest, KeepsValuesReadAfterTheOutput) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    const ValueId a = b.Apply("reverse", {w}, {}, "a");
    b.Output("y", b.Apply("mul", {a, w}, {}, "y"));
    b.Output("z", b.Apply("mul", {w, a}, {}, "z"));
  });
  EXPECT_FALSE(Share(graph, "a", "y"));
  EXPECT_TRUE(Share(graph, "a", "z"));
}

TEST_F(MemoryPlanTest, KeepsValuesIfTheOutputIsOccupied) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId s = b.State("s", F32({16}));
    const ValueId a = b.Apply("reverse", {s}, {}, "a");
    b.Output("s", b.Apply("accumulate", {s, a}, {}, "s.new"));
    const ValueId c = b.Apply("reverse", {a}, {}, "c");
    b.Output("w copied", b.Parameter("w", F32({16})));
    b.Output("y", b.Apply("sum", {c}));
  });
  EXPECT_FALSE(Share(graph, "a", "s"));
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  EXPECT_EQ(GetPlace(*plan, graph, "a").kind, Kind::kArena);
}

TEST_F(MemoryPlanTest, OneInputSharesOneOutput) {
  OpRegistry ops;
  RegisterTestOps(&ops);
  OpDef twice = *ops.Find("reverse");
  twice.name = "twice";
  twice.infer = [](const OpTypes& types) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{types.in(0), types.in(0)};
  };
  twice.may_alias = {{0, 0}, {1, 0}};
  ops.Add(twice);
  GraphBuilder b(&ops);
  const ValueId a = b.Apply("reverse", {b.Parameter("w", F32({16}))}, {}, "a");
  const std::vector<ValueId> out = b.ApplyAll("twice", {a}, {}, "out");
  b.Output("y", out[0]);
  b.Output("z", out[1]);
  const Graph graph = *std::move(b).Finish();
  EXPECT_TRUE(Share(graph, "a", "out"));
  EXPECT_FALSE(Share(graph, "out", "out.1"));
}

TEST_F(MemoryPlanTest, PrintsATable) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({2, 8}));
    const ValueId s = b.State("s", F32({16}));
    const ValueId a = b.Apply("reverse", {w}, {}, "a");
    const ValueId c = b.Apply("mul", {a, w}, {}, "c");
    const std::vector<ValueId> halves = b.ApplyAll("split", {c}, {}, "half");
    const ValueId joined =
        b.Apply("join", {halves[0], halves[1]}, {{"half", int64_t{8}}}, "joined");
    const ValueId n = b.Apply("accumulate", {s, joined}, {}, "s.new");
    b.Output("s", n);
    b.Output("loss", b.Apply("sum", {n}, {}, "sum"));
    b.Output("loss again", b.graph().FindValue("sum"));
  });
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ("\n" + ToString(*plan, graph), R"(
value         bytes  place        nodes
w                64  parameter w  ..1
s                64  state s      ..4
a                64  arena+0      0..1
c                64  arena+0      1..2
half             32  arena+64     2..3
half.1           32  arena+128    2..3
joined           64  arena+0      3..4
s.new            64  state s      4..5
sum               4  output loss  5..5
output loss again is copied from sum after the last node
external 136 bytes, arena 192 bytes (live at once 192, without reuse 320)
)");
}

TEST_F(MemoryPlanTest, ReusesMemoryOfUnusedValues) {
  const Graph graph = Build([](GraphBuilder& b) {
    ValueId x = b.Parameter("x", F32({16}));
    for (int i = 0; i < 10; ++i) x = b.Apply("reverse", {x});
    b.Output("y", b.Apply("sum", {x}));
  });
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  EXPECT_EQ(plan->arena_bytes, 2 * 64);
  EXPECT_EQ(plan->live_bytes, 2 * 64);
}

TEST_F(MemoryPlanTest, WorksInPlaceWhereTheOpAllowsIt) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    const ValueId a = b.Apply("reverse", {w}, {}, "a");
    const ValueId first = b.Apply("mul", {a, w}, {}, "first input");
    const ValueId second = b.Apply("mul", {w, first}, {}, "second input");
    const ValueId both = b.Apply("mul", {second, second}, {}, "both inputs");
    b.Output("y", b.Apply("sum", {both}));
  });
  EXPECT_TRUE(Share(graph, "a", "first input"));
  EXPECT_TRUE(Share(graph, "first input", "second input"));
  EXPECT_TRUE(Share(graph, "second input", "both inputs"));
  EXPECT_EQ(PlanMemory(graph)->arena_bytes, 64);
}

TEST_F(MemoryPlanTest, DoesNotWorkInPlaceOnAnInputThatIsReadLater) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId a = b.Apply("reverse", {b.Parameter("w", F32({16}))}, {}, "a");
    const ValueId c = b.Apply("mul", {a, a}, {}, "c");
    b.Output("y", b.Apply("sum", {b.Apply("mul", {c, a}, {}, "d")}));
  });
  EXPECT_FALSE(Share(graph, "a", "c"));
  EXPECT_TRUE(Share(graph, "c", "d"));
}

TEST_F(MemoryPlanTest, DoesNotWorkInPlaceOnMemoryOfTheCaller) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    const ValueId a = b.Apply("reverse", {w}, {}, "a");
    b.Output("a", a);
    const ValueId c = b.Apply("mul", {w, w}, {}, "c");
    b.Output("y", b.Apply("sum", {b.Apply("mul", {a, c}, {}, "d")}));
  });
  EXPECT_FALSE(Share(graph, "w", "c"));
  EXPECT_FALSE(Share(graph, "a", "d"));
  EXPECT_TRUE(Share(graph, "c", "d"));
}

TEST_F(MemoryPlanTest, DoesNotWorkInPlaceWhereTheValueIsAlsoReadByAnotherOperand) {
  // combine may take the memory of its first input only.
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId a = b.Apply("reverse", {b.Parameter("w", F32({16}))}, {}, "a");
    const ValueId c = b.Apply("combine", {a, a}, {{"coefs", Coefs{1, 2}}}, "c");
    b.Output("y", b.Apply("sum", {c}));
  });
  EXPECT_FALSE(Share(graph, "a", "c"));
}

TEST_F(MemoryPlanTest, DoesNotGiveOneInputToTwoOutputs) {
  OpRegistry ops;
  RegisterTestOps(&ops);
  OpDef twice = *ops.Find("reverse");
  twice.name = "twice";
  twice.infer = [](const OpTypes& types) -> absl::StatusOr<std::vector<TensorType>> {
    return std::vector<TensorType>{types.in(0), types.in(0)};
  };
  twice.may_alias = {{0, 0}, {1, 0}};
  ops.Add(twice);
  GraphBuilder b(&ops);
  const ValueId a = b.Apply("reverse", {b.Parameter("w", F32({16}))}, {}, "a");
  const std::vector<ValueId> out = b.ApplyAll("twice", {a}, {}, "out");
  b.Output("y", b.Apply("sum", {b.Apply("mul", {out[0], out[1]})}));
  const Graph graph = *std::move(b).Finish();
  EXPECT_TRUE(Share(graph, "a", "out"));
  EXPECT_FALSE(Share(graph, "out", "out.1"));
}

TEST_F(MemoryPlanTest, UpdatesShareTheMemoryOfTheirState) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId s = b.State("s", F32({16}));
    const ValueId x = b.Input("x", F32({16}));
    const ValueId once = b.Apply("accumulate", {s, x}, {}, "once");
    b.Output("new s", b.Apply("accumulate", {once, x}, {}, "twice"));
  });
  EXPECT_TRUE(Share(graph, "s", "once"));
  EXPECT_TRUE(Share(graph, "s", "twice"));
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  EXPECT_EQ(plan->externals.size(), 2u);
  EXPECT_EQ(plan->copied_outputs.size(), 0u);
  EXPECT_EQ(plan->arena_bytes, 0);
}

TEST_F(MemoryPlanTest, CopiesOutputsThatAreLeavesOrHaveTwoNames) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    const ValueId y = b.Apply("reverse", {w}, {}, "y");
    b.Output("w", w);  // the leaf under its own name
    b.Output("w copied", w);
    b.Output("first", y);
    b.Output("second", y);
  });
  const absl::StatusOr<MemoryPlan> plan = PlanMemory(graph);
  EXPECT_THAT(plan->copied_outputs, testing::ElementsAre(1, 3));
  EXPECT_THAT(plan->externals, testing::ElementsAre(0, 1));
}

TEST_F(MemoryPlanTest, RejectsAnOutputWithTheNameOfAnotherLeaf) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({16}));
    b.Output("w", b.Apply("reverse", {w}));
  });
  EXPECT_THAT(std::string(PlanMemory(graph).status().message()),
              HasSubstr("output w is %1, but a parameter, input or state has that name too"));
}

}  // namespace
}  // namespace plumb
