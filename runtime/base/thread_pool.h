// The worker threads behind ParallelFor (parallel.h): one pool for the process, so that sessions,
// studies and hosts that train in several threads share the processors instead of doubling them.
//
// It is the one thing in plumb with process lifetime, as the threads of a process belong to no one
// caller. Workers are started when a call first asks for more than there are, wait for the next job
// by spinning for some microseconds and asleep after that, and are never joined. Thread-safe.
// The code must stay loaded while the process lives (a library that holds it is not to be
// dlclosed).
#ifndef PLUMB_RUNTIME_BASE_THREAD_POOL_H_
#define PLUMB_RUNTIME_BASE_THREAD_POOL_H_

#include <cstdint>

#include "runtime/base/read_ahead.h"

namespace plumb {

using TaskFn = void (*)(const void* context, int64_t i);

// What threads will read next. `of(context, seat, seats)`: what the thread at `seat` reads first in
// the next job. The caller has seat 0, workers have the others; in a job of n tasks the thread at a
// seat begins with task n * seat / seats.
struct NextReads {
  ReadAhead (*of)(const void* context, int seat, int seats) = nullptr;
  const void* context = nullptr;
};

// Runs task(context, i) once for every i in [0, n), on the calling thread and on whichever of
// `threads` - 1 workers come to help; returns when all are done. What it promises:
// - The caller never waits for a worker that has not come: it works through the tasks itself and
//   waits at the end for tasks that workers are in the middle of.
// - Workers that are busy for other callers are not waited for either; nor is a worker that could
//   not be started missed.
// - A call from within a task runs serially, on the thread of the task.
// - Nothing is allocated except when workers are started.
// - The child of a fork() starts with no workers and makes its own. In a child that was forked from
//   within a task, tasks that workers had begun remain undone.
// The order of tasks and who runs them vary. `task` must not throw.
// Threads that find no task left ask for `next` while they wait, workers also after the call has
// returned: memory goes on reading while little is to be done. `next.of` itself is called only
// before RunOnPool returns.
void RunOnPool(int64_t n, int threads, TaskFn task, const void* context, NextReads next = {});

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_THREAD_POOL_H_
