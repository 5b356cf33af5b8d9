// How the attention ops share their items among threads: each thread takes the next item when it is
// done with one, and keeps one piece of scratch, which so stays in its caches. What an item is and
// computes depends on the shape only. Immutable.
#ifndef PLUMB_RUNTIME_OPS_ATTENTION_WORKERS_H_
#define PLUMB_RUNTIME_OPS_ATTENTION_WORKERS_H_

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/parallel.h"
#include "runtime/graph/op.h"

namespace plumb {

class AttentionWorkers {
 public:
  // `work`: scalar operations of all items; `item_scratch`: bytes that one needs.
  AttentionWorkers(int64_t items, int64_t work, int64_t item_scratch)
      : items_(items), most_(TaskCount(items, work)), slot_bytes_(AlignUp(item_scratch)) {}

  int64_t scratch_bytes() const { return most_ * slot_bytes_; }

  // body(item, scratch) for every item.
  template <class Body>
  void Run(const KernelArgs& args, const Body& body) const {
    RunFor(most_, args, body);
  }
  // The same where there is less work to do than planned.
  template <class Body>
  void Run(const KernelArgs& args, int64_t work, const Body& body) const {
    RunFor(std::min(most_, TaskCount(items_, work)), args, body);
  }

 private:
  template <class Body>
  void RunFor(int64_t most, const KernelArgs& args, const Body& body) const {
    const int64_t workers = std::min<int64_t>(most, args.threads);
    std::atomic<int64_t> next{0};
    ParallelFor(workers, args.threads, [&](int64_t worker) {
      float* scratch =
          reinterpret_cast<float*>(static_cast<char*>(args.scratch) + worker * slot_bytes_);
      for (;;) {
        const int64_t item = next.fetch_add(1, std::memory_order_relaxed);
        if (item >= items_) return;
        body(item, scratch);
      }
    });
  }

  const int64_t items_;
  const int64_t most_;
  const int64_t slot_bytes_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ATTENTION_WORKERS_H_
