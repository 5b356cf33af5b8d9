// SPDX-License-Identifier: Apache-2.0
// Measures the cost of an op beyond its arithmetic: executables of a thousand tiny nodes in a
// chain, [1, 16] each, on one thread and on two (which must not differ, since there is nothing to
// share). "s/op" is the time of a run divided by the number of nodes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/aligned_buffer.h"
#include "runtime/compile/executable.h"
#include "runtime/graph/builder.h"
#include "runtime/ops/ops.h"

namespace plumb {
namespace {

constexpr int kNodes = 1000;

using Append = ValueId (*)(GraphBuilder& b, ValueId x, ValueId vector, ValueId matrix);

ValueId Mul(GraphBuilder& b, ValueId x, ValueId vector, ValueId) {
  return b.Apply("mul", {x, vector});
}
ValueId Combine(GraphBuilder& b, ValueId x, ValueId, ValueId) {
  Attrs attrs;
  attrs.Set("coefs", std::vector<double>{0.5, 0.25});
  attrs.Set("constant", 0.25);
  return b.Apply("combine", {x, x}, std::move(attrs));
}
ValueId Matmul(GraphBuilder& b, ValueId x, ValueId, ValueId matrix) {
  return b.Apply("matmul", {x, matrix});
}

void TinyNodes(benchmark::State& state, Append append) {
  OpRegistry ops;
  RegisterOps(&ops);
  GraphBuilder b(&ops);
  const ValueId vector = b.Parameter("vector", F32({16}));
  const ValueId matrix = b.Parameter("matrix", F32({16, 16}));
  ValueId x = b.Input("x", F32({1, 16}));
  for (int i = 0; i < kNodes; ++i) x = append(b, x, vector, matrix);
  b.Output("y", x);
  absl::StatusOr<Graph> graph = std::move(b).Finish();
  if (!graph.ok()) return state.SkipWithError(graph.status().ToString().c_str());
  auto executable = Executable::Compile(*std::move(graph));
  if (!executable.ok()) return state.SkipWithError(executable.status().ToString().c_str());

  AlignedBuffer workspace((*executable)->workspace_bytes());
  (*executable)->BindWorkspace(workspace.data());
  std::vector<AlignedBuffer> memory;
  for (const char* name : {"vector", "matrix", "x", "y"}) {
    memory.emplace_back(int64_t{16 * 16 * 4});
    std::fill_n(memory.back().as<float>(), 16 * 16, 1.0f / 16);
    // A graph may not use all of the inputs.
    (*executable)->Bind(name, memory.back().data()).IgnoreError();
  }
  const int threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    if (const absl::Status status = (*executable)->Run(threads); !status.ok()) {
      return state.SkipWithError(status.ToString().c_str());
    }
  }
  // The value is printed with an SI prefix: 20n is 20 ns.
  state.counters["s/op"] =
      benchmark::Counter(static_cast<double>(state.iterations()) * kNodes,
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

BENCHMARK_CAPTURE(TinyNodes, mul, Mul)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();
BENCHMARK_CAPTURE(TinyNodes, combine, Combine)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();
BENCHMARK_CAPTURE(TinyNodes, matmul, Matmul)->Arg(1)->Arg(2)->ArgName("threads")->UseRealTime();

}  // namespace
}  // namespace plumb

BENCHMARK_MAIN();
