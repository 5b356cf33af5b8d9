// SPDX-License-Identifier: Apache-2.0
// GroupTasks: partitions work on groups of rows whose sizes are known only at run time into tasks,
// by the sizes of the groups and never by the number of threads. A value; its lists are in scratch.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_GROUP_TASKS_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_GROUP_TASKS_H_

#include <algorithm>
#include <cstdint>

#include "runtime/base/aligned_buffer.h"

namespace plumb {

// Some rows of one group, and the part of their work that this task does.
struct GroupTask {
  int64_t group, begin, rows;
  int64_t part;
};

class GroupTasks {
  struct Block {
    int64_t group, begin, rows;
    int64_t first;  // index of its first task
  };

 public:
  // Divides each group into blocks of at most `block` rows; all groups together have `rows`.
  GroupTasks(int64_t groups, int64_t rows, int64_t block)
      : groups_(groups), block_(block), max_blocks_(std::min(groups, rows) + rows / block) {}

  int64_t max_blocks() const { return max_blocks_; }
  int64_t scratch_bytes() const {
    return AlignUp(max_blocks_ * static_cast<int64_t>(sizeof(Block)));
  }

  // Tasks of one call, stored in the call's scratch.
  class List {
   public:
    int64_t size() const { return size_; }
    GroupTask operator[](int64_t i) const {
      const Block* const next = std::upper_bound(
          blocks_, blocks_ + count_, i, [](int64_t at, const Block& b) { return at < b.first; });
      const Block& block = next[-1];
      return {block.group, block.begin, block.rows, i - block.first};
    }

   private:
    friend class GroupTasks;
    Block* blocks_ = nullptr;
    int64_t count_ = 0, size_ = 0;
  };

  // Returns the tasks; parts(rows) is the number of tasks for a block with that many rows.
  template <class Parts>
  List Cut(const int32_t* starts, void* scratch, const Parts& parts) const {
    List list;
    list.blocks_ = static_cast<Block*>(scratch);
    for (int64_t g = 0; g < groups_; ++g) {
      for (int64_t begin = starts[g]; begin < starts[g + 1]; begin += block_) {
        const int64_t rows = std::min<int64_t>(block_, starts[g + 1] - begin);
        list.blocks_[list.count_++] = {g, begin, rows, list.size_};
        list.size_ += parts(rows);
      }
    }
    return list;
  }

 private:
  int64_t groups_, block_, max_blocks_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_GROUP_TASKS_H_
