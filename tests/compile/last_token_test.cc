// SPDX-License-Identifier: Apache-2.0
// The pass last-token: which nodes compute the last token only, and which do not change.
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "gtest/gtest.h"
#include "runtime/base/rng.h"
#include "runtime/compile/optimize.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"
#include "tests/compile/graph_test.h"
#include "tests/compile/random_graph.h"
#include "tests/compile/reference_run.h"
#include "tests/compile/run_graph.h"

namespace plumb {
namespace {

using Coefs = std::vector<double>;

constexpr int64_t kBatch = 2, kTokens = 5, kDim = 4;

TensorType TokenType(int64_t width = kDim) { return F32({kBatch, kTokens, width}); }

class LastTokenTest : public GraphTest {
 protected:
  LastTokenTest() { RegisterOps(&ops_); }

  // Returns the graph after the pass. Checks that it is valid and computes the same outputs and
  // states.
  Graph RunPass(const Graph& graph) {
    const absl::StatusOr<Graph> got = Optimize(graph, ops_, OnlyPasses({"last-token"}));
    EXPECT_TRUE(got.ok()) << got.status();
    if (!got.ok()) return graph;
    ReferenceTensors feeds = RandomFeeds(graph, 3);
    for (const Value& value : graph.values) {
      if (value.kind == ValueKind::kComputed || value.type.dtype != DType::kI32) continue;
      ReferenceTensor& ids = feeds[value.name];  // 0, 1, .. in every sequence
      for (size_t e = 0; e < ids.i.size(); ++e) ids.i[e] = static_cast<int32_t>(e % kTokens);
    }
    const absl::StatusOr<ReferenceTensors> want = ReferenceRun(graph, feeds);
    const absl::StatusOr<ReferenceTensors> result = ReferenceRun(*got, feeds);
    EXPECT_TRUE(want.ok() && result.ok()) << want.status() << result.status();
    if (!want.ok() || !result.ok()) return *got;
    EXPECT_EQ(result->size(), want->size());
    for (const auto& [name, tensor] : *want) {
      // The references compute a token independently of its neighbours.
      EXPECT_EQ(result->at(name).f, tensor.f) << name << " in\n"
                                              << ToString(graph) << "\nbecame\n"
                                              << ToString(*got);
    }
    return *got;
  }

  // Returns the nodes after the pass, "op(operands) -> results" in a line each, with the tokens of
  // the results.
  std::string NodesAfter(const std::function<void(GraphBuilder&)>& build) {
    const Graph graph = RunPass(Build(build));
    std::string text;
    for (const Node& node : graph.nodes) {
      const auto name = [&graph](std::string* out, ValueId id) {
        absl::StrAppend(out, graph.value(id).name);
      };
      const Shape& y = graph.value(node.outputs[0]).type.shape;
      absl::StrAppend(&text, node.op->name, "(", absl::StrJoin(node.inputs, " ", name), ") -> ",
                      graph.value(node.outputs[0]).name, " of ", y.rank() > 1 ? y[1] : 0, "\n");
    }
    return text;
  }
};

ValueId Relu(GraphBuilder& b, ValueId x, const char* name) {
  return b.Apply("act", {x}, {{"kind", std::string("relu")}}, name);
}

ValueId Sum(GraphBuilder& b, ValueId x, ValueId y, const char* name) {
  return b.Apply("combine", {x, y}, {{"coefs", Coefs{1, 1}}}, name);
}

void OutputLast(GraphBuilder& b, ValueId x) {
  b.Output("out", Relu(b, b.Apply("last_token", {x}, {}, "last"), "y"));
}

TEST_F(LastTokenTest, MovesUpToTheInputs) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId table = b.Parameter("table", F32({9, kDim}));
              const ValueId w = b.Parameter("w", F32({6, kDim}));
              const ValueId gain = b.Parameter("gain", F32({6}));
              const ValueId ids = b.Input("ids", I32({kBatch, kTokens}));
              const ValueId x = b.Apply("embedding", {table, ids}, {}, "x");
              const ValueId h = b.Apply("matmul", {x, w}, {{"transpose_b", true}}, "h");
              OutputLast(b, b.Apply("mul", {Sum(b, h, Relu(b, h, "a"), "s"), gain}, {}, "m"));
            }),
            "last_token(ids) -> ids.last_token of 1\n"
            "embedding(table ids.last_token) -> x of 1\n"
            "matmul(x w) -> h of 1\n"
            "act(h) -> a of 1\n"
            "combine(h a) -> s of 1\n"
            "mul(s gain) -> m of 1\n"
            "act(m) -> y of 1\n");
}

TEST_F(LastTokenTest, FullyUsedValuesAreComputedOnce) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId x = b.Input("x", TokenType());
              const ValueId h = Relu(b, x, "h");
              b.Output("all", b.Apply("mul_reduce", {h}, {}, "rows"));
              OutputLast(b, Sum(b, h, Sum(b, h, x, "s"), "t"));
            }),
            "act(x) -> h of 5\n"
            "mul_reduce(h) -> rows of 0\n"
            "last_token(h) -> h.last_token of 1\n"
            "last_token(x) -> x.last_token of 1\n"
            "combine(h.last_token x.last_token) -> s of 1\n"
            "combine(h.last_token s) -> t of 1\n"
            "act(t) -> y of 1\n");
}

TEST_F(LastTokenTest, KeepsOutputsAndTokenMixingOps) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId x = b.Input("x", TokenType());
              const ValueId q = Relu(b, x, "q");
              const ValueId context = b.Apply(
                  "attention", {q, x, x},
                  {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{2}}, {"scale", 0.5}}, "context");
              const ValueId h = Relu(b, context, "h");
              b.Output("full", h);
              OutputLast(b, h);
            }),
            "act(x) -> q of 5\n"
            "attention(q x x) -> context of 5\n"
            "act(context) -> h of 5\n"
            "last_token(h) -> last of 1\n"
            "act(last) -> y of 1\n");
}

TEST_F(LastTokenTest, LastTokenOutputHasOwnMemory) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId h = Relu(b, b.Input("x", TokenType()), "h");
              b.Output("one", b.Apply("last_token", {h}, {}, "one"));
              b.Output("two", b.Apply("last_token", {h}, {}, "two"));
            }),
            "last_token(x) -> x.last_token of 1\n"
            "act(x.last_token) -> h of 1\n"
            "last_token(h) -> one of 1\n"
            "last_token(h) -> two of 1\n");
}

TEST_F(LastTokenTest, DropsUnusedNodes) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId h = Relu(b, b.Input("x", TokenType()), "h");
              b.Apply("mul_reduce", {h}, {}, "unused");
              OutputLast(b, h);
            }),
            "last_token(x) -> x.last_token of 1\n"
            "act(x.last_token) -> h of 1\n"
            "act(h) -> y of 1\n");
}

TEST_F(LastTokenTest, KeepsGraphsWithoutLastTokens) {
  const Graph graph = Build([](GraphBuilder& b) {
    const ValueId x = b.Input("x", TokenType());
    Relu(b, x, "unused");
    b.Output("out", Relu(b, x, "y"));
  });
  EXPECT_EQ(ToString(RunPass(graph)), ToString(graph));
}

// Keys and values of all tokens are written to the caches, and only the last token attends.
TEST_F(LastTokenTest, PassesThroughCachedAttentionToItsQueries) {
  EXPECT_EQ(NodesAfter([](GraphBuilder& b) {
              const ValueId x = b.Input("x", TokenType());
              const ValueId positions = b.Input("positions", I32({kBatch, kTokens}));
              const ValueId k_cache = b.State("k_cache", F32({kBatch, 1, 8, 2}));
              const ValueId v_cache = b.State("v_cache", F32({kBatch, 1, 8, 2}));
              const ValueId w_q = b.Parameter("w_q", F32({kDim, kDim}));
              const ValueId w_kv = b.Parameter("w_kv", F32({2, kDim}));
              const Attrs linear = {{"transpose_b", true}},
                          rope = {{"head_dim", int64_t{2}}, {"theta", 10000.0}};
              const ValueId q = b.Apply("matmul", {x, w_q}, linear, "q");
              const ValueId k = b.Apply("matmul", {x, w_kv}, linear, "k");
              const ValueId q_rope = b.Apply("rope", {q, positions}, rope, "q.rope");
              const ValueId k_rope = b.Apply("rope", {k, positions}, rope, "k.rope");
              const ValueId context = b.Apply(
                  "attention_cached", {q_rope, k_rope, k, k_cache, v_cache, positions},
                  {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{1}}, {"scale", 0.5}}, "context");
              OutputLast(b, Sum(b, x, context, "s"));
            }),
            "last_token(x) -> x.last_token of 1\n"
            "matmul(x.last_token w_q) -> q of 1\n"
            "matmul(x w_kv) -> k of 5\n"
            "last_token(positions) -> positions.last_token of 1\n"
            "rope(q positions.last_token) -> q.rope of 1\n"
            "rope(k positions) -> k.rope of 5\n"
            "attention_cached(q.rope k.rope k k_cache v_cache positions) -> context of 1\n"
            "combine(x.last_token context) -> s of 1\n"
            "act(s) -> y of 1\n");
}

// Sums, products, attention and last_token, in any order.
TEST_F(LastTokenTest, KeepsTheOutputsOfRandomGraphs) {
  int narrowed = 0;
  for (uint64_t seed = 0; seed < 200 && !HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    const RngStream draws(seed, "last-token", 0);
    uint64_t at = 0;
    const auto below = [&](size_t n) { return static_cast<size_t>(draws.Below(at++, n)); };
    const Graph graph = Build([&](GraphBuilder& b) {
      const ValueId positions = b.Input("positions", I32({kBatch, kTokens}));
      const ValueId w = b.Parameter("w", F32({kDim, kDim}));
      const Attrs heads = {{"n_head", int64_t{2}}, {"n_kv_head", int64_t{2}}, {"scale", 0.5}};
      std::vector<ValueId> full = {b.Input("x", TokenType())}, last;
      const auto pick = [&](const std::vector<ValueId>& from) { return from[below(from.size())]; };
      for (int i = 0; i < 12; ++i) {
        const ValueId x = pick(full), y = pick(full);
        switch (below(8)) {
          case 0:
            full.push_back(Sum(b, x, y, "sum"));
            break;
          case 1:
            full.push_back(b.Apply("mul", {x, y}, {}, "mul"));
            break;
          case 2:
            full.push_back(b.Apply("matmul", {x, w}, {}, "matmul"));
            break;
          case 3: {
            const TensorType cache = F32({kBatch, 2, 8, 2});
            const ValueId k = b.State(absl::StrCat("k", i), cache);
            const ValueId v = b.State(absl::StrCat("v", i), cache);
            full.push_back(
                b.Apply("attention_cached", {x, y, pick(full), k, v, positions}, heads, "cached"));
            break;
          }
          case 4:
            full.push_back(b.Apply("attention", {x, y, y}, heads, "attention"));
            break;
          case 5:
            last.push_back(b.Apply("last_token", {x}, {}, "last"));
            break;
          case 6:
            if (last.size() > 1) last.push_back(Sum(b, pick(last), pick(last), "last_sum"));
            break;
          default:
            full.push_back(Relu(b, x, "relu"));
            break;
        }
      }
      last.push_back(b.Apply("last_token", {full.back()}, {}, "last"));
      b.Output("out", pick(last));
      b.Output("also", Sum(b, last.back(), last.back(), "twice"));
      if (below(4) == 0) b.Output("full", Relu(b, pick(full), "y"));
    });
    const Graph got = RunPass(graph);
    for (const Value& value : got.values) narrowed += value.type.shape[1] == 1 ? 1 : 0;
    EXPECT_TRUE(Optimize(graph, ops_).ok());
  }
  EXPECT_GT(narrowed, 600);
}

}  // namespace
}  // namespace plumb
