#include "cli/compare/requirements.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/compare/run_record.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

// Beside the memory of its steps a run has its data, and a thread with a heap of its own, for which
// the C library reserves as much of the address space.
constexpr int64_t kBesideSteps = int64_t{64} << 20;

}  // namespace

Division Divide(int threads, size_t runs, int64_t memory, int64_t available) {
  int64_t workers = std::min<int64_t>(threads, static_cast<int64_t>(runs));
  if (memory > 0) workers = std::min(workers, available / 4 * 3 / (memory + kBesideSteps));
  Division division;
  division.workers = static_cast<int>(std::max<int64_t>(1, workers));
  division.threads = std::max(1, threads / division.workers);
  return division;
}

absl::StatusOr<Requirements> RequirementsOf(const Plan& plan, int threads) {
  Requirements out;
  out.room = Memory();
  int64_t memory = 0;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    if (!plan.shard.Has(i)) continue;
    ++out.runs;
    const PlanRun& run = plan.runs[i];
    PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> result, ReadRunResult(run.directory));
    if (result.has_value()) {
      ++out.ended;
      continue;
    }
    const PlanGroup& group = plan.groups[run.group];
    memory = std::max(memory, group.memory.total);
    // Of one that has begun, most is on the disk already: a new checkpoint replaces an old one.
    const bool begun = FileExists(absl::StrCat(run.directory, "/model.pbtxt"));
    out.disk += begun ? group.disk.checkpoint : group.disk.total;
  }
  out.free_disk = FreeSpace(plan.out);
  out.division = Divide(threads, out.runs - out.ended, memory, out.room.available);
  out.memory = memory * out.division.workers;
  return out;
}

absl::Status CheckFits(const Requirements& requirements, const Plan& plan) {
  if (requirements.free_disk < 0 || requirements.disk <= requirements.free_disk) {
    return absl::OkStatus();
  }
  return absl::ResourceExhaustedError(
      absl::StrCat(plan.out, ": the disk has ", Bytes(requirements.free_disk), " left, and ",
                   Count(static_cast<int64_t>(requirements.runs - requirements.ended), "run"),
                   " write ", Bytes(requirements.disk),
                   "; free some, choose another --out, or set train.keep_checkpoints=1"));
}

}  // namespace plumb::cli
