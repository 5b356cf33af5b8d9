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
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

// Compares statistics by stats_combine with those by the extension that can fail, bit for bit.
std::string CompareCombine(const Instance& instance, const Point& point, const Operands& operands) {
  if (instance.Combine() == nullptr) return "";
  Outcome outcomes[2];
  for (const bool by_extension : {false, true}) {
    NormRun run(instance, Plain(point), operands);
    run.Statistics(PLUMB_PHASE_FORWARD, true, run.ChunkRows(), by_extension);
    run.ForwardRange(true, 0, run.rows());
    run.Statistics(PLUMB_PHASE_BACKWARD, true, run.ChunkRows(), by_extension);
    run.BackwardRange(0, run.rows());
    outcomes[by_extension] = run.Results();
  }
  const std::string text = FirstDifference(outcomes[1], outcomes[0]);
  return text.empty() ? text : absl::StrCat("by ", PLUMB_EXT_COMBINE, ": ", text);
}

// Fails unless running statistics converge: after enough equal batches evaluation must produce the
// results of training, for any momentum, even after a few different batches.
std::string EvaluationFollowsTraining(const Instance& instance, Point point) {
  constexpr int64_t kMaxNumbers = 1 << 14,
                    kMinRows = 64;  // an unbiased variance differs by 1/rows
  constexpr int kMaxSteps = 2048;
  constexpr double kTolerance = 0.02, kAtRest = 0.995;
  const int64_t dim = point[kDim], rows = std::max(kMinRows, kMaxNumbers / dim);
  point[kRows] = point[kTo] = rows;
  point[kX] = 0;
  Operands operands = OperandsAt(instance, point);
  NormRun run(instance, Plain(point), operands);
  Values trained, evaluated, before;
  double allowed = 0;
  const auto differs = [&](size_t i) { return !(std::abs(evaluated[i] - trained[i]) <= allowed); };
  for (int step = -2; step <= kMaxSteps; ++step) {
    run.Forward(true);
    run.Backward();
    if (step == 0) {  // the other batches are over
      for (size_t i = 0; i < operands.x.size(); ++i) {
        const int64_t column = static_cast<int64_t>(i) % dim;
        operands.x[i] *= column % 3 == 0 ? 0.1 : 2;
        operands.x[i] += static_cast<double>(column * 5 % 7 - 3) / 2;
      }
      run.x.Assign(operands.x);
    }
    if (step < 64 || (step & (step - 1)) != 0) continue;
    trained = run.y.All();
    allowed = kTolerance * std::max(1.0, LargestMagnitude(trained));
    // In evaluation rows are independent, so that any ranges will do.
    run.ForwardRange(false, 0, 1);
    for (int64_t r = 1; r < rows; r += 20) run.ForwardRange(false, r, std::min(rows, r + 20));
    before = std::exchange(evaluated, run.y.All());
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
        PlaceInTensor("y", i, trained.size(), dim), evaluated[i], trained[i], allowed);
  }
  return "";
}

void AddToBuffers(NormRun* run, double number) {
  for (Rows& buffer : run->buffers) {
    Values values = buffer.All();
    for (double& value : values) value += number;
    buffer.Assign(values);
  }
}

}  // namespace

Result SumsAnyPieces(const Norm& norm, const Point& given) {
  Point point = given;
  point[kEvaluation] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const bool cross_row = instance->Has(PLUMB_NORM_CROSS_ROW);
  // Only statistics may be wrong if the product of two row counts overflows int32.
  const bool has_sums = instance->layout().n_params > 0 && point[kRows] < 100'000;
  if (!cross_row && !has_sums) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome got = RunAt(*instance, point, operands);
  const F64Reference reference(*instance, point, GetType(point), operands, got.y);
  std::string text = cross_row ? reference.Compare(got) : reference.CompareSums(got);
  if (!text.empty()) absl::StrAppend(&text, " as in one range in ", TypeName(WidestType(norm)));
  if (text.empty() && cross_row) text = CompareCombine(*instance, point, operands);
  return At(point, text);
}

// No flag names the buffer that evaluation must read.
Result UsesBuffers(const Norm& norm, const Point& given) {
  Point point = given;
  point[kX] = point[kParams] = 0;  // of zeros, y may depend on no buffer
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || instance->layout().n_buffers == 0 || point[kRows] < 8) {
    return std::nullopt;
  }
  Point of_none = Plain(point);
  of_none[kRows] = of_none[kTo] = 0;
  const Operands operands = OperandsAt(*instance, point), nothing = OperandsAt(*instance, of_none);
  NormRun run(*instance, Plain(point), operands), none(*instance, of_none, nothing);
  const std::vector<Values> before = run.Results().buffers;
  if (run.TakesStatistics(true)) run.Statistics(PLUMB_PHASE_FORWARD, true, run.ChunkRows());
  AddToBuffers(&none, 0.5);
  const std::vector<Values> untouched = none.Results().buffers;
  if (none.TakesStatistics(true)) {
    none.Statistics(PLUMB_PHASE_FORWARD, true, 8);
    none.Statistics(PLUMB_PHASE_BACKWARD, true, 8);
  }
  if (none.Results().buffers != untouched) return At(point, "training on no rows changes buffers");
  if (run.Results().buffers == before && point[kAttributes] == 0) {
    return At(point, "training changes no buffer");
  }
  if (run.TakesStatistics(false)) return "";
  run.Forward(false);
  const Values y = run.y.All();
  AddToBuffers(&run, 1);
  run.Forward(false);
  if (run.y.All() == y) return At(point, "evaluation reads no buffer");
  // An attribute may freeze the statistics, or set the momentum to nearly none.
  if (point[kAttributes] != 0) return "";
  return At(point, EvaluationFollowsTraining(*instance, point));
}

}  // namespace plumb::check
