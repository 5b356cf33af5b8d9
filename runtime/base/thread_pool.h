// SPDX-License-Identifier: Apache-2.0
// The worker threads behind ParallelFor (parallel.h). There is one pool per process, so that
// sessions, studies and hosts that train in several threads share the processors.
//
// The pool and the records of plugin calls are the only objects in plumb with process lifetime.
// Workers are started when a call first needs more than there are. Between jobs they spin for some
// microseconds and then sleep. They end with the last PoolUser, after which a library that contains
// this code may be unloaded. Thread-safe.
#ifndef PLUMB_RUNTIME_BASE_THREAD_POOL_H_
#define PLUMB_RUNTIME_BASE_THREAD_POOL_H_

#include <cstdint>

namespace plumb {

// A task. `slot` identifies the thread that runs it: 0 is the caller, and slots are below
// min(threads, n) of the job. Tasks of a job that run at the same time have different slots.
using TaskFn = void (*)(const void* context, int64_t i, int slot);

// Runs task(context, i, slot) once for every i in [0, n), on the calling thread and on up to
// `threads` - 1 workers; returns when all are done. Guarantees:
// - The caller runs tasks itself and never waits for a worker that has not begun; at the end it
//   waits only for tasks that workers have begun.
// - It does not wait for workers that are busy for other callers or that could not be started.
// - A call from within a task runs serially, on the thread of the task, in slot 0.
// - Workers run tasks in the caller's floating-point mode (float_mode.h).
// - Nothing is allocated except when workers are started.
// - The child of a fork() starts without workers and starts its own. In a child that was forked
//   from within a task, tasks that workers had begun remain undone.
// - If the calling thread has an executor (host.h), the tasks run on its threads instead.
// The order of tasks and the thread of each vary. `task` must not throw.
void RunOnPool(int64_t n, int threads, TaskFn task, const void* context);

// Keeps the workers alive. When the last one of a process is destroyed, the workers are stopped and
// joined; the destructor must not run in a task.
class PoolUser {
 public:
  PoolUser();
  ~PoolUser();
  PoolUser(const PoolUser&) = delete;
  PoolUser& operator=(const PoolUser&) = delete;

  // Returns true if this process is a fork of the one that made the object, so that the state of
  // other threads is lost.
  bool forked() const;

 private:
  const int forks_;  // number of forks that led to the process that made the object
};

// Returns true if the system has ever refused to start a worker.
bool ThreadsWereRefused();

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_THREAD_POOL_H_
