// N15: what denormal numbers cost. A processor may be many times slower on them; a norm should not
// be much slower than the processor makes it. With denormals flushed to zero nothing makes it
// slower.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/float_state.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/timing.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kDenormalRows = 16;
constexpr int kDenormalSamples = 15;
constexpr double kDenormalSampleSeconds = 1e-4;
constexpr double kWarn = 2.0, kNote = 1.2;

void FillDenormal(Rows* rows) {
  for (int64_t r = 0; r < rows->rows(); ++r) {
    for (int64_t i = 0; i < rows->width(); ++i) {
      const double sign = (r + i) % 2 == 0 ? 1 : -1;
      rows->Set(r, i, sign * std::numeric_limits<float>::min() / static_cast<double>(2 + i % 61));
    }
  }
}

// How many times longer `slow` takes than `plain`: the best of several of each, interleaved.
template <class Plain, class Slow>
double Ratio(const Plain& plain, const Slow& slow) {
  const int64_t n = CallsFor(kDenormalSampleSeconds, 1 << 20, plain);
  double best_plain = std::numeric_limits<double>::infinity(), best_slow = best_plain;
  for (int i = 0; i < kDenormalSamples; ++i) {
    best_plain = std::min(best_plain, TimeOf(n, plain));
    best_slow = std::min(best_slow, TimeOf(n, slow));
    if (best_slow > 100 * best_plain) break;  // no need for more
  }
  return best_slow / std::max(best_plain, 1e-9);
}

// Operations that norms are made of, each on all numbers.
void Multiply(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = 0.75f * x[i];
}
void MultiplyAndAdd(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = 300.0f * x[i] * x[i] + x[i];
}
void Divide(const float* x, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] / 3.0f;
}

// What the processor itself charges: the ratio of the operation that suffers most.
double ProcessorRatio(const NormRun& normal, const NormRun& denormal) {
  const auto floats = [](const Rows& rows) {
    const std::vector<double> values = rows.Values();
    return std::vector<float>(values.begin(), values.end());
  };
  const std::vector<float> a = floats(normal.x), b = floats(denormal.x);
  std::vector<float> y(a.size());
  const int64_t n = static_cast<int64_t>(y.size());
  double worst = 1;
  for (const auto operation : {Multiply, MultiplyAndAdd, Divide}) {
    worst = std::max(worst, Ratio([&] { operation(a.data(), y.data(), n); },
                                  [&] { operation(b.data(), y.data(), n); }));
  }
  return worst;
}

}  // namespace

void CheckDenormals(const Subject& subject, Report* report) {
  const std::unique_ptr<Instance> instance = FirstInstance(*subject.norm, {768, 64, 60, 1});
  NormRun normal(*instance, PLUMB_F32, kDenormalRows, subject.seed);
  NormRun denormal(*instance, PLUMB_F32, kDenormalRows, subject.seed);
  FillDenormal(&denormal.x);
  FillDenormal(&denormal.dy);
  for (NormRun* run : {&normal, &denormal}) {
    run->Forward(/*train=*/true);
    run->Backward();
  }
  const auto forward = [&](NormRun* run) {
    return
        [&instance, call = run->ForwardCall(true)] { Forward(*instance, call, 0, kDenormalRows); };
  };
  const auto backward = [&](NormRun* run) {
    return [&instance, call = run->BackwardCall(false)] {
      Backward(*instance, call, 0, kDenormalRows);
    };
  };
  for (const bool flush : {false, true}) {
    const ScopedFlushing scoped(flush);
    const double processor = ProcessorRatio(normal, denormal);
    for (const bool is_forward : {true, false}) {
      // A ratio that another program caused does not come three times.
      double ratio = std::numeric_limits<double>::infinity();
      for (int attempt = 0; attempt < 3 && ratio > kNote * processor; ++attempt) {
        ratio = std::min(ratio, is_forward ? Ratio(forward(&normal), forward(&denormal))
                                           : Ratio(backward(&normal), backward(&denormal)));
      }
      if (ratio <= kNote * processor) continue;
      char text[200];
      std::snprintf(
          text, sizeof(text),
          "%s takes %.1f times as long on denormal numbers (plain arithmetic: %.1f times), "
          "denormals %s",
          is_forward ? "forward" : "backward", ratio, processor,
          flush ? "flushed to zero" : "not flushed");
      ratio > kWarn* processor ? report->Warn(text) : report->Note(text);
    }
  }
}

}  // namespace plumb::check
