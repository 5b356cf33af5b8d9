// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/cross_norm_stats.h"

#include <cstring>

#include "runtime/base/aligned_buffer.h"
#include "runtime/base/status.h"

namespace plumb {

NormStatistics::NormStatistics(const NormRunner& runner, const NormPartition& partition)
    : runner_(runner),
      instance_(runner.instance()),
      partition_(partition),
      pointer_bytes_(AlignUp(static_cast<int64_t>(instance_.buffers().size() * sizeof(void*)))),
      partial_bytes_(AlignUp(instance_.partial_elems() * SizeOf(DType::kF32))) {}

void* const* NormStatistics::Buffers(char* memory, void* state) const {
  void** const pointers = reinterpret_cast<void**>(memory);
  for (size_t i = 0; i < instance_.buffers().size(); ++i) {
    pointers[i] = static_cast<float*>(state) + instance_.buffer_offset(i);
  }
  return pointers;
}

absl::Status NormStatistics::Take(uint32_t phase, const plumb_norm_call& call, char* slots,
                                  int64_t slot_bytes, char* memory, int threads) const {
  const absl::Status taken = RunTasks(partition_.tasks, threads, [&](int64_t task) -> absl::Status {
    plumb_norm_call mine = call;
    CallErrorText error(&mine);
    mine.scratch = slots + task * slot_bytes;
    mine.dparams = nullptr;  // only finalize and backward add to them
    const Range chunks = partition_.TaskChunks(task);
    for (int64_t chunk = chunks.begin; chunk < chunks.end; ++chunk) {
      char* const partial = Partial(memory, chunk);
      std::memset(partial, 0, static_cast<size_t>(partial_bytes_));
      const Range rows = partition_.Rows({chunk, chunk + 1});
      PLUMB_RETURN_IF_ERROR(runner_.StatsPartial(phase, mine, rows.begin, rows.end, partial));
    }
    return absl::OkStatus();
  });
  PLUMB_RETURN_IF_ERROR(taken);
  char* const all = Partial(memory, 0);
  plumb_norm_call mine = call;
  CallErrorText error(&mine);
  for (int64_t chunk = 1; chunk < partition_.chunks; ++chunk) {
    PLUMB_RETURN_IF_ERROR(runner_.StatsCombine(phase, mine, all, Partial(memory, chunk)));
  }
  mine.scratch = slots;
  return runner_.StatsFinalize(phase, mine, all);
}

}  // namespace plumb
