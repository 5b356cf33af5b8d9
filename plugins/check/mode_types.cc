// N12: element types. What a norm offers must agree with what it does in the next better type; what
// it does not offer it must refuse.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kTypeRows = 13;

double Largest(const std::vector<double>& values, size_t begin, size_t end) {
  double largest = 0;
  for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(values[i]));
  return largest;
}

// The distance of neighbouring numbers of the type at `scale`.
double Ulp(uint32_t dtype, double scale) {
  return scale == 0 ? 0 : std::ldexp(Epsilon(dtype), std::ilogb(scale));
}

// The first element of [rows, width] that is further from `must` than `ulps` of its row's scale, in
// words. `least` is a scale below which a row counts as rounding errors of larger numbers.
std::string Distance(const char* name, uint32_t dtype, double ulps, double least,
                     const std::vector<double>& got, const std::vector<double>& must,
                     size_t width) {
  for (size_t begin = 0; begin < must.size(); begin += width) {
    const double scale = std::max(least, Largest(must, begin, begin + width));
    const double allowed = ulps * Ulp(dtype, scale);
    for (size_t i = begin; i < begin + width; ++i) {
      if (std::fabs(got[i] - must[i]) <= allowed) continue;
      char text[160];
      std::snprintf(text, sizeof(text), "%s[%zu][%zu] is %.9g, must be %.9g within %.2g", name,
                    begin / width, i - begin, got[i], must[i], allowed);
      return text;
    }
  }
  return "";
}

// The same training step in `dtype` and in the better type `reference`, on the same numbers. `ulps`
// of `dtype` may lie between them.
void Compare(const Instance& instance, uint32_t dtype, uint32_t reference, double ulps,
             uint64_t seed, Report* report) {
  NormRun low(instance, dtype, kTypeRows, seed), high(instance, reference, kTypeRows, seed);
  high.x.Assign(low.x.Values());
  high.dy.Assign(low.dy.Values());
  for (size_t i = 0; i < low.params.size(); ++i) high.params[i].Assign(low.params[i].Values());
  for (size_t i = 0; i < low.buffers.size(); ++i) high.buffers[i].Assign(low.buffers[i].Values());
  for (NormRun* run : {&low, &high}) {
    run->Forward(/*train=*/true);
    run->Backward();
  }
  const size_t width = static_cast<size_t>(low.dim());
  // A gradient that cancels to nothing is as exact as the numbers that it is the rest of.
  const double least = 1e-2 * Largest(low.dy.Values(), 0, width);
  std::string text = Distance("y", dtype, ulps, 1e-3, low.y.Values(), high.y.Values(), width);
  if (text.empty()) {
    text = Distance("dx", dtype, ulps, least, low.dx.Values(), high.dx.Values(), width);
  }
  if (!text.empty()) {
    report->Fail(low.Name() + " against " + TypeName(reference) + ": " + text);
  }
}

// Forward and backward of a type that is not offered.
void ExpectRefusal(const Instance& instance, uint32_t dtype, uint64_t seed, Report* report) {
  // Memory of the widest type: whatever the plugin takes the elements for, it stays inside.
  NormRun run(instance, PLUMB_F64, kTypeRows, seed);
  const auto expect = [&](const char* function, plumb_status status) {
    if (status == PLUMB_UNIMPLEMENTED) return;
    char text[160];
    std::snprintf(text, sizeof(text),
                  "%s() with dtype %u, which is not offered, answers %s, must be UNIMPLEMENTED",
                  function, dtype, StatusText(status).c_str());
    report->Fail(text);
  };
  plumb_norm_call forward = run.ForwardCall(/*train=*/!run.TakesStatistics(true));
  forward.dtype = dtype;
  expect("forward", Forward(instance, forward, 0, kTypeRows));
  plumb_norm_call backward = run.BackwardCall(/*accumulate=*/false);
  backward.dtype = dtype;
  expect("backward", Backward(instance, backward, 0, kTypeRows));
  if ((instance.norm().flags & PLUMB_NORM_CROSS_ROW) == 0) return;
  Rows partial(PLUMB_F64, 1, instance.layout().partial_elems);
  partial.Fill(0);
  plumb_norm_call training = run.ForwardCall(/*train=*/true);
  training.dtype = dtype;
  expect("stats_partial",
         StatsPartial(instance, PLUMB_FWD, training, 0, kTypeRows, partial.data()));
}

}  // namespace

void CheckTypes(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  for (const uint32_t dim : {7, 64, 100, 768}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance == nullptr) continue;
    // bf16 kernels compute in float: only what they store is rounded. float adds up in any order.
    if ((norm.dtypes & PLUMB_BF16) != 0) {
      Compare(*instance, PLUMB_BF16, PLUMB_F32, /*ulps=*/2, subject.seed, report);
    }
    if ((norm.dtypes & PLUMB_F64) != 0) {
      Compare(*instance, PLUMB_F32, PLUMB_F64, /*ulps=*/512, subject.seed, report);
    }
    if (report->failed()) return;
  }
  const std::unique_ptr<Instance> instance = FirstInstance(norm, {64, 60, 1, 3, 100, 768});
  // The last one is of a type that no header has yet.
  for (const uint32_t dtype : {1u << 0, 1u << 1, 1u << 2, 1u << 3}) {
    if ((norm.dtypes & dtype) == 0) ExpectRefusal(*instance, dtype, subject.seed, report);
  }
}

}  // namespace plumb::check
