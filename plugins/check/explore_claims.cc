// X5: the flags of a norm, in every element type, at any dim; and that buffers are used.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"

namespace plumb::check {
namespace {

// y of one call, with x as given.
std::vector<double> YOf(const Instance& instance, const Point& point, Operands operands,
                        const std::vector<double>& x) {
  operands.x = x;
  return RunAt(instance, Plain(point), TypeOf(point), operands).outcome.y;
}

std::string CompareWithOriginal(const char* claim, const Instance& instance, const Point& point,
                                const Operands& operands, const std::vector<double>& x,
                                const std::vector<double>& moved) {
  const double relative = point[kType] == 1 ? 0.02 : 2e-3;
  const std::string text =
      FirstDeviation("y", YOf(instance, point, operands, moved), YOf(instance, point, operands, x),
                     point[kDim], relative, 1e-6);
  return text.empty()
             ? text
             : absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim], " rows=", point[kRows],
                            ": ", claim, " is claimed, but ", text);
}

std::string Identity(const Instance& instance, const Point& point, const Operands& operands) {
  if (instance.layout().n_params > 0) return "IDENTITY is claimed, but it has parameters";
  const PointResult got = RunAt(instance, point, TypeOf(point), operands);
  const std::string text = FirstDifference("y", got.outcome.y, operands.x, point[kDim]);
  return text.empty() ? text : absl::StrCat("IDENTITY is claimed, but ", text);
}

// Numbers of which a few more bits are free, so that a shift by 4 is exact in bf16 too.
std::vector<double> Sixteenths(size_t n, int64_t seed) {
  std::mt19937_64 random(static_cast<uint64_t>(seed));
  std::vector<double> values(n);
  for (double& v : values) v = static_cast<double>(static_cast<int64_t>(random() % 49) - 24) / 16;
  return values;
}

std::optional<std::string> Claims(const plumb_norm_plugin& norm, Point point) {
  point[kAttributes] = 0;
  point[kX] = 0;
  point[kParams] = 0;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  std::string text;
  if (norm.flags & PLUMB_NORM_IDENTITY) text = Identity(*instance, point, operands);
  // Where statistics of few rows are of few numbers, eps is not small beside them.
  const bool few = (norm.flags & PLUMB_NORM_CROSS_ROW) != 0 && point[kRows] < 8;
  if (point[kEvaluation] != 0 && (norm.flags & PLUMB_NORM_CROSS_ROW)) return text;
  if (few) return text;
  const std::vector<double> x = Sixteenths(operands.x.size(), point[kSeed]);
  if (text.empty() && (norm.flags & PLUMB_NORM_SHIFT_INVARIANT)) {
    std::vector<double> moved = x;
    for (double& v : moved) v += 4;
    text = CompareWithOriginal("SHIFT_INVARIANT", *instance, point, operands, x, moved);
  }
  if (text.empty() && (norm.flags & PLUMB_NORM_SCALE_INVARIANT)) {
    // So large that eps is nothing beside it.
    std::vector<double> large = operands.x, larger = operands.x;
    for (double& v : large) v *= 0x1p14;
    for (double& v : larger) v *= 0x1p16;
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
