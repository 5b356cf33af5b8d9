// SPDX-License-Identifier: Apache-2.0
// Rules N16 and N10: sums and statistics over rows, computed in pieces and combined, and the
// buffers that keep them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

// Runs a training step with statistics in chunks of `chunk` rows.
Outcome StepInPieces(NormRun* run, int64_t chunk) {
  run->Reset();
  run->Statistics(PLUMB_PHASE_FORWARD, /*train=*/true, chunk);
  run->ForwardRange(/*train=*/true, 0, run->rows());
  run->Statistics(PLUMB_PHASE_BACKWARD, /*train=*/true, chunk);
  run->BackwardRange(/*accumulate=*/false, 0, run->rows());
  return run->Results();
}

// Returns the first number that differs by more than `tolerance` times the tensor's scale (at least
// 1).
std::string FirstBeyondTolerance(const Outcome& got, const Outcome& must, double tolerance) {
  const std::vector<Tensor> results = got.Tensors(), wanted = must.Tensors();
  for (size_t i = 0; i < wanted.size(); ++i) {
    const std::vector<double>& values = *wanted[i].values;
    const bool is_result = wanted[i].name.find("saved") == std::string::npos;
    if (!is_result || values.empty() || std::isnan(LargestMagnitude(values))) continue;
    std::string text = FirstDeviation(wanted[i].name, *results[i].values, values,
                                      static_cast<int64_t>(values.size()), tolerance, tolerance);
    if (!text.empty()) return text;
  }
  return "";
}

// Fails unless the statistic of no rows is all zeros, and neutral in stats_combine.
std::string CheckNeutralStatistic(NormRun* run, bool by_extension) {
  const Instance& instance = run->instance();
  const plumb_norm_combine* extension = by_extension ? CombineOf(instance.norm()) : nullptr;
  if (by_extension && extension == nullptr) return "";
  StepInPieces(run, run->rows());  // leaves the inputs of backward's statistics
  const uint32_t type = AccumulateType(run->dtype());
  const int64_t width = instance.layout().partial_elems;
  for (const uint32_t phase : {uint32_t{PLUMB_PHASE_FORWARD}, uint32_t{PLUMB_PHASE_BACKWARD}}) {
    const plumb_norm_call call =
        phase == PLUMB_PHASE_FORWARD ? run->ForwardCall(/*train=*/true) : run->BackwardCall(false);
    const auto combine = [&](Rows* acc, const Rows& partial) {
      run->Expect(StatsCombine(instance, phase, call, acc->data(), partial.data(), extension),
                  "stats_combine", 0, run->rows());
    };
    Rows some(type, 1, width), none(type, 1, width);
    some.Fill(0);
    none.Fill(0);
    const std::vector<double> zeros = none.Values();
    run->Expect(StatsPartial(instance, phase, call, 0, run->rows(), some.data()), "stats_partial",
                0, run->rows());
    run->Expect(StatsPartial(instance, phase, call, 5, 5, none.data()), "stats_partial", 5, 5);
    const std::vector<double> before = some.Values();
    const auto same = [](const std::vector<double>& a, const std::vector<double>& b) {
      for (size_t i = 0; i < a.size(); ++i) {
        if (a[i] != b[i] && !(std::isnan(a[i]) && std::isnan(b[i]))) return false;
      }
      return true;
    };
    const char* wrong = same(none.Values(), zeros) ? "" : "stats_partial of no rows writes";
    none.Fill(0);
    combine(&some, none);
    if (!same(some.Values(), before)) wrong = "combined with no rows, a partial changes";
    some.Assign(before);
    combine(&none, some);
    if (!same(none.Values(), before)) wrong = "no rows, combined with a partial, are not it";
    if (!same(some.Values(), before)) wrong = "stats_combine changes its second operand";
    none.Fill(0);
    some.Fill(0);
    combine(&none, some);
    if (!same(none.Values(), zeros)) wrong = "no rows, combined with none, are some";
    if (wrong[0] == '\0') continue;
    return absl::StrCat(
        phase == PLUMB_PHASE_FORWARD ? "PLUMB_PHASE_FORWARD: " : "PLUMB_PHASE_BACKWARD: ", wrong);
  }
  return "";
}

// Runs a training step whose statistics are computed in one chunk.
void TrainOnce(NormRun* run) {
  run->Statistics(PLUMB_PHASE_FORWARD, true, run->rows());
  run->ForwardRange(true, 0, run->rows());
  run->Statistics(PLUMB_PHASE_BACKWARD, true, run->rows());
  run->BackwardRange(false, 0, run->rows());
}

// Fails unless running statistics converge: after enough equal batches evaluation must produce the
// results of training, for any momentum, even after a few different batches.
std::string EvaluationFollowsTraining(const Instance& instance, uint32_t type, uint64_t seed) {
  constexpr int64_t kMaxNumbers = 1 << 14,
                    kMinRows = 64;  // an unbiased variance differs by 1/rows
  constexpr int kOtherSteps = 3, kMaxSteps = 2048;
  constexpr double kTolerance = 0.02, kAtRest = 0.995;
  const int64_t rows = std::max(kMinRows, kMaxNumbers / instance.dim());
  NormRun run(instance, type, rows, seed);
  for (int step = 0; step < kOtherSteps; ++step) TrainOnce(&run);
  std::vector<double> x = run.x.Values(), trained, evaluated, before;
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t column = static_cast<int64_t>(i) % run.dim();
    x[i] = (column % 3 == 0 ? 0.1 : 2) * x[i] + static_cast<double>(column * 5 % 7 - 3) / 2;
  }
  run.x.Assign(x);
  double allowed = 0;
  const auto differs = [&](size_t i) { return !(std::abs(evaluated[i] - trained[i]) <= allowed); };
  for (int step = 1; step <= kMaxSteps; ++step) {
    TrainOnce(&run);
    if (step < 64 || (step & (step - 1)) != 0) continue;
    trained = run.y.Values();
    allowed = kTolerance * std::max(1.0, LargestMagnitude(trained));
    // In evaluation rows are independent, so that any ranges will do.
    run.ForwardRange(false, 0, 1);
    for (int64_t r = 1; r < rows; r += 20) run.ForwardRange(false, r, std::min(rows, r + 20));
    before = std::exchange(evaluated, run.y.Values());
    bool follows = true;
    for (size_t i = 0; i < trained.size(); ++i) follows = follows && !differs(i);
    if (follows) return "";
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    // A difference that still decreases is caused by a very small momentum.
    const double error = std::abs(evaluated[i] - trained[i]);
    if (!differs(i) || error < kAtRest * std::abs(before[i] - trained[i])) continue;
    return absl::StrFormat(
        "after %d equal batches evaluation gives %s = %.9g, training %.9g (+- %.2g)", kMaxSteps,
        PlaceInTensor("y", i, trained.size(), run.dim()), evaluated[i], trained[i], allowed);
  }
  return "";
}

// Compares statistics in chunks of any length, and statistics of no rows, in the widest type: only
// that is exact enough to compare partials.
std::string CompareChunks(const Instance& instance, const Point& point) {
  const bool f64 = TypeOf(point) == PLUMB_DTYPE_F64;
  // In a batch of long sequences, the product of two row counts overflows int32.
  constexpr int64_t kManyRows = 140'001, kFewRows = 30;
  const bool many = point[kDim] == 1 && f64 && point[kSeed] == 0;
  for (const int64_t rows : {std::min(point[kRows], kFewRows), many ? kManyRows : 0}) {
    if (rows == 0) continue;
    NormRun run(instance, TypeOf(point), rows, static_cast<uint64_t>(point[kSeed]) + 1);
    const Outcome whole = StepInPieces(&run, rows);
    std::string text;
    if (rows >= 5 && rows != kManyRows) text = CheckNeutralStatistic(&run, false);
    if (rows >= 5 && rows != kManyRows && text.empty()) text = CheckNeutralStatistic(&run, true);
    std::vector<int64_t> chunks = {70, run.ChunkRows(), (rows + 1) / 2};
    for (int64_t chunk = 1; chunk < rows && rows != kManyRows; ++chunk) chunks.push_back(chunk);
    for (const int64_t chunk : chunks) {
      if (!text.empty()) break;
      text = FirstBeyondTolerance(StepInPieces(&run, chunk), whole,
                                  !f64                ? 1e-4
                                  : rows == kManyRows ? 1e-9
                                                      : 1e-12);
      if (!text.empty()) text = absl::StrCat("statistics in pieces of ", chunk, " rows: ", text);
    }
    if (!text.empty()) return text;
  }
  return "";
}

// Compares statistics by stats_combine with those by the extension that can fail, bit for bit.
std::string CompareCombine(const Instance& instance, const Point& point, const Operands& operands) {
  if (CombineOf(instance.norm()) == nullptr) return "";
  Outcome outcomes[2];
  for (const bool by_extension : {false, true}) {
    NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
    AssignTo(operands, &run);
    run.Statistics(PLUMB_PHASE_FORWARD, true, run.ChunkRows(), by_extension);
    run.ForwardRange(true, 0, run.rows());
    run.Statistics(PLUMB_PHASE_BACKWARD, true, run.ChunkRows(), by_extension);
    run.BackwardRange(false, 0, run.rows());
    outcomes[by_extension] = run.Results();
  }
  const std::string text = FirstDifference(outcomes[1], outcomes[0]);
  return text.empty() ? text : absl::StrCat("by ", PLUMB_EXT_COMBINE, ": ", text);
}

}  // namespace

std::optional<std::string> SumsAnyPieces(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  point[kEvaluation] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const bool cross = (norm.flags & PLUMB_NORM_CROSS_ROW) != 0;
  if (!cross && instance->layout().n_params == 0) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome got = OutcomeAt(*instance, point, operands);
  const F64Reference reference(*instance, point, TypeOf(point), operands, got.y);
  std::string text = cross ? reference.Compare(got) : reference.CompareSums(got);
  if (!text.empty()) absl::StrAppend(&text, " as in one range in ", TypeName(WidestType(norm)));
  if (text.empty() && cross) text = CompareCombine(*instance, point, operands);
  // An odd x has odd statistics, so these are of normal numbers.
  if (text.empty() && cross && TypeOf(point) == WidestType(norm)) {
    text = CompareChunks(*instance, point);
  }
  return At(point, text);
}

// No flag names the buffer that evaluation must read.
std::optional<std::string> UsesBuffers(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || instance->layout().n_buffers == 0 || point[kRows] < 8) {
    return std::nullopt;
  }
  NormRun run(*instance, TypeOf(point), point[kRows], 1), none(*instance, TypeOf(point), 0, 1);
  const Outcome before = run.Results();
  if (run.TakesStatistics(true)) run.Statistics(PLUMB_PHASE_FORWARD, true, run.ChunkRows());
  // A call without rows must do nothing.
  for (Rows& buffer : none.buffers) {
    for (int64_t k = 0; k < buffer.width(); ++k) buffer.Set(0, k, buffer.Get(0, k) + 0.5);
  }
  const Outcome of_none = none.Results();
  for (const uint32_t phase : {uint32_t{PLUMB_PHASE_FORWARD}, uint32_t{PLUMB_PHASE_BACKWARD}}) {
    if (none.TakesStatistics(true)) none.Statistics(phase, true, 8);
  }
  if (none.Results().buffers != of_none.buffers) {
    return At(point, "training on no rows changes buffers");
  }
  if (run.Results().buffers == before.buffers && point[kAttributes] == 0) {
    return At(point, "training changes no buffer");
  }
  if (run.TakesStatistics(false)) return "";
  run.Forward(false);
  const std::vector<double> y = run.y.Values();
  for (Rows& buffer : run.buffers) {
    for (int64_t k = 0; k < buffer.width(); ++k) buffer.Set(0, k, buffer.Get(0, k) + 1);
  }
  run.Forward(false);
  if (run.y.Values() == y) return At(point, "evaluation reads no buffer");
  // An attribute may freeze the statistics, or set the momentum to nearly none.
  if (point[kAttributes] != 0) return "";
  return At(point, EvaluationFollowsTraining(*instance, TypeOf(point),
                                             static_cast<uint64_t>(point[kSeed])));
}

}  // namespace plumb::check
