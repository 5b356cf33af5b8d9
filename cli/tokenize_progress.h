// TokenizeProgressLine: how far a text is, on stderr: on a terminal one line that is rewritten, and
// elsewhere nothing. Owned by one command; one thread.
#ifndef PLUMB_CLI_TOKENIZE_PROGRESS_H_
#define PLUMB_CLI_TOKENIZE_PROGRESS_H_

#include <chrono>

#include "absl/status/status.h"
#include "runtime/tools/tokenize.h"

namespace plumb::cli {

class TokenizeProgressLine {
 public:
  explicit TokenizeProgressLine(bool quiet);
  // OK always, so that it serves as an observer.
  absl::Status Show(const TokenizeProgress& now);
  // Ends the line.
  void End();

 private:
  const bool shows_;
  bool open_ = false;
  std::chrono::steady_clock::time_point start_, shown_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_TOKENIZE_PROGRESS_H_
