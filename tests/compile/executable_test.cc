// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile/executable.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/float_mode.h"
#include "runtime/compile/differentiate.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "tests/compile/graph_test.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/reference_run.h"
#include "tests/compile/run_graph.h"
#include "tests/graph/test_ops.h"
#include "tests/session/count_mallocs.h"

namespace plumb {
namespace {

using testing::HasSubstr;
using Coefs = std::vector<double>;

class ExecutableTest : public GraphTest {
 protected:
  ExecutableTest() { RegisterTestOps(&ops_); }

  static std::unique_ptr<Executable> Compile(const Graph& graph) {
    absl::StatusOr<std::unique_ptr<Executable>> executable = Executable::Compile(graph);
    EXPECT_TRUE(executable.ok()) << executable.status();
    return *std::move(executable);
  }

  static void ExpectEqualsReference(const BoundMemory& memory, const ReferenceTensors& want) {
    for (const auto& [name, tensor] : want) {
      EXPECT_LT(LargestDifference(memory.Read(name), tensor), 1e-4) << name;
    }
  }

  // Reads x[i] and y[i] of a loop of products of a parameter.
  Graph PickGraph() {
    return Build([](GraphBuilder& b) {
      const ValueId w = b.Parameter("w", F32({4}));
      const ValueId i = b.Input("i", I32({1}));
      const ValueId a = b.Apply("reverse", {w}, {}, "a");
      const ValueId c = b.Apply("mul", {a, w}, {}, "c");
      const ValueId d = b.Apply("mul", {c, c}, {}, "d");
      b.Output("picked", b.Apply("pick", {d, i}, {}, "p"));
      b.Output("sum", b.Apply("sum", {d}, {}, "total"));
    });
  }
};

TEST_F(ExecutableTest, EqualsTheReferenceOnRandomGraphs) {
  for (uint64_t seed = 0; seed < 150 && !HasFailure(); ++seed) {
    RandomGraphOptions options;
    options.nodes = 10 + static_cast<int>(seed % 20);
    options.states = seed % 3 != 0;
    Graph graph = RandomGraph(ops_, seed, options);
    if (!options.states) graph = *Differentiate(graph, ops_, "loss");
    if (seed % 2 == 0) graph = *Optimize(graph, ops_);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToString(graph)));
    const ReferenceTensors feeds = RandomFeeds(graph, seed);
    const absl::StatusOr<ReferenceTensors> want = ReferenceRun(graph, feeds);
    ASSERT_TRUE(want.ok()) << want.status();
    std::unique_ptr<Executable> executable = Compile(graph);
    const BoundMemory memory(executable.get(), feeds);
    ASSERT_TRUE(executable->Run(1).ok());
    ExpectEqualsReference(memory, *want);
  }
}

// An observer sees the value right after its node: most of its memory is reused later.
TEST_F(ExecutableTest, ObserversSeeEveryValue) {
  for (uint64_t seed = 0; seed < 30 && !HasFailure(); ++seed) {
    RandomGraphOptions options;
    options.nodes = 10 + static_cast<int>(seed % 20);
    options.states = false;
    const Graph graph =
        *Optimize(*Differentiate(RandomGraph(ops_, seed, options), ops_, "loss"), ops_);
    SCOPED_TRACE(absl::StrCat("seed ", seed, "\n", ToString(graph)));
    std::vector<ValueId> values;
    Graph all_out = graph;
    for (const Node& node : graph.nodes) {
      for (const ValueId id : node.outputs) {
        if (graph.value(id).type.dtype != DType::kF32) continue;
        values.push_back(id);
        all_out.outputs.push_back({absl::StrCat("seen ", id), id});
      }
    }
    const ReferenceTensors feeds = RandomFeeds(graph, seed);
    const absl::StatusOr<ReferenceTensors> want = ReferenceRun(all_out, feeds);
    ASSERT_TRUE(want.ok()) << want.status();
    std::unique_ptr<Executable> plain = Compile(graph), observed = Compile(graph);
    const BoundMemory plain_memory(plain.get(), feeds), memory(observed.get(), feeds);
    ASSERT_TRUE(plain->Run(1).ok());
    size_t calls = 0;
    const absl::Status status = observed->RunAndObserve(1, values, [&](size_t i, const void* data) {
      EXPECT_EQ(i, calls++);
      ReferenceTensor seen = want->at(absl::StrCat("seen ", values[i]));
      const ReferenceTensor expected = seen;
      const float* numbers = static_cast<const float*>(data);
      seen.f.assign(numbers, numbers + seen.f.size());
      EXPECT_LT(LargestDifference(seen, expected), 1e-4) << graph.value(values[i]).name;
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(calls, values.size());
    for (const GraphOutput& output : graph.outputs) {
      EXPECT_EQ(memory.Read(output.name).f, plain_memory.Read(output.name).f) << output.name;
    }
  }
}

TEST_F(ExecutableTest, FlushesDenormalsInNodesAndNotInObservers) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId x = b.Input("x", F32({4}));
    b.Output("square", b.Apply("mul", {x, x}));
  });
  const ValueId square = graph.nodes[0].outputs[0];
  const FloatMode before = FloatMode::Current();
  std::unique_ptr<Executable> executable = Compile(graph);
  const BoundMemory memory(executable.get(), RandomFeeds(graph, 1));
  std::fill_n(memory.f32("x"), 4, 1e-20f);
  int observed = 0;
  const auto observe = [&](size_t, const void*) {
    ++observed;
    EXPECT_TRUE(FloatMode::Current() == before);
  };
  std::vector<double> seconds(graph.nodes.size());
  const std::function<absl::Status()> runs[] = {
      [&] { return executable->Run(1); },
      [&] { return executable->RunAndObserve(1, {square}, observe); },
      [&] { return executable->RunAndTime(1, absl::MakeSpan(seconds)); },
      [&] { return executable->RunAndFindNonFinite(1).status(); }};
  for (const auto& run : runs) {
    std::fill_n(memory.f32("square"), 4, 1.0f);
    EXPECT_TRUE(run().ok());
    EXPECT_EQ(memory.f32("square")[0], 0);
    EXPECT_TRUE(FloatMode::Current() == before);
  }
  EXPECT_EQ(observed, 1);
}

TEST_F(ExecutableTest, RunsRepeatedlyOnItsStates) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId x = b.Input("x", F32({4}));
    const ValueId s = b.Apply("accumulate", {b.State("s", F32({4})), x}, {}, "s.new");
    b.Output("total", b.Apply("sum", {s}));
    b.Output("s.out", s);
  });
  std::unique_ptr<Executable> executable = Compile(graph);
  ReferenceTensors feeds = RandomFeeds(graph, 1);
  feeds["s"].f = {0, 0, 0, 0};
  const BoundMemory memory(executable.get(), feeds);
  for (int run = 1; run <= 3; ++run) {
    std::fill_n(memory.f32("x"), 4, static_cast<float>(run));
    ASSERT_TRUE(executable->Run(1).ok());
  }
  EXPECT_EQ(memory.f32("total")[0], 4 * (1 + 2 + 3));
  EXPECT_EQ(memory.f32("s")[3], 6);
  EXPECT_THAT(std::string(executable->Bind("s.out", memory.f32("s")).message()),
              HasSubstr("\"s.out\" is stored in state s; bind that"));
}

TEST_F(ExecutableTest, TimingChangesNoResult) {
  const Graph graph = RandomGraph(ops_, 3);
  const ReferenceTensors feeds = RandomFeeds(graph, 3);
  std::unique_ptr<Executable> executable = Compile(graph);
  const BoundMemory memory(executable.get(), feeds);
  std::vector<double> seconds(graph.nodes.size(), 1.0);  // RunAndTime adds to it
  ASSERT_TRUE(executable->RunAndTime(1, absl::MakeSpan(seconds)).ok());
  ExpectEqualsReference(memory, *ReferenceRun(graph, feeds));
  for (const double s : seconds) EXPECT_GE(s, 1.0);
  EXPECT_GT(std::accumulate(seconds.begin(), seconds.end(), 0.0),
            static_cast<double>(seconds.size()));
}

TEST_F(ExecutableTest, AllocatesNothingWhileItRuns) {
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const Graph graph = RandomGraph(ops_, seed);
    std::unique_ptr<Executable> executable = Compile(graph);
    const BoundMemory memory(executable.get(), RandomFeeds(graph, seed));
    const int64_t before = MallocCount();
    ASSERT_GT(before, 0);  // the counter counts
    const bool ok = executable->Run(1).ok() && executable->Run(2).ok();
    EXPECT_EQ(MallocCount(), before);
    EXPECT_TRUE(ok);
  }
}

TEST_F(ExecutableTest, SharesAWorkspaceWithOthers) {
  const Graph graphs[] = {RandomGraph(ops_, 1), RandomGraph(ops_, 2)};
  std::unique_ptr<Executable> executables[] = {Compile(graphs[0]), Compile(graphs[1])};
  const AlignedBuffer workspace(
      std::max(executables[0]->workspace_bytes(), executables[1]->workspace_bytes()));
  const ReferenceTensors feeds[] = {RandomFeeds(graphs[0], 1), RandomFeeds(graphs[1], 2)};
  const BoundMemory memory[] = {{executables[0].get(), feeds[0], workspace.data()},
                                {executables[1].get(), feeds[1], workspace.data()}};
  for (int i : {0, 1}) ASSERT_TRUE(executables[i]->Run(1).ok());
  for (int i : {0, 1}) ExpectEqualsReference(memory[i], *ReferenceRun(graphs[i], feeds[i]));
}

TEST_F(ExecutableTest, KeepsScratchApartFromTheArena) {
  const Graph graph = PickGraph();
  std::unique_ptr<Executable> executable = Compile(graph);
  EXPECT_EQ(executable->workspace_bytes(),
            executable->plan().arena_bytes + 200);  // the scratch of "sum"
  EXPECT_GT(executable->plan().arena_bytes, 0);
}

TEST_F(ExecutableTest, CopiesOutputsWithoutOwnMemory) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId w = b.Parameter("w", F32({4}));
    const ValueId y = b.Apply("reverse", {w});
    b.Output("w copied", w);
    b.Output("first", y);
    b.Output("second", y);
  });
  std::unique_ptr<Executable> executable = Compile(graph);
  const ReferenceTensors feeds = RandomFeeds(graph, 5);
  const BoundMemory memory(executable.get(), feeds);
  ASSERT_TRUE(executable->Run(1).ok());
  EXPECT_EQ(memory.Read("w copied").f, feeds.at("w").f);
  EXPECT_EQ(memory.Read("second").f, memory.Read("first").f);
  EXPECT_NE(memory.f32("second"), memory.f32("first"));
}

TEST_F(ExecutableTest, NamesUnboundMemory) {
  std::unique_ptr<Executable> executable = Compile(PickGraph());
  EXPECT_EQ(executable->Run(1).message(), "not bound to memory: i, picked, sum, w");
  const AlignedBuffer memory(64);
  for (const char* name : {"i", "picked", "sum", "w"}) {
    ASSERT_TRUE(executable->Bind(name, memory.data()).ok());
  }
  EXPECT_EQ(executable->Run(1).message(), "not bound to memory: the workspace");
  EXPECT_EQ(executable->Run(1).code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ExecutableTest, RejectsUnknownNamesAndMemoryThatIsNotAligned) {
  std::unique_ptr<Executable> executable = Compile(PickGraph());
  const AlignedBuffer memory(64);
  EXPECT_EQ(executable->Bind("weight", memory.data()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(executable->Bind("c", memory.data()).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(executable->Bind("w", memory.data() + 4).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(executable->Bind("w", nullptr).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ExecutableTest, NamesTheNodeThatFails) {
  const Graph graph = PickGraph();
  std::unique_ptr<Executable> executable = Compile(graph);
  const BoundMemory memory(executable.get(), RandomFeeds(graph, 1));
  memory.i32("i")[0] = 4;
  const absl::Status status = executable->Run(1);
  EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(status.message(), "%5 f32[1] p = pick(%4, %1): index 4 is outside [0, 4)");
  memory.i32("i")[0] = 3;
  EXPECT_TRUE(executable->Run(1).ok());
}

TEST_F(ExecutableTest, NamesTheNodeThatHasNoKernel) {
  const Graph graph = Build([](GraphBuilder& b) {
    b.Output("y", b.Apply("stuck", {b.Parameter("w", F32({4}))}, {}, "y"));
  });
  const absl::Status status = Executable::Compile(graph).status();
  EXPECT_EQ(status.message(), "%1 f32[4] y = stuck(%0): there is no kernel for this");
}

TEST_F(ExecutableTest, FindsTheFirstValueThatIsNotFinite) {
  const Graph graph = PickGraph();
  std::unique_ptr<Executable> executable = Compile(graph);
  const BoundMemory memory(executable.get(), RandomFeeds(graph, 1));
  const auto find = [&] { return *executable->RunAndFindNonFinite(1); };
  EXPECT_EQ(find().name, "");
  EXPECT_TRUE(std::isfinite(memory.f32("sum")[0]));
  std::fill_n(memory.f32("w"), 4, 1e15f);  // c is 1e30, d overflows
  EXPECT_EQ(find().name, "d");
  EXPECT_EQ(find().op, "mul");
  memory.f32("w")[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(find().name, "w");
  EXPECT_EQ(find().op, "");
}

TEST_F(ExecutableTest, PrintsItsSteps) {
  EXPECT_EQ("\n" + Compile(PickGraph())->ToString(), R"(
0 reverse(f32[4]) -> f32[4] a @ arena+0
1 mul(f32[4], f32[4]) -> f32[4] c @ arena+0
2 mul(f32[4], f32[4]) -> f32[4] d @ arena+0
3 pick(f32[4], i32[1]) -> f32[1] p @ output picked
4 sum(f32[4]) -> f32[1] total @ output sum, scratch 200
workspace 264 bytes: arena 64, scratch 200
)");
}

}  // namespace
}  // namespace plumb
