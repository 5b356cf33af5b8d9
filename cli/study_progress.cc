// SPDX-License-Identifier: Apache-2.0
#include "cli/study_progress.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/help.h"
#include "cli/output.h"
#include "runtime/base/utf8.h"

namespace plumb::cli {
namespace {

constexpr std::chrono::milliseconds kRedrawInterval(100);
// Maximum height of the table: one taller than the window could not be redrawn.
constexpr size_t kMaxGroupLines = 16;

bool HasEnded(RunPhase phase) {
  return phase == RunPhase::kFinished || phase == RunPhase::kDiverged;
}

}  // namespace

StudyProgress::StudyProgress(const StudyPlan* plan, const std::vector<RunState>* states, bool quiet)
    : plan_(plan),
      states_(states),
      quiet_(quiet),
      terminal_(StderrIsTerminal()),
      begin_(Clock::now()),
      logged_(states->size()) {}

void StudyProgress::Update(bool now) {
  if (quiet_) return;
  if (!terminal_) return Log();
  const Clock::time_point time = Clock::now();
  if (!now && lines_ > 0 && time - shown_at_ < kRedrawInterval) return;
  shown_at_ = time;
  Redraw();
}

void StudyProgress::Note(absl::string_view text) {
  if (quiet_) return;
  Erase();
  PrintNote(text);
}

void StudyProgress::Erase() {
  if (lines_ > 0) std::fputs(absl::StrCat("\x1b[", lines_, "A\r\x1b[J").c_str(), stderr);
  lines_ = 0;
}

void StudyProgress::Redraw() {
  const size_t columns = static_cast<size_t>(std::max(2, TerminalColumns(STDERR_FILENO))) - 1;
  const size_t groups = plan_->groups.size(), shown = std::min(groups, kMaxGroupLines);
  const size_t first = std::min(FirstRunning(), groups - shown);
  size_t width = 0;
  for (size_t i = first; i < first + shown; ++i) {
    width = std::max(width, PrintableText(plan_->groups[i].name).size());
  }
  std::string table = absl::StrCat(CutLine(Summary(), columns), "\n");
  for (size_t i = first; i < first + shown; ++i) {
    absl::StrAppend(&table, CutLine(GroupLine(i, width), columns), "\n");
  }
  if (shown < groups) {
    const std::string rest =
        absl::StrCat("  and ", groups - shown, " more; the table at the end has all");
    absl::StrAppend(&table, CutLine(rest, columns), "\n");
  }
  Erase();
  std::fputs(table.c_str(), stderr);
  lines_ = static_cast<int>(shown) + (shown < groups ? 2 : 1);
}

size_t StudyProgress::FirstRunning() const {
  for (size_t i = 0; i < states_->size(); ++i) {
    if ((*states_)[i].phase == RunPhase::kRunning) return plan_->runs[i].group;
  }
  return 0;
}

StudyProgress::Counts StudyProgress::Count() const {
  Counts counts;
  double left = 0, done = 0;  // runs of this process, with fractions
  for (size_t i = 0; i < states_->size(); ++i) {
    const RunState& state = (*states_)[i];
    if (state.phase == RunPhase::kElsewhere) continue;
    ++counts.runs;
    if (state.found) {
      ++counts.found;
      ++counts.ended;
      continue;
    }
    const bool has_ended = HasEnded(state.phase);
    counts.ended += has_ended ? 1 : 0;
    const int64_t steps = plan_->groups[plan_->runs[i].group].training.max_steps;
    const double own = has_ended ? 1 : static_cast<double>(state.step) / static_cast<double>(steps);
    done += own;
    left += 1 - own;
  }
  counts.seconds = std::chrono::duration<double>(Clock::now() - begin_).count();
  if (done > 0 && left > 0) counts.seconds_left = counts.seconds / done * left;
  return counts;
}

std::string StudyProgress::Summary() const {
  const Counts counts = Count();
  std::string line = absl::StrCat(counts.ended, " of ", plumb::Count(counts.runs, "run"));
  if (counts.found > 0) absl::StrAppend(&line, " (", counts.found, " were done before)");
  absl::StrAppend(&line, "  ", Duration(counts.seconds));
  if (counts.seconds_left > 0) absl::StrAppend(&line, "  ETA ", Duration(counts.seconds_left));
  return line;
}

std::string StudyProgress::GroupLine(size_t group, size_t width) const {
  size_t ended = 0, diverged = 0, all = 0;
  double sum = 0;
  std::string running;
  for (size_t i = 0; i < states_->size(); ++i) {
    if (plan_->runs[i].group != group) continue;
    const RunState& state = (*states_)[i];
    const RunPhase phase = state.phase;
    if (phase == RunPhase::kElsewhere) continue;
    ++all;
    ended += HasEnded(phase) ? 1 : 0;
    diverged += phase == RunPhase::kDiverged ? 1 : 0;
    if (phase == RunPhase::kFinished) sum += state.loss;
    if (phase == RunPhase::kRunning) {
      absl::StrAppendFormat(&running, "  seed %d: step %d, loss %.3f", plan_->runs[i].seed,
                            state.step.load(), state.loss.load());
    }
  }
  const std::string name = PrintableText(plan_->groups[group].name);
  std::string line =
      absl::StrCat("  ", name, std::string(width - name.size(), ' '),
                   absl::StrFormat("  %*d/%d", absl::StrCat(all).size(), ended, all));
  if (ended > diverged) {
    absl::StrAppendFormat(&line, "  last 100: %.3f", sum / static_cast<double>(ended - diverged));
  }
  if (diverged > 0) absl::StrAppend(&line, "  ", diverged, " diverged");
  return line + running;
}

void StudyProgress::Log() {
  const Counts counts = Count();
  if (!begun_ && counts.found > 0) {
    PrintNote(absl::StrCat(counts.found, " of ", plumb::Count(counts.runs, "run"),
                           " were done before and are reused"));
  }
  begun_ = true;
  for (size_t i = 0; i < states_->size(); ++i) {
    const RunState& state = (*states_)[i];
    const RunPhase phase = state.phase;
    if (logged_[i] || !HasEnded(phase)) continue;
    logged_[i] = true;
    if (state.found) continue;
    const PlanRun& run = plan_->runs[i];
    const std::string what =
        phase == RunPhase::kDiverged
            ? absl::StrCat("diverged at step ", state.step.load())
            : absl::StrFormat("loss %.4f after %d steps", state.loss.load(), state.step.load());
    std::string line = absl::StrCat(plan_->groups[run.group].name, ", seed ", run.seed, ": ", what,
                                    "; ", counts.ended, " of ", counts.runs);
    if (counts.seconds_left > 0) {
      absl::StrAppend(&line, ", ", Duration(counts.seconds_left), " left");
    }
    PrintNote(line);
  }
}

}  // namespace plumb::cli
