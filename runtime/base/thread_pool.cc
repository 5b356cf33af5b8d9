#include "runtime/base/thread_pool.h"

#include <pthread.h>
#include <semaphore.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <limits>
#include <utility>

#include "runtime/base/processors.h"

namespace plumb {
namespace {

using Clock = std::chrono::steady_clock;

// Measured on 2 virtual processors: handing a job to a worker that spins takes 0.4 us; waking one
// that sleeps costs the caller 4 to 6 us (a system call and an interrupt to the other processor),
// and the worker is there 3 us later.
//
// How long a worker spins after its last job. Ops of a training step follow each other within this
// time, so that it is asleep only where there is nothing to share.
constexpr Clock::duration kSpinIdle = std::chrono::microseconds(60);
// How long a caller spins for the last tasks of others before it sleeps. They are nearly always
// done within it, unless the system took a worker's processor away: then ours is what lets it
// finish.
constexpr Clock::duration kSpinForTasks = std::chrono::microseconds(50);
// How long to do with the workers there are after the system refused to start one.
constexpr Clock::duration kTryAgain = std::chrono::seconds(1);

// Their numbers fit a byte, and a Job, 64 bytes a seat, a thread's stack.
constexpr int kMaxThreads = 128;
constexpr int kMaxWorkers = 255;

// Threads that are in a task; calls from there run serially.
thread_local bool in_task = false;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Spins until done() holds or `limit` has passed, and asks for memory meanwhile; returns done().
template <class Done>
bool SpinUntil(Clock::duration limit, const Done& done, ReadAhead ahead) {
  Clock::time_point end{};
  do {
    if (done()) return true;
  } while (ahead.Step());
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

// The tasks that one thread of a job starts with: the first in the low half, the end in the high
// half. The owner takes from the front, others that have run out take from the back. Neighbouring
// tasks touch neighbouring memory, and the same ones op after op, so that a thread finds in its own
// cache what it wrote there in the op before.
struct alignas(64) Share {
  std::atomic<uint64_t> range;

  void Set(int64_t begin, int64_t end) {
    range.store(static_cast<uint64_t>(end) << 32 | static_cast<uint64_t>(begin),
                std::memory_order_relaxed);
  }

  // One task of the share, or -1 when none is left. Memory is ordered by mailboxes; here it only
  // counts that no task is given out twice.
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

// One call of RunOnPool. It lies on the caller's stack: the caller stays until no mailbox names it.
struct Job {
  TaskFn task;
  const void* context;
  NextReads next;
  int64_t first;  // of all the caller's tasks, that of this job
  int seats;      // threads that the tasks are divided among, whether they come or not
  int helpers;    // workers that were called
  sem_t left;     // posted by a worker that leaves while the caller sleeps
  uint8_t helper[kMaxThreads];   // the workers that were called
  uint8_t seat_of[kMaxWorkers];  // by worker: its share, set before it is called
  Share shares[kMaxThreads];     // the first is the caller's

  // What the thread at `seat` may ask for when it finds no task.
  ReadAhead NextOf(int seat) const {
    return next.of == nullptr ? ReadAhead{} : next.of(next.context, seat, seats);
  }

  // Takes a task for the thread at `seat` and runs it; false when all are taken.
  bool RunOne(int seat) {
    int64_t i = shares[seat].Take(true);
    for (int k = 1; i < 0 && k < seats; ++k) i = shares[(seat + k) % seats].Take(false);
    if (i < 0) return false;
    task(context, first + i);
    return true;
  }
};

// A worker's mailbox holds one of:
//   kIdle          spinning, or on its way to that; anyone may call it
//   kAsleep        as kIdle, but whoever calls it must post `wake`
//   a Job*         called, and not there yet: the caller may call it off
//   Job* + kThere  working on the job; only the worker changes this, back to kIdle, except that
//                  the caller may add kMissed and sleep until the worker posts job->left
constexpr uintptr_t kIdle = 0, kAsleep = 4, kThere = 1, kMissed = 2;
constexpr uintptr_t kFlags = kThere | kMissed;

struct alignas(128) Worker {
  std::atomic<uintptr_t> mailbox;
  sem_t wake;
  int index;
  bool spins;

  [[noreturn]] void Loop() {
    in_task = true;
    const auto called = [this] { return mailbox.load(std::memory_order_acquire) != kIdle; };
    ReadAhead ahead;
    for (;;) {
      uintptr_t seen = kIdle;
      if (!SpinUntil(spins ? kSpinIdle : Clock::duration::zero(), called,
                     std::exchange(ahead, {}))) {
        // Whoever replaces kAsleep posts once, so posts and waits come in pairs.
        if (mailbox.compare_exchange_strong(seen, kAsleep, std::memory_order_acq_rel)) Wait(&wake);
      }
      seen = mailbox.load(std::memory_order_acquire);
      if (seen == kIdle) continue;  // called off
      if (!mailbox.compare_exchange_strong(seen, seen | kThere, std::memory_order_acq_rel)) {
        continue;
      }
      Job* const job = reinterpret_cast<Job*>(seen);
      const int seat = job->seat_of[index];
      while (job->RunOne(seat)) {
      }
      ahead = job->NextOf(seat);
      if (mailbox.exchange(kIdle, std::memory_order_acq_rel) & kMissed) sem_post(&job->left);
    }
  }
};

class Pool {
 public:
  // Never destroyed: workers may be spinning on it while the process ends.
  static Pool* Get() {
    static Pool* const pool = new Pool;
    return pool;
  }

  void Run(int64_t first, int64_t n, int threads, TaskFn task, const void* context, NextReads next);

 private:
  Pool();

  // Calls workers that have no job until `job` has `helpers`: those that spin before those asleep,
  // which are woken at once. Work is cut into tasks only where there is more of it than waking
  // costs (kMinParallelWork), and the first task may be as long as all that another thread would
  // do.
  void Call(int helpers, Job* job);
  // Starts workers with `job` in their mailbox until it has `helpers`, if there may be more and the
  // system lets it.
  void Grow(int helpers, int threads, Job* job);
  // Calls `worker` off or waits until it has left.
  void Dismiss(Worker* worker, Job* job);

  static void BeforeFork() { pthread_mutex_lock(&Get()->growing_); }
  static void AfterForkInParent() { pthread_mutex_unlock(&Get()->growing_); }
  static void AfterForkInChild();

  const int processors_ = AvailableProcessors();
  pthread_mutex_t growing_ = PTHREAD_MUTEX_INITIALIZER;
  Clock::time_point refused_{};  // when the system last refused a thread; under growing_
  std::atomic<int> workers_{0};  // how many of worker_ there are
  Worker worker_[kMaxWorkers];
};

void PrepareWorker(Worker* worker, uintptr_t state) {
  worker->mailbox.store(state, std::memory_order_relaxed);
  sem_init(&worker->wake, 0, 0);
}

Pool::Pool() { pthread_atfork(BeforeFork, AfterForkInParent, AfterForkInChild); }

// Only the thread that forked lives on in the child.
void Pool::AfterForkInChild() {
  Pool* const pool = Get();
  for (int i = 0; i < pool->workers_.load(std::memory_order_relaxed); ++i) {
    PrepareWorker(&pool->worker_[i], kIdle);
  }
  pool->workers_.store(0, std::memory_order_relaxed);
  pthread_mutex_unlock(&pool->growing_);
}

void Pool::Call(int helpers, Job* job) {
  const int workers = workers_.load(std::memory_order_acquire);
  for (const uintptr_t wanted : {kIdle, kAsleep}) {
    for (int i = 0; i < workers && job->helpers < helpers; ++i) {
      uintptr_t state = wanted;
      if (worker_[i].mailbox.load(std::memory_order_acquire) != wanted) continue;
      // Once it is called, a worker may come at any moment and looks for its seat.
      job->seat_of[i] = static_cast<uint8_t>(job->helpers + 1);
      if (!worker_[i].mailbox.compare_exchange_strong(state, reinterpret_cast<uintptr_t>(job),
                                                      std::memory_order_acq_rel)) {
        continue;
      }
      if (wanted == kAsleep) sem_post(&worker_[i].wake);
      job->helper[job->helpers++] = static_cast<uint8_t>(i);
    }
  }
}

void Pool::Grow(int helpers, int threads, Job* job) {
  // As many as this call alone could use, or as there is room for beside all callers.
  const int most = std::min(std::max(threads, processors_) - 1, kMaxWorkers);
  if (job->helpers >= helpers || workers_.load(std::memory_order_relaxed) >= most) return;
  if (pthread_mutex_trylock(&growing_) != 0) return;  // another caller is at it: do without
  const Clock::time_point now = Clock::now();
  if (refused_ == Clock::time_point{} || now - refused_ > kTryAgain) {
    // Signals are for the host's threads.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    for (int i = workers_.load(std::memory_order_relaxed); i < most && job->helpers < helpers;
         ++i) {
      Worker* const worker = &worker_[i];
      PrepareWorker(worker, reinterpret_cast<uintptr_t>(job));
      job->seat_of[i] = static_cast<uint8_t>(job->helpers + 1);
      worker->index = i;
      // Spinning is for those that find a processor free beside the caller's.
      worker->spins = i + 1 < processors_;
      pthread_t thread;
      const auto loop = [](void* w) -> void* { static_cast<Worker*>(w)->Loop(); };
      if (pthread_create(&thread, nullptr, loop, worker) != 0) {
        refused_ = now;
        break;
      }
      pthread_detach(thread);
      job->helper[job->helpers++] = static_cast<uint8_t>(i);
      workers_.store(i + 1, std::memory_order_release);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  pthread_mutex_unlock(&growing_);
}

void Pool::Dismiss(Worker* worker, Job* job) {
  const uintptr_t called = reinterpret_cast<uintptr_t>(job), there = called | kThere;
  uintptr_t seen = called;
  if (worker->mailbox.compare_exchange_strong(seen, kIdle, std::memory_order_acq_rel)) return;
  // It is there, or has left and perhaps works for another caller.
  const auto has_left = [&] { return worker->mailbox.load(std::memory_order_acquire) != there; };
  if (SpinUntil(worker->spins ? kSpinForTasks : Clock::duration::zero(), has_left,
                job->NextOf(0))) {
    return;
  }
  sem_init(&job->left, 0, 0);
  seen = there;
  if (worker->mailbox.compare_exchange_strong(seen, there | kMissed, std::memory_order_acq_rel)) {
    Wait(&job->left);
  }
  sem_destroy(&job->left);
}

void Pool::Run(int64_t first, int64_t n, int threads, TaskFn task, const void* context,
               NextReads next) {
  Job job;
  job.task = task;
  job.context = context;
  job.next = next;
  job.first = first;
  job.seats = static_cast<int>(std::min<int64_t>(n, std::min(threads, kMaxThreads)));
  job.helpers = 0;
  for (int i = 0; i < job.seats; ++i) {
    job.shares[i].Set(n * i / job.seats, n * (i + 1) / job.seats);
  }

  in_task = true;
  Call(job.seats - 1, &job);
  Grow(job.seats - 1, threads, &job);
  while (job.RunOne(0)) {
  }
  for (int i = 0; i < job.helpers; ++i) Dismiss(&worker_[job.helper[i]], &job);
  in_task = false;
}

}  // namespace

void RunOnPool(int64_t n, int threads, TaskFn task, const void* context, NextReads next) {
  if (n <= 1 || threads <= 1 || in_task) {
    for (int64_t i = 0; i < n; ++i) task(context, i);
    return;
  }
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();  // of what a share can say
  for (int64_t first = 0; first < n; first += kMost) {
    Pool::Get()->Run(first, std::min(n - first, kMost), threads, task, context, next);
  }
}

}  // namespace plumb
