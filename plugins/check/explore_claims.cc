// X5: the flags of a norm, in every element type, at any dim; and that buffers are used.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/wide_run.h"

namespace plumb::check {
namespace {

// y with x as given and as moved, each within what rounding may do of what f64 has.
std::string CompareWithOriginal(const char* claim, const Instance& instance, const Point& point,
                                Operands operands, const std::vector<double>& x,
                                const std::vector<double>& moved) {
  const uint32_t type = TypeOf(point);
  const uint32_t widest =
      (instance.norm().dtypes & PLUMB_F64) != 0 ? uint32_t{PLUMB_F64} : uint32_t{PLUMB_F32};
  std::vector<double> y[2];
  std::vector<double> allowed(x.size(), 0);
  for (const bool is_moved : {false, true}) {
    operands.x = is_moved ? moved : x;
    y[is_moved] = PlainY(instance, point, type, operands);
    const WideRun wide(instance, point, widest, type, operands, y[is_moved]);
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double value = y[is_moved][i];
      // A part of eps is in it.
      allowed[i] += wide.OfY(i / static_cast<size_t>(point[kDim])) + HalfUlp(type, value) +
                    1e-6 * std::abs(value);
    }
  }
  for (size_t i = 0; i < allowed.size(); ++i) {
    if (std::abs(y[1][i] - y[0][i]) <= allowed[i]) continue;
    return absl::StrFormat(
        "%s dim=%d rows=%d: %s is claimed, but %s is %.9g, must be %.9g (+- %.2g)", TypeName(type),
        point[kDim], point[kRows], claim, PlaceInTensor("y", i, allowed.size(), point[kDim]),
        y[1][i], y[0][i], allowed[i]);
  }
  return "";
}

std::string Identity(const Instance& instance, const Point& point, const Operands& operands) {
  if (instance.layout().n_params > 0) return "IDENTITY is claimed, but it has parameters";
  const PointResult got = RunAt(instance, point, TypeOf(point), operands);
  std::vector<double> must = operands.x;
  for (size_t i = 0; i < must.size(); ++i) {
    if (std::isnan(must[i]) && std::isnan(got.outcome.y[i])) must[i] = got.outcome.y[i];
  }
  const std::string text = FirstDifference("y", got.outcome.y, must, point[kDim]);
  return text.empty() ? text : absl::StrCat("IDENTITY is claimed, but ", text);
}

// Numbers of which a few more bits are free, so that a shift by 8 is exact in bf16 too.
std::vector<double> Sixteenths(size_t n, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> values(n);
  for (double& v : values) v = static_cast<double>(static_cast<int64_t>(random() % 49) - 24) / 16;
  return values;
}

std::optional<std::string> Claims(const plumb_norm_plugin& norm, Point point) {
  const std::unique_ptr<Instance> as_drawn = InstanceAt(norm, point);
  if (as_drawn == nullptr) return std::nullopt;
  std::string text;
  // Of any attributes, of any x; denormals may count as zero.
  if ((norm.flags & PLUMB_NORM_IDENTITY) && point[kX] != 10) {
    text = Identity(*as_drawn, point, OperandsAt(*as_drawn, point));
    Point odd = point;
    odd[kX] = kNanX + point[kSeed] / 3 % 2;
    if (text.empty() && point[kSeed] % 3 == 1) {
      text = Identity(*as_drawn, odd, OperandsAt(*as_drawn, odd));
    }
  }
  // Invariances are as good as eps is small: of the defaults.
  point[kAttributes] = 0;
  point[kX] = 0;
  point[kDy] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || !text.empty()) return text;
  if (point[kEvaluation] != 0 && (norm.flags & PLUMB_NORM_CROSS_ROW)) return text;
  const Operands operands = OperandsAt(*instance, point);
  const std::vector<double> x = Sixteenths(operands.x.size(), point[kSeed]);
  if (norm.flags & PLUMB_NORM_SHIFT_INVARIANT) {
    constexpr double kShifts[] = {4, -4, 2, 8, -8, -2};
    std::vector<double> moved = x;
    double by = kShifts[point[kSeed] % 6];
    if (point[kType] != 1 && point[kSeed] % 2 == 1) by *= 128;
    for (double& v : moved) v += by;
    text = CompareWithOriginal("SHIFT_INVARIANT", *instance, point, operands, x, moved);
  }
  if (text.empty() && (norm.flags & PLUMB_NORM_SCALE_INVARIANT)) {
    // So large that eps is nothing beside the smallest of many rows.
    std::vector<double> large = operands.x, larger = operands.x;
    const double by = std::ldexp(1, 31 + static_cast<int>(point[kSeed] % 16));
    for (double& v : large) v *= 0x1p30;
    for (double& v : larger) v *= by;
    text = CompareWithOriginal("SCALE_INVARIANT", *instance, point, operands, large, larger);
  }
  return text;
}

// A training step whose statistics are taken in one piece.
void TrainOnce(NormRun* run) {
  run->Statistics(PLUMB_FWD, true, run->rows());
  run->ForwardRange(true, 0, run->rows());
  run->Statistics(PLUMB_BWD, true, run->rows());
  run->BackwardRange(false, 0, run->rows());
}

// Running statistics: after enough equal batches evaluation gives what training gives for them,
// whatever the momentum, and although a few batches were different before.
std::string EvaluationFollowsTraining(const Instance& instance, uint32_t type, uint64_t seed) {
  constexpr int64_t kBatchRows = 256;  // an unbiased variance differs by little
  constexpr int kOtherSteps = 3, kMaxSteps = 2048;
  constexpr double kTolerance = 0.02, kAtRest = 0.995;
  NormRun run(instance, type, kBatchRows, seed);
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
    run.ForwardRange(false, 0, run.rows());
    before = std::exchange(evaluated, run.y.Values());
    bool follows = true;
    for (size_t i = 0; i < trained.size(); ++i) follows = follows && !differs(i);
    if (follows) return "";
  }
  for (size_t i = 0; i < trained.size(); ++i) {
    // A difference that still becomes smaller is that of a very small momentum.
    const double error = std::abs(evaluated[i] - trained[i]);
    if (!differs(i) || error < kAtRest * std::abs(before[i] - trained[i])) continue;
    return absl::StrFormat(
        "%s: after %d equal batches evaluation gives %s = %.9g, training %.9g (+- %.2g)",
        run.Name(), kMaxSteps, PlaceInTensor("y", i, trained.size(), run.dim()), evaluated[i],
        trained[i], allowed);
  }
  return "";
}

// Buffers: training changes one of them, evaluation reads one, and their statistics are those of
// the batches. Which it must read, no flag says.
std::optional<std::string> BuffersAreUsed(const plumb_norm_plugin& norm, Point point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr || instance->layout().n_buffers == 0 || point[kRows] < 8) {
    return std::nullopt;
  }
  NormRun run(*instance, TypeOf(point), point[kRows], 1);
  const Outcome before = run.Results();
  if (run.TakesStatistics(true)) run.Statistics(PLUMB_FWD, true, run.ChunkRows());
  // A call of no rows does nothing.
  NormRun none(*instance, TypeOf(point), 0, 1);
  for (Rows& buffer : none.buffers) {
    for (int64_t k = 0; k < buffer.width(); ++k) buffer.Set(0, k, buffer.Get(0, k) + 0.5);
  }
  const Outcome of_none = none.Results();
  for (const uint32_t phase : {uint32_t{PLUMB_FWD}, uint32_t{PLUMB_BWD}}) {
    if (none.TakesStatistics(true)) none.Statistics(phase, true, 8);
  }
  if (none.Results().buffers != of_none.buffers) {
    return absl::StrCat(none.Name(), ": training changes buffers");
  }
  if (run.Results().buffers == before.buffers) {
    return absl::StrCat(run.Name(), ": training changes no buffer");
  }
  if (run.TakesStatistics(false)) return "";
  run.Forward(false);
  const std::vector<double> y = run.y.Values();
  for (Rows& buffer : run.buffers) {
    for (int64_t k = 0; k < buffer.width(); ++k) buffer.Set(0, k, buffer.Get(0, k) + 1);
  }
  run.Forward(false);
  if (run.y.Values() == y) return absl::StrCat(run.Name(), ": evaluation reads no buffer");
  // A momentum among the attributes may be none.
  if (point[kSeed] % 4 != 0 || point[kAttributes] != 0 || point[kDim] > 64) return "";
  return EvaluationFollowsTraining(*instance, TypeOf(point), static_cast<uint64_t>(point[kSeed]));
}

}  // namespace

void ExploreClaims(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if (norm.flags & PLUMB_NORM_STOCHASTIC) {
    return report->Fail(
        "STOCHASTIC is reserved: no host gives random numbers yet, and all refuse the norm");
  }
  Explore(
      subject, "X5",
      [&](const Point& point) -> std::optional<std::string> {
        const std::optional<std::string> text = Claims(norm, point);
        if (!text.has_value() || !text->empty()) return text;
        const std::optional<std::string> buffers = BuffersAreUsed(norm, point);
        return buffers.has_value() ? buffers : text;
      },
      report);
}

}  // namespace plumb::check
