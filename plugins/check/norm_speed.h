// SPDX-License-Identifier: Apache-2.0
// Speed of a norm's passes, for check P1 and for `plumb plugin bench`. All times are those of one
// thread on a processor, without waiting. Thread-compatible.
#ifndef PLUMB_PLUGINS_CHECK_NORM_SPEED_H_
#define PLUMB_PLUGINS_CHECK_NORM_SPEED_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "plugins/check/norm_run.h"

namespace plumb::check {

// Returns the seconds that `n` calls of `work` take this thread.
double TimeOf(int64_t n, const std::function<void()>& work);
// Returns how many calls of `work` take at least a fifth of a millisecond, at most 65536.
int64_t CallsToTime(const std::function<void()>& work);

// Forward or backward of a norm on rows in memory, in training. The statistics of a norm over
// tokens are computed once and are not part of the time.
class TimedPass {
 public:
  // Requires: `instance` outlives this object.
  TimedPass(const Instance& instance, uint32_t dtype, int64_t rows, bool is_forward);
  void Run();
  // Returns the bytes that the pass must move: each operand once, without parameters and
  // statistics.
  int64_t bytes() const { return bytes_; }

 private:
  NormRun run_;
  const bool is_forward_;
  plumb_norm_call call_;
  int64_t bytes_;
};

// A memcpy that reads and writes `bytes` together: the limit of a pass of as many.
class TimedCopy {
 public:
  explicit TimedCopy(int64_t bytes);
  void Run();

 private:
  std::vector<char> from_, to_;
};

// A norm by the file that has it and, unless that has one norm only, by its id.
struct NormOfFile {
  std::string path, id;
};

struct BenchOptions {
  NormOfFile norm, against;
  int rounds = 15;
  bool json = false;
};

// Measures forward and backward of a norm at usual sizes, in rounds that interleave it with the
// norm that it is compared with and with a memcpy of the same bytes, each size in a process of its
// own. Calls `print` with the text of each size when it is measured. Errors: a file that is not a
// plugin or offers several norms, with their ids; a norm that ends its process or takes
// statistics over tokens.
absl::Status BenchNorms(const BenchOptions& options,
                        const std::function<bool(const std::string&)>& print);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_NORM_SPEED_H_
