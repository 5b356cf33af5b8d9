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

namespace plumb {

// `slot`: of the thread that runs the task, from 0 (the caller's) to the lesser of the job's threads
// and tasks; two tasks of a job that run at a time have different ones.
using TaskFn = void (*)(const void* context, int64_t i, int slot);

// Runs task(context, i, slot) once for every i in [0, n), on the calling thread and on up to
// `threads` - 1 workers; returns when all are done. What it promises:
// - The caller never waits for a worker that has not begun: it works through the tasks itself and
//   waits at the end for tasks that workers are in the middle of.
// - Workers that are busy for other callers are not waited for either; nor is a worker that could
//   not be started missed.
// - A call from within a task runs serially, on the thread of the task, in slot 0.
// - Workers run tasks in the caller's floating-point mode (float_mode.h).
// - Nothing is allocated except when workers are started.
// - The child of a fork() starts with no workers and makes its own. In a child that was forked from
//   within a task, tasks that workers had begun remain undone.
// The order of tasks and who runs them vary. `task` must not throw.
void RunOnPool(int64_t n, int threads, TaskFn task, const void* context);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_THREAD_POOL_H_
