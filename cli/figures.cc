// SPDX-License-Identifier: Apache-2.0
#include "cli/figures.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr double kBillion = 1e9;

// Formats seconds in the most readable unit.
std::string TimeText(double seconds) {
  if (seconds < 1e-3) return absl::StrFormat("%.1f us", 1e6 * seconds);
  if (seconds < 10) return absl::StrFormat("%.2f ms", 1e3 * seconds);
  return absl::StrFormat("%.2f s", seconds);
}

std::string ShareText(const PassFigures& pass) {
  if (pass.share.empty()) return "-";
  return absl::StrFormat("%.0f %% of %.1f", 100 * pass.share.Median(),
                         pass.machine.Median() / kBillion);
}

// Shortest time in seconds from which a rate is computed; shorter times are noise.
constexpr double kMinSeconds = 1e-9;

std::string GigaPerSecond(double count, double seconds) {
  if (count <= 0 || seconds < kMinSeconds) return "-";
  return absl::StrFormat("%.1f", count / seconds / 1e9);
}

void AppendRow(const ProfileRow& row, const Profile& profile, std::string* text) {
  const double steps = static_cast<double>(profile.steps);
  const double share = profile.seconds > 0 ? 100 * row.seconds / profile.seconds : 0;
  const std::string name = row.in_graph ? row.name : absl::StrCat("(", row.name, ")");
  absl::StrAppendFormat(text, "%-24s %7.1f %10.3f %6.1f%% %9s %8s\n", name,
                        static_cast<double>(row.runs) / steps, 1e3 * row.seconds / steps, share,
                        GigaPerSecond(row.flops, row.seconds),
                        GigaPerSecond(row.bytes, row.seconds));
}

constexpr int64_t kMaxSteps = 5;
constexpr double kMaxSeconds = 2;

}  // namespace

Json ToJson(const PassFigures& pass) {
  Json json = {{"pass", pass.name}, {"shape", pass.shape}, {"dtype", pass.dtype}};
  if (!pass.problem.empty()) {
    json["problem"] = pass.problem;
    return json;
  }
  json["seconds"] = pass.seconds.ToJson();
  json["tokens_per_second"] = pass.tokens_per_second.ToJson();
  json["rate"] = pass.rate.ToJson();
  json["rate_unit"] = pass.unit == "GB/s" ? "bytes/s" : "FLOP/s";
  json["machine"] = pass.machine.empty() ? Json() : pass.machine.ToJson();
  json["share"] = pass.share.empty() ? Json() : pass.share.ToJson();
  if (pass.profile.has_value()) json["profile"] = ProfileJson(*pass.profile);
  json["peak_memory_bytes"] = pass.peak_memory > 0 ? Json(pass.peak_memory) : Json();
  return json;
}

std::string ToTable(const std::vector<PassFigures>& passes) {
  std::string text =
      absl::StrFormat("%-24s %10s %24s %10s %16s %18s %11s\n", "pass", "median", "p10 .. p90",
                      "tokens/s", "rate", "of the machine", "peak memory");
  for (const PassFigures& pass : passes) {
    const std::string name = absl::StrCat(pass.name, " ", pass.shape, " ", pass.dtype);
    if (!pass.problem.empty()) {
      absl::StrAppendFormat(&text, "%-24s %s\n", name, pass.problem);
      continue;
    }
    const std::string spread = absl::StrCat(TimeText(pass.seconds.Quantile(0.1)), " .. ",
                                            TimeText(pass.seconds.Quantile(0.9)));
    const std::string rate = absl::StrFormat("%.1f %s", pass.rate.Median() / kBillion, pass.unit);
    absl::StrAppendFormat(&text, "%-24s %10s %24s %10s %16s %18s %11s\n", name,
                          TimeText(pass.seconds.Median()), spread,
                          Rate(pass.tokens_per_second.Median()), rate, ShareText(pass),
                          pass.peak_memory > 0 ? Bytes(pass.peak_memory) : "-");
  }
  return text;
}

std::string ProfileTable(const Profile& profile) {
  if (profile.steps == 0) return "profile: no step was timed\n";
  std::string text = absl::StrFormat("%-24s %7s %10s %7s %9s %8s\n", "op", "runs", "ms", "share",
                                     "GFLOP/s", "GB/s");
  ProfileRow all;
  all.name = "a step";
  all.seconds = profile.seconds;
  for (const ProfileRow& row : profile.rows) {
    AppendRow(row, profile, &text);
    if (row.in_graph) all.runs += row.runs;
    all.flops += row.flops;
  }
  AppendRow(all, profile, &text);
  return text;
}

Json ProfileJson(const Profile& profile) {
  Json rows = Json::array();
  for (const ProfileRow& row : profile.rows) {
    rows.push_back({{"name", row.name},
                    {"in_graph", row.in_graph},
                    {"runs", row.runs},
                    {"seconds", row.seconds},
                    {"flops", row.flops},
                    {"bytes", row.bytes}});
  }
  return {{"steps", profile.steps}, {"seconds", profile.seconds}, {"rows", rows}};
}

absl::StatusOr<StepTime> TimeStep(TrainRun* run) {
  StepTime time;
  const auto begin = std::chrono::steady_clock::now();
  const auto passed = [begin] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  while (!run->done() && time.steps < kMaxSteps && (time.steps == 0 || passed() < kMaxSeconds)) {
    const absl::StatusOr<StepReport> report = run->Step();
    if (time.steps > 0 && absl::IsAborted(report.status())) break;  // It diverged.
    PLUMB_RETURN_IF_ERROR(report.status());
    if (time.steps == 0 || report->seconds < time.seconds) {
      time.seconds = report->seconds;
      time.tokens = report->tokens;
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
  absl::StrAppendFormat(&text, "  %-28s %10s  (%s)\n\n", "available",
                        Bytes(info.memory_limit.available), info.memory_limit.by);
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
          {"memory_available", info.memory_limit.available},
          {"memory_limited_by", info.memory_limit.by},
          {"step", {{"seconds", time.seconds}, {"tokens", time.tokens}, {"taken", time.steps}}},
          {"seconds", time.seconds * static_cast<double>(info.max_steps)},
          {"disk",
           {{"checkpoint", info.disk.checkpoint},
            {"checkpoints", info.disk.checkpoints},
            {"total", info.disk.total},
            {"available", info.disk.available}}}};
}

}  // namespace plumb::cli
