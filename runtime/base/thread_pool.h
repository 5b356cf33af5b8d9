// SPDX-License-Identifier: Apache-2.0
// The worker threads behind ParallelFor (parallel.h): one pool for the process, so that sessions,
// studies and hosts that train in several threads share the processors instead of doubling them.
//
// It and the records of plugin calls are the only objects in plumb with process lifetime. Workers
// are started when a call first needs more than there are, wait for the next job by spinning for
// some microseconds and then asleep, and end with the last PoolUser, after which a library that
// contains this code may be unloaded. Thread-safe.
#ifndef PLUMB_RUNTIME_BASE_THREAD_POOL_H_
#define PLUMB_RUNTIME_BASE_THREAD_POOL_H_

#include <cstdint>

namespace plumb {

// `slot`: of the thread that runs the task, from 0 (the caller) up to the lesser of the job's
// threads and tasks; tasks of a job that run at the same time have different slots.
using TaskFn = void (*)(const void* context, int64_t i, int slot);

// Runs task(context, i, slot) once for every i in [0, n), on the calling thread and on up to
// `threads` - 1 workers; returns when all are done. Guarantees:
// - The caller never waits for a worker that has not begun: it runs tasks itself, and waits at the
//   end only for tasks that workers have begun.
// - Nor does it wait for workers that are busy for other callers, or that could not be started.
// - A call from within a task runs serially, on the thread of the task, in slot 0.
// - Workers run tasks in the caller's floating-point mode (float_mode.h).
// - Nothing is allocated except when workers are started.
// - The child of a fork() starts with no workers and starts its own. In a child that was forked
//   from within a task, tasks that workers had begun remain undone.
// - Where the calling thread has an executor (host.h), the tasks run on its threads instead.
// The order of tasks and who runs them vary. `task` must not throw.
void RunOnPool(int64_t n, int threads, TaskFn task, const void* context);

// Keeps the workers. When the last one of a process is destroyed they are stopped and joined; its
// destructor must not run in a task.
class PoolUser {
 public:
  PoolUser();
  ~PoolUser();
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;

  // Whether this process is the child of the one that made it, and what threads held is lost.
  bool forked() const;

 private:
  const int forks_;  // of the process and its ancestors by then
};

// Whether the system ever refused to start a worker.
bool ThreadsWereRefused();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_THREAD_POOL_H_
