// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/point_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plugins/check/cases.h"
#include "plumb/ext/instance.h"

namespace plumb::check {
namespace {

// Generator of a row; quick to seed, because there are many rows.
using RowRandom = std::minstd_rand;

enum { kHugeDy = 4, kVanishingDy, kDenormalDy };

// Draws x of one row by kX: 0 normal; 1 large; 2 small; 3, 6 far from zero; 4 some rows of zeros; 5
// rows of any magnitude; 7 some elements zero; 8, 9 magnitudes whose squares are outside the range
// of f32; 10 denormals; 11 far from zero with a small spread; 12 all elements of a row equal; 13
// one outlier; 14 all rows equal; 15 one number in all rows. For rules that use kNanX: 16, 17 an
// element of some rows is NaN or infinite.
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
  if (kind == kHugeX) size = 1e30;
  if (kind == kVanishingX) size = 1e-30;
  if (kind == kDenormalX) size = 3e-40;
  if (kind == kNarrowX) mean = uniform(*random) < 0.5 ? 100 : -1000, size = 0.5;
  if (kind == kConstantX) mean = normal(*random), size = 0;
  if (kind == kOneNumberX) mean = 3, size = 0;
  for (int64_t i = 0; i < dim; ++i) {
    row[i] =
        kind == kEqualRowsX ? 1 + 0.25 * static_cast<double>(i) : mean + size * normal(*random);
    if (kind == 7 && uniform(*random) < 0.5) row[i] = 0;
  }
  if (kind == kOutlierX) row[(*random)() % static_cast<uint64_t>(dim)] *= 1000;
  if (kind >= kNanX && (*random)() % 3 == 0) {
    const double odd = kind == kNanX ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL;
    row[(*random)() % static_cast<uint64_t>(dim)] *= odd;
  }
}

// Draws dy of one row by kDy: 0 normal; 1 some rows of zeros; 2 large; 3 small; 4, 5 magnitudes
// near the limits of f32; 6 denormals; 7 some elements zero.
void DrawDy(int64_t kind, RowRandom* random, double* row, int64_t dim) {
  std::normal_distribution<double> normal;
  double size = kind == 2 ? 1e4 : kind == 3 ? 1e-4 : 1;
  if (kind == 1 && (*random)() % 2 == 0) size = 0;
  if (kind == kHugeDy) size = 1e30;
  if (kind == kVanishingDy) size = 1e-30;
  if (kind == kDenormalDy) size = 3e-40;
  for (int64_t i = 0; i < dim; ++i) {
    row[i] = size * normal(*random);
    if (kind == 7 && (*random)() % 2 == 0) row[i] = 0;
  }
}

// Draws x2 if the norm reads it, of kinds whose magnitudes do not swamp any kind of x.
void DrawSecond(const Instance& instance, const Point& point, Operands* operands) {
  if ((instance.norm().flags & PLUMB_NORM_TWO_INPUTS) == 0) return;
  constexpr int64_t kKinds[] = {0, 7, 4, 0, 3};
  operands->x2.resize(operands->x.size());
  for (int64_t r = 0; r < point[kRows]; ++r) {
    const uint64_t mixed = static_cast<uint64_t>(point[kSeed] * 2 + r) * 0xd1342543de82ef95u;
    RowRandom random(static_cast<uint32_t>(mixed >> 33));
    DrawX(kKinds[point[kSeed] % 5], &random, &operands->x2[static_cast<size_t>(r * point[kDim])],
          point[kDim]);
  }
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

bool EqualBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

// Returns "" if rows outside of [r0, r1) are unchanged.
std::string Outside(const NormRun& run, const char* name, const Rows& rows, int64_t r0, int64_t r1,
                    double before) {
  for (int64_t r = 0; r < rows.rows(); ++r) {
    for (int64_t i = 0; i < rows.width() && (r < r0 || r >= r1); ++i) {
      if (EqualBits(rows.Get(r, i), before)) continue;
      return absl::StrCat(run.Name(), " rows ", r0, "..", r1, ": ", name, " of row ", r,
                          ", outside of the range, was written");
    }
  }
  return "";
}

struct Range {
  int64_t from, to;
};

// Returns the rows per chunk of a host: no more chunks than the norm's max_chunks.
int64_t HostChunk(const NormRun& run) {
  const int64_t max = run.instance().layout().max_chunks;
  const int64_t chunk = run.ChunkRows();
  return max > 0 ? std::max(chunk, (run.rows() + max - 1) / max) : chunk;
}

std::vector<Range> RangesOf(const NormRun& run, const Point& point) {
  std::vector<Range> ranges;
  if (point[kPieces] == 2) {
    const int64_t chunk = HostChunk(run);
    for (int64_t r = 0; r < point[kRows]; r += chunk) {
      ranges.push_back({r, std::min(point[kRows], r + chunk)});
    }
  } else {
    ranges = {{point[kFrom], point[kTo]}};
    if (point[kFrom] > 0) ranges.push_back({0, point[kFrom]});
    if (point[kTo] < point[kRows]) ranges.push_back({point[kTo], point[kRows]});
  }
  ranges.push_back({point[kRows], point[kRows]});  // does nothing
  return ranges;
}

const plumb_norm_residual* ResidualOf(const Instance& instance) {
  const plumb_norm_plugin& norm = instance.norm();
  constexpr uint32_t kWithoutSums = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS;
  // If a norm has an answer for every extension, its answers are meaningless; M5 fails it.
  if ((norm.flags & kWithoutSums) != 0 ||
      ExtensionOf(norm, "org.example.no_such_extension/1") != nullptr) {
    return nullptr;
  }
  const auto* of_instance =
      static_cast<const plumb_norm_instance_extensions*>(ExtensionOf(norm, PLUMB_EXT_INSTANCE));
  const void* found = ExtensionOf(norm, PLUMB_EXT_RESIDUAL);
  if (of_instance != nullptr && of_instance->get != nullptr) {
    found = Guarded(Function::kGetExtension, instance.dim(),
                    [&] { return of_instance->get(instance.handle(), PLUMB_EXT_RESIDUAL); });
  }
  const auto* residual = static_cast<const plumb_norm_residual*>(found);
  return residual != nullptr && residual->forward != nullptr && residual->backward != nullptr
             ? residual
             : nullptr;
}

// Sum x + res that a norm computes itself, if it offers PLUMB_EXT_RESIDUAL.
class ResidualSum {
 public:
  // The operands' x is the sum. extension() is null if the point or the norm does not use one.
  ResidualSum(const NormRun& run, const Point& point, const Operands& operands)
      : terms_(run.dtype(), point[kResidual] != 0 ? run.rows() : 0, run.dim(), PlaceOf(point, 6)),
        sum_(run.dtype(), terms_.rows(), run.dim(), PlaceOf(point, 7)) {
    if (point[kResidual] != 0) extension_ = ResidualOf(run.instance());
    if (extension_ == nullptr) return;
    // x is the sum as it is stored: either exactly first + second, or that sum rounded, always to
    // the same side, so that a norm that uses unrounded sums is wrong by nearly half an ulp.
    first_ = operands.x;
    std::vector<double> second = operands.x;
    const bool rounded = point[kSeed] % 3 == 2 && !IsExtremeX(point);
    constexpr double kParts[] = {0, 1, 0.5, 2, -1};
    for (size_t i = 0; i < first_.size(); ++i) {
      const double x = operands.x[i];
      if (rounded) {
        second[i] = std::copysign(0.85 * HalfUlp(run.dtype(), x), x);
        continue;
      }
      const size_t way = (i * 7 + i / 5) % 5;
      const double part = std::abs(x) < 1e-30 && way > 1 ? 0 : kParts[way];
      first_[i] = part * x;
      second[i] = (1 - part) * x;
    }
    terms_.Assign(second);
    sum_.Fill(Poison());
  }

  const plumb_norm_residual* extension() const { return extension_; }
  const std::vector<double>& first() const { return first_; }  // values of call.x
  Rows* terms() { return &terms_; }                            // res
  Rows* sum() { return &sum_; }

 private:
  const plumb_norm_residual* extension_ = nullptr;
  std::vector<double> first_;
  Rows terms_, sum_;
};

std::vector<std::vector<double>> ValuesOf(const std::vector<Rows>& tensors) {
  std::vector<std::vector<double>> values;
  for (const Rows& rows : tensors) values.push_back(rows.Values());
  return values;
}

// Fails if buffers changed. Only stats_finalize may change them.
std::string BuffersChanged(const NormRun& run, const char* function,
                           const std::vector<std::vector<double>>& before) {
  for (size_t i = 0; i < before.size(); ++i) {
    const std::string text =
        FirstDifference(absl::StrCat("buffers[", i, "]"), run.buffers[i].Values(), before[i], 0);
    if (!text.empty()) return absl::StrCat(run.Name(), ": after ", function, " ", text);
  }
  return "";
}

// Computes statistics in chunks of the range's length, at most a few hundred chunks.
void TakeStatistics(NormRun* run, const Point& point, uint32_t phase, bool train) {
  const int64_t own = std::max(point[kTo] - point[kFrom], point[kRows] / 300 + 1);
  const bool pieces = point[kPieces] == 1;
  run->Statistics(phase, train, pieces ? own : run->ChunkRows(), pieces);
}

// Returns true if both inputs are one tensor.
bool OneInput(const NormRun& run, const Point& point, const Operands& operands) {
  return point[kAlias] != 0 && run.x2.rows() > 0 && operands.x2 == operands.x;
}

void CallForward(NormRun* run, const Point& point, const Operands& operands, ResidualSum* residual,
                 std::string* problem) {
  const bool train = point[kEvaluation] == 0, fused = residual->extension() != nullptr;
  // If backward needs x, it still receives it: a host that runs in place has kept a copy.
  const bool in_place =
      point[kAlias] != 0 && !fused && (run->instance().norm().flags & PLUMB_NORM_INPLACE) != 0;
  auto buffers = ValuesOf(run->buffers);
  if (run->TakesStatistics(train)) TakeStatistics(run, point, PLUMB_PHASE_FORWARD, train);
  if (train) buffers = ValuesOf(run->buffers);
  if (in_place) run->y.Assign(operands.x);
  if (fused) run->x.Assign(residual->first());
  // The sum may replace one of its terms.
  Rows* sum = point[kAlias] == 0      ? residual->sum()
              : point[kSeed] % 2 == 0 ? &run->x
                                      : residual->terms();
  plumb_residual_call sums{};
  sums.struct_size = sizeof(sums);
  if (fused) {
    sums.res = residual->terms()->data(), sums.res_pitch = residual->terms()->pitch();
    sums.sum = sum->data(), sums.sum_pitch = sum->pitch();
  }
  bool first = true;
  for (const Range& range : RangesOf(*run, point)) {
    plumb_norm_call call = run->ForwardCall(train);
    call.scratch = run->RangeScratch(range.to - range.from);
    if (in_place) call.x = call.y, call.x_pitch = call.y_pitch;
    if (OneInput(*run, point, operands)) call.x2 = call.x, call.x2_pitch = call.x_pitch;
    run->Expect(fused ? ResidualCall(run->instance(), true, *residual->extension(), call, sums,
                                     range.from, range.to)
                      : Forward(run->instance(), call, range.from, range.to),
                "forward", range.from, range.to);
    if (first && !in_place) {
      *problem = Outside(*run, "y", run->y, range.from, range.to, Poison());
      if (problem->empty()) {
        *problem = Outside(*run, "saved", run->saved, range.from, range.to, Poison());
      }
      if (problem->empty() && fused && point[kAlias] == 0) {
        *problem = Outside(*run, "sum", *sum, range.from, range.to, Poison());
      }
    }
    first = false;
  }
  if (problem->empty()) *problem = BuffersChanged(*run, train ? "forward" : "evaluation", buffers);
  if (!fused) return;
  const std::string text = FirstDifference("sum", sum->Values(), operands.x, run->dim());
  // Denormals may have counted as zero.
  if (!text.empty() && problem->empty() && point[kX] != kDenormalX) {
    *problem = absl::StrCat(run->Name(), ", residual: ", text);
  }
  run->x.Assign(sum->Values());
}

// Adds a range's own dparams to the totals.
void Collect(const NormRun& run, std::vector<std::vector<double>>* totals) {
  const uint32_t type = AccumulateType(run.dtype());
  for (size_t k = 0; k < run.dparams.size(); ++k) {
    const std::vector<double> part = run.dparams[k].Values();
    for (size_t i = 0; i < part.size(); ++i) {
      (*totals)[k][i] = RoundTo(type, (*totals)[k][i] + part[i]);
    }
  }
}

void CallBackward(NormRun* run, const Point& point, const Operands& operands, ResidualSum* residual,
                  std::string* problem) {
  const bool fused = residual->extension() != nullptr;
  const bool add = point[kAdd] != 0;
  const bool alias = point[kAlias] != 0 && !add && !fused &&
                     (run->instance().norm().flags & PLUMB_NORM_DX_ALIAS_DY) != 0;
  const double before = add ? kAddedTo : Poison();
  if (run->TakesStatistics(true)) TakeStatistics(run, point, PLUMB_PHASE_BACKWARD, true);
  const auto buffers = ValuesOf(run->buffers);
  if (alias) run->dx.Assign(operands.dy);
  if (!alias) run->dx.Fill(before);
  // A fused norm adds to dsum, which may be dx.
  plumb_residual_call sums{};
  sums.struct_size = sizeof(sums);
  const bool apart = point[kAlias] == 0;
  if (apart && fused) residual->sum()->Fill(before);
  if (fused && add) {
    sums.dsum = apart ? residual->sum()->data() : run->dx.data();
    sums.dsum_pitch = apart ? residual->sum()->pitch() : run->dx.pitch();
    if (apart) run->dx.Fill(Poison());
  }
  const double outside = fused && add && apart ? Poison() : before;
  const bool own = point[kPieces] != 0 && !run->dparams.empty();
  std::vector<std::vector<double>> totals;
  for (const Rows& rows : run->dparams) totals.push_back(rows.Values());
  if (own) {
    for (Rows& rows : run->dparams) rows.Fill(0);
  }
  bool first = true;
  for (const Range& range : RangesOf(*run, point)) {
    plumb_norm_call call = run->BackwardCall(add && !fused);
    call.scratch = run->RangeScratch(range.to - range.from);
    if (alias) call.dy = call.dx, call.dy_pitch = call.dx_pitch;
    if (OneInput(*run, point, operands) && call.x2 != nullptr) {
      call.x2 = run->x.data(), call.x2_pitch = run->x.pitch();
    }
    run->Expect(fused ? ResidualCall(run->instance(), false, *residual->extension(), call, sums,
                                     range.from, range.to)
                      : Backward(run->instance(), call, range.from, range.to),
                "backward", range.from, range.to);
    if (first && !alias && problem->empty()) {
      *problem = Outside(*run, "dx", run->dx, range.from, range.to, outside);
    }
    if (first && problem->empty()) {
      *problem = Outside(*run, "dx2", run->dx2, range.from, range.to, Poison());
    }
    if (own) {
      Collect(*run, &totals);
      for (Rows& rows : run->dparams) rows.Fill(0);
    }
    first = false;
  }
  if (problem->empty()) *problem = BuffersChanged(*run, "backward", buffers);
  if (!own) return;
  for (size_t k = 0; k < totals.size(); ++k) run->dparams[k].Assign(totals[k]);
}

// Returns the first read-only operand that changed during the calls.
std::string Overwritten(const NormRun& run, const Point& point, const Operands& operands) {
  // Denormals of a residual sum may have counted as zero.
  if (point[kResidual] != 0 && point[kX] == kDenormalX) return "";
  const auto compare = [](const std::string& name, const Rows& rows, std::vector<double> must) {
    for (double& value : must) value = RoundTo(rows.dtype(), value);
    return FirstDifference(name, rows.Values(), must, rows.width());
  };
  std::string text = compare("x", run.x, operands.x);
  if (text.empty()) text = compare("dy", run.dy, operands.dy);
  if (text.empty()) text = compare("x2", run.x2, operands.x2);
  for (size_t i = 0; i < operands.params.size() && text.empty(); ++i) {
    text = compare(absl::StrCat("params[", i, "]"), run.params[i], operands.params[i]);
  }
  return text;
}

}  // namespace

uint32_t WidestType(const plumb_norm_plugin& norm) {
  return (norm.dtypes & PLUMB_DTYPE_F64) != 0 ? PLUMB_DTYPE_F64 : PLUMB_DTYPE_F32;
}

uint32_t TypeOf(const Point& point) {
  return point[kType] == 0   ? uint32_t{PLUMB_DTYPE_F32}
         : point[kType] == 1 ? uint32_t{PLUMB_DTYPE_BF16}
                             : uint32_t{PLUMB_DTYPE_F64};
}

std::unique_ptr<Instance> InstanceAt(const plumb_norm_plugin& norm, const Point& point) {
  if ((norm.dtypes & TypeOf(point)) == 0) return nullptr;
  const auto version = static_cast<HostVersion>(point[kHost]);
  if (version == HostVersion::kFirst && norm.min_host_minor > 0) return nullptr;
  const std::vector<AttributeCase>& cases = CasesOf(norm);
  if (point[kAttributes] >= static_cast<int64_t>(cases.size())) return nullptr;
  return TryInstance(norm, static_cast<uint32_t>(point[kDim]),
                     cases[static_cast<size_t>(point[kAttributes])].values,
                     static_cast<uint32_t>(point[kHeads]), nullptr, version);
}

Place PlaceOf(const Point& point, int64_t gap) {
  Place place;
  place.aligned64 = point[kPlace] == 0;
  if (point[kPitches] != 0) place.gap = place.aligned64 ? 32 * gap : gap;
  if (point[kPlace] == 2) place.offset = 1, place.gap += 3;
  if (point[kPlace] == 3) place.flush = Place::Flush::kEnd;
  if (point[kPlace] == 4) place.flush = Place::Flush::kStart;
  return place;
}

Operands OperandsAt(const Instance& instance, const Point& point) {
  Operands operands;
  const uint64_t seed = static_cast<uint64_t>(point[kSeed]) * 2 + 1;
  const size_t size = static_cast<size_t>(point[kRows] * point[kDim]);
  operands.x.resize(size);
  operands.dy.resize(size);
  for (int64_t r = 0; r < point[kRows]; ++r) {
    // Each row has its own generator, so that it does not depend on the rows before it.
    const uint64_t mixed = (seed + static_cast<uint64_t>(r)) * 0x9e3779b97f4a7c15u;
    RowRandom random(static_cast<uint32_t>(mixed >> 33));
    DrawX(point[kX], &random, &operands.x[static_cast<size_t>(r * point[kDim])], point[kDim]);
    DrawDy(point[kDy], &random, &operands.dy[static_cast<size_t>(r * point[kDim])], point[kDim]);
  }
  DrawSecond(instance, point, &operands);
  const uint32_t type = point[kType] == 2 ? uint32_t{PLUMB_DTYPE_F32} : TypeOf(point);
  for (std::vector<double>* values : {&operands.x, &operands.dy, &operands.x2}) {
    for (double& value : *values) value = RoundTo(type, value);
  }
  const NormRun drawn(instance, PLUMB_DTYPE_F32, 1, seed);
  std::mt19937_64 random(seed);
  for (const Rows& param : drawn.params) {
    operands.params.push_back(param.Values());
    std::vector<double>& values = operands.params.back();
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = Changed(point[kParams], &random, i, values[i]);
    }
  }
  if (point[kContext] != 0 && (instance.norm().flags & PLUMB_NORM_CROSS_ROW) == 0) {
    const int64_t rows_per_token = std::max<int64_t>(point[kHeads], 1);
    std::vector<int32_t> positions;
    for (int32_t t = 0; t < point[kRows] / rows_per_token; ++t) {
      positions.push_back(t % 7 == 5 ? 1'000'000 : t % 7 < 3 ? t + 3 : t % 7 - 3);
    }
    operands.context = std::make_shared<Context>(rows_per_token, positions, kStepOfContexts);
  }
  return operands;
}

Context::Context(int64_t rows_per_token, const std::vector<int32_t>& positions, int64_t step,
                 bool one_sequence)
    : positions_(PLUMB_DTYPE_F32, 1, static_cast<int64_t>(positions.size()), [] {
        Place place;
        place.flush = Place::Flush::kEnd;
        return place;
      }()) {
  if (!positions.empty()) {
    std::memcpy(positions_.data(), positions.data(), positions.size() * sizeof(positions[0]));
    context_.positions = static_cast<int32_t*>(positions_.data());
  }
  const auto tokens = static_cast<int64_t>(positions.size());
  for (int64_t t = 0; t < tokens; t += one_sequence ? tokens : 3) offsets_.push_back(t);
  offsets_.push_back(tokens);
  context_.struct_size = sizeof(context_);
  context_.rows_per_token = static_cast<uint32_t>(rows_per_token);
  context_.step = step;
  if (tokens == 0) return;
  context_.n_sequences = static_cast<int64_t>(offsets_.size()) - 1;
  context_.sequence_offsets = offsets_.data();
}

std::vector<int32_t> Context::positions() const {
  return {context_.positions, context_.positions + positions_.width()};
}

void AssignTo(const Operands& operands, NormRun* run) {
  run->x.Assign(operands.x);
  run->dy.Assign(operands.dy);
  if (!operands.x2.empty()) run->x2.Assign(operands.x2);
  for (size_t i = 0; i < run->params.size(); ++i) run->params[i].Assign(operands.params[i]);
  run->context = operands.context == nullptr ? nullptr : operands.context->get();
}

bool IsExtremeX(const Point& point) {
  return point[kX] == kHugeX || point[kX] == kVanishingX || point[kX] == kDenormalX;
}

bool IsExtremeDy(const Point& point) {
  return point[kDy] == kHugeDy || point[kDy] == kVanishingDy || point[kDy] == kDenormalDy;
}

PointResult RunAt(const Instance& instance, const Point& point, uint32_t dtype,
                  const Operands& operands, double dparams) {
  NormRun run(instance, dtype, point[kRows], 1, PlaceOf(point), point[kPitches] != 0, false);
  AssignTo(operands, &run);
  for (Rows& rows : run.dparams) rows.Fill(dparams);
  PointResult result;
  const bool train = point[kEvaluation] == 0;
  ResidualSum residual(run, point, operands);
  CallForward(&run, point, operands, &residual, &result.problem);
  const std::vector<double> y = run.y.Values(), saved = run.saved.Values();
  if (train) CallBackward(&run, point, operands, &residual, &result.problem);
  result.outcome = run.Results();
  std::string text = run.PaddingDamage();
  if (!text.empty()) text = absl::StrCat("written: ", text);
  if (text.empty()) text = FirstDifference("y", result.outcome.y, y, run.dim());
  if (text.empty()) {
    text = FirstDifference("saved", result.outcome.saved, saved, run.saved.width());
  }
  if (text.empty()) text = Overwritten(run, point, operands);
  for (const Tensor& tensor : result.outcome.Tensors()) {
    const bool may_be_left = tensor.name.find("saved") != std::string::npos ||
                             (!train && (tensor.name == "dx" || tensor.name == "dx2"));
    const auto it = std::find_if(tensor.values->begin(), tensor.values->end(), IsPoison);
    if (may_be_left || it == tensor.values->end() || !text.empty()) continue;
    text = absl::StrCat(PlaceInTensor(tensor.name, static_cast<size_t>(it - tensor.values->begin()),
                                      tensor.values->size(), tensor.width),
                        " was not written, or is computed from memory that was not");
  }
  if (result.problem.empty() && !text.empty()) {
    result.problem = absl::StrCat(run.Name(), ": ", text);
  }
  return result;
}

Outcome OutcomeAt(const Instance& instance, const Point& point, const Operands& operands) {
  return RunAt(instance, point, TypeOf(point), operands).outcome;
}

Outcome OfRows(Outcome outcome) {
  outcome.dparams.clear();
  outcome.buffers.clear();
  outcome.call_saved.clear();
  return outcome;
}

std::string At(const Point& point, const std::string& text) {
  return text.empty() ? text
                      : absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim],
                                     " rows=", point[kRows], ": ", text);
}

Outcome PlainRun(const Instance& instance, const Point& point, uint32_t dtype,
                 const Operands& operands, const std::vector<double>* y) {
  NormRun run(instance, dtype, point[kRows], 1, PlaceOf(Plain(point)), false, false);
  AssignTo(operands, &run);
  const bool train = point[kEvaluation] == 0;
  run.Forward(train);
  const std::vector<double> own = run.y.Values();
  if (y != nullptr) run.y.Assign(*y);
  if (train) run.Backward();
  Outcome outcome = run.Results();
  outcome.y = own;
  outcome.saved.clear();
  outcome.call_saved.clear();
  return outcome;
}

std::vector<double> PlainY(const Instance& instance, const Point& point, uint32_t dtype,
                           const Operands& operands) {
  NormRun run(instance, dtype, point[kRows], 1, PlaceOf(Plain(point)), false, false);
  AssignTo(operands, &run);
  run.Forward(point[kEvaluation] == 0);
  return run.y.Values();
}

}  // namespace plumb::check
