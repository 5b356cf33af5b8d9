// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumb::check {
namespace {

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Returns the value that results hold before a call: a NaN with distinctive bits, in every type.
double Poison() {
  constexpr uint64_t kBits = 0x7ffd600000000000u;
  double value;
  std::memcpy(&value, &kBits, sizeof(value));
  return value;
}

// -- Operands -------------------------------------------------------------------------------------

// Generator of a row; quick to seed, because there are many rows.
using RowRandom = std::minstd_rand;

// Draws one row of x or dy: 0 normal; 1 large; 2 small; 3, 6 far from zero; 4 some rows of zeros; 5
// rows of any magnitude; 7 some elements zero; 8, 9 magnitudes whose squares are outside the range
// of f32; 10 denormals; 11 far from zero with a small spread; 12 all elements of a row equal; 13
// one outlier; 14 all rows equal; 15 one number in all rows; 16, 17 an element of some rows is NaN
// or infinite.
void DrawRow(int64_t kind, RowRandom* random, double* row, int64_t dim) {
  constexpr double kSizes[] = {1, 1e5, 1e-7, 1, 1, 1, 1, 1, 1e30, 1e-30, 3e-40, 0.5, 0, 1, 0, 0};
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  double size = kind < kDistributions ? kSizes[kind] : 1, mean = 0;
  if (kind == 3) mean = 20;
  if (kind == 6) mean = -20;
  if (kind == 4 && uniform(*random) < 0.5) size = 0;
  if (kind == 5) size = std::pow(10, 9 * uniform(*random) - 4.5);
  if (kind == kNarrowX) mean = uniform(*random) < 0.5 ? 100 : -1000;
  if (kind == kConstantX) mean = normal(*random);
  if (kind == kOneNumberX) mean = 3;
  for (int64_t i = 0; i < dim; ++i) {
    row[i] = mean + size * normal(*random);
    if (kind == kEqualRowsX) row[i] = 1 + 0.25 * static_cast<double>(i);
    if (kind == 7 && uniform(*random) < 0.5) row[i] = 0;
  }
  double& one = row[(*random)() % static_cast<uint64_t>(dim)];
  if (kind == kOutlierX) one *= 1000;
  if (kind == kNanX && (*random)() % 3 == 0) one = std::numeric_limits<double>::quiet_NaN();
  if (kind == kInfiniteX && (*random)() % 3 == 0) one *= HUGE_VAL;
}

// Draws rows, each with a generator of its own, so that it does not depend on the rows before it.
Values DrawRows(int64_t kind, const Point& point, uint64_t which) {
  Values values(static_cast<size_t>(point[kRows] * point[kDim]));
  for (int64_t r = 0; r < point[kRows]; ++r) {
    const uint64_t seed = (static_cast<uint64_t>(point[kSeed]) * 3 + which) * 0xd1342543de82ef95u;
    const uint64_t mixed = (seed + static_cast<uint64_t>(r)) * 0x9e3779b97f4a7c15u;
    RowRandom random(static_cast<uint32_t>(mixed >> 33));
    DrawRow(kind, &random, &values[static_cast<size_t>(r * point[kDim])], point[kDim]);
  }
  const uint32_t type = point[kType] == 2 ? uint32_t{PLUMB_DTYPE_F32} : GetType(point);
  for (double& value : values) value = RoundTo(type, value);
  return values;
}

// Returns initial values of a tensor, as its descriptor says.
Values InitialValues(const Instance& instance, uint32_t index, std::mt19937_64* random) {
  const plumb_tensor_def& def = instance.tensor(index);
  const auto size = static_cast<size_t>(CountElements(def));
  if (instance.IsFilled(index)) {
    std::vector<float> filled(size, 0.0f);
    plumb_fill_call call{};
    call.struct_size = sizeof(call);
    call.tensor = index;
    call.seed = 0x1234567890abcdefu;
    call.elements = static_cast<int64_t>(size);
    call.values = filled.data();
    instance.Fill(call);  // M6 checks the result
    return {filled.begin(), filled.end()};
  }
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> uniform(0, 1);
  Values values(size);
  for (double& value : values) {
    if (def.init == PLUMB_INIT_ONES) value = 1;
    if (def.init == PLUMB_INIT_CONST) value = def.init_a;
    if (def.init == PLUMB_INIT_NORMAL) value = def.init_a + def.init_b * normal(*random);
    if (def.init == PLUMB_INIT_UNIFORM) {
      value = def.init_a + (def.init_b - def.init_a) * uniform(*random);
    }
  }
  return values;
}

// Changes a parameter by kParams: 0 unchanged; 1 either sign; 2 some zeros; 3 large; 4 small; 5
// none is positive; 6 all zero; 7 one is zero.
double Changed(int64_t kind, std::mt19937_64* random, size_t i, double value) {
  const bool half = (*random)() % 2 == 0;
  if (kind == 1 && half) return -value;
  if ((kind == 2 && half) || kind == 6) return 0;
  if (kind == 5) return -std::abs(value);
  if (kind == 7 && i == 0) return 0;
  return kind == 3 ? value * 16 : kind == 4 ? value * 0.25 : value;
}

// Returns parameters away from special values, but without another sign or magnitude than their
// initial ones, because a parameter may have to be positive and its descriptor cannot say so.
std::vector<Values> ParamsAt(const Instance& instance, const Point& point) {
  std::vector<Values> params;
  std::mt19937_64 random(static_cast<uint64_t>(point[kSeed]) * 2 + 1);
  std::normal_distribution<double> normal;
  for (uint32_t k = 0; k < instance.layout().n_params; ++k) {
    params.push_back(InitialValues(instance, k, &random));
    for (size_t i = 0; i < params[k].size(); ++i) {
      const double step = 0.2 * std::clamp(normal(random), -2.0, 2.0), value = params[k][i];
      const auto moved = static_cast<float>(value == 0 ? step : value * (1 + step));
      params[k][i] = Changed(point[kParams], &random, i, moved);
    }
  }
  return params;
}

// -- Memory ---------------------------------------------------------------------------------------

// Returns the placement of an operand. `gap`: elements that make its pitch unique, used if the
// point wants different pitches.
Place GetPlace(const Point& point, int64_t gap) {
  Place place;
  place.aligned64 = point[kPlace] == 0;
  if (point[kPitches] != 0) place.gap = place.aligned64 ? 32 * gap : gap;
  if (point[kPlace] == 2) place.offset = 1, place.gap += 3;
  if (point[kPlace] == 3) place.flush = Place::Flush::kEnd;
  if (point[kPlace] == 4) place.flush = Place::Flush::kStart;
  place.apart = point[kPlace] == 5;
  return place;
}

// Returns the placement of tensors that are not operands, whose base is always aligned.
Place InnerPlace(const Point& point, int64_t gap = 0) {
  Place place;
  if (point[kPitches] != 0) place.gap = gap;
  if (point[kPlace] == 3) place.flush = Place::Flush::kEndAligned;
  place.apart = point[kPlace] == 5;
  return place;
}

std::vector<Values> AllOf(const std::vector<Rows>& tensors) {
  std::vector<Values> values;
  for (const Rows& rows : tensors) values.push_back(rows.All());
  return values;
}

// -- Calls at a point -----------------------------------------------------------------------------

std::vector<std::pair<int64_t, int64_t>> GetRanges(const NormRun& run, const Point& point) {
  const int64_t rows = point[kRows], from = point[kFrom], to = point[kTo];
  std::vector<std::pair<int64_t, int64_t>> ranges;
  if (point[kPieces] != 0) {
    const int64_t max = run.instance().layout().max_chunks;
    const int64_t least = max > 0 ? (rows + max - 1) / max : 1 + rows / 300;
    const int64_t length = std::max(to - from, least);
    for (int64_t r = 0; r < rows; r += length) ranges.push_back({r, std::min(rows, r + length)});
    return ranges;
  }
  // The range comes last, so that what it writes outside of itself is not overwritten.
  if (to < rows) ranges.push_back({to, rows});
  if (from > 0) ranges.push_back({0, from});
  if (from > 0) ranges.push_back({from, from});  // does nothing
  ranges.push_back({from, to});
  return ranges;
}

// Run of a norm at a point.
class PointRun {
 public:
  PointRun(const Instance& instance, const Point& point, const Operands& operands, uint32_t dtype)
      : point_(point),
        operands_(operands),
        run_(instance, point, operands, dtype),
        residual_(point[kResidual] != 0 ? instance.Residual() : nullptr),
        terms_(dtype, residual_ != nullptr ? point[kRows] : 0, point[kDim], GetPlace(point, 6)),
        sum_(dtype, terms_.rows(), point[kDim], GetPlace(point, 7)) {
    more_.residual = residual_;
    more_.sums.struct_size = sizeof(more_.sums);
  }

  Outcome Run(const RunOptions& options) {
    inspect_ = options.inspect;
    for (Rows& rows : run_.dparams) rows.Fill(options.dparams);
    Forward();
    const Values y = run_.y.All(), saved = run_.saved.All();
    if (options.y != nullptr) run_.y.Assign(*options.y);
    if (is_training() && !options.only_forward) {
      Backward();
    }
    Outcome outcome = run_.Results();
    if (options.inspect) {
      Expect(FirstDifference("y", outcome.y, y, point_[kDim]));
      Expect(FirstDifference("saved", outcome.saved, saved, run_.saved.width()));
      Inspect(outcome);
      outcome.problem = problem_;
    }
    outcome.y = y;
    return outcome;
  }

 private:
  bool is_training() const { return point_[kEvaluation] == 0; }
  bool Allows(uint32_t flag) const {
    return point_[kAlias] != 0 && residual_ == nullptr && run_.instance().Has(flag);
  }
  void Expect(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  void TakeStatistics(uint32_t phase, bool train) {
    if (!run_.TakesStatistics(train)) return;
    const int64_t own = std::max(point_[kTo] - point_[kFrom], point_[kRows] / 300 + 1);
    const bool pieces = point_[kPieces] != 0;
    run_.Statistics(phase, train, pieces ? own : run_.ChunkRows(), pieces);
  }

  // Fails if rows outside of the first range do not hold `before` after it.
  void ExpectOutside(const std::string& name, const Rows& rows, int64_t from, int64_t to,
                     double before) {
    if (!inspect_) return;
    const Values values = rows.All();
    for (size_t i = 0; i < values.size(); ++i) {
      const int64_t row = static_cast<int64_t>(i) / rows.width();
      const bool is_inside = row >= from && row < to;
      if (is_inside || SameBits(values[i], before)) continue;
      return Expect(absl::StrCat(name, " of row ", row, ", outside of the range, was written"));
    }
  }

  // Only stats_finalize may change buffers.
  void ExpectBuffers(const std::vector<Values>& before) {
    for (size_t i = 0; i < before.size(); ++i) {
      Expect(
          FirstDifference(absl::StrCat("buffers[", i, "]"), run_.buffers[i].All(), before[i], 0));
    }
  }

  // Makes x the sum of two terms, which the norm adds up. x is the sum as it is stored: either
  // exactly first + second, or that sum rounded, always to the same side, so that a norm that uses
  // unrounded sums is wrong by nearly half an ulp.
  void Split() {
    constexpr double kParts[] = {0, 1, 0.5, 2, -1};
    const bool rounded = point_[kSeed] % 3 == 2 && !IsExtremeX(point_);
    Values first = operands_.x, second = operands_.x;
    for (size_t i = 0; i < first.size(); ++i) {
      const double x = operands_.x[i];
      const size_t way = (i * 7 + i / 5) % 5;
      const double part = std::abs(x) < 1e-30 && way > 1 ? 0 : kParts[way];
      if (!rounded) first[i] = part * x;
      second[i] = rounded ? std::copysign(0.85 * HalfUlp(run_.dtype(), x), x) : (1 - part) * x;
    }
    run_.x.Assign(first);
    terms_.Assign(second);
    sum_.Fill(Poison());
    more_.sums.res = terms_.data(), more_.sums.res_pitch = terms_.pitch();
    // The sum may replace one of its terms.
    Rows* sum = point_[kAlias] == 0 ? &sum_ : point_[kSeed] % 2 == 0 ? &run_.x : &terms_;
    more_.sums.sum = sum->data(), more_.sums.sum_pitch = sum->pitch();
  }

  void Forward() {
    const bool train = is_training(), in_place = Allows(PLUMB_NORM_INPLACE);
    // If backward needs x, it still receives it: a host that runs in place has kept a copy.
    if (in_place) run_.y.Assign(operands_.x);
    if (residual_ != nullptr) Split();
    TakeStatistics(PLUMB_PHASE_FORWARD, train);
    const std::vector<Values> buffers = AllOf(run_.buffers);
    bool is_first = !in_place;
    for (const auto& [from, to] : GetRanges(run_, point_)) {
      plumb_norm_call call = run_.ForwardCall(train);
      if (in_place) call.x = call.y, call.x_pitch = call.y_pitch;
      if (IsOneInput()) call.x2 = call.x, call.x2_pitch = call.x_pitch;
      run_.Call(residual_ != nullptr ? Hot::kResidualForward : Hot::kForward, call, from, to,
                more_);
      if (std::exchange(is_first, false)) ExpectOutside("y", run_.y, from, to, Poison());
    }
    ExpectBuffers(buffers);
    if (residual_ == nullptr) return;
    const Rows* sum = more_.sums.sum == sum_.data()     ? &sum_
                      : more_.sums.sum == terms_.data() ? &terms_
                                                        : &run_.x;
    const Values sums = sum->All();
    // Denormals may have counted as zero.
    if (point_[kX] != kDenormalX) Expect(FirstDifference("sum", sums, operands_.x, point_[kDim]));
    run_.x.Assign(sums);
  }

  void Backward() {
    const bool add = point_[kAdd] != 0, fused = residual_ != nullptr;
    const bool in_place = !add && Allows(PLUMB_NORM_DX_ALIAS_DY);
    const double before = add ? kAddedTo : Poison();
    TakeStatistics(PLUMB_PHASE_BACKWARD, true);
    const std::vector<Values> buffers = AllOf(run_.buffers);
    run_.dx.Fill(before);
    if (in_place) run_.dx.Assign(operands_.dy);
    if (fused && add) {  // a fused norm adds to dsum, which may be dx
      Rows* dsum = point_[kAlias] == 0 ? &sum_ : &run_.dx;
      sum_.Fill(before);
      if (dsum == &sum_) run_.dx.Fill(Poison());
      more_.sums.dsum = dsum->data(), more_.sums.dsum_pitch = dsum->pitch();
    }
    const bool own = point_[kPieces] != 0, apart = fused && add && point_[kAlias] == 0;
    bool is_first = !in_place;
    std::vector<Values> totals = AllOf(run_.dparams);
    for (const auto& [from, to] : GetRanges(run_, point_)) {
      plumb_norm_call call = run_.BackwardCall(add && !fused);
      if (in_place) call.dy = call.dx, call.dy_pitch = call.dx_pitch;
      if (IsOneInput() && call.x2 != nullptr) {
        call.x2 = run_.x.data(), call.x2_pitch = run_.x.pitch();
      }
      for (size_t k = 0; own && k < totals.size(); ++k) run_.dparams[k].Fill(0);
      run_.Call(fused ? Hot::kResidualBackward : Hot::kBackward, call, from, to, more_);
      if (std::exchange(is_first, false)) {
        ExpectOutside("dx", run_.dx, from, to, apart ? Poison() : before);
      }
      for (size_t k = 0; own && k < totals.size(); ++k) {
        const Values part = run_.dparams[k].All();
        for (size_t i = 0; i < part.size(); ++i) {
          totals[k][i] = RoundTo(run_.dparams[k].dtype(), totals[k][i] + part[i]);
        }
      }
    }
    for (size_t k = 0; own && k < totals.size(); ++k) run_.dparams[k].Assign(totals[k]);
    ExpectBuffers(buffers);
  }

  // Returns true if both inputs are one tensor.
  bool IsOneInput() const {
    return point_[kAlias] != 0 && run_.x2.rows() > 0 && operands_.x2 == operands_.x;
  }

  // Fails if anything was written that must not be, or a result was not.
  void Inspect(const Outcome& outcome) {
    const std::string damage = run_.PaddingDamage();
    if (!damage.empty()) Expect("written: " + damage);
    const auto expect = [this](const std::string& name, const Rows& rows, Values must) {
      for (double& value : must) value = RoundTo(rows.dtype(), value);
      Expect(FirstDifference(name, rows.All(), must, rows.width()));
    };
    // Denormals of a residual sum may have counted as zero.
    if (residual_ == nullptr || point_[kX] != kDenormalX) expect("x", run_.x, operands_.x);
    expect("dy", run_.dy, operands_.dy);
    expect("x2", run_.x2, operands_.x2);
    for (size_t i = 0; i < operands_.params.size(); ++i) {
      expect(absl::StrCat("params[", i, "]"), run_.params[i], operands_.params[i]);
    }
    for (const Tensor& tensor : outcome.Tensors()) {
      const bool is_written = is_training() || (tensor.name != "dx" && tensor.name != "dx2");
      const auto is_poison = [](double value) { return SameBits(value, Poison()); };
      const auto it = std::find_if(tensor.values->begin(), tensor.values->end(), is_poison);
      if (tensor.is_kept || !is_written || it == tensor.values->end()) continue;
      const auto at = static_cast<size_t>(it - tensor.values->begin());
      Expect(PlaceInTensor(tensor.name, at, tensor.values->size(), tensor.width) +
             " was not written, or is computed from memory that was not");
    }
  }

  const Point& point_;
  const Operands& operands_;
  NormRun run_;
  const plumb_norm_residual* residual_;  // null: the point or the norm does not use one
  Rows terms_, sum_;                     // second terms of x, and a place for sums
  HotArguments more_;
  bool inspect_ = false;
  std::string problem_;
};

}  // namespace

Context::Context(int64_t rows_per_token, std::vector<int32_t> positions, int64_t step,
                 bool one_sequence)
    : positions_(std::move(positions)) {
  const auto tokens = static_cast<int64_t>(positions_.size());
  for (int64_t t = 0; t < tokens; t += one_sequence ? tokens : 3) offsets_.push_back(t);
  offsets_.push_back(tokens);
  context_.struct_size = sizeof(context_);
  context_.rows_per_token = static_cast<uint32_t>(rows_per_token);
  context_.step = step;
  if (tokens == 0) return;
  context_.positions = positions_.data();
  context_.n_sequences = static_cast<int64_t>(offsets_.size()) - 1;
  context_.sequence_offsets = offsets_.data();
}

Operands OperandsAt(const Instance& instance, const Point& point) {
  // Kinds of x2, whose magnitudes do not swamp any kind of x.
  constexpr int64_t kSecond[] = {0, 7, 4, 0, 3};
  Operands operands;
  operands.x = DrawRows(point[kX], point, 0);
  operands.dy = DrawRows(point[kDy], point, 1);
  if (instance.Has(PLUMB_NORM_TWO_INPUTS)) {
    operands.x2 = DrawRows(kSecond[point[kSeed] % 5], point, 2);
  }
  operands.params = ParamsAt(instance, point);
  if (point[kContext] != 0 && !instance.Has(PLUMB_NORM_CROSS_ROW)) {
    const int64_t rows_per_token = std::max<int64_t>(point[kHeads], 1);
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < point[kRows] / rows_per_token; ++t) {
      positions.push_back(t % 7 == 5 ? 1'000'000 : t % 7 < 3 ? t + 3 : t % 7 - 3);
    }
    operands.context =
        std::make_shared<Context>(rows_per_token, std::move(positions), kStepOfContexts);
  }
  return operands;
}

std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point) {
  if ((norm.dtypes & GetType(point)) == 0) return nullptr;
  const std::vector<AttributeCase>& cases = GetCases(norm);
  if (point[kAttributes] >= static_cast<int64_t>(cases.size())) return nullptr;
  return Instance::Create(norm, static_cast<uint32_t>(point[kDim]),
                          cases[static_cast<size_t>(point[kAttributes])].values,
                          static_cast<uint32_t>(point[kHeads]),
                          static_cast<HostVersion>(point[kHost]));
}

uint32_t GetType(const Point& point) {
  constexpr uint32_t kTypes[] = {PLUMB_DTYPE_F32, PLUMB_DTYPE_BF16, PLUMB_DTYPE_F64};
  return kTypes[point[kType]];
}

bool IsExtremeX(const Point& point) { return point[kX] >= kHugeX && point[kX] <= kDenormalX; }

bool IsExtremeDy(const Point& point) { return point[kDy] >= kHugeX && point[kDy] <= kDenormalX; }

Point WithOddX(Point point) {
  point[kX] = point[kSeed] / 3 % 2 == 0 ? kNanX : kInfiniteX;
  return point;
}

std::string At(const Point& point, const std::string& text) {
  return text.empty() ? text
                      : absl::StrCat(TypeName(GetType(point)), " dim=", point[kDim],
                                     " rows=", point[kRows], ": ", text);
}

std::vector<Tensor> Outcome::Tensors() const {
  const auto width = [this](const Values& values) {
    return static_cast<int64_t>(values.size()) / std::max<int64_t>(rows, 1);
  };
  std::vector<Tensor> tensors = {{"y", &y, width(y), false},
                                 {"saved", &saved, width(saved), true},
                                 {"dx", &dx, width(dx), false},
                                 {"dx2", &dx2, width(dx2), false}};
  const auto add = [&](const char* name, const std::vector<Values>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      tensors.push_back(
          {absl::StrCat(name, "[", i, "]"), &list[i], static_cast<int64_t>(list[i].size()), false});
    }
  };
  add("dparams", dparams);
  add("buffers", buffers);
  tensors.push_back({"call_saved", &call_saved, static_cast<int64_t>(call_saved.size()), true});
  return tensors;
}

Outcome RowsOutcome(Outcome outcome) {
  outcome.dparams.clear();
  outcome.buffers.clear();
  outcome.call_saved.clear();
  return outcome;
}

std::string PlaceInTensor(const std::string& name, size_t i, size_t size, int64_t width) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  return size <= w ? absl::StrCat(name, "[", i, "]")
                   : absl::StrCat(name, "[", i / w, "][", i % w, "]");
}

std::string FirstDifference(const std::string& name, const Values& got, const Values& must,
                            int64_t width) {
  for (size_t i = 0; i < must.size(); ++i) {
    if (SameBits(got[i], must[i])) continue;
    return absl::StrFormat("%s is %.17g, must be %.17g", PlaceInTensor(name, i, must.size(), width),
                           got[i], must[i]);
  }
  return "";
}

std::string FirstDifference(const Outcome& got, const Outcome& must) {
  const std::vector<Tensor> results = got.Tensors(), wanted = must.Tensors();
  for (size_t i = 0; i < std::min(results.size(), wanted.size()); ++i) {
    std::string text =
        FirstDifference(wanted[i].name, *results[i].values, *wanted[i].values, wanted[i].width);
    if (!text.empty()) return text;
  }
  return "";
}

std::string FirstDeviation(const std::string& name, const Values& got, const Values& must,
                           int64_t width, double relative, double absolute) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  double allowed = 0;
  for (size_t i = 0; i < must.size(); ++i) {
    if (i % w == 0) {
      const auto row = must.begin() + static_cast<std::ptrdiff_t>(i);
      allowed = relative * LargestMagnitude({row, row + static_cast<std::ptrdiff_t>(w)}) + absolute;
    }
    if (!std::isfinite(must[i]) || std::abs(got[i] - must[i]) <= allowed) continue;
    return absl::StrFormat("%s is %.9g, must be %.9g (+- %.2g)",
                           PlaceInTensor(name, i, must.size(), width), got[i], must[i], allowed);
  }
  return "";
}

size_t FirstNotFinite(const Values& values) {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  return static_cast<size_t>(std::find_if_not(values.begin(), values.end(), is_finite) -
                             values.begin());
}

double LargestMagnitude(const Values& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

NormRun::NormRun(const Instance& instance, const Point& point, const Operands& operands,
                 uint32_t dtype)
    : x(dtype, point[kRows], point[kDim], GetPlace(point, 0)),
      y(dtype, point[kRows], point[kDim], GetPlace(point, 1)),
      dy(dtype, point[kRows], point[kDim], GetPlace(point, 2)),
      dx(dtype, point[kRows], point[kDim], GetPlace(point, 3)),
      x2(dtype, operands.x2.empty() ? 0 : point[kRows], point[kDim], GetPlace(point, 4)),
      dx2(dtype, x2.rows(), point[kDim], GetPlace(point, 5)),
      saved(AccumulateType(dtype), point[kRows], instance.layout().saved_per_row,
            InnerPlace(point, 3)),
      call_saved(AccumulateType(dtype), 1, instance.layout().saved_per_call, InnerPlace(point)),
      instance_(instance),
      dtype_(dtype),
      rows_(point[kRows]),
      scratch_(PLUMB_DTYPE_BF16, 1,
               static_cast<int64_t>(instance.layout().scratch_bytes + 1) / 2 +
                   static_cast<int64_t>(instance.layout().scratch_bytes_per_row + 1) / 2 * rows_,
               InnerPlace(point)) {
  for (uint32_t i = 0; i < instance.n_tensors(); ++i) {
    const int64_t size = CountElements(instance.tensor(i));
    const bool is_param = i < instance.layout().n_params;
    std::vector<Rows>& list = is_param ? params : buffers;
    list.emplace_back(AccumulateType(dtype), 1, size, InnerPlace(point));
    if (!is_param) {
      buffer_pointers_.push_back(list.back().data());
      continue;
    }
    param_pointers_.push_back(list.back().data());
    dparams.emplace_back(AccumulateType(dtype), 1, size, InnerPlace(point));
    dparam_pointers_.push_back(dparams.back().data());
  }
  Assign(operands);
  Reset();
}

void NormRun::Assign(const Operands& operands) {
  x.Assign(operands.x);
  dy.Assign(operands.dy);
  x2.Assign(operands.x2);
  for (size_t i = 0; i < params.size(); ++i) params[i].Assign(operands.params[i]);
  context_ = operands.context == nullptr ? nullptr : operands.context->get();
}

void NormRun::Reset() {
  for (Rows* rows : {&y, &dx, &dx2, &saved, &call_saved}) rows->Fill(Poison());
  for (Rows& rows : dparams) rows.Fill(0);
  std::mt19937_64 random(1);
  const uint32_t n_params = instance_.layout().n_params;
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    buffers[i].Assign(InitialValues(instance_, n_params + i, &random));
  }
}

std::string NormRun::Name() const {
  return absl::StrCat(TypeName(dtype_), " dim=", instance_.dim(), " rows=", rows_);
}

int64_t NormRun::ChunkRows() const { return std::max<int64_t>(8, (rows_ + 63) / 64); }

bool NormRun::TakesStatistics(bool train) const {
  return instance_.Has(PLUMB_NORM_CROSS_ROW_EVAL) || (train && instance_.Has(PLUMB_NORM_CROSS_ROW));
}

plumb_norm_call NormRun::CommonCall() {
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  const bool aligned = x.aligned64() && y.aligned64() && dy.aligned64() && dx.aligned64() &&
                       x2.aligned64() && dx2.aligned64();
  if (aligned) call.flags = PLUMB_CALL_ALIGNED64;
  call.dtype = dtype_;
  call.dim = instance_.dim();
  call.rows = rows_;
  call.x = x.data(), call.x_pitch = x.pitch();
  call.y = y.data(), call.y_pitch = y.pitch();
  if (instance_.Has(PLUMB_NORM_TWO_INPUTS)) {
    call.x2 = x2.data(), call.x2_pitch = x2.pitch();
  }
  call.params = param_pointers_.data();
  call.buffers = buffer_pointers_.data();
  if (saved.width() > 0) call.saved = saved.data(), call.saved_pitch = saved.pitch();
  std::memset(scratch_.data(), 0xff, static_cast<size_t>(scratch_.width()) * 2);
  call.scratch = scratch_.data();
  call.context = context_;
  err_[0] = '\0';
  call.err = err_;
  call.err_cap = sizeof(err_);
  return call;
}

plumb_norm_call NormRun::ForwardCall(bool train) {
  plumb_norm_call call = CommonCall();
  if (train) call.flags |= PLUMB_CALL_TRAIN;
  if (!train) call.saved = nullptr, call.saved_pitch = 0;
  if (TakesStatistics(train)) call.call_saved = call_saved.data();
  return call;
}

plumb_norm_call NormRun::BackwardCall(bool accumulate) {
  plumb_norm_call call = CommonCall();
  const uint32_t needs = instance_.layout().backward_needs;
  if ((needs & PLUMB_BACKWARD_READS_X) == 0) call.x = nullptr, call.x_pitch = 0;
  if ((needs & PLUMB_BACKWARD_READS_Y) == 0) call.y = nullptr, call.y_pitch = 0;
  if ((needs & PLUMB_BACKWARD_READS_X2) == 0) call.x2 = nullptr;
  if (accumulate) call.flags |= PLUMB_CALL_DX_ACCUMULATE;
  call.dy = dy.data(), call.dy_pitch = dy.pitch();
  call.dx = dx.data(), call.dx_pitch = dx.pitch();
  if (instance_.Has(PLUMB_NORM_TWO_INPUTS)) call.dx2 = dx2.data(), call.dx2_pitch = dx2.pitch();
  call.dparams = dparam_pointers_.data();
  if (TakesStatistics(true)) {
    call.flags |= PLUMB_CALL_TRAIN;  // informs stats_finalize that buffers may change
    call.call_saved = call_saved.data();
  }
  return call;
}

void NormRun::Call(Hot function, plumb_norm_call call, int64_t r0, int64_t r1,
                   const HotArguments& more) {
  const auto others = static_cast<size_t>(rows_ - (r1 - r0));
  const size_t spare = instance_.layout().scratch_bytes_per_row * others;
  call.scratch = static_cast<char*>(scratch_.data()) + spare / 64 * 64;
  const plumb_status status = instance_.Call(function, call, r0, r1, more);
  if (status == PLUMB_OK) return;
  const std::string words(err_, strnlen(err_, sizeof(err_)));
  throw CheckEnded{absl::StrCat(GetName(function), " ", Name(), " rows ", r0, "..", r1, " answers ",
                                StatusText(status, words))};
}

void NormRun::ForwardRange(bool train, int64_t r0, int64_t r1) {
  Call(Hot::kForward, ForwardCall(train), r0, r1);
}

void NormRun::BackwardRange(int64_t r0, int64_t r1) {
  Call(Hot::kBackward, BackwardCall(false), r0, r1);
}

void NormRun::Forward(bool train) {
  if (TakesStatistics(train)) Statistics(PLUMB_PHASE_FORWARD, train, ChunkRows());
  ForwardRange(train, 0, rows_);
}

void NormRun::Backward() {
  if (TakesStatistics(true)) Statistics(PLUMB_PHASE_BACKWARD, true, ChunkRows());
  BackwardRange(0, rows_);
}

void NormRun::Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension) {
  const plumb_norm_call all =
      phase == PLUMB_PHASE_FORWARD ? ForwardCall(train) : BackwardCall(false);
  const int64_t width = instance_.layout().partial_elems;
  Rows partial(AccumulateType(dtype_), 1, width), total(AccumulateType(dtype_), 1, width);
  total.Fill(0);
  HotArguments of_chunk, of_total;
  of_chunk.phase = of_total.phase = phase;
  of_chunk.acc = partial.data();
  of_total.acc = total.data();
  of_total.partial = partial.data();
  if (by_extension) of_total.combine = instance_.Combine();
  for (int64_t r0 = 0; r0 < rows_; r0 += chunk) {
    plumb_norm_call call = all;
    call.dparams = nullptr;  // statistics only read
    partial.Fill(0);
    Call(Hot::kStatsPartial, call, r0, std::min(rows_, r0 + chunk), of_chunk);
    Call(Hot::kStatsCombine, all, 0, rows_, of_total);
  }
  Call(Hot::kStatsFinalize, all, 0, rows_, of_total);
  for (const Rows* rows : {&partial, &total}) {
    const std::string damage = rows->PaddingDamage();
    if (!damage.empty()) throw CheckEnded{Name() + ": written outside a partial: " + damage};
  }
}

Outcome NormRun::Results() const {
  Outcome outcome;
  outcome.rows = rows_;
  outcome.y = y.All(), outcome.saved = saved.All(), outcome.call_saved = call_saved.All();
  outcome.dx = dx.All(), outcome.dx2 = dx2.All();
  outcome.dparams = AllOf(dparams), outcome.buffers = AllOf(buffers);
  return outcome;
}

std::string NormRun::PaddingDamage() const {
  std::vector<std::pair<std::string, const Rows*>> named = {{"x", &x},
                                                            {"y", &y},
                                                            {"dy", &dy},
                                                            {"dx", &dx},
                                                            {"x2", &x2},
                                                            {"dx2", &dx2},
                                                            {"saved", &saved},
                                                            {"call_saved", &call_saved},
                                                            {"scratch", &scratch_}};
  const auto add = [&named](const char* name, const std::vector<Rows>& list) {
    for (size_t i = 0; i < list.size(); ++i) {
      named.emplace_back(absl::StrCat(name, "[", i, "]"), &list[i]);
    }
  };
  add("params", params);
  add("dparams", dparams);
  add("buffers", buffers);
  for (const auto& [name, rows] : named) {
    const std::string damage = rows->PaddingDamage();
    if (!damage.empty()) return absl::StrCat(name, ": ", damage);
  }
  return "";
}

Outcome RunAt(const Instance& instance, const Point& point, const Operands& operands,
              const RunOptions& options) {
  const uint32_t dtype = options.dtype != 0 ? options.dtype : GetType(point);
  return PointRun(instance, point, operands, dtype).Run(options);
}

Values PlainY(const Instance& instance, const Point& point, uint32_t dtype,
              const Operands& operands) {
  RunOptions options;
  options.dtype = dtype;
  options.only_forward = true;
  return RunAt(instance, Plain(point), operands, options).y;
}

}  // namespace plumb::check
