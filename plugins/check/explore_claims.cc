// X5: the flags of a norm, in every element type, at any dim; and that buffers are used.
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
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

// Buffers: training changes one of them, and evaluation reads one. Which it must read, no flag
// says.
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
  return "";
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
