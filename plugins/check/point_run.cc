#include "plugins/check/point_run.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plugins/check/numeric_cases.h"

namespace plumb::check {
namespace {

constexpr double kBefore = 0.75;  // dx before a gradient is added to it

Place PlaceOf(const Point& point) {
  Place place;
  place.aligned64 = point[kPlace] == 0;
  if (point[kPlace] == 2) place.offset = 1, place.gap = 3;
  if (point[kPlace] == 3) place.flush = Place::Flush::kEnd;
  return place;
}

// Of a row: quick to seed, since there are many.
using RowRandom = std::minstd_rand;

// x of one row, by kX: 0 normal; 1 huge; 2 tiny; 3, 6 far from zero; 4 some rows of zeros; 5 rows
// of any size; 7 some elements zero.
void DrawX(int64_t kind, RowRandom* random, double* row, int64_t dim) {
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  double size = 1, mean = 0;
  if (kind == 1) size = 1e5;
  if (kind == 2) size = 1e-7;
  if (kind == 3) mean = 20;
  if (kind == 6) mean = -20;
  if (kind == 4 && uniform(*random) < 0.5) size = 0;
  if (kind == 5) size = std::pow(10, 9 * uniform(*random) - 4.5);
  for (int64_t i = 0; i < dim; ++i) {
    row[i] = mean + size * normal(*random);
    if (kind == 7 && uniform(*random) < 0.5) row[i] = 0;
  }
}

void DrawDy(int64_t kind, RowRandom* random, double* row, int64_t dim) {
  std::normal_distribution<double> normal;
  double size = kind == 2 ? 1e4 : kind == 3 ? 1e-4 : 1;
  if (kind == 1 && (*random)() % 2 == 0) size = 0;
  for (int64_t i = 0; i < dim; ++i) row[i] = size * normal(*random);
}

double Changed(int64_t kind, std::mt19937_64* random, double value) {
  const bool half = (*random)() % 2 == 0;
  if (kind == 1 && half) return -value;
  if (kind == 2 && half) return 0;
  return kind == 3 ? value * 16 : kind == 4 ? value * 0.25 : value;
}

// The first row outside of [r0, r1) that is not as it was, NaN or kBefore; -1: none.
int64_t TouchedOutside(const Rows& rows, int64_t r0, int64_t r1, double before) {
  for (int64_t r = 0; r < rows.rows(); ++r) {
    if (r == r0) r = r1;
    if (r >= rows.rows()) break;
    for (int64_t i = 0; i < rows.width(); ++i) {
      const double value = rows.Get(r, i);
      if (std::isnan(before) ? !std::isnan(value) : value != before) return r;
    }
  }
  return -1;
}

std::string Outside(const NormRun& run, const char* name, const Rows& rows, int64_t r0, int64_t r1,
                    double before) {
  const int64_t row = TouchedOutside(rows, r0, r1, before);
  if (row < 0) return "";
  return absl::StrCat(run.Name(), " rows ", r0, "..", r1, ": ", name, " of row ", row,
                      ", outside of the range, was written");
}

struct Range {
  int64_t from, to;
};

std::vector<Range> RangesOf(const Point& point) {
  std::vector<Range> ranges = {{point[kFrom], point[kTo]}};
  if (point[kFrom] > 0) ranges.push_back({0, point[kFrom]});
  if (point[kTo] < point[kRows]) ranges.push_back({point[kTo], point[kRows]});
  return ranges;
}

void CallForward(NormRun* run, const Point& point, const Operands& operands, std::string* problem) {
  const bool train = point[kEvaluation] == 0;
  // Backward gets x where it needs it: a host that runs in place has kept a copy.
  const bool in_place =
      point[kAlias] != 0 && (run->instance().norm().flags & PLUMB_NORM_INPLACE) != 0;
  if (run->TakesStatistics(train)) run->Statistics(PLUMB_FWD, train, run->ChunkRows());
  if (in_place) run->y.Assign(operands.x);
  bool first = true;
  for (const Range& range : RangesOf(point)) {
    plumb_norm_call call = run->ForwardCall(train);
    if (in_place) call.x = call.y, call.x_pitch = call.y_pitch;
    run->Expect(check::Forward(run->instance(), call, range.from, range.to), "forward", range.from,
                range.to);
    if (first && !in_place) {
      const double nan = std::numeric_limits<double>::quiet_NaN();
      *problem = Outside(*run, "y", run->y, range.from, range.to, nan);
      if (problem->empty()) {
        *problem = Outside(*run, "saved", run->saved, range.from, range.to, nan);
      }
    }
    first = false;
  }
}

void CallBackward(NormRun* run, const Point& point, const Operands& operands,
                  std::string* problem) {
  const bool add = point[kAdd] != 0;
  const bool alias =
      point[kAlias] != 0 && !add && (run->instance().norm().flags & PLUMB_NORM_DX_ALIAS_DY);
  const double before = add ? kBefore : std::numeric_limits<double>::quiet_NaN();
  if (run->TakesStatistics(true)) run->Statistics(PLUMB_BWD, true, run->ChunkRows());
  if (alias) run->dx.Assign(operands.dy);
  if (!alias) run->dx.Fill(before);
  bool first = true;
  for (const Range& range : RangesOf(point)) {
    plumb_norm_call call = run->BackwardCall(add);
    if (alias) call.dy = call.dx, call.dy_pitch = call.dx_pitch;
    run->Expect(check::Backward(run->instance(), call, range.from, range.to), "backward",
                range.from, range.to);
    if (first && !alias && problem->empty()) {
      *problem = Outside(*run, "dx", run->dx, range.from, range.to, before);
    }
    first = false;
  }
}

}  // namespace

uint32_t TypeOf(const Point& point) {
  return point[kType] == 0   ? uint32_t{PLUMB_F32}
         : point[kType] == 1 ? uint32_t{PLUMB_BF16}
                             : uint32_t{PLUMB_F64};
}

std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point) {
  if ((norm.dtypes & TypeOf(point)) == 0) return nullptr;
  const std::vector<AttributeCase> cases = ExploredCases(norm);
  if (point[kAttributes] >= static_cast<int64_t>(cases.size())) return nullptr;
  std::string refusal;
  return TryInstance(norm, static_cast<uint32_t>(point[kDim]),
                     cases[static_cast<size_t>(point[kAttributes])].values, &refusal);
}

Operands OperandsAt(const Instance& instance, const Point& point) {
  Operands operands;
  const uint64_t seed = static_cast<uint64_t>(point[kSeed]) * 2 + 1;
  const size_t size = static_cast<size_t>(point[kRows] * point[kDim]);
  operands.x.resize(size);
  operands.dy.resize(size);
  for (int64_t r = 0; r < point[kRows]; ++r) {
    // Drawn apart, so that a row is the same whatever comes before it.
    const uint64_t mixed = (seed + static_cast<uint64_t>(r)) * 0x9e3779b97f4a7c15u;
    RowRandom random(static_cast<uint32_t>(mixed >> 33));
    DrawX(point[kX], &random, &operands.x[static_cast<size_t>(r * point[kDim])], point[kDim]);
    DrawDy(point[kDy], &random, &operands.dy[static_cast<size_t>(r * point[kDim])], point[kDim]);
  }
  const uint32_t type = point[kType] == 2 ? uint32_t{PLUMB_F32} : TypeOf(point);
  for (std::vector<double>* values : {&operands.x, &operands.dy}) {
    for (double& value : *values) value = RoundTo(type, value);
  }
  const NormRun drawn(instance, PLUMB_F32, 1, seed);
  std::mt19937_64 random(seed);
  for (const Rows& param : drawn.params) {
    operands.params.push_back(param.Values());
    for (double& value : operands.params.back()) {
      value = Changed(point[kParams], &random, value);
    }
  }
  return operands;
}

Point Plain(Point point) {
  for (const size_t axis : {kPlace, kPitches, kAlias, kAdd, kFrom}) point[axis] = 0;
  point[kTo] = point[kRows];
  return point;
}

PointResult RunAt(const Instance& instance, const Point& point, uint32_t dtype,
                  const Operands& operands) {
  NormRun run(instance, dtype, point[kRows], 1, PlaceOf(point), point[kPitches] != 0);
  run.x.Assign(operands.x);
  run.dy.Assign(operands.dy);
  for (size_t i = 0; i < run.params.size(); ++i) run.params[i].Assign(operands.params[i]);
  PointResult result;
  CallForward(&run, point, operands, &result.problem);
  if (point[kEvaluation] == 0) CallBackward(&run, point, operands, &result.problem);
  if (result.problem.empty()) {
    const std::string damage = run.PaddingDamage();
    if (!damage.empty()) result.problem = absl::StrCat(run.Name(), ": written: ", damage);
  }
  result.outcome = run.Results();
  if (point[kAdd] != 0 && point[kEvaluation] == 0) {
    for (double& value : result.outcome.dx) value -= kBefore;
  }
  return result;
}

}  // namespace plumb::check
