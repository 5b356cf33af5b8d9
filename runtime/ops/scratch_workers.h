// How ops whose items need scratch share them among threads: each thread begins with a share of
// neighbouring items, the low ones the first, as the threads of the pool do (thread_pool.h), so
// that it finds in its caches what it wrote in the op before. When it is done with them it takes
// what others have left. It keeps one piece of scratch, which stays in its caches. What is computed
// depends on the shape only. Immutable.
#ifndef PLUMB_RUNTIME_OPS_SCRATCH_WORKERS_H_
#define PLUMB_RUNTIME_OPS_SCRATCH_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/base/processors.h"
#include "runtime/graph/op.h"

namespace plumb {

class ScratchWorkers {
 public:
  // `work`: scalar operations of all items; `item_scratch`: bytes that one needs.
  ScratchWorkers(int64_t items, int64_t work, int64_t item_scratch)
      : items_(items),
        slots_(std::min<int64_t>(TaskCount(items, work),
                                 std::max(kLeastSlots, AvailableProcessors()))),
        slot_bytes_(AlignUp(item_scratch)) {}

  int64_t scratch_bytes() const { return slots_ * slot_bytes_; }

  // body(item, next, scratch) for every item. `next` is the item that the thread will do after it
  // unless others are quicker, or -1.
  template <class Body>
  void Run(const KernelArgs& args, const Body& body) const {
    RunFor(items_, slots_, args, kNothing, body);
  }
  // The same where a thread must make something in its scratch before its first item.
  template <class Prepare, class Body>
  void RunPrepared(const KernelArgs& args, const Prepare& prepare, const Body& body) const {
    RunFor(items_, slots_, args, prepare, body);
  }
  // The same where the work is cut into fewer items than planned.
  template <class Body>
  void RunItems(const KernelArgs& args, int64_t items, const Body& body) const {
    RunFor(items, std::min(slots_, items), args, kNothing, body);
  }
  // The same where there is less work to do than planned.
  template <class Body>
  void Run(const KernelArgs& args, int64_t work, const Body& body) const {
    RunFor(items_, std::min(slots_, TaskCount(items_, work)), args, kNothing, body);
  }

 private:
  static constexpr auto kNothing = [](float*) {};

  template <class Prepare, class Body>
  void RunFor(int64_t items, int64_t most, const KernelArgs& args, const Prepare& prepare,
              const Body& body) const {
    const int64_t workers = std::min<int64_t>(most, args.threads);
    Share shares[kMaxTasks];
    for (int64_t i = 0; i < workers; ++i) {
      const Range range = TaskRange(items, workers, i);
      shares[i].next.store(range.begin, std::memory_order_relaxed);
      shares[i].end = range.end;
    }
    ParallelFor(
        workers, args.threads,
        [&](int64_t worker) {
          float* scratch =
              reinterpret_cast<float*>(static_cast<char*>(args.scratch) + worker * slot_bytes_);
          bool prepared = false;
          for (int64_t i = 0; i < workers; ++i) {
            Share& share = shares[(worker + i) % workers];
            for (;;) {
              const int64_t item = share.next.fetch_add(1, std::memory_order_relaxed);
              if (item >= share.end) break;
              if (!prepared) prepare(scratch);
              prepared = true;
              body(item, item + 1 < share.end ? item + 1 : -1, scratch);
            }
          }
        });
  }

  // More threads than processors need no scratch; up to so many have some all the same, so that
  // tests on small machines see threads beside each other too.
  static constexpr int kLeastSlots = 4;
  struct alignas(64) Share {
    std::atomic<int64_t> next;
    int64_t end;
  };

  const int64_t items_;
  const int64_t slots_;  // threads that can work at a time
  const int64_t slot_bytes_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_SCRATCH_WORKERS_H_
