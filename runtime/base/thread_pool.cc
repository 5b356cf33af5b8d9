// SPDX-License-Identifier: Apache-2.0
#include "runtime/base/thread_pool.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <limits>
#include <new>
#include <utility>

#include "runtime/base/float_mode.h"
#include "runtime/base/host.h"
#include "runtime/base/process.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

// Measured on 2 virtual processors: handing a job to a worker that spins takes 0.4 us; waking one
// that sleeps costs the caller 4 to 6 us (a system call and an interrupt to the other processor),
// and the worker starts 3 us later.
//
// Time that a worker spins after its last job. Ops of a training step follow each other within this
// time, so a worker sleeps only when there is nothing to share.
constexpr Clock::duration kSpinIdle = std::chrono::microseconds(60);
// Time that a caller spins for the last tasks of others before it sleeps. They nearly always finish
// within it, unless the system preempted a worker; then sleeping frees a processor for it.
constexpr Clock::duration kSpinForTasks = std::chrono::microseconds(50);
// Time without new workers after the system refused to start one.
constexpr Clock::duration kTryAgain = std::chrono::seconds(1);

// Limits, so that an index fits in a byte, and a Job, 64 bytes per slot, on a thread's stack.
constexpr int kMaxThreads = 128;
constexpr int kMaxWorkers = 255;

// A worker's stack has the size of the process's limit, within these bounds. Plugins run on it.
constexpr size_t kMinStack = size_t{1} << 20, kMaxStack = size_t{8} << 20;

std::atomic<bool> refused_threads{false};

// True in threads that run a task; calls from there run serially.
thread_local bool in_task = false;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() holds or `limit` has passed; returns done().
template <class Done>
bool SpinUntil(Clock::duration limit, const Done& done) {
  Clock::time_point end{};
  for (;;) {
    for (int i = 0; i < 16; ++i) {
      if (done()) return true;
      Pause();
    }
    const Clock::time_point now = Clock::now();
    if (end == Clock::time_point{}) {
      end = now + limit;
    } else if (now >= end) {
      return done();
    }
  }
}

void Wait(sem_t* semaphore) {
  while (sem_wait(semaphore) != 0) {  // interrupted by a signal
  }
}

// Range of tasks of a slot: begin in the low 32 bits, end in the high ones. The owner takes from
// the front; idle threads steal from the back. Adjacent tasks touch adjacent memory, the same in
// every op, so that a thread finds the results of its previous op in its own cache.
struct alignas(64) SlotRange {
  std::atomic<uint64_t> range;

  void Set(int64_t begin, int64_t end) {
    range.store(static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(begin),
                std::memory_order_relaxed);
  }

  // Takes one task of the range; -1 if none is left. Relaxed, because the workers' states order
  // memory; this only ensures that no task runs twice.
  int64_t Take(bool from_front) {
    uint64_t old = range.load(std::memory_order_relaxed);
    for (;;) {
      const uint64_t begin = old & 0xffffffffu, end = old >> 32;
      if (begin >= end) return -1;
      const uint64_t rest = from_front ? old + 1 : old - (uint64_t{1} << 32);
      if (range.compare_exchange_weak(old, rest, std::memory_order_relaxed)) {
        return static_cast<int64_t>(from_front ? begin : end - 1);
      }
    }
  }
};

// One call of RunOnPool. It is on the caller's stack, which is safe because the caller does not
// return while a worker's state points to it.
struct Job {
  TaskFn task;
  const void* context;
  FloatMode float_mode = FloatMode::Current();  // the caller's
  int64_t first;                  // index of this job's first task among all tasks of the caller
  int slots;                      // threads that the tasks are partitioned for, available or not
  int dispatched = 0;             // workers that the job was dispatched to
  sem_t finished;                 // posted by a worker that finishes while the caller sleeps
  uint8_t worker[kMaxThreads];    // indices of these workers
  uint8_t slot_of[kMaxWorkers];   // slot of each worker, set before it is dispatched
  SlotRange ranges[kMaxThreads];  // one range per slot; the first is the caller's

  Job(int64_t first_task, int64_t n, int threads, TaskFn of, const void* with)
      : task(of),
        context(with),
        first(first_task),
        slots(static_cast<int>(std::min<int64_t>(n, std::min(threads, kMaxThreads)))) {
    for (int i = 0; i < slots; ++i) ranges[i].Set(n * i / slots, n * (i + 1) / slots);
  }

  // Takes a task for the thread in `slot` and runs it; false when all are taken.
  bool RunOne(int slot) {
    int64_t i = ranges[slot].Take(true);
    for (int k = 1; i < 0 && k < slots; ++k) i = ranges[(slot + k) % slots].Take(false);
    if (i < 0) return false;
    task(context, first + i, slot);
    return true;
  }
};

// A worker's state is one of:
//   kIdle           spinning, or about to spin; anyone may give it a job
//   kAsleep         like kIdle, but whoever gives it a job must post `wake`
//   a Job*          dispatched, and not begun yet; the caller may cancel it
//   Job* + kBegun   working on the job; only the worker changes this, back to kIdle, except that
//                   the caller may add kAwaited and sleep until the worker posts job->finished
//   kStopped        ended for good
constexpr uintptr_t kIdle = 0, kAsleep = 4, kBegun = 1, kAwaited = 2, kStopped = 8;

struct alignas(128) Worker {
  std::atomic<uintptr_t> state;
  sem_t wake;
  pthread_t thread;
  int index;
  bool spins;

  void Loop() {
    in_task = true;
    const auto dispatched = [this] { return state.load(std::memory_order_acquire) != kIdle; };
    for (;;) {
      uintptr_t seen = kIdle;
      if (!SpinUntil(spins ? kSpinIdle : Clock::duration::zero(), dispatched)) {
        // Whoever replaces kAsleep posts once, so posts and waits come in pairs.
        if (state.compare_exchange_strong(seen, kAsleep, std::memory_order_acq_rel)) Wait(&wake);
      }
      seen = state.load(std::memory_order_acquire);
      if (seen == kIdle) continue;  // the job was cancelled
      if (seen == kStopped) return;
      if (!state.compare_exchange_strong(seen, seen | kBegun, std::memory_order_acq_rel)) continue;
      Job* const job = reinterpret_cast<Job*>(seen);
      const int slot = job->slot_of[index];
      job->float_mode.Install();
      while (job->RunOne(slot)) {
      }
      if (state.exchange(kIdle, std::memory_order_acq_rel) & kAwaited) sem_post(&job->finished);
    }
  }

  // Ends the thread, after its current job if it has one.
  void Stop() {
    for (;;) {
      uintptr_t seen = kIdle;
      if (state.compare_exchange_strong(seen, kStopped, std::memory_order_acq_rel)) break;
      if (seen == kAsleep &&
          state.compare_exchange_strong(seen, kStopped, std::memory_order_acq_rel)) {
        sem_post(&wake);
        break;
      }
      sched_yield();
    }
    pthread_join(thread, nullptr);
    sem_destroy(&wake);
  }
};

class Pool {
 public:
  // Returns the pool. It is never destroyed, since workers may spin on it while the process ends.
  static Pool* Get() {
    alignas(Pool) static std::byte memory[sizeof(Pool)];
    static Pool* const pool = new (memory) Pool;
    return pool;
  }

  int forks() const { return forks_; }
  void AddUser();
  void RemoveUser();

  void Run(int64_t first, int64_t n, int threads, TaskFn task, const void* context);

 private:
  Pool();

  // Dispatches `job` to idle workers until it has `wanted`, to spinning ones before sleeping ones.
  // Sleeping workers are woken immediately, because work is partitioned only if it exceeds the cost
  // of waking (kMinParallelWork), and the first task may be as long as another thread's whole
  // range.
  void Dispatch(int wanted, Job* job);
  // Starts workers with `job` until it has `wanted`, as far as limits and the system allow.
  void Grow(int wanted, int threads, Job* job);
  // Cancels the job for `worker`, or waits until it has finished.
  void Join(Worker* worker, Job* job);

  static void BeforeFork() { pthread_mutex_lock(&Get()->growing_); }
  static void AfterForkInParent() { pthread_mutex_unlock(&Get()->growing_); }
  static void AfterForkInChild();

  const int processors_ = AvailableProcessors();
  pthread_mutex_t growing_ = PTHREAD_MUTEX_INITIALIZER;
  Clock::time_point refused_{};  // time of the last refusal of a thread; guarded by growing_
  int users_ = 0;                // guarded by growing_
  std::atomic<int> forks_{0};    // number of forks from the first process to this one
  std::atomic<int> workers_{0};  // number of workers in worker_
  Worker worker_[kMaxWorkers];
};

void PrepareWorker(Worker* worker, uintptr_t state) {
  worker->state.store(state, std::memory_order_relaxed);
  sem_init(&worker->wake, 0, 0);
}

Pool::Pool() { pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild); }

// Only the forking thread exists in the child, so the pool is empty there.
void Pool::AfterForkInChild() {
  Pool* const pool = Get();
  for (int i = 0; i < pool->workers_.load(std::memory_order_relaxed); ++i) {
    PrepareWorker(&pool->worker_[i], kIdle);
  }
  pool->workers_.store(0, std::memory_order_relaxed);
  ++pool->forks_;
  pthread_mutex_unlock(&pool->growing_);
}

void Pool::AddUser() {
  pthread_mutex_lock(&growing_);
  ++users_;
  pthread_mutex_unlock(&growing_);
}

void Pool::RemoveUser() {
  pthread_mutex_lock(&growing_);
  if (--users_ == 0) {
    // A stopped worker is never idle, so concurrent calls by others no longer use it.
    for (int i = 0; i < workers_.load(std::memory_order_relaxed); ++i) worker_[i].Stop();
    workers_.store(0, std::memory_order_release);
  }
  pthread_mutex_unlock(&growing_);
}

void Pool::Dispatch(int wanted, Job* job) {
  const int workers = workers_.load(std::memory_order_acquire);
  for (const uintptr_t free : {kIdle, kAsleep}) {
    for (int i = 0; i < workers && job->dispatched < wanted; ++i) {
      uintptr_t state = free;
      if (worker_[i].state.load(std::memory_order_acquire) != free) continue;
      // The slot is set first: once dispatched, the worker may begin at any moment and reads it.
      job->slot_of[i] = static_cast<uint8_t>(job->dispatched + 1);
      if (!worker_[i].state.compare_exchange_strong(state, reinterpret_cast<uintptr_t>(job),
                                                    std::memory_order_acq_rel)) {
        continue;
      }
      if (free == kAsleep) sem_post(&worker_[i].wake);
      job->worker[job->dispatched++] = static_cast<uint8_t>(i);
    }
  }
}

int StartThread(pthread_t* thread, void* (*loop)(void*), Worker* worker) {
  pthread_attr_t attributes;
  if (const int error = pthread_attr_init(&attributes); error != 0) return error;
  size_t stack = kMaxStack;
  pthread_attr_getstacksize(&attributes, &stack);
  pthread_attr_setstacksize(&attributes, std::clamp(stack, kMinStack, kMaxStack));
  const int error = pthread_create(thread, &attributes, loop, worker);
  pthread_attr_destroy(&attributes);
  return error;
}

void Pool::Grow(int wanted, int threads, Job* job) {
  // The pool has as many threads as this call can use or as there are processors, if that is more.
  const int max = std::min(std::max(threads, processors_) - 1, kMaxWorkers);
  if (job->dispatched >= wanted || workers_.load(std::memory_order_relaxed) >= max) return;
  if (pthread_mutex_trylock(&growing_) != 0) return;  // another caller is starting workers
  const Clock::time_point now = Clock::now();
  if (refused_ == Clock::time_point{} || now - refused_ > kTryAgain) {
    // Workers leave signals to the host's threads, except those that report a fault of the thread
    // itself: if blocked, these would end the process without calling the host's handler.
    sigset_t all, before;
    sigfillset(&all);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) {
      sigdelset(&all, own);
    }
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = workers_.load(std::memory_order_relaxed); i < max && job->dispatched < wanted;
         ++i) {
      Worker* const worker = &worker_[i];
      PrepareWorker(worker, reinterpret_cast<uintptr_t>(job));
      job->slot_of[i] = static_cast<uint8_t>(job->dispatched + 1);
      worker->index = i;
      // Only workers that have a processor for themselves, next to the caller's, spin.
      worker->spins = i + 1 < processors_;
      const auto loop = [](void* w) -> void* {
        static_cast<Worker*>(w)->Loop();
        return nullptr;
      };
      if (StartThread(&worker->thread, loop, worker) != 0) {
        refused_threads = true;
        refused_ = now;
        break;
      }
      job->worker[job->dispatched++] = static_cast<uint8_t>(i);
      workers_.store(i + 1, std::memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  pthread_mutex_unlock(&growing_);
}

void Pool::Join(Worker* worker, Job* job) {
  const uintptr_t dispatched = reinterpret_cast<uintptr_t>(job), begun = dispatched | kBegun;
  uintptr_t seen = dispatched;
  if (worker->state.compare_exchange_strong(seen, kIdle, std::memory_order_acq_rel)) return;
  // The worker has begun, or has finished and perhaps works for another caller.
  const auto finished = [&] { return worker->state.load(std::memory_order_acquire) != begun; };
  if (SpinUntil(worker->spins ? kSpinForTasks : Clock::duration::zero(), finished)) return;
  sem_init(&job->finished, 0, 0);
  seen = begun;
  if (worker->state.compare_exchange_strong(seen, begun | kAwaited, std::memory_order_acq_rel)) {
    Wait(&job->finished);
  }
  sem_destroy(&job->finished);
}

void Pool::Run(int64_t first, int64_t n, int threads, TaskFn task, const void* context) {
  Job job(first, n, threads, task, context);
  in_task = true;
  Dispatch(job.slots - 1, &job);
  Grow(job.slots - 1, threads, &job);
  while (job.RunOne(0)) {
  }
  for (int i = 0; i < job.dispatched; ++i) Join(&worker_[job.worker[i]], &job);
  in_task = false;
}

// Runs the job on the host's executor, one executor task per slot.
void RunOnExecutor(const HostExecutor& executor, int64_t first, int64_t n, int threads, TaskFn task,
                   const void* context) {
  Job job(first, n, threads, task, context);
  const auto run_slot = [](void* argument, int32_t slot) {
    auto* const of = static_cast<Job*>(argument);
    const FloatMode own = FloatMode::Current();
    of->float_mode.Install();
    const bool before = std::exchange(in_task, true);
    while (of->RunOne(slot)) {
    }
    in_task = before;
    own.Install();
  };
  executor.run(executor.context, job.slots, run_slot, &job);
  run_slot(&job, 0);  // runs the tasks that an incorrect executor did not run
}

}  // namespace

PoolUser::PoolUser() : forks_(Pool::Get()->forks()) { Pool::Get()->AddUser(); }
PoolUser::~PoolUser() { Pool::Get()->RemoveUser(); }
bool PoolUser::forked() const { return Pool::Get()->forks() != forks_; }

void RunOnPool(int64_t n, int threads, TaskFn task, const void* context) {
  if (n <= 1 || threads <= 1 || in_task) {
    for (int64_t i = 0; i < n; ++i) task(context, i, /*slot=*/0);
    return;
  }
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();  // SlotRange has 32 bits
  const HostExecutor* const executor = CurrentHost().executor;
  for (int64_t first = 0; first < n; first += kMax) {
    const int64_t count = std::min(n - first, kMax);
    if (executor != nullptr) {
      RunOnExecutor(*executor, first, count, threads, task, context);
    } else {
      Pool::Get()->Run(first, count, threads, task, context);
    }
  }
}

bool ThreadsWereRefused() { return refused_threads; }

}  // namespace plumb
