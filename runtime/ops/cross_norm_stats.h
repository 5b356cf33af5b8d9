// SPDX-License-Identifier: Apache-2.0
// NormStatistics: takes the statistics of a cross-row norm over all rows of a call, with the same
// bits for any number of threads. Immutable. Private to the module.
#ifndef PLUMB_RUNTIME_OPS_CROSS_NORM_STATS_H_
#define PLUMB_RUNTIME_OPS_CROSS_NORM_STATS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "plumb/norm_plugin.h"
#include "runtime/ops/norm_rows.h"
#include "runtime/ops/norm_runner.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

class NormStatistics {
 public:
  // Requires: `runner` runs a cross-row norm and outlives this.
  NormStatistics(const NormRunner& runner, const NormPartition& partition);

  // Returns the bytes of a kernel's scratch, passed as `memory` below.
  int64_t bytes() const { return pointer_bytes_ + partition_.chunks * partial_bytes_; }

  // Returns the `buffers` of a call with this state. The pointers are stored in `memory`.
  void* const* Buffers(char* memory, void* state) const;

  // Takes and finalizes the statistics of `phase` for all rows of `call`. Task i of the partition
  // has its scratch at `slots` + i * slot_bytes.
  absl::Status Take(uint32_t phase, const plumb_norm_call& call, char* slots, int64_t slot_bytes,
                    char* memory, int threads) const;

 private:
  char* Partial(char* memory, int64_t chunk) const {
    return memory + pointer_bytes_ + chunk * partial_bytes_;
  }

  const NormRunner& runner_;
  const NormInstance& instance_;
  const NormPartition partition_;
  int64_t pointer_bytes_;
  int64_t partial_bytes_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_CROSS_NORM_STATS_H_
