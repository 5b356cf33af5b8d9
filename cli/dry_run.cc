#include "cli/dry_run.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr int64_t kMostSteps = 5;
constexpr double kMostSeconds = 2;

}  // namespace

absl::StatusOr<StepTime> TimeStep(TrainRun* run) {
  StepTime time;
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (!run->done() && time.steps < kMostSteps && (time.steps == 0 || passed() < kMostSeconds)) {
    PLUMB_ASSIGN_OR_RETURN(const StepReport report, run->Step());
    if (time.steps == 0 || report.seconds < time.seconds) {
      time.seconds = report.seconds;
      time.tokens = report.tokens;
    }
    ++time.steps;
  }
  return time;
}

Json MemoryJson(const TrainingMemory& memory) {
  return {
      {"batch", memory.batch},         {"seq", memory.seq},
      {"dtype", memory.dtype},         {"recompute", memory.recompute_blocks ? "block" : "none"},
      {"weights", memory.weights},     {"gradients", memory.gradients},
      {"moments", memory.moments},     {"norm_states", memory.norm_states},
      {"exchange", memory.exchange},   {"inputs", memory.inputs},
      {"workspace", memory.workspace}, {"validation", memory.validation},
      {"total", memory.total}};
}

std::string MemoryTable(const TrainingMemory& memory) {
  std::string text = absl::StrCat(
      "memory of a training step: ", Count(memory.batch, "sequence"), " of ",
      Count(memory.seq, "token"), ", ", memory.dtype,
      memory.recompute_blocks ? ", blocks computed again for the backward pass" : "", "\n");
  const auto row = [&text](const char* name, int64_t bytes) {
    if (bytes == 0) return;
    absl::StrAppendFormat(&text, "  %-28s %10s\n", name, Bytes(bytes));
  };
  row("weights", memory.weights);
  row("gradients", memory.gradients);
  row("gradients of other ranks", memory.exchange);
  row("optimizer's moments", memory.moments);
  row("buffers of norms", memory.norm_states);
  row("token ids", memory.inputs);
  row("activations and scratch", memory.workspace);
  row("validation", memory.validation);
  row("peak", memory.total);
  return text;
}

std::string DryRunText(const TrainInfo& info, const StepTime& time) {
  std::string text = MemoryTable(info.memory);
  absl::StrAppendFormat(&text, "  %-28s %10s  (%s)\n\n", "available", Bytes(info.room.available),
                        info.room.limited_by);
  absl::StrAppendFormat(&text, "step    %.3g s, ", time.seconds);
  absl::StrAppend(&text, Count(time.tokens, "token"), ", ",
                  Rate(static_cast<double>(time.tokens) / time.seconds),
                  " tokens/s  (the fastest of ", time.steps, ")\n");
  absl::StrAppend(&text, "run     ", Count(info.max_steps, "step"), ", about ",
                  Duration(time.seconds * static_cast<double>(info.max_steps)),
                  "  (without validation and checkpoints)\n");
  absl::StrAppend(&text, "disk    ", Count(info.disk.checkpoints, "checkpoint"), " of ",
                  Bytes(info.disk.checkpoint), ", in all ", Bytes(info.disk.total));
  if (info.disk.available >= 0) {
    absl::StrAppend(&text, " of ", Bytes(info.disk.available), " available");
  }
  return absl::StrCat(text, "\n\nNothing was written to ", info.out, ".\n");
}

Json DryRunJson(const TrainInfo& info, const StepTime& time) {
  return {{"status", "dry-run"},
          {"model", info.model_name},
          {"out", info.out},
          {"parameters", info.parameters},
          {"seed", info.seed},
          {"dtype", info.dtype},
          {"threads", info.threads},
          {"max_steps", info.max_steps},
          {"memory", MemoryJson(info.memory)},
          {"memory_available", info.room.available},
          {"memory_limited_by", info.room.limited_by},
          {"step", {{"seconds", time.seconds}, {"tokens", time.tokens}, {"taken", time.steps}}},
          {"seconds", time.seconds * static_cast<double>(info.max_steps)},
          {"disk",
           {{"checkpoint", info.disk.checkpoint},
            {"checkpoints", info.disk.checkpoints},
            {"total", info.disk.total},
            {"available", info.disk.available}}}};
}

}  // namespace plumb::cli
