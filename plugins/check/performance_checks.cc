#include "plugins/check/performance_checks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "plugins/check/lists.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/timing.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr double kWarnBelow = 0.25;  // of memcpy's bandwidth

// Numbers of a big operand, all pages touched, at a multiple of 64 bytes.
class Numbers {
 public:
  explicit Numbers(size_t n) : data_(static_cast<float*>(std::aligned_alloc(64, Bytes(n)))) {
    if (data_ == nullptr) throw CheckEnded{"not enough memory for the operands"};
    for (size_t i = 0; i < n; ++i) data_[i] = static_cast<float>(i % 1021) / 512.0f - 1.0f;
  }
  ~Numbers() { std::free(data_); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;
  float* data() const { return data_; }

 private:
  static size_t Bytes(size_t n) { return (n * sizeof(float) + 63) / 64 * 64; }
  float* data_;
};

// What one thread has of a call: its rows, and memory that is its own.
struct Share {
  Share(const Instance& instance, int64_t begin, int64_t end, int64_t chunk_rows)
      : r0(begin),
        r1(end),
        chunk(chunk_rows),
        scratch(instance.layout(), chunk_rows),
        run(instance, PLUMB_F32, /*rows=*/1, /*seed=*/1) {}
  int64_t r0, r1, chunk;
  Scratch scratch;
  NormRun run;
  void* const* dparams = run.BackwardCall(/*accumulate=*/false).dparams;
};

// Forward and backward of f32 rows, split among threads and cut in chunks as the host cuts them.
class Workload {
 public:
  Workload(const Instance& instance, int64_t rows, int threads)
      : instance_(instance),
        small_(instance, PLUMB_F32, /*rows=*/8, /*seed=*/1),
        rows_(rows),
        count_(static_cast<size_t>(rows) * instance.dim()),
        x_(count_),
        y_(count_),
        dy_(count_),
        dx_(count_),
        saved_(static_cast<size_t>(rows) * instance.layout().saved_per_row + 1) {
    const int64_t chunk = std::max<int64_t>(8, (rows + 63) / 64);
    for (int t = 0; t < threads; ++t) {
      shares_.push_back(
          std::make_unique<Share>(instance, rows * t / threads, rows * (t + 1) / threads, chunk));
    }
    small_.Forward(/*train=*/true);  // what a cross-row norm needs from statistics
    small_.Backward();
    forward_ = small_.ForwardCall(/*train=*/true);
    backward_ = small_.BackwardCall(/*accumulate=*/false);
    for (plumb_norm_call* call : {&forward_, &backward_}) {
      call->rows = rows;
      call->x_pitch = call->y_pitch = call->dy_pitch = call->dx_pitch = RowBytes();
      call->flags &= ~uint32_t{PLUMB_CALL_ALIGNED64};
      if (RowBytes() % 64 == 0) call->flags |= PLUMB_CALL_ALIGNED64;
      call->saved = saved_.data();
      call->saved_pitch = int64_t{4} * instance.layout().saved_per_row;
      if (call->x != nullptr) call->x = x_.data();
      if (call->y != nullptr) call->y = y_.data();
    }
    backward_.dy = dy_.data();
    backward_.dx = dx_.data();
    forward_.y = y_.data();
  }

  void Copy(const Share& share) const {
    const size_t begin = static_cast<size_t>(share.r0) * instance_.dim();
    const size_t end = static_cast<size_t>(share.r1) * instance_.dim();
    std::memcpy(y_.data() + begin, x_.data() + begin, (end - begin) * sizeof(float));
  }
  void ForwardOf(Share* share) const { InChunks(&check::Forward, forward_, share); }
  void BackwardOf(Share* share) const { InChunks(&check::Backward, backward_, share); }

  double ForwardBytes() const { return 2.0 * TensorBytes(); }
  double BackwardBytes() const {
    const uint32_t needs = instance_.layout().backward_needs;
    return TensorBytes() * (2 + ((needs & PLUMB_BWD_X) != 0) + ((needs & PLUMB_BWD_Y) != 0));
  }
  const std::vector<std::unique_ptr<Share>>& shares() const { return shares_; }

 private:
  int64_t RowBytes() const { return int64_t{4} * instance_.dim(); }
  double TensorBytes() const { return 4.0 * static_cast<double>(count_); }

  void InChunks(plumb_status (*function)(const Instance&, const plumb_norm_call&, int64_t, int64_t),
                const plumb_norm_call& all, Share* share) const {
    plumb_norm_call call = all;
    call.scratch = share->scratch.data();
    if (call.dparams != nullptr) call.dparams = share->dparams;
    for (int64_t r = share->r0; r < share->r1; r += share->chunk) {
      function(instance_, call, r, std::min(share->r1, r + share->chunk));
    }
  }

  const Instance& instance_;
  NormRun small_;
  int64_t rows_;
  size_t count_;
  Numbers x_, y_, dy_, dx_, saved_;
  std::vector<std::unique_ptr<Share>> shares_;
  plumb_norm_call forward_{}, backward_{};
};

using Clock = std::chrono::steady_clock;

// Seconds from the start of the first thread to the end of the last, each calling work(share)
// `repeat` times. All start together.
double Measure(const Workload& load, int64_t repeat, const std::function<void(Share*)>& work) {
  const size_t n = load.shares().size();
  std::atomic<size_t> waiting{n};
  std::vector<Clock::time_point> start(n), end(n);
  std::vector<std::exception_ptr> thrown(n);
  const auto body = [&](size_t self) {
    --waiting;
    while (waiting.load() != 0) std::this_thread::yield();
    start[self] = Clock::now();
    try {
      for (int64_t i = 0; i < repeat; ++i) work(load.shares()[self].get());
    } catch (...) {
      thrown[self] = std::current_exception();
    }
    end[self] = Clock::now();
  };
  std::vector<std::thread> others;
  for (size_t t = 1; t < n; ++t) others.emplace_back(body, t);
  body(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
  return std::chrono::duration<double>(*std::max_element(end.begin(), end.end()) -
                                       *std::min_element(start.begin(), start.end()))
      .count();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

struct Bandwidths {
  double copy, forward, backward;  // bytes a second
};

// The medians of 21 samples; of fewer where half a second is over before.
Bandwidths MeasureBandwidths(const Workload& load) {
  constexpr int kSamples = 21, kFewestSamples = 3;
  constexpr double kSampleSeconds = 1e-3, kSeconds = 0.5;
  const std::function<void(Share*)> work[] = {[&](Share* s) { load.Copy(*s); },
                                              [&](Share* s) { load.ForwardOf(s); },
                                              [&](Share* s) { load.BackwardOf(s); }};
  const double bytes[] = {load.ForwardBytes(), load.ForwardBytes(), load.BackwardBytes()};
  int64_t repeat[3];
  for (int k = 0; k < 3; ++k) {
    repeat[k] = 1;
    while (Measure(load, repeat[k], work[k]) < kSampleSeconds) repeat[k] *= 2;
  }
  // Interleaved, so that other load of the machine affects all three alike.
  std::vector<double> rates[3];
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kSamples; ++i) {
    const double spent = std::chrono::duration<double>(Clock::now() - begin).count();
    if (i >= kFewestSamples && spent > kSeconds) break;
    for (int k = 0; k < 3; ++k) {
      rates[k].push_back(bytes[k] * static_cast<double>(repeat[k]) /
                         Measure(load, repeat[k], work[k]));
    }
  }
  return {Median(rates[0]), Median(rates[1]), Median(rates[2])};
}

std::string SizeText(int64_t bytes) {
  return bytes >= (1 << 20) ? std::to_string(bytes >> 20) + " MiB"
                            : std::to_string(bytes >> 10) + " KiB";
}

}  // namespace

void CheckBandwidth(const Subject& subject, Report* report) {
  const std::unique_ptr<Instance> instance = FirstInstance(*subject.norm, {768, 1024, 64, 60, 1});
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  for (const int64_t bytes : {int64_t{32} << 10, int64_t{1} << 20, int64_t{256} << 20}) {
    // Backward's x, dy and dx are `bytes` together.
    const int64_t rows = std::max<int64_t>(1, bytes / (int64_t{3} * 4 * instance->dim()));
    for (const int threads : {1, all}) {
      const Workload load(*instance, rows, threads);
      const Bandwidths rate = MeasureBandwidths(load);
      char text[200];
      std::snprintf(text, sizeof(text),
                    "%s, %d thread%s: forward %.1f GB/s (%.0f %% of memcpy), backward %.1f GB/s "
                    "(%.0f %%)",
                    SizeText(bytes).c_str(), threads, threads == 1 ? "" : "s", rate.forward * 1e-9,
                    100 * rate.forward / rate.copy, rate.backward * 1e-9,
                    100 * rate.backward / rate.copy);
      const bool slow = std::min(rate.forward, rate.backward) < kWarnBelow * rate.copy;
      slow ? report->Warn(text) : report->Note(text);
      if (all == 1) break;
    }
  }
}

void CheckOneRow(const Subject& subject, Report* report) {
  // Far above what any norm needs for a row: something else happens in such a call.
  constexpr double kWarnCall = 20e-6, kWarnElement = 20e-9, kWarnEmpty = 5e-6;
  constexpr int kSamples = 21;
  std::string line = "one row in evaluation:";
  for (const uint32_t dim : {64, 768, 4096}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance == nullptr) continue;
    NormRun run(*instance, PLUMB_F32, /*rows=*/1, subject.seed);
    run.Forward(/*train=*/false);
    const plumb_norm_call call = run.ForwardCall(/*train=*/false);
    const auto row = [&] { Forward(*instance, call, 0, 1); };
    const auto nothing = [&] { Forward(*instance, call, 1, 1); };
    const int64_t n = CallsFor(/*seconds=*/2e-4, /*most=*/1 << 16, row);
    double best_row = std::numeric_limits<double>::infinity(), best_nothing = best_row;
    for (int i = 0; i < kSamples; ++i) {
      best_row = std::min(best_row, TimeOf(n, row) / static_cast<double>(n));
      best_nothing = std::min(best_nothing, TimeOf(n, nothing) / static_cast<double>(n));
    }
    const double seconds = std::max(0.0, best_row - best_nothing);
    char text[120];
    std::snprintf(text, sizeof(text), " dim=%u %.0f ns (an empty call: %.0f ns)", dim,
                  seconds * 1e9, best_nothing * 1e9);
    line += text;
    if (seconds > kWarnCall + kWarnElement * dim || best_nothing > kWarnEmpty) {
      report->Warn("forward takes long for one row:" + std::string(text));
    }
  }
  report->Note(line);
}

std::vector<Check> PerformanceChecks() {
  constexpr int kPerformance = 4;
  return {
      {"P1", kPerformance, Scope::kNorm, "bandwidth, against memcpy", CheckBandwidth,
       /*timed=*/true},
      {"P2", kPerformance, Scope::kNorm, "time for one row", CheckOneRow, /*timed=*/true},
  };
}

}  // namespace plumb::check
