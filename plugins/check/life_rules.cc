// SPDX-License-Identifier: Apache-2.0
// Rule R4 of create, layout and destroy, for any dim and any attributes, also where create refuses
// or memory runs out: their effects on the process, on memory, on strings that the host frees, and
// on each other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/point_run.h"
#include "plugins/check/process_state.h"
#include "plugins/check/rules.h"
#include "runtime/plugin/descriptor.h"

namespace plumb::check {
namespace {

// Returns values that the schema allows and a norm may refuse for a dim: integers at the upper
// bound or large, such as a number of groups, and long strings. One attribute differs from the
// defaults.
std::vector<AttributeValues> RefusableValues(const plumb_norm_plugin& norm) {
  std::vector<AttributeValues> all;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    AttributeValues values = DefaultValues(norm);
    if (def.type == PLUMB_ATTR_I64) {
      // Two adjacent numbers seldom both divide a dim.
      constexpr double kLarge = 98;
      const double max = std::abs(def.max) < 9e18 ? std::floor(def.max) : kLarge;
      for (const double number : {max, max - 1}) {
        if (number < def.min) continue;
        values[i].i = static_cast<int64_t>(number);
        all.push_back(values);
      }
    } else if (def.type == PLUMB_ATTR_STRING) {
      // A number, whose syntax depends on the locale, and long texts, which fit no fixed buffer.
      static const std::string long_texts[] = {std::string(kMaxNormTextLength, 'a'),
                                               std::string(kMaxNormTextLength, '1')};
      for (const char* const text : {"0.75", long_texts[0].c_str(), long_texts[1].c_str()}) {
        values[i].s = text;
        all.push_back(values);
      }
    }
  }
  return all;
}

// Creates and destroys instances, with room for a message and with little or none.
std::string WatchLife(const plumb_norm_plugin& norm, uint32_t dim, const AttributeValues& values,
                      const char* which) {
  const std::string where = absl::StrCat("create and destroy with dim=", dim, which);
  ProcessWatch watch;
  std::string problem;
  int64_t left = 0;
  for (const int64_t room : {512, 512, 7, 1, 0, -1}) {
    CreateOptions options;
    options.room = room;
    const Created created = TryCreate(norm, dim, values.data(), options);
    if (problem.empty()) problem = created.problem;
    left = created.outstanding;  // the first call may allocate shared memory
  }
  const std::string changes = watch.End();
  if (!changes.empty()) return absl::StrCat(where, " change the process: ", changes);
  if (!problem.empty()) return absl::StrCat(where, ": create ", problem);
  if (AllocationsAreSeen() && left > 0) {
    return absl::StrCat(where, " leave ", left, " blocks of memory");
  }
  return "";
}

// Instance that is created concurrently with others, and its results when alone.
struct Creation {
  Point point;
  AttributeValues values;
  Operands operands;
  std::string layout;
  std::vector<double> y;

  std::unique_ptr<Instance> Create(const plumb_norm_plugin& norm) const {
    return std::make_unique<Instance>(norm, static_cast<uint32_t>(point[kDim]), values);
  }
  // Returns "" if the instance behaves as it does alone.
  std::string Compare(const Instance& instance) const {
    if (TextOfLayout(instance) != layout) return "is laid out otherwise than alone";
    return PlainY(instance, point, PLUMB_DTYPE_F32, operands) == y
               ? ""
               : "computes otherwise than alone";
  }
};

// Returns creations of several dims and attributes; the first two are the same.
std::vector<Creation> CreationsAt(const plumb_norm_plugin& norm, const Point& point) {
  std::vector<Creation> creations;
  const std::vector<AttributeCase>& cases = CasesOf(norm);
  for (int64_t k = 0; k < 8; ++k) {
    Point at = Plain(point);
    at[kDim] = point[kDim] * std::max<int64_t>(k - 3, 1);
    at[kAttributes] = (point[kAttributes] + k * k) % static_cast<int64_t>(cases.size());
    at[kRows] = at[kTo] = 2;
    at[kType] = at[kHeads] = at[kContext] = 0;
    at[kX] = at[kParams] = 0;  // finite
    const std::unique_ptr<Instance> instance = InstanceAt(norm, at);
    if (instance == nullptr) continue;
    Creation creation;
    creation.point = at;
    creation.values = cases[static_cast<size_t>(at[kAttributes])].values;
    creation.operands = OperandsAt(*instance, at);
    creation.layout = TextOfLayout(*instance);
    creation.y = PlainY(*instance, at, PLUMB_DTYPE_F32, creation.operands);
    size_t index;
    if (!AllFinite(creation.y, &index)) continue;
    if (creations.empty()) creations.push_back(creation);
    creations.push_back(std::move(creation));
  }
  return creations;
}

// Fails if instances that live at the same time, or the end of one, affect others.
std::string CheckCoexistence(const plumb_norm_plugin& norm,
                             const std::vector<Creation>& creations) {
  std::vector<std::unique_ptr<Instance>> instances;
  for (const Creation& creation : creations) instances.push_back(creation.Create(norm));
  for (const size_t first : {0, 1}) {
    for (size_t k = first; k < creations.size(); ++k) {
      const std::string text = creations[k].Compare(*instances[k]);
      if (text.empty()) continue;
      return absl::StrCat("dim=", creations[k].point[kDim], ": an instance among others ", text);
    }
    if (!instances.empty()) instances[0].reset();
  }
  return "";
}

// Creates instances on several threads; each thread must get its own.
std::string CreateAtOnce(const plumb_norm_plugin& norm, const std::vector<Creation>& creations) {
  constexpr auto kTime = std::chrono::milliseconds(30);
  constexpr int kMinTries = 60;  // for a machine that is busy
  const size_t count = std::min<size_t>(creations.size(), 5);
  std::atomic<size_t> ready{0};
  std::vector<std::string> wrong(count);
  std::atomic<bool> any{false};
  std::vector<std::thread> threads;
  for (size_t k = 0; k < count; ++k) {
    threads.emplace_back([&, k] {
      for (++ready; ready < count;) std::this_thread::yield();
      const auto end = std::chrono::steady_clock::now() + kTime;
      try {
        for (int i = 0; !any && (i < kMinTries || std::chrono::steady_clock::now() < end); ++i) {
          wrong[k] = creations[k].Compare(*creations[k].Create(norm));
          if (!wrong[k].empty()) any = true;
        }
      } catch (const CheckEnded& ended) {
        wrong[k] = ended.text;
        any = true;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t k = 0; k < count; ++k) {
    if (wrong[k].empty()) continue;
    return absl::StrCat("dim=", creations[k].point[kDim],
                        ": an instance that is created while other threads create ", wrong[k]);
  }
  return "";
}

// Compares an instance with one whose attribute strings are overwritten after create().
std::string OverwriteStrings(const plumb_norm_plugin& norm, const Point& point,
                             AttributeValues values) {
  const Instance kept(norm, static_cast<uint32_t>(point[kDim]), values);
  std::vector<std::string> copies(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].s == nullptr) continue;
    copies[i] = values[i].s;
    values[i].s = copies[i].c_str();
  }
  const Instance forgotten(norm, static_cast<uint32_t>(point[kDim]), values);
  for (std::string& copy : copies) std::fill(copy.begin(), copy.end(), '?');
  Point small = Plain(point);
  small[kRows] = small[kTo] = std::min<int64_t>(point[kRows], 4);
  small[kHeads] = 0;
  const Operands operands = OperandsAt(kept, small);
  const std::string text =
      FirstDifference(OutcomeAt(forgotten, small, operands), OutcomeAt(kept, small, operands));
  return text.empty() ? text
                      : absl::StrCat("dim=", point[kDim],
                                     " after the strings given to create were overwritten: ", text);
}

// Fails unless create() survives each failing allocation.
std::string SurvivesShortMemory(const plumb_norm_plugin& norm, uint32_t dim,
                                const AttributeValues& values) {
  constexpr int64_t kMax = 2000;
  for (int64_t k = 1; k <= kMax && AllocationsAreSeen(); ++k) {
    CreateOptions options;
    options.failing = k;
    const Created created = TryCreate(norm, dim, values.data(), options);
    if (created.allocations < k) break;  // it needed fewer, so all have failed once
    // create() may succeed if it can do without this memory.
    if (created.status == PLUMB_OK) continue;
    const std::string where =
        absl::StrCat("create(dim=", dim, ") with allocation ", k, " failing ");
    if (created.status != PLUMB_STATUS_RESOURCE_EXHAUSTED) {
      return absl::StrCat(where, "answers ", StatusText(created.status),
                          ", must be RESOURCE_EXHAUSTED");
    }
    if (!created.problem.empty()) return where + created.problem;
    if (created.outstanding > 0) {
      return absl::StrCat(where, "keeps ", created.outstanding, " blocks of memory");
    }
  }
  return "";
}

// Checks that nothing is left at a point. `before`: the state before anything was created.
std::optional<std::string> LeavesNothing(const plumb_norm_plugin& norm, const Point& point,
                                         const ProcessState& before) {
  const ScopedFlushing exact(false);  // same mode as `before`
  const AttributeValues& values = CasesOf(norm)[static_cast<size_t>(point[kAttributes])].values;
  const auto dim = static_cast<uint32_t>(point[kDim]);
  if (InstanceAt(norm, point) == nullptr) {
    std::string problem = WatchLife(norm, dim, values, ", which it refuses,");
    if (problem.empty()) return std::nullopt;
    return problem;
  }
  const std::vector<std::string> changes = before.ChangesSince();
  if (!changes.empty()) {
    return absl::StrCat(
        "create and destroy with dim=", point[kDim],
        ", or a dim tried before, change the process: ", absl::StrJoin(changes, "; "));
  }
  std::string text = WatchLife(norm, dim, values, "");
  for (const AttributeValues& refusable : RefusableValues(norm)) {
    if (text.empty()) text = WatchLife(norm, dim, refusable, ", attributes that it may refuse");
  }
  if (text.empty()) text = SurvivesShortMemory(norm, dim, values);
  if (text.empty()) text = OverwriteStrings(norm, point, values);
  const std::vector<Creation> creations = CreationsAt(norm, point);
  if (text.empty()) text = CheckCoexistence(norm, creations);
  if (text.empty()) text = CreateAtOnce(norm, creations);
  return text;
}

}  // namespace

void CheckLife(const Subject& subject, const PointMaker& points, Report* report) {
  // This comes before the very first creation, so that one-time changes are detected.
  const ProcessState before = ProcessState::Take();
  const auto property = [&](const Point& point) {
    return LeavesNothing(*subject.norm, point, before);
  };
  Explore(subject, "R4", property, points(), 0, report);
}

}  // namespace plumb::check
