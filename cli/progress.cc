// SPDX-License-Identifier: Apache-2.0
#include "cli/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

constexpr std::chrono::milliseconds kTerminalInterval(100);
constexpr std::chrono::seconds kLogInterval(10);

double Seconds(std::chrono::steady_clock::duration duration) {
  return std::chrono::duration<double>(duration).count();
}

}  // namespace

StatusLine::StatusLine(bool quiet) : shows_(!quiet && StderrIsTerminal()) {}

void StatusLine::Show(std::string line) {
  if (!shows_) return;
  // A line that wraps could not be rewritten.
  line.resize(
      std::min(line.size(), static_cast<size_t>(std::max(1, TerminalColumns(STDERR_FILENO) - 1))));
  std::fputs(absl::StrCat("\r", line, "\x1b[K").c_str(), stderr);
  open_ = true;
}

void StatusLine::Clear() {
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
}

void StatusLine::End() {
  if (open_) std::fputc('\n', stderr);
  open_ = false;
}

void SmoothMean::Add(double value) {
  sum_ = decay_ * sum_ + (1 - decay_) * value;
  weight_ = decay_ * weight_ + (1 - decay_);
}

double SmoothMean::value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

TrainProgress::TrainProgress(int64_t last_step, int64_t max_steps, bool quiet)
    : last_step_(last_step),
      max_steps_(max_steps),
      quiet_(quiet),
      status_(quiet),
      last_step_end_(Clock::now()) {}

void TrainProgress::Step(const StepReport& report) {
  if (quiet_) return;
  const Clock::time_point now = Clock::now();
  wall_.Add(Seconds(now - last_step_end_));
  last_step_end_ = now;
  loss_.Add(report.loss);
  tokens_.Add(static_cast<double>(report.tokens));
  seconds_.Add(report.seconds);
  last_ = report;
  if (report.val_loss) {
    Note(absl::StrFormat("step %d  val loss %.4f", report.step, *report.val_loss));
  }
  if (IsDue(now)) Show(now);
}

void TrainProgress::Note(absl::string_view text) {
  if (quiet_) return;
  status_.Clear();
  PrintNote(text);
}

void TrainProgress::End() {
  if (quiet_) return;
  if (last_.step > 0 && shown_step_ != last_.step) Show(Clock::now());
  status_.End();
}

bool TrainProgress::IsDue(Clock::time_point now) const {
  if (shown_step_ < 0) return true;
  return now - shown_at_ >= (status_.shows() ? Clock::duration(kTerminalInterval) : kLogInterval);
}

void TrainProgress::Show(Clock::time_point now) {
  shown_at_ = now;
  shown_step_ = last_.step;
  if (!status_.shows()) return PrintNote(Line());
  status_.Show(Line());
}

std::string TrainProgress::Line() const {
  std::string line = absl::StrFormat("step %d/%d  loss %.4f  lr %.2e  norm %.2f  %s tok/s",
                                     last_.step, max_steps_, loss_.value(), last_.learning_rate,
                                     last_.gradient_norm, Rate(tokens_.value() / seconds_.value()));
  const int64_t left = last_step_ - last_.step;
  if (left > 0) {
    absl::StrAppend(&line, "  ETA ", Duration(wall_.value() * static_cast<double>(left)));
  }
  return line;
}

TokenizeProgressLine::TokenizeProgressLine(bool quiet)
    : status_(quiet), start_(std::chrono::steady_clock::now()) {}

absl::Status TokenizeProgressLine::Show(const TokenizeProgress& now) {
  if (!status_.shows()) return absl::OkStatus();
  const auto time = std::chrono::steady_clock::now();
  if (time - shown_ < kTerminalInterval) return absl::OkStatus();
  shown_ = time;
  const double seconds = std::chrono::duration<double>(time - start_).count();
  status_.Show(absl::StrCat(
      Bytes(now.bytes), " of ", Bytes(now.total_bytes), "  ", Count(now.tokens, "token"), "  ",
      Bytes(static_cast<int64_t>(static_cast<double>(now.bytes) / seconds)), "/s"));
  return absl::OkStatus();
}

}  // namespace plumb::cli
