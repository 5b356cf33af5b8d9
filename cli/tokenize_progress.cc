#include "cli/tokenize_progress.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "absl/strings/str_cat.h"
#include "cli/output.h"

namespace plumb::cli {
namespace {

constexpr std::chrono::milliseconds kInterval(100);

}  // namespace

TokenizeProgressLine::TokenizeProgressLine(bool quiet)
    : shows_(!quiet && StderrIsTerminal()), start_(std::chrono::steady_clock::now()) {}

absl::Status TokenizeProgressLine::Show(const TokenizeProgress& now) {
  if (!shows_) return absl::OkStatus();
  const auto time = std::chrono::steady_clock::now();
  if (time - shown_ < kInterval) return absl::OkStatus();
  shown_ = time;
  const double seconds = std::chrono::duration<double>(time - start_).count();
  std::string line = absl::StrCat(
      Bytes(now.bytes), " of ", Bytes(now.total_bytes), "  ", Count(now.tokens, "token"), "  ",
      Bytes(static_cast<int64_t>(static_cast<double>(now.bytes) / seconds)), "/s");
  const size_t columns = static_cast<size_t>(std::max(1, TerminalColumns() - 1));
  line.resize(std::min(line.size(), columns));
  std::fputs(absl::StrCat("\r", line, "\x1b[K").c_str(), stderr);
  open_ = true;
  return absl::OkStatus();
}

void TokenizeProgressLine::End() {
  if (open_) std::fputs("\r\x1b[K", stderr);
  open_ = false;
}

}  // namespace plumb::cli
