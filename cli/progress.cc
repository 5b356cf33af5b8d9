#include "cli/progress.h"

#include <algorithm>
#include <cstdio>

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

void SmoothMean::Add(double value) {
  sum_ = decay_ * sum_ + (1 - decay_) * value;
  weight_ = decay_ * weight_ + (1 - decay_);
}

double SmoothMean::value() const { return weight_ > 0 ? sum_ / weight_ : 0; }

TrainProgress::TrainProgress(int64_t last_step, int64_t max_steps, bool quiet)
    : last_step_(last_step),
      max_steps_(max_steps),
      quiet_(quiet),
      terminal_(StderrIsTerminal()),
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
  if (line_open_) std::fputs("\r\x1b[K", stderr);
  line_open_ = false;
  PrintNote(text);
}

void TrainProgress::End() {
  if (quiet_) return;
  if (last_.step > 0 && shown_step_ != last_.step) Show(Clock::now());
  if (line_open_) std::fputc('\n', stderr);
  line_open_ = false;
}

bool TrainProgress::IsDue(Clock::time_point now) const {
  if (shown_step_ < 0) return true;
  return now - shown_at_ >= (terminal_ ? Clock::duration(kTerminalInterval) : kLogInterval);
}

void TrainProgress::Show(Clock::time_point now) {
  shown_at_ = now;
  shown_step_ = last_.step;
  std::string line = Line();
  if (!terminal_) return PrintNote(line);
  // A line that wraps could not be rewritten.
  line.resize(std::min(line.size(), static_cast<size_t>(std::max(1, TerminalColumns() - 1))));
  std::fputs(absl::StrCat("\r", line, "\x1b[K").c_str(), stderr);
  line_open_ = true;
}

std::string TrainProgress::Line() const {
  std::string line = absl::StrFormat("step %d/%d  loss %.4f  lr %.2e  norm %.2f  %s tok/s",
                                     last_.step, max_steps_, loss_.value(), last_.learning_rate,
                                     last_.grad_norm, Rate(tokens_.value() / seconds_.value()));
  const int64_t left = last_step_ - last_.step;
  if (left > 0) {
    absl::StrAppend(&line, "  ETA ", Duration(wall_.value() * static_cast<double>(left)));
  }
  return line;
}

}  // namespace plumb::cli
