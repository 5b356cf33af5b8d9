// M6: initial values that the norm writes itself (PLUMB_INIT_FILL).
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plugins/check/calls.h"
#include "plugins/check/float_state.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/checks.h"
#include "plugins/check/cases.h"
#include "plugins/check/process_state.h"
#include "plugins/check/rows.h"
#include "plugins/check/silence.h"

namespace plumb::check {
namespace {

using Floats = std::vector<float>;

constexpr uint32_t kFilledDims[] = {1, 2, 3, 8, 17, 64, 100, 768, 4096};
constexpr uint32_t kFilledHeads[] = {0, 3};
constexpr int64_t kMostFilled = int64_t{1} << 22;
constexpr uint64_t kSeeds[] = {0, 1, 2, ~uint64_t{0}, 0x8000000000000000u, 0x123456789abcdefu};

struct Filled {
  plumb_status status = PLUMB_OK;
  Floats values;
  std::string problem;  // what was touched that is not the call's
};

// One call of fill, with the values at the begin or the end of memory.
Filled FillOnce(const Instance& instance, uint32_t tensor, uint64_t seed, bool at_end = true,
                char* err = nullptr, size_t cap = 0) {
  const int64_t elements = ElementsOf(instance.tensor(tensor));
  Place place;
  place.flush = at_end ? Place::Flush::kEnd : Place::Flush::kStart;
  Rows rows(PLUMB_F32, 1, elements, place);
  rows.Fill(0);
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = tensor;
  call.seed = seed;
  call.elements = elements;
  call.values = static_cast<float*>(rows.data());
  call.err = err;
  call.err_cap = cap;
  const plumb_fill_call before = call;
  Filled filled;
  filled.status = Fill(instance, call);
  const auto* values = static_cast<const float*>(rows.data());
  filled.values.assign(values, values + elements);
  if (const std::string damage = rows.PaddingDamage(); !damage.empty()) {
    filled.problem = absl::StrCat("writes beside the values: ", damage);
  } else if (std::memcmp(&before, &call, sizeof(call)) != 0) {
    filled.problem = "writes into the call, which is the host's";
  }
  return filled;
}

bool SameFloats(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// Equal but for denormals, which may count as zero.
bool SameButDenormals(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool tiny = std::abs(a[i]) < std::numeric_limits<float>::min() &&
                      std::abs(b[i]) < std::numeric_limits<float>::min();
    if (!tiny && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

// The values of each seed; a problem for status, memory and numbers.
std::string FillSeeds(const Instance& instance, uint32_t tensor, std::vector<Floats>* all) {
  for (const uint64_t seed : kSeeds) {
    char err[256] = "";
    const Filled filled = FillOnce(instance, tensor, seed, seed % 2 == 0, err, sizeof(err));
    err[sizeof(err) - 1] = '\0';
    if (filled.status != PLUMB_OK) {
      return absl::StrCat("seed ", seed, ": answers ", StatusText(filled.status),
                          err[0] == '\0' ? "" : ": ", err);
    }
    if (!filled.problem.empty()) return filled.problem;
    const auto wrong = std::find_if_not(filled.values.begin(), filled.values.end(),
                                        [](float value) { return std::isfinite(value); });
    if (wrong != filled.values.end()) {
      return absl::StrFormat("seed %d: value %d is %g, must be finite", seed,
                             wrong - filled.values.begin(), *wrong);
    }
    all->push_back(filled.values);
  }
  return "";
}

// The same again: in another order, of another instance, on threads, without room for words.
std::string FillAgain(const Instance& instance, const Instance& other, uint32_t tensor,
                      const std::vector<Floats>& must) {
  constexpr size_t kCount = std::size(kSeeds);
  for (size_t k = kCount; k-- > 0;) {
    if (!SameFloats(FillOnce(instance, tensor, kSeeds[k], k % 2 == 1).values, must[k])) {
      return absl::StrCat("seed ", kSeeds[k],
                          ": gives other values when it is called again, after other seeds");
    }
    if (!SameFloats(FillOnce(other, tensor, kSeeds[k]).values, must[k])) {
      return absl::StrCat("seed ", kSeeds[k], ": a second instance gives other values");
    }
  }
  {
    const ScopedFlushing flushing(true);
    if (!SameButDenormals(FillOnce(instance, tensor, kSeeds[5]).values, must[5])) {
      return "gives other values with denormals flushed";
    }
  }
  constexpr int kThreads = 3, kRounds = 4;
  std::atomic<bool> differs{false};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (size_t k = t; k < t + kRounds * kCount && !differs; ++k) {
          const Instance& of = k / kCount % 2 == 0 ? instance : other;
          if (!SameFloats(FillOnce(of, tensor, kSeeds[k % kCount]).values, must[k % kCount])) {
            differs = true;
          }
        }
      } catch (const CheckEnded&) {
        differs = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return differs ? "gives other values when other threads call it too" : "";
}

// Words, memory that runs out, and what is left of the process.
std::string FillCleanly(const Instance& instance, uint32_t tensor, const Floats& must) {
  constexpr char kThere = 0x55;
  for (const size_t cap : {size_t{0}, size_t{1}, size_t{7}}) {
    std::string room(64, kThere);
    FillOnce(instance, tensor, kSeeds[0], true, room.data(), cap);
    if (room.find_first_not_of(kThere, cap) != std::string::npos) {
      return absl::StrCat("writes words beyond ", cap, " bytes of room");
    }
  }
  const FloatState floats = FloatState::Current();
  const ProcessState before = ProcessState::Take();
  int64_t printed = 0;
  {
    Silence silence;
    FillOnce(instance, tensor, kSeeds[0]);
    printed = silence.End();
  }
  const bool same_modes = FloatState::Current() == floats;
  floats.Apply();
  std::vector<std::string> changes = before.ChangesSince();
  if (!same_modes) changes.push_back("rounding or flushing is another");
  if (printed > 0) changes.push_back(absl::StrCat(printed, " bytes are printed"));
  if (!changes.empty()) return "changes the process: " + absl::StrJoin(changes, "; ");
  if (!AllocationsAreSeen()) return "";
  Floats values(must.size());
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = tensor;
  call.seed = kSeeds[0];
  call.elements = static_cast<int64_t>(values.size());
  call.values = values.data();
  constexpr int64_t kMostFailures = 50;
  for (int64_t k = 0; k <= kMostFailures; ++k) {
    std::fill(values.begin(), values.end(), 0.0f);
    plumb_status status = PLUMB_OK;
    int64_t left = 0, allocations = 0;
    {
      AllocationWatch watch;
      if (k > 0) watch.FailAt(k);
      status = Fill(instance, call);
      allocations = watch.allocations();
      left = watch.outstanding();
    }
    if (left > 0) return absl::StrCat("leaves ", left, " blocks of memory");
    if (status == PLUMB_OK && !SameFloats(values, must)) {
      return absl::StrCat("answers OK with other values when allocation ", k, " fails");
    }
    if (allocations < std::max<int64_t>(k, 1)) break;
  }
  return "";
}

// Whether the clock has to do with it.
std::string FillLater(const Instance& instance, uint32_t tensor, const Floats& must) {
  for (const time_t start = time(nullptr); time(nullptr) == start;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return SameFloats(FillOnce(instance, tensor, kSeeds[0]).values, must)
             ? ""
             : "gives other values a second later";
}

std::string TryTensor(const Instance& instance, const Instance& other, uint32_t tensor,
                      bool* waited) {
  std::vector<Floats> values;
  std::string text = FillSeeds(instance, tensor, &values);
  if (text.empty()) text = FillAgain(instance, other, tensor, values);
  if (text.empty()) text = FillCleanly(instance, tensor, values[0]);
  if (text.empty() && !*waited) {
    *waited = true;
    text = FillLater(instance, tensor, values[0]);
  }
  return text;
}

}  // namespace

void CheckFill(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  bool any = false, waited = false;
  for (const AttributeCase& c : AttributeCases(norm)) {
    for (const uint32_t dim : kFilledDims) {
      for (const uint32_t heads : kFilledHeads) {
        if (TryInstance(norm, dim, c.values, heads) == nullptr) continue;
        const Instance instance(norm, dim, c.values, heads), other(norm, dim, c.values, heads);
        const plumb_norm_layout& layout = instance.layout();
        for (uint32_t t = 0; t < layout.n_params + layout.n_buffers; ++t) {
          const plumb_tensor_def& def = instance.tensor(t);
          const std::string who =
              absl::StrCat("fill of ", def.name, " dim=", dim, heads > 0 ? " heads=3" : "",
                           c.is_default() ? "" : " ", c.name);
          if (def.init != PLUMB_INIT_FILL && FillOf(instance, t) != nullptr) {
            return report->Fail(absl::StrCat(who, ": is there, and `init` is another kind"));
          }
          if (!IsFilled(instance, t) || ElementsOf(def) > kMostFilled) continue;
          any = true;
          const std::string text = TryTensor(instance, other, t, &waited);
          if (!text.empty()) return report->Fail(absl::StrCat(who, ": ", text));
        }
      }
    }
  }
  if (!any) report->Skip("the host draws all of its initial values");
}

}  // namespace plumb::check
