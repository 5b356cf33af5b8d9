#include "runtime/tools/run_room.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/file.h"

namespace plumb {

TrainingMemory ToPublic(const TrainMemory& memory, const TrainSpec& spec, int64_t seq) {
  TrainingMemory out;
  out.batch = spec.batch_size;
  out.seq = seq;
  out.dtype = DTypeName(spec.dtype);
  out.recompute_blocks = spec.recompute_blocks;
  out.weights = memory.weights;
  out.gradients = memory.gradients;
  out.moments = memory.moments;
  out.average = memory.average;
  out.norm_states = memory.norm_states;
  out.inputs = memory.inputs;
  out.workspace = memory.workspace;
  out.validation = memory.validation;
  out.total = memory.total();
  return out;
}

TrainingDisk PlanDisk(const TrainMemory& memory, const TrainSpec& spec, const std::string& out) {
  TrainingDisk disk;
  disk.checkpoint = memory.weights + memory.moments + memory.norm_states / 3;  // one of its copies
  // Those that checkpoint_interval makes, the last included; the clock may add some. An old one is
  // deleted when the new one is complete.
  const int64_t made =
      spec.checkpoint_interval > 0
          ? (spec.max_steps + spec.checkpoint_interval - 1) / spec.checkpoint_interval
          : 1;
  const bool deletes = spec.keep_checkpoints > 0 && made > spec.keep_checkpoints;
  disk.checkpoints = deletes ? spec.keep_checkpoints + 1 : made;
  constexpr int64_t kMetricsLine = 160;
  disk.total = disk.checkpoints * disk.checkpoint + kMetricsLine * spec.max_steps;
  if (!out.empty()) disk.available = FreeSpace(out);
  return disk;
}

absl::Status CheckFits(const TrainingDisk& disk, const std::string& out) {
  if (disk.available < 0 || disk.total <= disk.available) return absl::OkStatus();
  const auto size = [](int64_t bytes) {
    return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  };
  return absl::ResourceExhaustedError(
      absl::StrCat(out, ": the disk has ", size(disk.available), " left, and the run writes ",
                   size(disk.total), ", of them ", disk.checkpoints, " x ", size(disk.checkpoint),
                   " for checkpoints; free some, choose another directory, or lower "
                   "train.keep_checkpoints"));
}

}  // namespace plumb
