#include "plugins/check/norm_run.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <limits>
#include <thread>
#include <utility>

#include "plugins/check/guarded.h"

namespace plumb::check {
namespace {

constexpr uint64_t kPoisonBits = 0x7ffd600000000000u;  // bf16 has all of its digits
constexpr uint64_t kFillSeed = 0x1234567890abcdefu;

Rows TensorOf(const plumb_tensor_def& def, uint32_t dtype) {
  return Rows(dtype, 1, ElementsOf(def));
}

// What the norm writes itself.
void FillAsTheNorm(const Instance& instance, uint32_t index, Rows* tensor) {
  std::vector<float> values(static_cast<size_t>(tensor->width()), 0.0f);
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = index;
  call.seed = kFillSeed;
  call.elements = tensor->width();
  call.values = values.data();
  Fill(instance, call);  // M6 looks at it
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

// Away from special values, without a change of sign or of size: a parameter may have to be
// positive, and its descriptor cannot say so.
void Perturb(std::mt19937_64* random, Rows* tensor) {
  std::normal_distribution<double> normal;
  for (int64_t i = 0; i < tensor->width(); ++i) {
    const double step = 0.2 * std::clamp(normal(*random), -2.0, 2.0), value = tensor->Get(0, i);
    tensor->Set(0, i, static_cast<float>(value == 0 ? step : value * (1 + step)));
  }
}

// `n` different gaps more between rows, in whole 64 bytes where rows are aligned.
Place WithGap(Place place, int64_t n) {
  place.gap += place.aligned64 ? 32 * n : n;
  return place;
}

bool SameBits(double a, double b) { return std::memcmp(&a, &b, sizeof(a)) == 0; }

std::string Number(double value) {
  char text[40];
  std::snprintf(text, sizeof(text), "%.17g", value);
  return text;
}

// Waits for up to a fifth of a millisecond, so that threads meet in ever different orders.
void Delay(std::mt19937_64* random) {
  const uint64_t choice = (*random)() % 4;
  if (choice == 0) std::this_thread::yield();
  if (choice == 1) std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 200));
}

// Runs task(0) .. task(count - 1) on `threads` threads. What a task throws is thrown on.
void InParallel(int threads, int64_t count, uint64_t delay_seed,
                const std::function<void(int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::vector<std::exception_ptr> thrown(static_cast<size_t>(threads));
  const auto work = [&](int self) {
    std::mt19937_64 random(delay_seed + static_cast<uint64_t>(self));
    try {
      for (int64_t i = next++; i < count; i = next++) {
        if (delay_seed != 0) Delay(&random);
        task(i);
      }
    } catch (...) {
      thrown[static_cast<size_t>(self)] = std::current_exception();
    }
  };
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) others.emplace_back(work, i);
  work(0);
  for (std::thread& other : others) other.join();
  for (const std::exception_ptr& e : thrown) {
    if (e) std::rethrow_exception(e);
  }
}

}  // namespace

const plumb_norm_combine* CombineOf(const plumb_norm_plugin& norm) {
  if (!PLUMB_HAS(plumb_norm_plugin, &norm, get_extension) || norm.get_extension == nullptr) {
    return nullptr;
  }
  const auto* extension = static_cast<const plumb_norm_combine*>(
      Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(PLUMB_EXT_COMBINE); }));
  return extension != nullptr && extension->combine != nullptr ? extension : nullptr;
}

double Poison() {
  double value;
  std::memcpy(&value, &kPoisonBits, sizeof(value));
  return value;
}

bool IsPoison(double value) { return SameBits(value, Poison()); }

std::string PlaceInTensor(const char* name, size_t i, size_t size, int64_t width) {
  const size_t w = static_cast<size_t>(std::max<int64_t>(width, 1));
  const std::string column = "[" + std::to_string(i % w) + "]";
  return size <= w ? name + column : std::string(name) + "[" + std::to_string(i / w) + "]" + column;
}

std::string FirstDifference(const char* name, const std::vector<double>& got,
                            const std::vector<double>& must, int64_t width) {
  for (size_t i = 0; i < must.size(); ++i) {
    if (SameBits(got[i], must[i])) continue;
    return PlaceInTensor(name, i, must.size(), width) + " is " + Number(got[i]) + ", must be " +
           Number(must[i]);
  }
  return "";
}

std::string FirstDifference(const Outcome& got, const Outcome& must, int64_t dim) {
  const int64_t saved_width =
      must.y.empty() ? 1
                     : std::max<int64_t>(1, static_cast<int64_t>(must.saved.size()) * dim /
                                                static_cast<int64_t>(must.y.size()));
  std::string text = FirstDifference("y", got.y, must.y, dim);
  if (text.empty()) text = FirstDifference("saved", got.saved, must.saved, saved_width);
  if (text.empty()) text = FirstDifference("dx", got.dx, must.dx, dim);
  if (text.empty()) text = FirstDifference("dx2", got.dx2, must.dx2, dim);
  const auto list = [&text](const char* name, const std::vector<std::vector<double>>& a,
                            const std::vector<std::vector<double>>& b) {
    for (size_t i = 0; i < b.size() && text.empty(); ++i) {
      const std::string full = std::string(name) + "[" + std::to_string(i) + "]";
      text = FirstDifference(full.c_str(), a[i], b[i],
                             std::max<int64_t>(1, static_cast<int64_t>(b[i].size())));
    }
  };
  list("dparams", got.dparams, must.dparams);
  list("buffers", got.buffers, must.buffers);
  if (text.empty()) {
    text = FirstDifference("call_saved", got.call_saved, must.call_saved,
                           std::max<int64_t>(1, static_cast<int64_t>(must.call_saved.size())));
  }
  return text;
}

Scratch::Scratch(const plumb_norm_layout& layout, int64_t rows)
    : bytes_(PLUMB_BF16, 1,
             static_cast<int64_t>((layout.scratch_bytes +
                                   layout.scratch_bytes_per_row * static_cast<size_t>(rows) + 1) /
                                  2)) {
  Refill();
}

void Scratch::Refill() {
  std::memset(bytes_.data(), 0xff, static_cast<size_t>(bytes_.width()) * 2);  // NaNs of any type
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
            WithGap({}, own_pitches ? 3 : 0)),
      call_saved(AccumulateType(dtype), 1, instance.layout().saved_per_call),
      instance_(instance),
      dtype_(dtype),
      rows_(rows),
      seed_(seed),
      tell_aligned_(place.tell),
      scratch_(instance.layout(), rows) {
  // Drawn apart, so that parameters do not depend on the number of rows.
  std::mt19937_64 random(seed ^ 0x5bd1e995), random_rows(seed);
  if (draw) x.FillNormal(&random_rows);
  if (draw) dy.FillNormal(&random_rows);
  // Alike in all rows, so that a row may move, and exact in every type.
  for (int64_t r = 0; TwoInputs(instance) && r < rows; ++r) {
    for (int64_t i = 0; i < x2.width(); ++i) x2.Set(r, i, 0.25 * static_cast<double>(i % 7 - 3));
  }
  for (uint32_t i = 0; i < instance.layout().n_params; ++i) {
    params.push_back(TensorOf(instance.param(i), AccumulateType(dtype)));
    dparams.push_back(TensorOf(instance.param(i), AccumulateType(dtype)));
    Initialize(instance, i, &random, &params.back());
    Perturb(&random, &params.back());
    param_pointers_.push_back(params.back().data());
    dparam_pointers_.push_back(dparams.back().data());
  }
  for (uint32_t i = 0; i < instance.layout().n_buffers; ++i) {
    buffers.push_back(TensorOf(instance.buffer(i), AccumulateType(dtype)));
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
  return std::string(TypeName(dtype_)) + " dim=" + std::to_string(dim()) +
         " rows=" + std::to_string(rows_);
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
  scratch_.Refill();
  call.scratch = scratch_.data();
  return call;
}

plumb_norm_call NormRun::BackwardCall(bool accumulate) {
  const uint32_t needs = instance_.layout().backward_needs;
  bool aligned =
      tell_aligned_ && dy.aligned64() && dx.aligned64() && x2.aligned64() && dx2.aligned64();
  plumb_norm_call call = Call(0);
  if (needs & PLUMB_BWD_X) {
    call.x = x.data();
    call.x_pitch = x.pitch();
    aligned = aligned && x.aligned64();
  }
  if (needs & PLUMB_BWD_Y) {
    call.y = y.data();
    call.y_pitch = y.pitch();
    aligned = aligned && y.aligned64();
  }
  // TRAIN asks forward for `saved`; in the backward pass it tells stats_finalize that buffers may
  // change.
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
    if ((needs & PLUMB_BWD_X2) == 0) call.x2 = nullptr;
  }
  call.dparams = dparam_pointers_.data();
  if (saved.width() > 0) {
    call.saved = saved.data();
    call.saved_pitch = saved.pitch();
  }
  if (TakesStatistics(true)) call.call_saved = call_saved.data();
  scratch_.Refill();
  call.scratch = scratch_.data();
  return call;
}

std::string NormRun::ErrorText() const { return std::string(err_, strnlen(err_, sizeof(err_))); }

void NormRun::Expect(plumb_status status, const char* function, int64_t r0, int64_t r1) const {
  if (status == PLUMB_OK) return;
  const std::string words = ErrorText();
  throw CheckEnded{std::string(function) + " " + Name() + " rows " + std::to_string(r0) + ".." +
                   std::to_string(r1) + " answers " + StatusText(status) +
                   (words.empty() ? "" : ": " + words)};
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
  if (TakesStatistics(train)) Statistics(PLUMB_FWD, train, ChunkRows());
  ForwardRange(train, 0, rows_);
}

void NormRun::Backward(bool accumulate) {
  if (TakesStatistics(true)) Statistics(PLUMB_BWD, true, ChunkRows(), 1, 0, accumulate, false);
  BackwardRange(accumulate, 0, rows_);
}

void NormRun::Statistics(uint32_t phase, bool train, int64_t chunk, bool by_extension) {
  Statistics(phase, train, chunk, 1, 0, false, by_extension);
}

void NormRun::Statistics(uint32_t phase, bool train, int64_t chunk, int threads,
                         uint64_t delay_seed, bool accumulate, bool by_extension) {
  const plumb_norm_call all = phase == PLUMB_FWD ? ForwardCall(train) : BackwardCall(accumulate);
  const int64_t count = (rows_ + chunk - 1) / chunk;
  std::vector<Rows> partials;
  for (int64_t i = 0; i <= count; ++i) {
    partials.emplace_back(AccumulateType(dtype_), 1, instance_.layout().partial_elems);
    partials.back().Fill(0);
  }
  InParallel(threads, count, delay_seed, [&](int64_t i) {
    const int64_t r0 = i * chunk, r1 = std::min(rows_, r0 + chunk);
    const Scratch scratch(instance_.layout(), r1 - r0);
    plumb_norm_call call = all;
    call.scratch = scratch.data();
    call.dparams = nullptr;  // statistics only read
    call.err = nullptr;
    call.err_cap = 0;
    Expect(StatsPartial(instance_, phase, call, r0, r1, partials[static_cast<size_t>(i)].data()),
           "stats_partial", r0, r1);
  });
  Rows& total = partials.back();
  const plumb_norm_combine* extension = by_extension ? CombineOf(instance_.norm()) : nullptr;
  for (int64_t i = 0; i < count; ++i) {
    const void* partial = partials[static_cast<size_t>(i)].data();
    if (extension == nullptr) {
      StatsCombine(instance_, phase, all, total.data(), partial);
      continue;
    }
    Expect(Guarded(Function::kStatsCombine, all, 0, rows_,
                   [&] {
                     return extension->combine(instance_.handle(), phase, &all, total.data(),
                                               partial);
                   }),
           "plumb.norm.combine/1", i * chunk, std::min(rows_, (i + 1) * chunk));
  }
  Expect(StatsFinalize(instance_, phase, all, total.data()), "stats_finalize", 0, rows_);
  for (const Rows& partial : partials) {
    const std::string damage = partial.PaddingDamage();
    if (!damage.empty()) throw CheckEnded{Name() + ": written outside a partial: " + damage};
  }
}

void NormRun::Step(int threads, uint64_t delay_seed) {
  const int64_t chunk = ChunkRows(), count = (rows_ + chunk - 1) / chunk;
  // [chunk][param]
  std::vector<std::vector<Rows>> partials(static_cast<size_t>(count));
  for (uint32_t phase : {uint32_t{PLUMB_FWD}, uint32_t{PLUMB_BWD}}) {
    const bool forward = phase == PLUMB_FWD;
    if (TakesStatistics(true)) Statistics(phase, true, chunk, threads, delay_seed, false, false);
    const plumb_norm_call all = forward ? ForwardCall(true) : BackwardCall(false);
    InParallel(threads, count, delay_seed, [&](int64_t i) {
      const int64_t r0 = i * chunk, r1 = std::min(rows_, r0 + chunk);
      const Scratch scratch(instance_.layout(), r1 - r0);
      std::vector<void*> pointers;
      plumb_norm_call call = all;
      call.scratch = scratch.data();
      call.err = nullptr;
      call.err_cap = 0;
      if (forward) {
        Expect(check::Forward(instance_, call, r0, r1), "forward", r0, r1);
        return;
      }
      std::vector<Rows>& own = partials[static_cast<size_t>(i)];
      for (uint32_t k = 0; k < dparams.size(); ++k) {
        own.push_back(TensorOf(instance_.param(k), AccumulateType(dtype_)));
        own.back().Fill(0);
        pointers.push_back(own.back().data());
      }
      call.dparams = pointers.data();
      Expect(check::Backward(instance_, call, r0, r1), "backward", r0, r1);
    });
  }
  for (const std::vector<Rows>& own : partials) {
    for (size_t k = 0; k < own.size(); ++k) {
      for (int64_t i = 0; i < own[k].width(); ++i) {
        dparams[k].Set(0, i, dparams[k].Get(0, i) + own[k].Get(0, i));
      }
    }
  }
}

Outcome NormRun::Results() const {
  Outcome outcome{y.Values(), saved.Values(), dx.Values(), call_saved.Values(), {},
                  {},         dx2.Values()};
  for (const Rows& rows : dparams) outcome.dparams.push_back(rows.Values());
  for (const Rows& rows : buffers) outcome.buffers.push_back(rows.Values());
  return outcome;
}

std::string NormRun::PaddingDamage() const {
  const auto damage = [](const char* name, const Rows& rows) {
    const std::string text = rows.PaddingDamage();
    return text.empty() ? text : name + (": " + text);
  };
  std::string text;
  const std::pair<const char*, const Rows*> named[] = {{"x", &x},
                                                       {"y", &y},
                                                       {"dy", &dy},
                                                       {"dx", &dx},
                                                       {"x2", &x2},
                                                       {"dx2", &dx2},
                                                       {"saved", &saved},
                                                       {"call_saved", &call_saved},
                                                       {"scratch", &scratch_.bytes()}};
  for (const auto& [name, rows] : named) {
    if (text.empty()) text = damage(name, *rows);
  }
  const std::pair<const char*, const std::vector<Rows>*> lists[] = {
      {"params", &params}, {"dparams", &dparams}, {"buffers", &buffers}};
  for (const auto& [name, list] : lists) {
    for (size_t i = 0; i < list->size() && text.empty(); ++i) {
      const std::string full = std::string(name) + "[" + std::to_string(i) + "]";
      text = damage(full.c_str(), (*list)[i]);
    }
  }
  return text;
}

void NormRun::FillPadding(Rows::Padding pattern) {
  for (Rows* rows : {&x, &y, &dy, &dx, &x2, &dx2, &saved}) rows->FillPadding(pattern);
}

}  // namespace plumb::check
