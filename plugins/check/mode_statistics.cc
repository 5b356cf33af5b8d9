// N16: statistics over rows, taken in pieces and put together.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/guarded.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kStatisticsRows = 23;

// The first element that is further than `tolerance` of the tensor's scale (at least 1) away; "".
std::string FirstFarther(const char* name, double tolerance, const std::vector<double>& got,
                         const std::vector<double>& must) {
  double scale = 1;
  for (const double value : must) {
    if (std::isfinite(value)) scale = std::max(scale, std::fabs(value));
  }
  for (size_t i = 0; i < must.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(must[i])) continue;  // not written, either time
    if (std::fabs(got[i] - must[i]) <= tolerance * scale) continue;
    char text[160];
    std::snprintf(text, sizeof(text), "%s[%zu] is %.17g, and %.17g in one piece", name, i, got[i],
                  must[i]);
    return text;
  }
  return "";
}

std::string FirstFarther(const Outcome& got, const Outcome& must, double tolerance) {
  std::string text = FirstFarther("call_saved", tolerance, got.call_saved, must.call_saved);
  if (text.empty()) text = FirstFarther("y", tolerance, got.y, must.y);
  if (text.empty()) text = FirstFarther("dx", tolerance, got.dx, must.dx);
  for (size_t i = 0; i < must.dparams.size() && text.empty(); ++i) {
    text = FirstFarther("dparams", tolerance, got.dparams[i], must.dparams[i]);
  }
  for (size_t i = 0; i < must.buffers.size() && text.empty(); ++i) {
    text = FirstFarther("buffers", tolerance, got.buffers[i], must.buffers[i]);
  }
  return text;
}

// A training step with statistics in pieces of `chunk` rows.
Outcome StepInPieces(NormRun* run, int64_t chunk) {
  run->Reset();
  run->Statistics(PLUMB_FWD, /*train=*/true, chunk);
  run->ForwardRange(/*train=*/true, 0, run->rows());
  run->Statistics(PLUMB_BWD, /*train=*/true, chunk);
  run->BackwardRange(/*accumulate=*/false, 0, run->rows());
  return run->Results();
}

std::string SameNumbers(const Rows& got, const std::vector<double>& must) {
  const std::vector<double> values = got.Values();
  for (size_t i = 0; i < must.size(); ++i) {
    if (values[i] == must[i] || (std::isnan(values[i]) && std::isnan(must[i]))) continue;
    char text[120];
    std::snprintf(text, sizeof(text), "number %zu is %.17g, must be %.17g", i, values[i], must[i]);
    return text;
  }
  return "";
}

// The statistic of no rows is all zeros, and neutral in stats_combine.
void CheckNoRows(NormRun* run, const plumb_norm_combine* extension, Report* report) {
  StepInPieces(run, kStatisticsRows);  // leaves what backward's statistics read
  const Instance& instance = run->instance();
  const uint32_t type = AccumulateType(run->dtype());
  const int64_t width = instance.layout().partial_elems;
  for (const uint32_t phase : {uint32_t{PLUMB_FWD}, uint32_t{PLUMB_BWD}}) {
    const plumb_norm_call call =
        phase == PLUMB_FWD ? run->ForwardCall(/*train=*/true) : run->BackwardCall(false);
    Rows some(type, 1, width), none(type, 1, width);
    some.Fill(0);
    none.Fill(0);
    const std::vector<double> zeros = none.Values();
    run->Expect(StatsPartial(instance, phase, call, 0, kStatisticsRows, some.data()),
                "stats_partial", 0, kStatisticsRows);
    run->Expect(StatsPartial(instance, phase, call, 5, 5, none.data()), "stats_partial", 5, 5);
    const std::vector<double> before = some.Values();
    const auto expect = [&](const char* what, const std::string& text) {
      if (text.empty()) return;
      report->Fail(run->Name() + (phase == PLUMB_FWD ? ", PLUMB_FWD: " : ", PLUMB_BWD: ") + what +
                   ": " + text);
    };
    expect("stats_partial of no rows wrote", SameNumbers(none, zeros));
    none.Fill(0);
    const auto combine = [&](void* acc, const void* partial) {
      if (extension == nullptr) return StatsCombine(instance, phase, call, acc, partial);
      run->Expect(
          Guarded(
              Function::kStatsCombine, call, 0, kStatisticsRows,
              [&] { return extension->combine(instance.handle(), phase, &call, acc, partial); }),
          PLUMB_EXT_COMBINE, 0, kStatisticsRows);
    };
    combine(some.data(), none.data());
    expect("combined with the statistic of no rows, a partial changed", SameNumbers(some, before));
    some.Assign(before);
    combine(none.data(), some.data());
    expect("the statistic of no rows, combined with a partial, is not that partial",
           SameNumbers(none, before));
    expect("stats_combine changed its second operand", SameNumbers(some, before));
    none.Fill(0);
    some.Fill(0);
    combine(none.data(), some.data());
    expect("the statistic of no rows, combined with that of none", SameNumbers(none, zeros));
  }
}

// Of so many rows that products of two counts are no int32: a batch of long sequences.
std::string CompareManyRows(const plumb_norm_plugin& norm, uint64_t seed) {
  constexpr int64_t kManyRows = 140001;
  std::string refusal;
  const std::unique_ptr<Instance> instance = TryInstance(norm, 1, &refusal);
  if (instance == nullptr) return "";
  NormRun run(*instance, PLUMB_F64, kManyRows, seed);
  const Outcome whole = StepInPieces(&run, kManyRows);
  for (const int64_t chunk : {(kManyRows + 1) / 2, run.ChunkRows(), int64_t{70}}) {
    const std::string text = FirstFarther(StepInPieces(&run, chunk), whole, 1e-9);
    if (text.empty()) continue;
    return run.Name() + ", statistics in pieces of " + std::to_string(chunk) + " rows: " + text;
  }
  return "";
}

}  // namespace

void CheckStatistics(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if ((norm.flags & PLUMB_NORM_CROSS_ROW) == 0) return report->Skip("each row is on its own");
  const bool f64 = (norm.dtypes & PLUMB_F64) != 0;
  for (const uint32_t dim : {1, 5, 64}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance == nullptr) continue;
    NormRun run(*instance, f64 ? PLUMB_F64 : PLUMB_F32, kStatisticsRows, subject.seed);
    CheckNoRows(&run, nullptr, report);
    if (CombineOf(norm) != nullptr) CheckNoRows(&run, CombineOf(norm), report);
    const Outcome whole = StepInPieces(&run, kStatisticsRows);
    for (int64_t chunk = 1; chunk < kStatisticsRows && !report->failed(); ++chunk) {
      const std::string text = FirstFarther(StepInPieces(&run, chunk), whole, f64 ? 1e-12 : 1e-4);
      if (text.empty()) continue;
      report->Fail(run.Name() + ", statistics in pieces of " + std::to_string(chunk) +
                   " rows: " + text);
    }
    if (report->failed()) return;
  }
  if (!f64) return;
  const std::string text = CompareManyRows(norm, subject.seed);
  if (!text.empty()) report->Fail(text);
}

}  // namespace plumb::check
