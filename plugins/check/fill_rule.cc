// SPDX-License-Identifier: Apache-2.0
// Rule M6: initial values that the norm writes itself (PLUMB_INIT_FILL).
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/process_state.h"
#include "plugins/check/rows.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

using Floats = std::vector<float>;

constexpr int64_t kMaxFilled = int64_t{1} << 22;
constexpr uint64_t kSeeds[] = {0, 1, 2, ~uint64_t{0}, 0x8000000000000000u, 0x123456789abcdefu};

// Calls fill with values at the start or the end of accessible memory. Ends the check if a
// requirement is violated that does not depend on the values.
Floats FillOnce(const Instance& instance, uint32_t tensor, uint64_t seed, bool at_end = true) {
  constexpr char kThere = 0x55;
  constexpr size_t kErrorCapacity = 7;
  Place place;
  place.flush = at_end ? Place::Flush::kEnd : Place::Flush::kStart;
  Rows rows(PLUMB_DTYPE_F32, 1, ElementsOf(instance.tensor(tensor)), place);
  rows.Fill(0);
  char err[64];
  std::memset(err, kThere, sizeof(err));
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = tensor;
  call.seed = seed;
  call.elements = rows.width();
  call.values = static_cast<float*>(rows.data());
  if (seed % 2 == 0) call.err = err, call.err_cap = kErrorCapacity;
  const plumb_fill_call before = call;
  int64_t left = 0;
  plumb_status status = PLUMB_OK;
  {
    const AllocationWatch watch;
    status = Fill(instance, call);
    left = watch.outstanding();
  }
  const auto* values = static_cast<const float*>(rows.data());
  const Floats filled(values, values + rows.width());
  const auto wrong = std::find_if_not(filled.begin(), filled.end(),
                                      [](float value) { return std::isfinite(value); });
  std::string problem;
  if (status != PLUMB_OK) {
    problem = absl::StrCat("answers ", StatusText(status));
  } else if (const std::string damage = rows.PaddingDamage(); !damage.empty()) {
    problem = absl::StrCat("writes outside of the values: ", damage);
  } else if (std::memcmp(&before, &call, sizeof(call)) != 0) {
    problem = "writes into the call, which is the host's";
  } else if (std::any_of(err + kErrorCapacity, std::end(err), [](char c) { return c != kThere; })) {
    problem = absl::StrCat("writes beyond ", kErrorCapacity, " bytes of room for a message");
  } else if (left > 0) {
    problem = absl::StrCat("leaves ", left, " blocks of memory");
  } else if (wrong != filled.end()) {
    problem = absl::StrFormat("value %d is %g, must be finite", wrong - filled.begin(), *wrong);
  }
  if (!problem.empty()) throw CheckEnded{absl::StrCat("seed ", seed, ": ", problem)};
  return filled;
}

// Returns true if all bits are equal, except for denormals, which may count as zero.
bool SameFloats(const Floats& a, const Floats& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    const bool tiny = std::abs(a[i]) < std::numeric_limits<float>::min() &&
                      std::abs(b[i]) < std::numeric_limits<float>::min();
    if (!tiny && std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return false;
  }
  return true;
}

// Fills again: in another order, with another instance, on threads, and with denormals flushed.
std::string TryTensor(const Instance& instance, const Instance& other, uint32_t tensor) {
  constexpr size_t kCount = std::size(kSeeds);
  ProcessWatch watch;
  std::vector<Floats> must;
  std::string text;
  for (const uint64_t seed : kSeeds) must.push_back(FillOnce(instance, tensor, seed));
  for (size_t k = kCount; k-- > 0;) {
    const ScopedFlushing flushing(k == 5);
    if (!SameFloats(FillOnce(instance, tensor, kSeeds[k], false), must[k])) {
      text = "other values when it is called again, after other seeds";
    } else if (!SameFloats(FillOnce(other, tensor, kSeeds[k]), must[k])) {
      text = "other values in a second instance";
    }
  }
  std::atomic<bool> differs{false};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 3; ++t) {
    threads.emplace_back([&, t] {
      try {
        for (size_t k = t; k < t + 4 * kCount && !differs; ++k) {
          const Instance& of = k / kCount % 2 == 0 ? instance : other;
          if (!SameFloats(FillOnce(of, tensor, kSeeds[k % kCount]), must[k % kCount]))
            differs = true;
        }
      } catch (const CheckEnded&) {
        differs = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (differs) text = "other values when other threads call it too";
  const std::string changes = watch.End();
  return changes.empty() ? text : "changes of the process: " + changes;
}

}  // namespace

void CheckFill(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  bool any = false;
  for (size_t c = 0; c < CountOfSingleCases(norm); ++c) {
    const AttributeCase& each = CasesOf(norm)[c];
    for (const uint32_t dim : {1, 2, 3, 8, 17, 64, 100, 768, 4096}) {
      for (const uint32_t heads : {0, 3}) {
        const std::unique_ptr<Instance> instance = TryInstance(norm, dim, each.values, heads);
        if (instance == nullptr) continue;
        const Instance other(norm, dim, each.values, heads);
        const plumb_norm_layout& layout = instance->layout();
        for (uint32_t t = 0; t < layout.n_params + layout.n_buffers; ++t) {
          const plumb_tensor_def& def = instance->tensor(t);
          if (!IsFilled(*instance, t) || ElementsOf(def) > kMaxFilled) continue;
          any = true;
          std::string text;
          try {
            text = TryTensor(*instance, other, t);
          } catch (const CheckEnded& ended) {
            text = ended.text;
          }
          if (text.empty()) continue;
          return report->Fail(absl::StrCat("fill of ", def.name, " dim=", dim,
                                           heads > 0 ? " heads=3" : "",
                                           each.name.empty() ? "" : " ", each.name, ": ", text));
        }
      }
    }
  }
  if (!any) report->Skip("the host draws all of its initial values");
}

}  // namespace plumb::check
