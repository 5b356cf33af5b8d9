// SPDX-License-Identifier: Apache-2.0
// Measures the overhead of ParallelFor compared with OpenMP (static, the default schedule of
// libgomp), on two threads. The tasks are empty, so that the wall time is only overhead:
//   Hot         jobs follow each other
//   AfterPause  a job after the caller was busy alone for the given number of microseconds
// For the gain, it also times 16 tasks of a given length on two threads and on one.
#include <benchmark/benchmark.h>
#include <omp.h>

#include <chrono>

#include "runtime/base/parallel.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

struct Pool {
  template <class Body>
  static void For(int64_t n, int threads, const Body& body) {
    ParallelFor(n, threads, body);
  }
};

struct OpenMp {
  template <class Body>
  static void For(int64_t n, int threads, const Body& body) {
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < n; ++i) body(i);
  }
};

void Spin(std::chrono::nanoseconds time) {
  for (const Clock::time_point end = Clock::now() + time; Clock::now() < end;) {
  }
}

template <class Threads>
void Hot(benchmark::State& state) {
  for (auto _ : state) {
    Threads::For(state.range(0), 2, [](int64_t i) { benchmark::DoNotOptimize(i); });
  }
}

// Times tasks of 15 us, which are worth waking a worker for.
template <class Threads>
void AfterPause(benchmark::State& state) {
  for (auto _ : state) {
    Spin(std::chrono::microseconds(state.range(0)));
    const Clock::time_point start = Clock::now();
    Threads::For(4, 2, [](int64_t) { Spin(std::chrono::microseconds(15)); });
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
  }
}

// Times empty tasks, which is only the cost of waking a worker. Ops avoid this: kMinParallelWork.
template <class Threads>
void EmptyAfterPause(benchmark::State& state) {
  for (auto _ : state) {
    Spin(std::chrono::microseconds(state.range(0)));
    const Clock::time_point start = Clock::now();
    Threads::For(4, 2, [](int64_t i) { benchmark::DoNotOptimize(i); });
    state.SetIterationTime(std::chrono::duration<double>(Clock::now() - start).count());
  }
}

template <class Threads>
void SixteenTasks(benchmark::State& state) {
  const std::chrono::nanoseconds task(state.range(1));
  const int threads = static_cast<int>(state.range(0));
  for (auto _ : state) {
    Threads::For(16, threads, [&](int64_t) { Spin(task); });
  }
}

void Pauses(benchmark::internal::Benchmark* benchmark) {
  for (const int pause : {1, 30, 300, 3000}) benchmark->Arg(pause);
  benchmark->ArgName("us")->UseManualTime()->Unit(benchmark::kMicrosecond)->MinTime(0.2);
}
void Lengths(benchmark::internal::Benchmark* benchmark) {
  for (const int ns : {100, 1000, 10000}) {
    for (const int threads : {1, 2}) benchmark->Args({threads, ns});
  }
  benchmark->ArgNames({"threads", "ns"})->UseRealTime()->Unit(benchmark::kMicrosecond);
  benchmark->MinTime(0.2);
}

BENCHMARK_TEMPLATE(Hot, Pool)->Arg(2)->Arg(16)->ArgName("tasks")->UseRealTime();
BENCHMARK_TEMPLATE(Hot, OpenMp)->Arg(2)->Arg(16)->ArgName("tasks")->UseRealTime();
BENCHMARK_TEMPLATE(AfterPause, Pool)->Apply(Pauses);
BENCHMARK_TEMPLATE(AfterPause, OpenMp)->Apply(Pauses);
BENCHMARK_TEMPLATE(EmptyAfterPause, Pool)->Apply(Pauses);
BENCHMARK_TEMPLATE(EmptyAfterPause, OpenMp)->Apply(Pauses);
BENCHMARK_TEMPLATE(SixteenTasks, Pool)->Apply(Lengths);
BENCHMARK_TEMPLATE(SixteenTasks, OpenMp)->Apply(Lengths);

}  // namespace
}  // namespace plumb

BENCHMARK_MAIN();
