#include "plugins/check/wide_run.h"

#include <functional>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/numeric_cases.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

bool HasStatisticsOverRows(const Instance& instance) {
  return (instance.norm().flags & PLUMB_NORM_CROSS_ROW) != 0;
}

double LargestOf(const Values& values, size_t from, size_t n) {
  double largest = 0;
  for (size_t i = from; i < from + n; ++i) largest = std::max(largest, std::abs(values[i]));
  return largest;
}

// Largest |y - y'| / |x - x'| of neighbours `apart` elements from each other, for each row.
void AddPairs(const Values& x, const Values& y, size_t width, size_t apart, double least,
              std::vector<RowSizes>* rows) {
  for (size_t i = apart; i < x.size(); ++i) {
    if (apart == 1 && i % width == 0) continue;
    const double step = std::abs(x[i] - x[i - apart]);
    if (!(step > least)) continue;
    const double slope = std::abs(y[i] - y[i - apart]) / step;
    if (!std::isfinite(slope)) continue;
    RowSizes& row = (*rows)[i / width];
    row.slope = std::max(row.slope, slope);
  }
}

Values WithRandomSigns(Values values, std::mt19937_64* random) {
  for (double& value : values) value = ((*random)() & 1) != 0 ? value : -value;
  return values;
}

}  // namespace

WideRun::WideRun(const Instance& instance, const Point& point, uint32_t widest, uint32_t dtype,
                 const Operands& operands, const Values& y)
    : instance_(instance),
      point_(Plain(point)),
      widest_(widest),
      dtype_(dtype),
      operands_(operands),
      u_(UnitRoundoff(dtype) + UnitRoundoff(widest)),
      width_(static_cast<size_t>(point[kDim])),
      columns_(HasStatisticsOverRows(instance)) {
  const bool reads_y = (instance.layout().backward_needs & PLUMB_BWD_Y) != 0;
  outcome_ = PlainRun(instance, point_, widest, operands, reads_y ? &y : nullptr);
  extreme_ = IsExtremeX(point) && dtype != PLUMB_F64;
  if (extreme_) {
    Operands zero = operands;
    zero.x.assign(zero.x.size(), 0);
    of_zero_ = PlainRun(instance, point_, widest, zero);
  }
  for (const Values& values : operands.params) {
    largest_param_ = std::max(largest_param_, LargestMagnitude(values));
  }
  rows_.resize(static_cast<size_t>(point[kRows]));
  MeasureSlopes();
  MeasureInputs();
  MeasureRows(y);
  if (point[kEvaluation] == 0) MeasureSums(y);
  if (point[kEvaluation] == 0) MeasureSecond();
}

// L of each row.
void WideRun::MeasureSlopes() {
  const Values& x = operands_.x;
  const double relative = widest_ == PLUMB_F64 ? 0x1p-40 : 0x1p-10;
  std::mt19937_64 random(static_cast<uint64_t>(point_[kSeed]) + 3);
  std::vector<double> steps;
  const double of_all = LargestMagnitude(x);
  for (size_t r = 0; r < rows_.size(); ++r) {
    const double largest = columns_ ? of_all : LargestOf(x, r * width_, width_);
    steps.push_back(relative * (largest > 0 ? largest : 1e-3));
  }
  // Of two elements, random signs are equal half of the time, and then a mean takes the move away.
  for (const bool alternates : {false, true}) {
    Operands moved = operands_;
    for (size_t i = 0; i < x.size(); ++i) {
      const bool up = alternates ? (i % width_ + i / width_) % 2 == 0 : (random() & 1) != 0;
      moved.x[i] += up ? steps[i / width_] : -steps[i / width_];
    }
    const Values y = PlainY(instance_, point_, widest_, moved);
    for (size_t i = 0; i < x.size(); ++i) {
      const size_t r = i / width_;
      const double slope = std::abs(y[i] - outcome_.y[i]) / steps[r];
      // A row that has no slope says nothing.
      rows_[r].slope = std::max(rows_[r].slope, std::isfinite(slope) ? slope : HUGE_VAL);
    }
  }
  Operands alike = operands_;
  for (Values& values : alike.params) {
    // With gains of zero y says nothing of what dparams is made of.
    const double largest = LargestMagnitude(values);
    values.assign(values.size(), largest > 0 ? largest : 1);
  }
  const Values of_alike = PlainY(instance_, point_, widest_, alike);
  for (size_t r = 0; r < rows_.size(); ++r) {
    rows_[r].alike = LargestOf(of_alike, r * width_, width_);
  }
  const double least = 1e-9 * of_all;
  if (width_ > 1) AddPairs(x, of_alike, width_, 1, least, &rows_);
  if (columns_) AddPairs(x, of_alike, width_, width_, least, &rows_);
}

// L and C by what x and x2 do alone.
void WideRun::MeasureInputs() {
  if (operands_.x2.empty()) return;
  const Values none(operands_.x2.size(), 0);
  Operands without = operands_;
  for (const bool has_second : {true, false}) {
    without.x2 = has_second ? operands_.x2 : none;
    without.x = operands_.x;
    const Values both = PlainY(instance_, point_, widest_, without);
    without.x = none;
    const Values alone = PlainY(instance_, point_, widest_, without);
    double x = 0;
    for (size_t i = 0; i < both.size(); ++i) {
      RowSizes& row = rows_[i / width_];
      if (i % width_ == 0) x = LargestOf(operands_.x, i, width_);
      const double gain = std::abs(both[i] - alone[i]) / x;
      if (std::isfinite(gain)) row.slope = std::max(row.slope, gain);
      for (const double y : {both[i], alone[i]}) {
        if (std::isfinite(y)) row.second = std::max(row.second, std::abs(y));
      }
      row.second = std::max(row.second, largest_param_ * std::abs(operands_.x2[i]));
    }
  }
}

// The other sizes of each row.
void WideRun::MeasureRows(const Values& y) {
  const double n = static_cast<double>(width_), count = static_cast<double>(rows_.size());
  Values aligned;
  if (point_[kEvaluation] == 0) {
    Operands positive = operands_;
    for (size_t i = 0; i < positive.dy.size(); ++i) {
      positive.dy[i] = std::copysign(positive.dy[i], outcome_.y[i]);
    }
    const bool reads_y = (instance_.layout().backward_needs & PLUMB_BWD_Y) != 0;
    aligned = PlainRun(instance_, point_, widest_, positive, reads_y ? &y : nullptr).dx;
  }
  RowSizes all;
  for (size_t r = 0; r < rows_.size(); ++r) {
    RowSizes& row = rows_[r];
    const size_t start = r * width_;
    row.x = LargestOf(operands_.x, start, width_);
    row.y = LargestOf(outcome_.y, start, width_);
    row.growth = SumGrowth(n) + (columns_ ? SumGrowth(count) : 0);
    row.moved = row.slope;
    // Of a short row, or of groups of one or two elements, moving one of them turns much of what it
    // scales back; and with a bias little may be left of y, as nothing may of its slope.
    constexpr size_t kShort = 8;
    const bool is_short = width_ <= kShort;
    const auto from = operands_.x.begin() + static_cast<std::ptrdiff_t>(start);
    const double first = *from;
    const bool is_constant = std::all_of(from, from + static_cast<std::ptrdiff_t>(width_),
                                         [first](double value) { return value == first; });
    for (size_t i = start; (is_short || is_constant) && i < start + width_; ++i) {
      const double scale = std::abs(outcome_.y[i] / operands_.x[i]);
      if (std::isfinite(scale)) row.slope = std::max(row.slope, scale);
    }
    if (is_short) {
      row.second = std::max(row.second, largest_param_);
      row.growth += 2;
    }
    if (row.moved * row.x < (is_short ? 1 : 0.5) * row.y) {
      row.slope = std::max(row.slope, largest_param_ * largest_param_);
    }
    if (!aligned.empty()) {
      row.dy = LargestOf(operands_.dy, start, width_);
      row.terms = std::max({row.slope * row.dy, LargestOf(outcome_.dx, start, width_),
                            LargestOf(aligned, start, width_)});
    }
    all.x = std::max(all.x, row.x);
    all.y = std::max(all.y, row.y);
    all.dy = std::max(all.dy, row.dy);
    all.slope = std::max(all.slope, row.slope);
    all.moved = std::max(all.moved, row.moved);
    all.alike = std::max(all.alike, row.alike);
    all.terms = std::max({all.terms, row.terms, all.slope * all.dy});
    all.growth = row.growth;
  }
  if (columns_) std::fill(rows_.begin(), rows_.end(), all);
}

// T of dx2, of all rows together: by how much y moves with x2, and what parameters make of dy,
// which may cancel in a short row.
void WideRun::MeasureSecond() {
  if (operands_.x2.empty()) return;
  const double largest = LargestMagnitude(operands_.x2),
               largest_dy = LargestMagnitude(operands_.dy);
  const double step = (widest_ == PLUMB_F64 ? 0x1p-40 : 0x1p-10) * (largest > 0 ? largest : 1e-3);
  std::mt19937_64 random(static_cast<uint64_t>(point_[kSeed]) + 7);
  Operands moved = operands_;
  for (double& value : moved.x2) value += (random() & 1) != 0 ? step : -step;
  const Values y = PlainY(instance_, point_, widest_, moved);
  double slope = largest_param_;
  for (size_t i = 0; i < y.size(); ++i) {
    const double here = std::abs(y[i] - outcome_.y[i]) / step;
    slope = std::max(slope, std::isfinite(here) ? here : HUGE_VAL);
  }
  terms_of_second_ = std::max(slope * largest_dy, LargestMagnitude(outcome_.dx2));
}

// S of each element of dparams.
void WideRun::MeasureSums(const Values& y) {
  const bool reads_y = (instance_.layout().backward_needs & PLUMB_BWD_Y) != 0;
  std::mt19937_64 random(static_cast<uint64_t>(point_[kSeed]) + 5);
  for (const Values& values : outcome_.dparams) roots_.emplace_back(values.size(), 0);
  if (roots_.empty()) return;
  double saturated = 0;  // what 1 - y^2 of u instead of nothing adds
  for (const RowSizes& row : rows_) {
    const double all = largest_param_ * largest_param_ * row.dy * row.x;
    if (row.moved * row.x < row.y) saturated += all * all * static_cast<double>(width_);
  }
  // Differences of statistics that come to nothing, as of one number for all elements: their terms
  // are as large as what y is made of.
  double products = 0;
  for (size_t i = 0; i < operands_.dy.size(); ++i) {
    const double product = operands_.dy[i] * outcome_.y[i];
    if (std::isfinite(product)) products += product * product;
  }
  constexpr int kFlips = 2;
  for (int flip = 0; flip < kFlips; ++flip) {
    Operands flipped = operands_;
    flipped.dy = WithRandomSigns(std::move(flipped.dy), &random);
    const Outcome outcome = PlainRun(instance_, point_, widest_, flipped, reads_y ? &y : nullptr);
    for (size_t p = 0; p < roots_.size(); ++p) {
      double squares = 0;
      for (size_t i = 0; i < roots_[p].size(); ++i) {
        const double value = outcome.dparams[p][i];
        squares += value * value;
        roots_[p][i] = std::max({roots_[p][i], std::abs(value), std::abs(outcome_.dparams[p][i])});
      }
      const double mean = std::sqrt(squares / static_cast<double>(roots_[p].size()));
      const bool is_few = roots_[p].size() < width_ || width_ == 1;
      const double few = is_few ? std::sqrt(saturated + products) : 0;
      for (double& root : roots_[p]) root = std::max({root, mean, few});
    }
  }
}

bool WideRun::MayOverflow(const RowSizes& row) const {
  const double most = dtype_ == PLUMB_F64 ? 1e300 : 1e37;
  return !(row.terms < most) ||
         !(row.dy * std::max(1.0, row.x) * static_cast<double>(width_) * largest_param_ < most);
}

double WideRun::OfY(size_t row) const {
  return BoundOfY(u_, rows_[row]) + BoundOfDenormals(dtype_, rows_[row], point_[kDim]);
}

double WideRun::OfDx(size_t row) const {
  const RowSizes& sizes = rows_[row];
  // Of a dy of denormals nothing may be left.
  const bool vanishes = sizes.dy < SmallestNormal(dtype_) * 64;
  return BoundOfDx(u_, sizes) + BoundOfDenormals(dtype_, sizes, point_[kDim]) +
         (vanishes ? 2 * sizes.terms * static_cast<double>(width_) : 0);
}

std::string WideRun::Compare(const char* name, const Values& got, const Values& must,
                             const Values& zero, int64_t width, const Values& allowed) const {
  const size_t w = static_cast<size_t>(width);
  for (size_t i = 0; i < must.size(); ++i) {
    const double bound = allowed[i];
    if (std::abs(got[i] - must[i]) <= bound || std::isinf(bound) || !std::isfinite(must[i])) {
      // Where nothing is known of a number, it is one nevertheless.
      const bool lost = std::isnan(got[i]) && std::isfinite(must[i]) && point_[kAttributes] == 0;
      if (!lost || extreme_) continue;
    }
    if (extreme_) {
      const double other = i < zero.size() ? zero[i] : 0;
      const bool unknown = point_[kAttributes] != 0 ||
                           MayOverflow(rows_[std::min(i / w, rows_.size() - 1)]) ||
                           LargestMagnitude(operands_.x) > 1e18;
      if (std::abs(got[i] - other) <= bound + HalfUlp(dtype_, other) + 1e-6 * std::abs(other) ||
          got[i] == 0 || (unknown && !std::isfinite(got[i]))) {
        continue;
      }
    }
    return absl::StrFormat("%s is %.9g, must be %.9g (+- %.2g)",
                           PlaceInTensor(name, i, must.size(), width), got[i], must[i], bound);
  }
  return "";
}

std::string WideRun::CompareY(const Values& got) const {
  Values allowed(got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const double of_row = OfY(i / width_);
    allowed[i] = of_row + HalfUlp(dtype_, std::abs(outcome_.y[i]) + of_row);
  }
  return Compare("y", got, outcome_.y, of_zero_.y, point_[kDim], allowed);
}

std::string WideRun::CompareDx(const Values& got, double added) const {
  Values allowed(got.size());
  for (size_t i = 0; i < got.size(); ++i) {
    const RowSizes& row = rows_[i / width_];
    const double of_row = OfDx(i / width_), size = std::abs(outcome_.dx[i]) + of_row;
    allowed[i] = MayOverflow(row) ? HUGE_VAL : of_row + HalfUlp(dtype_, size);
    // The gradient is rounded, and the sum again.
    if (added != 0) allowed[i] += HalfUlp(dtype_, size + added);
  }
  const std::string text = Compare("dx", got, outcome_.dx, of_zero_.dx, point_[kDim], allowed);
  if (text.empty()) return text;
  const Values jumps = Jumps(), slopes = SlopesNearZero();
  for (size_t i = 0; i < allowed.size(); ++i) {
    allowed[i] += jumps[i];
    RowSizes row = rows_[i / width_];
    row.terms = slopes[i] * std::abs(operands_.dy[i]);
    allowed[i] += BoundOfDx(u_, row);
  }
  return Compare("dx", got, outcome_.dx, of_zero_.dx, point_[kDim], allowed);
}

// By how much dx moves with an x that moves as far as its statistics are off.
Values WideRun::Jumps() const {
  const bool reads_y = (instance_.layout().backward_needs & PLUMB_BWD_Y) != 0;
  const double of_all = LargestMagnitude(operands_.x);
  std::mt19937_64 random(static_cast<uint64_t>(point_[kSeed]) + 11);
  Operands up = operands_, down = operands_;
  for (size_t i = 0; i < operands_.x.size(); ++i) {
    const RowSizes& row = rows_[i / width_];
    const double step = u_ * (kRoundings + row.growth) * (columns_ ? of_all : row.x);
    const double move = (random() & 1) != 0 ? step : -step;
    up.x[i] += move;
    down.x[i] -= move;
  }
  Values jumps(operands_.x.size(), 0);
  for (const Operands& moved : {std::cref(up), std::cref(down)}) {
    const Values y = reads_y ? PlainY(instance_, point_, widest_, moved) : Values();
    const Values dx = PlainRun(instance_, point_, widest_, moved, reads_y ? &y : nullptr).dx;
    for (size_t i = 0; i < jumps.size(); ++i) jumps[i] += std::abs(dx[i] - outcome_.dx[i]);
  }
  return jumps;
}

// dy/dx of each element near 0, of a norm that takes each by itself; else zeros.
Values WideRun::SlopesNearZero() const {
  Values slopes(operands_.x.size(), 0);
  const double largest = LargestMagnitude(operands_.x);
  if (columns_ || width_ == 1 || !operands_.x2.empty() || largest == 0) return slopes;
  Operands other = operands_;
  for (const size_t changed : {size_t{0}, size_t{1}}) {
    other.x = operands_.x;
    for (size_t i = 0; i < other.x.size(); ++i) {
      if (i % width_ % 2 == changed) other.x[i] = 1.5 * other.x[i] + 0.25;
    }
    const Values y = PlainY(instance_, point_, widest_, other);
    for (size_t i = 0; i < y.size(); ++i) {
      if (i % width_ % 2 != changed && y[i] != outcome_.y[i]) return slopes;
    }
  }
  constexpr double kNear = 0x1p-20;
  const double step = kNear * largest;
  other.x.assign(operands_.x.size(), 0);
  const Values of_zero = PlainY(instance_, point_, widest_, other);
  other.x.assign(operands_.x.size(), step);
  const Values near = PlainY(instance_, point_, widest_, other);
  for (size_t i = 0; i < slopes.size(); ++i) {
    const double slope = std::abs(near[i] - of_zero[i]) / step;
    if (std::isfinite(slope)) slopes[i] = slope;
  }
  return slopes;
}

std::string WideRun::CompareDx2(const Values& got) const {
  Values allowed(got.size());
  RowSizes sizes;
  for (const RowSizes& row : rows_) {
    sizes.growth = std::max(sizes.growth, row.growth);
    sizes.terms = std::max(sizes.terms, row.cancelled() * terms_of_second_);
  }
  const bool unknown = IsExtremeX(point_) || IsExtremeDy(point_);
  const double bound = unknown ? HUGE_VAL : BoundOfDx(u_, sizes);
  for (size_t i = 0; i < got.size(); ++i) {
    allowed[i] = bound + HalfUlp(dtype_, std::abs(outcome_.dx2[i]) + bound);
  }
  return Compare("dx2", got, outcome_.dx2, {}, point_[kDim], allowed);
}

std::string WideRun::CompareSums(const std::vector<Values>& got) const {
  double growth = 0, cancelled = 1, floor = 0;
  bool overflows = false, vanishes = false;
  for (const RowSizes& row : rows_) {
    growth = std::max(growth, row.growth);
    cancelled = std::max(cancelled, row.cancelled());
    floor += BoundOfDenormals(dtype_, row, point_[kDim]);
    overflows = overflows || MayOverflow(row);
    vanishes = vanishes || row.dy < SmallestNormal(dtype_) * 64;
  }
  const double rows = static_cast<double>(rows_.size()), n = static_cast<double>(width_);
  for (size_t p = 0; p < got.size(); ++p) {
    const double terms = roots_[p].size() < width_ ? rows * n : rows;
    Values allowed(got[p].size());
    for (size_t i = 0; i < allowed.size(); ++i) {
      const double root = roots_[p][i];
      allowed[i] = BoundOfSum(u_, root, terms, growth, cancelled) + floor +
                   (vanishes && IsExtremeDy(point_) ? 4 * root * std::sqrt(terms) : 0);
      if (overflows) allowed[i] = HUGE_VAL;
    }
    const std::string name = absl::StrCat("dparams[", p, "]");
    const std::string text = Compare(name.c_str(), got[p], outcome_.dparams[p],
                                     of_zero_.dparams.empty() ? Values() : of_zero_.dparams[p],
                                     static_cast<int64_t>(got[p].size()), allowed);
    if (!text.empty()) return text;
  }
  return "";
}

std::string WideRun::CompareBuffers(const std::vector<Values>& got) const {
  if (got.empty() || extreme_ || IsExtremeDy(point_)) return "";
  RowSizes all;
  for (const RowSizes& row : rows_) {
    all.x = std::max(all.x, row.x);
    all.y = std::max(all.y, row.y);
    all.dy = std::max(all.dy, row.dy);
    all.growth = row.growth;
  }
  const double size = all.x + largest_param_ * all.dy * (1 + all.y);
  for (size_t b = 0; b < got.size(); ++b) {
    Values allowed(got[b].size());
    for (size_t i = 0; i < allowed.size(); ++i) {
      allowed[i] =
          u_ * (kRoundings + kSumsOfDx * all.growth) * (std::abs(outcome_.buffers[b][i]) + size);
    }
    const std::string name = absl::StrCat("buffers[", b, "]");
    const std::string text = Compare(name.c_str(), got[b], outcome_.buffers[b], {},
                                     static_cast<int64_t>(got[b].size()), allowed);
    if (!text.empty()) return text;
  }
  return "";
}

}  // namespace plumb::check
