// SPDX-License-Identifier: Apache-2.0
// ParallelFor over the threads of the process (thread_pool.h). Stateless; thread-safe.
//
// Callers partition their work into `n` tasks by shape alone, never by the number of threads, so
// that results are bit-identical for any thread count and schedule. Nested calls run serially.
#ifndef PLUMB_RUNTIME_BASE_PARALLEL_H_
#define PLUMB_RUNTIME_BASE_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/base/process.h"
#include "runtime/base/thread_pool.h"

namespace plumb {

// Number of scalar operations, some microseconds of work, below which an op is faster on one
// thread: dispatching a worker takes about a microsecond.
inline constexpr int64_t kMinParallelWork = 1 << 15;

// Maximum number of tasks. More tasks than threads balance the load, but each has a cost.
inline constexpr int64_t kMaxTasks = 64;

// Returns the number of tasks for `items` equal items that together cost `work` scalar operations:
// 1 if that is too little to parallelize, at most kMaxTasks. Depends on the shape only.
inline int64_t TaskCount(int64_t items, int64_t work) {
  if (work < kMinParallelWork) return 1;
  return std::max<int64_t>(1, std::min<int64_t>({items, kMaxTasks, work / (kMinParallelWork / 2)}));
}

// Half-open range of items that task `i` of `n` owns.
struct Range {
  int64_t begin;
  int64_t end;
};
inline Range TaskRange(int64_t items, int64_t n, int64_t i) {
  return {items * i / n, items * (i + 1) / n};
}

// Runs body(i), or body(i, slot), for every i in [0, n) on at most `threads` threads: the caller
// and idle workers. A slot identifies the thread within the call: tasks with the same slot run one
// after another and may share scratch. `body` must not throw.
template <class Body>
void ParallelFor(int64_t n, int threads, const Body& body) {
  const auto run = [](const void* context, int64_t i, int slot) {
    const Body& task = *static_cast<const Body*>(context);
    if constexpr (std::is_invocable<const Body&, int64_t, int>::value) {
      task(i, slot);
    } else {
      static_cast<void>(slot);
      task(i);
    }
  };
  if (n <= 1 || threads <= 1) {
    for (int64_t i = 0; i < n; ++i) run(&body, i, 0);
    return;
  }
  RunOnPool(n, threads, run, &body);
}

// Returns the number of slots for which an op plans scratch, which is the maximum number of threads
// that it may use: the number of processors, which does not change results, but at least four (if
// there are as many tasks), so that tests on small machines run several threads.
inline int PlannedSlots(int64_t tasks) {
  constexpr int kMinSlots = 4;
  static const int processors = AvailableProcessors();  // static because it reads files
  return static_cast<int>(std::min<int64_t>(tasks, std::max(kMinSlots, processors)));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PARALLEL_H_
