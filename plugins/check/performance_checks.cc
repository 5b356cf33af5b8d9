// SPDX-License-Identifier: Apache-2.0
// Checks P1, P2 and N15: the speed of a norm. They report figures and warn if something must be
// wrong, but never fail a norm.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/norm_speed.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

constexpr double kWarnBelow = 0.25;  // fraction of memcpy's bandwidth

// Returns the best of several times of each, in seconds per call. They are interleaved, so that
// other load affects both alike.
template <class First, class Second>
std::pair<double, double> BestTimes(const First& first, const Second& second) {
  constexpr int kSamples = 21;
  const int64_t n = CallsToTime(first);
  std::pair<double, double> best(HUGE_VAL, HUGE_VAL);
  for (int i = 0; i < kSamples && best.second <= 100 * best.first; ++i) {
    best.first = std::min(best.first, TimeOf(n, first) / static_cast<double>(n));
    best.second = std::min(best.second, TimeOf(n, second) / static_cast<double>(n));
  }
  return best;
}

std::string SizeText(int64_t bytes) {
  return bytes >= (1 << 20) ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}

}  // namespace

// Hosts flush denormals in their steps, so they must not be slower there.
void CheckDenormals(const Subject& subject, Report* report) {
  constexpr double kWarn = 2;
  const std::unique_ptr<Instance> instance = FirstInstance(*subject.norm, {768, 64, 60, 1});
  NormRun normal(*instance, PLUMB_DTYPE_F32, 16, subject.seed),
      denormal(*instance, PLUMB_DTYPE_F32, 16, 1);
  for (Rows* rows : {&denormal.x, &denormal.dy}) {
    std::vector<double> values = rows->Values();
    for (double& value : values) value *= 1e-40;
    rows->Assign(values);
  }
  const ScopedFlushing flushing(true);
  for (NormRun* run : {&normal, &denormal}) {
    run->Forward(/*train=*/true);
    run->Backward();
  }
  for (const bool is_forward : {true, false}) {
    const auto call = [&](NormRun* run) {
      return [&instance, is_forward,
              call = is_forward ? run->ForwardCall(true) : run->BackwardCall(false)] {
        is_forward ? Forward(*instance, call, 0, 16) : Backward(*instance, call, 0, 16);
      };
    };
    // A ratio caused by another program is unlikely to occur three times.
    double ratio = HUGE_VAL;
    for (int attempt = 0; attempt < 3 && ratio > kWarn; ++attempt) {
      const auto [plain, slow] = BestTimes(call(&normal), call(&denormal));
      ratio = std::min(ratio, slow / plain);
    }
    if (ratio <= kWarn) continue;
    report->Warn(absl::StrFormat("%s takes %.1f times as long on denormal numbers, flushed to zero",
                                 is_forward ? "forward" : "backward", ratio));
  }
}

void CheckBandwidth(const Subject& subject, Report* report) {
  const std::unique_ptr<Instance> instance = FirstInstance(*subject.norm, {768, 1024, 64, 60, 1});
  for (const int64_t bytes : {int64_t{32} << 10, int64_t{1} << 20, int64_t{256} << 20}) {
    // The x, dy and dx of backward have `bytes` bytes together.
    const int64_t row_bytes = int64_t{4} * instance->dim();
    const int64_t rows = std::max<int64_t>(1, bytes / (3 * row_bytes));
    double rates[2], shares[2];  // of forward and backward
    for (const bool is_forward : {true, false}) {
      TimedPass pass(*instance, PLUMB_DTYPE_F32, rows, is_forward);
      TimedCopy copy(pass.bytes());
      const auto [gone, copied] = BestTimes([&] { pass.Run(); }, [&] { copy.Run(); });
      rates[is_forward ? 0 : 1] = static_cast<double>(pass.bytes()) / gone;
      shares[is_forward ? 0 : 1] = copied / gone;
    }
    const std::string text = absl::StrFormat(
        "%s: forward %.1f GB/s (%.0f %% of memcpy), backward %.1f GB/s (%.0f %%)", SizeText(bytes),
        rates[0] * 1e-9, 100 * shares[0], rates[1] * 1e-9, 100 * shares[1]);
    const bool slow = std::min(shares[0], shares[1]) < kWarnBelow;
    slow ? report->Warn(text) : report->Note(text);
  }
}

void CheckOneRow(const Subject& subject, Report* report) {
  // Limits far above what any norm needs for a row; a call that exceeds them does something else.
  constexpr double kWarnCall = 20e-6, kWarnElement = 20e-9, kWarnEmpty = 5e-6;
  std::string line = "one row in evaluation:";
  for (const uint32_t dim : {64, 768, 4096}) {
    const std::unique_ptr<Instance> instance =
        TryInstance(*subject.norm, dim, DefaultValues(*subject.norm));
    if (instance == nullptr) continue;
    NormRun run(*instance, PLUMB_DTYPE_F32, /*rows=*/1, subject.seed);
    run.Forward(/*train=*/false);
    const plumb_norm_call call = run.ForwardCall(/*train=*/false);
    const auto [row, nothing] =
        BestTimes([&] { Forward(*instance, call, 0, 1); }, [&] { Forward(*instance, call, 1, 1); });
    const double seconds = std::max(0.0, row - nothing);
    const std::string text = absl::StrFormat(" dim=%d %.0f ns (an empty call: %.0f ns)", dim,
                                             seconds * 1e9, nothing * 1e9);
    line += text;
    if (seconds > kWarnCall + kWarnElement * dim || nothing > kWarnEmpty) {
      report->Warn("forward takes long for one row:" + text);
    }
  }
  report->Note(line);
}

}  // namespace plumb::check
