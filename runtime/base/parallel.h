// ParallelFor over the threads of the process (thread_pool.h).
//
// The caller cuts its work into `n` tasks by shape alone, never by the number of threads, so that
// results are bit-identical for any thread count, whoever runs which. Nested calls run serially.
#ifndef PLUMB_RUNTIME_BASE_PARALLEL_H_
#define PLUMB_RUNTIME_BASE_PARALLEL_H_

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "runtime/base/processors.h"
#include "runtime/base/thread_pool.h"

namespace plumb {

// Below about this many scalar operations, some microseconds, an op is faster on one thread:
// handing half of it over takes one.
inline constexpr int64_t kMinParallelWork = 1 << 15;

// More tasks than threads balance the load; more than this many cost more than they gain.
inline constexpr int64_t kMaxTasks = 64;

// How many tasks to cut `items` equal items into when all of them cost `work` scalar operations:
// one when there is too little to share, else at most kMaxTasks. A function of the shape only.
inline int64_t TaskCount(int64_t items, int64_t work) {
  if (work < kMinParallelWork) return 1;
  return std::max<int64_t>(1, std::min<int64_t>({items, kMaxTasks, work / (kMinParallelWork / 2)}));
}

// The half-open range of items that task `i` of `n` owns.
struct Range {
  int64_t begin;
  int64_t end;
};
inline Range TaskRange(int64_t items, int64_t n, int64_t i) {
  return {items * i / n, items * (i + 1) / n};
}

// Runs body(i), or body(i, slot), for every i in [0, n) on at most `threads` threads: the calling
// one and those that are free. A slot is a thread's in this call: of tasks that need scratch, those
// with one slot use one piece of it after each other. `body` must not throw.
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

// The slots for which an op plans scratch, and the most threads that it may then use: as many as
// there are processors for, which does not change what is computed. At least four where there are
// tasks, so that tests on small machines see threads beside each other too.
inline int PlannedSlots(int64_t tasks) {
  constexpr int kLeastSlots = 4;
  return static_cast<int>(std::min<int64_t>(tasks, std::max(kLeastSlots, AvailableProcessors())));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_PARALLEL_H_
