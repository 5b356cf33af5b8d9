#include "runtime/tools/run_room.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/file.h"

namespace plumb {

TrainingDisk PlanDisk(const TrainingMemory& memory, const Recipe& recipe, const std::string& out) {
  const v1::Train& fields = recipe.fields;
  const int64_t interval = fields.checkpoint_interval(), steps = fields.max_steps();
  TrainingDisk disk;
  disk.checkpoint = memory.weights + memory.moments + memory.norm_states / 3;  // one of its copies
  // Those that checkpoint_interval makes, the last included; the clock may add some. An old one is
  // deleted when the new one is complete.
  const int64_t made = interval > 0 ? (steps + interval - 1) / interval : 1;
  const int64_t kept = fields.keep_checkpoints();
  disk.checkpoints = kept > 0 && made > kept ? kept + 1 : made;
  constexpr int64_t kMetricsLine = 160;
  disk.total = disk.checkpoints * disk.checkpoint + kMetricsLine * steps;
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
