// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/tolerance.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumb::check {
namespace {

constexpr size_t kShort = 8;  // max elements of a row in which moves may cancel

double MaxMagnitude(const Values& values, size_t from, size_t n) {
  double largest = 0;
  for (size_t i = from; i < from + n && i < values.size(); ++i) {
    largest = std::max(largest, std::abs(values[i]));
  }
  return largest;
}

// Sets *change to the larger of itself and |moved - values|; infinite if that is NaN.
void AddChange(const Values& values, const Values& moved, Values* change) {
  change->resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    const double by = std::abs(moved[i] - values[i]);
    (*change)[i] = std::max((*change)[i], std::isnan(by) ? HUGE_VAL : by);
  }
}

void AddChange(const Outcome& outcome, const Outcome& moved, Outcome* change) {
  AddChange(outcome.y, moved.y, &change->y);
  AddChange(outcome.dx, moved.dx, &change->dx);
  AddChange(outcome.dx2, moved.dx2, &change->dx2);
  change->dparams.resize(outcome.dparams.size());
  change->buffers.resize(outcome.buffers.size());
  for (size_t i = 0; i < outcome.dparams.size(); ++i) {
    AddChange(outcome.dparams[i], moved.dparams[i], &change->dparams[i]);
  }
  for (size_t i = 0; i < outcome.buffers.size(); ++i) {
    AddChange(outcome.buffers[i], moved.buffers[i], &change->buffers[i]);
  }
}

// Moves each number by `r` times the largest magnitude in its row.
void Move(double r, size_t width, bool to_other_side, uint64_t seed, Values* values) {
  std::mt19937_64 random(seed);
  for (size_t start = 0; start < values->size(); start += width) {
    const double step = (to_other_side ? -r : r) * MaxMagnitude(*values, start, width);
    for (size_t i = start; i < start + width; ++i)
      (*values)[i] += (random() & 1) != 0 ? step : -step;
  }
}

}  // namespace

F64Reference::F64Reference(const Instance& instance, const Point& point, uint32_t dtype,
                           const Operands& operands, const Values& y)
    : point_(Plain(point)),
      dtype_(dtype),
      over_rows_(instance.Has(PLUMB_NORM_CROSS_ROW)),
      u_(UnitRoundoff(dtype) + UnitRoundoff(WidestType(instance.norm()))),
      r_(u_ * (8 + 4 * std::sqrt(static_cast<double>(point[kDim])) +
               (over_rows_ ? 4 * std::sqrt(static_cast<double>(point[kRows])) : 0))) {
  RunOptions options;
  options.dtype = WidestType(instance.norm());
  if ((instance.layout().backward_needs & PLUMB_BACKWARD_READS_Y) != 0) options.y = &y;
  outcome_ = RunAt(instance, point_, operands, options);
  const auto width = static_cast<size_t>(point[kDim]);
  const size_t row = over_rows_ ? operands.x.size() : width;
  Outcome change;
  for (const bool other_side : {false, true}) {
    Operands moved = operands;
    const auto seed = static_cast<uint64_t>(point[kSeed]) + 3;
    Move(r_, row, other_side, seed, &moved.x);
    Move(r_, row, other_side, seed + 1, &moved.dy);
    Move(r_, width, other_side, seed + 2, &moved.x2);
    for (Values& values : moved.params) Move(r_, 1, other_side, seed + 4, &values);
    AddChange(outcome_, RunAt(instance, point_, moved, options), &change);
  }
  for (size_t i = 0; i < operands.params.size() && width <= kShort; ++i) {
    Operands moved = operands;
    Move(r_, 1, false, 0, &moved.params[i]);
    AddChange(outcome_, RunAt(instance, point_, moved, options), &change);
  }
  // With equal parameters and second inputs, neighbours differ by x alone.
  Operands alike = operands;
  const auto make_equal = [](Values* values) {
    const double largest = LargestMagnitude(*values);
    values->assign(values->size(), largest > 0 ? largest : 1);
    return largest;
  };
  for (Values& values : alike.params) {
    largest_param_ = std::max(largest_param_, make_equal(&values));
  }
  make_equal(&alike.x2);
  const Values y_alike = PlainY(instance, point_, options.dtype, alike);
  Values y_mirrored;
  if (width <= kShort) {
    for (double& x : alike.x) x = -x;
    y_mirrored = PlainY(instance, point_, options.dtype, alike);
  }
  MeasureRows(operands, change, y_alike, y_mirrored);
  MeasureTensors(operands, change);
}

void F64Reference::MeasureRows(const Operands& operands, const Outcome& change, const Values& alike,
                               const Values& mirrored) {
  const auto width = static_cast<size_t>(point_[kDim]);
  const size_t n = over_rows_ ? operands.x.size() : width;
  for (size_t start = 0; start < operands.x.size(); start += n) {
    const double x = MaxMagnitude(operands.x, start, n), dy = MaxMagnitude(operands.dy, start, n);
    const double y = MaxMagnitude(alike, start, n);
    double slope = 0;
    for (size_t i = start; i < start + n; ++i) {
      const auto add = [&](double rise, double run) {
        const double here = std::abs(rise / run);
        if (std::abs(run) > 1e-9 * x && std::isfinite(here)) slope = std::max(slope, here);
      };
      if (i % width != 0) add(alike[i] - alike[i - 1], operands.x[i] - operands.x[i - 1]);
      if (over_rows_ && i >= width) {
        add(alike[i] - alike[i - width], operands.x[i] - operands.x[i - width]);
      }
      if (width > kShort) continue;
      // A shift may cancel y for one sign of x, but not for both.
      for (const double at : {outcome_.y[i], alike[i], mirrored[i]}) add(at, operands.x[i]);
    }
    // A norm may be steeper at a point than between neighbours: tanh(a x) has slope a, and its
    // derivative 1 - y^2 is a difference of numbers of magnitude 1.
    const double of_dx = std::max(slope, largest_param_ * largest_param_);
    const double amplified = y > 0 ? std::max(1.0, slope * x / y) : 1;
    const double y_allowed = r_ * (MaxMagnitude(outcome_.y, start, n) + slope * x +
                                   largest_param_ * MaxMagnitude(operands.x2, start, n)) +
                             2 * MaxMagnitude(change.y, start, n);
    const double dx_allowed = r_ * amplified * (MaxMagnitude(outcome_.dx, start, n) + of_dx * dy) +
                              2 * MaxMagnitude(change.dx, start, n);
    y_.insert(y_.end(), n / width, y_allowed);
    dx_.insert(dx_.end(), n / width, dx_allowed);
    steepest_ = std::max(steepest_, amplified);
    largest_y_ = std::max(largest_y_, y);
  }
}

void F64Reference::MeasureTensors(const Operands& operands, const Outcome& change) {
  const auto width = static_cast<size_t>(point_[kDim]);
  dx2_ = r_ * (LargestMagnitude(outcome_.dx2) +
               steepest_ * largest_param_ * largest_y_ * LargestMagnitude(operands.dy)) +
         2 * LargestMagnitude(change.dx2);
  double of_rows = 0, of_all = 0;  // sums of squares of dy
  for (size_t start = 0; start < operands.dy.size(); start += width) {
    const double largest = MaxMagnitude(operands.dy, start, width);
    of_rows += largest * largest;
    for (size_t i = start; i < start + width; ++i) of_all += operands.dy[i] * operands.dy[i];
  }
  const auto rows = static_cast<double>(point_[kRows]);
  for (size_t i = 0; i < outcome_.dparams.size(); ++i) {
    const bool is_short = outcome_.dparams[i].size() < width;
    const double terms = is_short ? rows * static_cast<double>(width) : rows;
    const double root = std::sqrt(is_short ? of_all : of_rows) * largest_y_ * steepest_;
    dparams_.push_back((r_ + 4 * u_ * std::sqrt(terms)) *
                           (root + LargestMagnitude(outcome_.dparams[i])) +
                       2 * LargestMagnitude(change.dparams[i]));
  }
  for (size_t i = 0; i < outcome_.buffers.size(); ++i) {
    buffers_.push_back(r_ * (LargestMagnitude(outcome_.buffers[i]) + LargestMagnitude(operands.x)) +
                       2 * LargestMagnitude(change.buffers[i]));
  }
}

std::string F64Reference::Compare(const std::string& name, const Values& got, const Values& must,
                                  int64_t width, uint32_t dtype, const Values& allowed) const {
  // Numbers below the smallest normal one may be zero.
  const double least = std::ldexp(1, dtype == PLUMB_DTYPE_F64 ? -1022 : -126);
  for (size_t i = 0; i < must.size(); ++i) {
    if (!std::isfinite(must[i])) continue;
    const double own = allowed[i * allowed.size() / must.size()];
    const double bound = own + HalfUlp(dtype, std::abs(must[i]) + own) + least;
    // A NaN is wrong even if there is no bound.
    const bool lost = std::isnan(got[i]) && point_[kAttributes] == 0;
    if (!lost && (!std::isfinite(bound) || std::abs(got[i] - must[i]) <= bound)) continue;
    return absl::StrFormat("%s is %.9g, must be %.9g (+- %.2g)",
                           PlaceInTensor(name, i, must.size(), width), got[i], must[i], bound);
  }
  return "";
}

std::string F64Reference::Compare(const Outcome& got) const {
  // Squares of such x, and products with such dy, may be outside the range of float.
  if (dtype_ != PLUMB_DTYPE_F64 && IsExtremeX(point_)) return "";
  const int64_t width = point_[kDim];
  std::string text = Compare("y", got.y, outcome_.y, width, dtype_, y_);
  if (point_[kEvaluation] != 0 || !text.empty()) return text;
  if (dtype_ != PLUMB_DTYPE_F64 && IsExtremeDy(point_)) return text;
  text = Compare("dx", got.dx, outcome_.dx, width, dtype_, dx_);
  if (text.empty()) text = Compare("dx2", got.dx2, outcome_.dx2, width, dtype_, {dx2_});
  return text.empty() ? CompareSums(got) : text;
}

std::string F64Reference::CompareSums(const Outcome& got) const {
  if (dtype_ != PLUMB_DTYPE_F64 && (IsExtremeX(point_) || IsExtremeDy(point_))) return "";
  std::string text;
  const auto compare = [&](const char* name, const std::vector<Values>& a,
                           const std::vector<Values>& b, const Values& allowed) {
    for (size_t i = 0; i < b.size() && text.empty(); ++i) {
      text = Compare(absl::StrCat(name, "[", i, "]"), a[i], b[i], static_cast<int64_t>(b[i].size()),
                     AccumulateType(dtype_), {allowed[i]});
    }
  };
  if (point_[kEvaluation] == 0) compare("dparams", got.dparams, outcome_.dparams, dparams_);
  compare("buffers", got.buffers, outcome_.buffers, buffers_);
  return text;
}

}  // namespace plumb::check
