#include "plugins/check/hot_calls.h"

#include <vector>

namespace plumb::check {
namespace {

class Calls {
 public:
  Calls(NormRun* run, CallWatcher* watcher)
      : run_(*run),
        watcher_(*watcher),
        partial_(AccumulateType(run->dtype()), 1, PartialElements()),
        total_(AccumulateType(run->dtype()), 1, PartialElements()) {}

  void Statistics(uint32_t phase, const plumb_norm_call& call) {
    total_.Fill(0);
    for (const auto& [r0, r1] : TwoRanges()) {
      partial_.Fill(0);
      Watched("stats_partial", [&, from = r0, to = r1] {
        StatsPartial(instance_, phase, call, from, to, partial_.data());
      });
      Watched("stats_combine",
              [&] { StatsCombine(instance_, phase, call, total_.data(), partial_.data()); });
    }
    Watched("stats_finalize", [&] { StatsFinalize(instance_, phase, call, total_.data()); });
  }

  void ForwardAndBackward(bool train) {
    const plumb_norm_call forward = run_.ForwardCall(train);
    if (run_.TakesStatistics(train)) Statistics(PLUMB_FWD, forward);
    for (const auto& [r0, r1] : Ranges()) {
      Watched("forward", [&, from = r0, to = r1] { Forward(instance_, forward, from, to); });
    }
    if (!train) return;
    for (const bool accumulate : {false, true}) {
      const plumb_norm_call backward = run_.BackwardCall(accumulate);
      if (run_.TakesStatistics(train)) Statistics(PLUMB_BWD, backward);
      for (const auto& [r0, r1] : Ranges()) {
        Watched("backward", [&, from = r0, to = r1] { Backward(instance_, backward, from, to); });
      }
    }
  }

 private:
  struct Range {
    int64_t r0, r1;
  };

  int64_t PartialElements() const { return run_.instance().layout().partial_elems; }
  std::vector<Range> TwoRanges() const {
    return {{0, run_.rows() / 2}, {run_.rows() / 2, run_.rows()}};
  }
  std::vector<Range> Ranges() const {
    std::vector<Range> ranges = TwoRanges();
    ranges.insert(ranges.begin(), {0, run_.rows()});
    ranges.push_back({run_.rows() - 1, run_.rows()});
    ranges.push_back({0, 0});
    return ranges;
  }

  template <class Call>
  void Watched(const char* function, const Call& call) {
    watcher_.Before();
    call();
    watcher_.After(function);
  }

  NormRun& run_;
  CallWatcher& watcher_;
  const Instance& instance_ = run_.instance();
  Rows partial_, total_;
};

}  // namespace

void MakeHotCalls(NormRun* run, CallWatcher* watcher) {
  Calls calls(run, watcher);
  calls.ForwardAndBackward(/*train=*/true);
  calls.ForwardAndBackward(/*train=*/false);
}

}  // namespace plumb::check
