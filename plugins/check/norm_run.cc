// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/norm_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace plumb::check {
namespace {

constexpr uint64_t kPoisonBits = 0x7ffd600000000000u;  // bf16 can represent all of its digits
constexpr uint64_t kFillSeed = 0x1234567890abcdefu;

// Returns the placement of tensors that are not operands, whose base is always aligned.
Place InnerPlace(const Place& operands, int64_t gap = 0) {
  Place place;
  place.gap = gap;
  if (operands.flush == Place::Flush::kEnd) place.flush = Place::Flush::kEndAligned;
  return place;
}

// Returns memory for plumb_norm_call::scratch of a range of `rows` rows.
Rows MakeScratch(const plumb_norm_layout& layout, int64_t rows, const Place& operands) {
  const size_t bytes =
      layout.scratch_bytes + layout.scratch_bytes_per_row * static_cast<size_t>(rows);
  return Rows(PLUMB_DTYPE_BF16, 1, static_cast<int64_t>((bytes + 1) / 2), InnerPlace(operands));
}

void Refill(Rows* scratch) {
  std::memset(scratch->data(), 0xff, static_cast<size_t>(scratch->width()) * 2);
}

// Fills a tensor that the norm initializes itself.
void FillAsTheNorm(const Instance& instance, uint32_t index, Rows* tensor) {
  std::vector<float> values(static_cast<size_t>(tensor->width()), 0.0f);
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = index;
  call.seed = kFillSeed;
  call.elements = tensor->width();
  call.values = values.data();
  Fill(instance, call);  // M6 checks the result
  tensor->Assign({values.begin(), values.end()});
}

void Initialize(const Instance& instance, uint32_t index, std::mt19937_64* random, Rows* tensor) {
  const plumb_tensor_def& def = instance.tensor(index);
  if (IsFilled(instance, index)) return FillAsTheNorm(instance, index, tensor);
  switch (def.init) {
    case PLUMB_INIT_ONES:
      return tensor->Fill(1);
    case PLUMB_INIT_CONST:
      return tensor->Fill(def.init_a);
    case PLUMB_INIT_NORMAL:
      return tensor->FillNormal(random, def.init_a, def.init_b);
    case PLUMB_INIT_UNIFORM: {
      std::uniform_real_distribution<double> uniform(def.init_a, def.init_b);
      for (int64_t i = 0; i < tensor->width(); ++i) tensor->Set(0, i, uniform(*random));
      return;
    }
    default:
      return tensor->Fill(0);
  }
}

bool TwoInputs(const Instance& instance) {
  return (instance.norm().flags & PLUMB_NORM_TWO_INPUTS) != 0;
}

// Moves values away from special ones without changing sign or magnitude, because a parameter may
// have to be positive, and its descriptor cannot say so.
void Perturb(std::mt19937_64* random, Rows* tensor) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tensor->width(); ++i) {
    const double step = 0.2 * std::clamp(normal(*random), -2.0, 2.0), value = tensor->Get(0, i);
    tensor->Set(0, i, static_cast<float>(value == 0 ? step : value * (1 + step)));
  }
}

// Returns the placement with a larger gap for each `n`, in multiples of 64 bytes if rows are
// aligned.
Place WithGap(Place place, int64_t n) {
  place.gap += place.aligned64 ? 32 * n : n;
  return place;
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

}  // namespace

double Poison() {
  double value;
  std::memcpy(&value, &kPoisonBits, sizeof(value));
  return value;
}

bool IsPoison(double value) { return SameBits(value, Poison()); }

std::string PlaceInTensor(const std::string& name, size_t i, size_t size, int64_t width) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  return size <= w ? absl::StrCat(name, "[", i, "]")
                   : absl::StrCat(name, "[", i / w, "][", i % w, "]");
}

std::string FirstDifference(const std::string& name, const std::vector<double>& got,
                            const std::vector<double>& must, int64_t width) {
  for (size_t i = 0; i < must.size(); ++i) {
    if (SameBits(got[i], must[i])) continue;
    return absl::StrFormat("%s is %.17g, must be %.17g", PlaceInTensor(name, i, must.size(), width),
                           got[i], must[i]);
  }
  return "";
}

std::string FirstDeviation(const std::string& name, const std::vector<double>& got,
                           const std::vector<double>& must, int64_t width, double relative,
                           double absolute) {
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

bool AllFinite(const std::vector<double>& values, size_t* at) {
  const auto it = std::find_if(values.begin(), values.end(),
                               [](double value) { return !std::isfinite(value); });
  *at = static_cast<size_t>(it - values.begin());
  return it == values.end();
}

double LargestMagnitude(const std::vector<double>& values) {
  double largest = 0;
  for (const double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

std::vector<Tensor> Outcome::Tensors() const {
  const auto width = [this](const std::vector<double>& values) {
    return static_cast<int64_t>(values.size()) / std::max<int64_t>(rows, 1);
  };
  std::vector<Tensor> tensors = {{"y", &y, width(y)},
                                 {"saved", &saved, width(saved)},
                                 {"dx", &dx, width(dx)},
                                 {"dx2", &dx2, width(dx2)}};
  const auto list = [&](const char* name, const std::vector<std::vector<double>>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      tensors.push_back(
          {absl::StrCat(name, "[", i, "]"), &values[i], static_cast<int64_t>(values[i].size())});
    }
  };
  list("dparams", dparams);
  list("buffers", buffers);
  tensors.push_back({"call_saved", &call_saved, static_cast<int64_t>(call_saved.size())});
  return tensors;
}

std::string FirstDifference(const Outcome& got, const Outcome& must) {
  const std::vector<Tensor> results = got.Tensors(), wanted = must.Tensors();
  for (size_t i = 0; i < std::min(results.size(), wanted.size()); ++i) {
    if (wanted[i].values->empty()) continue;
    std::string text =
        FirstDifference(wanted[i].name, *results[i].values, *wanted[i].values, wanted[i].width);
    if (!text.empty()) return text;
  }
  return "";
}

NormRun::NormRun(const Instance& instance, uint32_t dtype, int64_t rows, uint64_t seed,
                 const Place& place, bool own_pitches, bool draw)
    : x(dtype, rows, instance.dim(), place),
      y(dtype, rows, instance.dim(), WithGap(place, own_pitches ? 1 : 0)),
      dy(dtype, rows, instance.dim(), WithGap(place, own_pitches ? 2 : 0)),
      dx(dtype, rows, instance.dim(), WithGap(place, own_pitches ? 3 : 0)),
      x2(dtype, TwoInputs(instance) ? rows : 0, instance.dim(),
         WithGap(place, own_pitches ? 4 : 0)),
      dx2(dtype, TwoInputs(instance) ? rows : 0, instance.dim(),
          WithGap(place, own_pitches ? 5 : 0)),
      saved(AccumulateType(dtype), rows, instance.layout().saved_per_row,
            InnerPlace(place, own_pitches ? 3 : 0)),
      call_saved(AccumulateType(dtype), 1, instance.layout().saved_per_call, InnerPlace(place)),
      instance_(instance),
      dtype_(dtype),
      rows_(rows),
      seed_(seed),
      tell_aligned_(place.tell),
      scratch_(MakeScratch(instance.layout(), rows, place)) {
  // The generators are separate, so that parameters do not depend on the number of rows.
  std::mt19937_64 random(seed ^ 0x5bd1e995), random_rows(seed);
  if (draw) x.FillNormal(&random_rows);
  if (draw) dy.FillNormal(&random_rows);
  // x2 is equal in all rows, so that a row may move, and exact in every type.
  for (int64_t r = 0; TwoInputs(instance) && r < rows; ++r) {
    for (int64_t i = 0; i < x2.width(); ++i) x2.Set(r, i, 0.25 * static_cast<double>(i % 7 - 3));
  }
  const auto tensor = [&](const plumb_tensor_def& def) {
    return Rows(AccumulateType(dtype), 1, ElementsOf(def), InnerPlace(place));
  };
  for (uint32_t i = 0; i < instance.layout().n_params; ++i) {
    params.push_back(tensor(instance.param(i)));
    dparams.push_back(tensor(instance.param(i)));
    Initialize(instance, i, &random, &params.back());
    Perturb(&random, &params.back());
    param_pointers_.push_back(params.back().data());
    dparam_pointers_.push_back(dparams.back().data());
  }
  for (uint32_t i = 0; i < instance.layout().n_buffers; ++i) {
    buffers.push_back(tensor(instance.buffer(i)));
    buffer_pointers_.push_back(buffers.back().data());
  }
  Reset();
}

void NormRun::Reset() {
  for (Rows* rows : {&y, &dx, &dx2, &saved, &call_saved}) rows->Fill(Poison());
  for (Rows& rows : dparams) rows.Fill(0);
  std::mt19937_64 random(seed_ + 1);
  for (uint32_t i = 0; i < buffers.size(); ++i) {
    Initialize(instance_, instance_.layout().n_params + i, &random, &buffers[i]);
  }
}

std::string NormRun::Name() const {
  return absl::StrCat(TypeName(dtype_), " dim=", dim(), " rows=", rows_);
}

int64_t NormRun::ChunkRows() const { return std::max<int64_t>(8, (rows_ + 63) / 64); }

bool NormRun::TakesStatistics(bool train) const {
  const uint32_t flags = instance_.norm().flags;
  return (flags & PLUMB_NORM_CROSS_ROW_EVAL) != 0 || (train && (flags & PLUMB_NORM_CROSS_ROW) != 0);
}

plumb_norm_call NormRun::Call(uint32_t flags) {
  plumb_norm_call call{};
  call.struct_size = sizeof(call);
  call.flags = flags;
  call.dtype = dtype_;
  call.dim = instance_.dim();
  call.rows = rows_;
  if (TwoInputs(instance_)) {
    call.x2 = x2.data();
    call.x2_pitch = x2.pitch();
  }
  call.params = param_pointers_.data();
  call.buffers = buffer_pointers_.data();
  call.context = context;
  call.rng_key = seed_;
  err_[0] = '\0';
  call.err = err_;
  call.err_cap = sizeof(err_);
  return call;
}

plumb_norm_call NormRun::ForwardCall(bool train) {
  const bool aligned = tell_aligned_ && x.aligned64() && y.aligned64() && x2.aligned64();
  plumb_norm_call call = Call((train ? uint32_t{PLUMB_CALL_TRAIN} : 0) |
                              (aligned ? uint32_t{PLUMB_CALL_ALIGNED64} : 0));
  call.x = x.data();
  call.x_pitch = x.pitch();
  call.y = y.data();
  call.y_pitch = y.pitch();
  if (train && saved.width() > 0) {
    call.saved = saved.data();
    call.saved_pitch = saved.pitch();
  }
  if (TakesStatistics(train)) call.call_saved = call_saved.data();
  Refill(&scratch_);
  call.scratch = scratch_.data();
  return call;
}

plumb_norm_call NormRun::BackwardCall(bool accumulate) {
  const uint32_t needs = instance_.layout().backward_needs;
  bool aligned =
      tell_aligned_ && dy.aligned64() && dx.aligned64() && x2.aligned64() && dx2.aligned64();
  plumb_norm_call call = Call(0);
  if (needs & PLUMB_BACKWARD_READS_X) {
    call.x = x.data();
    call.x_pitch = x.pitch();
    aligned = aligned && x.aligned64();
  }
  if (needs & PLUMB_BACKWARD_READS_Y) {
    call.y = y.data();
    call.y_pitch = y.pitch();
    aligned = aligned && y.aligned64();
  }
  // TRAIN makes forward write `saved`; in the backward pass it informs stats_finalize that buffers
  // may change.
  call.flags = (TakesStatistics(true) ? uint32_t{PLUMB_CALL_TRAIN} : 0) |
               (accumulate ? uint32_t{PLUMB_CALL_DX_ACCUMULATE} : 0) |
               (aligned ? uint32_t{PLUMB_CALL_ALIGNED64} : 0);
  call.dy = dy.data();
  call.dy_pitch = dy.pitch();
  call.dx = dx.data();
  call.dx_pitch = dx.pitch();
  if (TwoInputs(instance_)) {
    call.dx2 = dx2.data();
    call.dx2_pitch = dx2.pitch();
    if ((needs & PLUMB_BACKWARD_READS_X2) == 0) call.x2 = nullptr;
  }
  call.dparams = dparam_pointers_.data();
  if (saved.width() > 0) {
    call.saved = saved.data();
    call.saved_pitch = saved.pitch();
  }
  if (TakesStatistics(true)) call.call_saved = call_saved.data();
  Refill(&scratch_);
  call.scratch = scratch_.data();
  return call;
}

void* NormRun::RangeScratch(int64_t rows) {
  const size_t spare = instance_.layout().scratch_bytes_per_row * static_cast<size_t>(rows_ - rows);
  return static_cast<char*>(scratch_.data()) + spare / 64 * 64;
}

std::string NormRun::ErrorText() const { return std::string(err_, strnlen(err_, sizeof(err_))); }

void NormRun::Expect(plumb_status status, const char* function, int64_t r0, int64_t r1) const {
  if (status == PLUMB_OK) return;
  const std::string words = ErrorText();
  throw CheckEnded{absl::StrCat(function, " ", Name(), " rows ", r0, "..", r1, " answers ",
                                StatusText(status), words.empty() ? "" : ": ", words)};
}

void NormRun::ForwardRange(bool train, int64_t r0, int64_t r1) {
  const plumb_norm_call call = ForwardCall(train);
  Expect(check::Forward(instance_, call, r0, r1), "forward", r0, r1);
}

void NormRun::BackwardRange(bool accumulate, int64_t r0, int64_t r1) {
  const plumb_norm_call call = BackwardCall(accumulate);
  Expect(check::Backward(instance_, call, r0, r1), "backward", r0, r1);
}

void NormRun::Forward(bool train) {
  if (TakesStatistics(train)) Statistics(PLUMB_PHASE_FORWARD, train, ChunkRows());
  ForwardRange(train, 0, rows_);
}

void NormRun::Backward(bool accumulate) {
  if (TakesStatistics(true)) Statistics(PLUMB_PHASE_BACKWARD, true, ChunkRows(), false, accumulate);
  BackwardRange(accumulate, 0, rows_);
}

void NormRun::Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension,
                         bool accumulate) {
  const plumb_norm_call all =
      phase == PLUMB_PHASE_FORWARD ? ForwardCall(train) : BackwardCall(accumulate);
  const plumb_norm_combine* extension = by_extension ? CombineOf(instance_.norm()) : nullptr;
  Rows partial(AccumulateType(dtype_), 1, instance_.layout().partial_elems);
  Rows total(AccumulateType(dtype_), 1, instance_.layout().partial_elems);
  total.Fill(0);
  for (int64_t r0 = 0; r0 < rows_; r0 += chunk) {
    const int64_t r1 = std::min(rows_, r0 + chunk);
    Rows scratch = MakeScratch(instance_.layout(), r1 - r0, {});
    Refill(&scratch);
    plumb_norm_call call = all;
    call.scratch = scratch.data();
    call.dparams = nullptr;  // statistics only read
    partial.Fill(0);
    Expect(StatsPartial(instance_, phase, call, r0, r1, partial.data()), "stats_partial", r0, r1);
    Expect(StatsCombine(instance_, phase, all, total.data(), partial.data(), extension),
           PLUMB_EXT_COMBINE, r0, r1);
  }
  Expect(StatsFinalize(instance_, phase, all, total.data()), "stats_finalize", 0, rows_);
  for (const Rows* rows : {&partial, &total}) {
    const std::string damage = rows->PaddingDamage();
    if (!damage.empty()) throw CheckEnded{Name() + ": written outside a partial: " + damage};
  }
}

Outcome NormRun::Results() const {
  Outcome outcome;
  outcome.rows = rows_;
  outcome.y = y.Values(), outcome.saved = saved.Values(), outcome.call_saved = call_saved.Values();
  outcome.dx = dx.Values(), outcome.dx2 = dx2.Values();
  for (const Rows& rows : dparams) outcome.dparams.push_back(rows.Values());
  for (const Rows& rows : buffers) outcome.buffers.push_back(rows.Values());
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
  for (size_t i = 0; i < params.size(); ++i) {
    named.emplace_back(absl::StrCat("params[", i, "]"), &params[i]);
    named.emplace_back(absl::StrCat("dparams[", i, "]"), &dparams[i]);
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    named.emplace_back(absl::StrCat("buffers[", i, "]"), &buffers[i]);
  }
  for (const auto& [name, rows] : named) {
    const std::string damage = rows->PaddingDamage();
    if (!damage.empty()) return absl::StrCat(name, ": ", damage);
  }
  return "";
}

}  // namespace plumb::check
