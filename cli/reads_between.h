// The yardstick of a measurement that lives on memory's bandwidth.
#ifndef PLUMB_CLI_READS_BETWEEN_H_
#define PLUMB_CLI_READS_BETWEEN_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/status.h"
#include "runtime/tools/bench.h"

namespace plumb::cli {

// The speed of reads interleaved with the measurement that it is compared with: the bandwidth of
// shared memory varies twofold from moment to moment, so averages over the same time are compared.
class ReadsBetween {
 public:
  static constexpr double kBetweenReads = 0.05;  // seconds of the measurement

  explicit ReadsBetween(MachineSpeed* machine) : machine_(machine) {}

  // Reads, unless less than kBetweenReads has been spent since the last time.
  absl::Status Turn() {
    if (reads_ > 0 && spent_ < kBetweenReads) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(const double speed, machine_->MeasureRead());
    seconds_a_byte_ += 1 / speed;
    ++reads_;
    spent_ = 0;
    return absl::OkStatus();
  }
  void Spend(double seconds) { spent_ += seconds; }

  // REQUIRES: a turn.
  double speed() const { return reads_ / seconds_a_byte_; }

 private:
  MachineSpeed* const machine_;
  double spent_ = 0, seconds_a_byte_ = 0;
  int reads_ = 0;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_READS_BETWEEN_H_
