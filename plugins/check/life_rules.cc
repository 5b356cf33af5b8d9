// SPDX-License-Identifier: Apache-2.0
// Rule R4 of create, layout and destroy, for any dim and any attributes, also where create refuses
// or memory runs out: their effects on the process, on memory, on strings that the host frees, and
// on each other. Rule M6 of fill, with which a norm writes initial values itself.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/state.h"
#include "runtime/plugin/descriptor.h"

namespace plumb::check {
namespace {

// Returns the values of the case, and values that the schema allows and a norm may refuse for a
// dim: integers at the upper bound or large, such as a number of groups, and long strings.
std::vector<AttributeValues> ValuesToTry(const Norm& norm, const AttributeCase& used) {
  // A number, whose syntax depends on the locale, and long texts, which fit no fixed buffer.
  static const std::string texts[] = {"0.75", std::string(kMaxNormTextLength, 'a'),
                                      std::string(kMaxNormTextLength, '1')};
  std::vector<AttributeValues> all = {used.values};
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = GetAttr(norm, i);
    AttributeValues values = DefaultValues(norm);
    // Two adjacent numbers seldom both divide a dim.
    const double max = std::abs(def.max) < 9e18 ? std::floor(def.max) : 98;
    for (const double number : {max, max - 1}) {
      if (def.type != PLUMB_ATTR_I64 || number < def.min) continue;
      values[i].i = static_cast<int64_t>(number);
      all.push_back(values);
    }
    for (const std::string& text : texts) {
      if (def.type != PLUMB_ATTR_STRING) continue;
      values[i].s = text.c_str();
      all.push_back(values);
    }
  }
  return all;
}

// Creates and destroys instances, with room for a message and with little or none.
std::string WatchLife(const Norm& norm, uint32_t dim, const AttributeValues& values) {
  ProcessWatch watch;
  std::string problem;
  size_t left = 0;
  for (const int64_t room : {512, 512, 7, 1, 0, -1}) {
    CreateOptions options;
    options.room = room;
    const Created created = TryCreate(norm, dim, values, options);
    if (problem.empty()) problem = created.problem;
    left = created.blocks.size();  // the first call may allocate shared memory
  }
  const std::string changes = watch.End();
  if (!changes.empty()) return "create and destroy change the process: " + changes;
  if (!problem.empty()) return "create " + problem;
  if (left > 0) return absl::StrCat("create and destroy leave ", left, " blocks of memory");
  return "";
}

// Fails unless create() survives each failing allocation.
std::string SurvivesShortMemory(const Norm& norm, uint32_t dim, const AttributeValues& values) {
  constexpr int64_t kMax = 2000;
  for (int64_t k = 1; k <= kMax && AllocationsAreSeen(); ++k) {
    CreateOptions options;
    options.failing = k;
    const Created created = TryCreate(norm, dim, values, options);
    if (created.allocations < k) break;  // it needed fewer, so all have failed once
    // create() may succeed if it can do without this memory.
    if (created.status == PLUMB_OK) continue;
    const std::string where = absl::StrCat("create with allocation ", k, " failing ");
    if (created.status != PLUMB_STATUS_RESOURCE_EXHAUSTED) {
      return absl::StrCat(where, "answers ", StatusText(created.status),
                          ", must be RESOURCE_EXHAUSTED");
    }
    if (!created.problem.empty()) return where + created.problem;
    if (created.blocks.empty()) continue;
    return absl::StrCat(where, "keeps ", created.blocks.size(), " blocks of memory");
  }
  return "";
}

// Instance that lives next to others, and its results when alone.
struct Life {
  Point point;
  Operands operands;
  std::string layout;
  Values y;

  // Returns "" if the instance behaves as it does alone.
  std::string Compare(const Instance& instance) const {
    if (instance.LayoutText() != layout) return "is laid out otherwise than alone";
    return FirstDifference("y", PlainY(instance, point, PLUMB_DTYPE_F32, operands), y, point[kDim]);
  }
};

// Returns lives of several dims and attributes; the first two are the same.
std::vector<Life> LivesAt(const Norm& norm, const Point& given) {
  std::vector<Life> lives;
  for (int64_t k = 0; k < 8; ++k) {
    Point point{};
    point[kDim] = given[kDim] * std::max<int64_t>(k - 3, 1);
    point[kAttributes] = (given[kAttributes] + k * k) % static_cast<int64_t>(GetCases(norm).size());
    point[kRows] = point[kTo] = 2;
    point[kSeed] = given[kSeed];
    const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
    if (instance == nullptr) continue;
    Life life{point, OperandsAt(*instance, point), instance->LayoutText(), {}};
    life.y = PlainY(*instance, point, PLUMB_DTYPE_F32, life.operands);
    if (FirstNotFinite(life.y) < life.y.size()) continue;
    if (lives.empty()) lives.push_back(life);
    lives.push_back(std::move(life));
  }
  return lives;
}

// Fails if instances that live at the same time, or the end of one, affect others; or if instances
// that several threads create do.
std::string LiveTogether(const Norm& norm, const std::vector<Life>& lives) {
  constexpr int kTries = 100;
  std::vector<std::unique_ptr<Instance>> instances;
  for (const Life& life : lives) instances.push_back(InstanceAt(norm, life.point));
  for (const size_t first : {0, 1}) {
    for (size_t k = first; k < lives.size(); ++k) {
      const std::string text = lives[k].Compare(*instances[k]);
      if (text.empty()) continue;
      return absl::StrCat("an instance of dim ", lives[k].point[kDim], " among others: ", text);
    }
    if (!instances.empty()) instances[0].reset();
  }
  std::vector<std::string> texts(std::min<size_t>(lives.size(), 5));
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (size_t k = 0; k < texts.size(); ++k) {
    threads.emplace_back([&, k] {
      for (++ready; ready < texts.size();) std::this_thread::yield();
      try {
        for (int i = 0; i < kTries && texts[k].empty(); ++i) {
          texts[k] = lives[k].Compare(*InstanceAt(norm, lives[k].point));
        }
      } catch (const CheckEnded& ended) {
        texts[k] = ended.text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) {
    if (!text.empty()) return "an instance, created while other threads create: " + text;
  }
  return "";
}

// Compares an instance with one whose attribute strings are overwritten after create().
std::string OverwriteStrings(const Norm& norm, const Point& point, AttributeValues values) {
  const auto dim = static_cast<uint32_t>(point[kDim]);
  const std::unique_ptr<Instance> kept = Instance::Create(norm, dim, values);
  std::vector<std::string> copies(values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    if (values[i].s == nullptr) continue;
    copies[i] = values[i].s;
    values[i].s = copies[i].c_str();
  }
  const std::unique_ptr<Instance> forgotten = Instance::Create(norm, dim, values);
  for (std::string& copy : copies) std::fill(copy.begin(), copy.end(), '?');
  if (kept == nullptr || forgotten == nullptr) return "";
  Point small = Plain(point);
  small[kRows] = small[kTo] = std::min<int64_t>(point[kRows], 4);
  small[kHeads] = 0;
  const Operands operands = OperandsAt(*kept, small);
  const std::string text =
      FirstDifference(RunAt(*forgotten, small, operands), RunAt(*kept, small, operands));
  return text.empty() ? text : "after the strings given to create were overwritten: " + text;
}

// -- M6 -------------------------------------------------------------------------------------------

// Calls fill with values at the start or the end of accessible memory. Ends the check if a
// requirement is violated that does not depend on the values.
Values FillOnce(const Instance& instance, uint32_t tensor, uint64_t seed, Place::Flush flush) {
  Place place;
  place.flush = flush;
  Rows rows(PLUMB_DTYPE_F32, 1, CountElements(instance.tensor(tensor)), place);
  rows.Fill(0);
  plumb_fill_call call{};
  call.struct_size = sizeof(call);
  call.tensor = tensor;
  call.seed = seed;
  call.elements = rows.width();
  call.values = static_cast<float*>(rows.data());
  size_t left = 0;
  plumb_status status = PLUMB_OK;
  {
    const AllocationWatch watch;
    status = instance.Fill(call);
    left = watch.n_blocks();
  }
  const Values filled = rows.All();
  const std::string damage = rows.PaddingDamage();
  std::string problem;
  if (status != PLUMB_OK) problem = "answers " + StatusText(status);
  if (!damage.empty()) problem = "writes outside of the values: " + damage;
  if (left > 0) problem = absl::StrCat("leaves ", left, " blocks of memory");
  if (FirstNotFinite(filled) < filled.size()) problem = "a value is not finite";
  if (!problem.empty()) throw CheckEnded{absl::StrCat("seed ", seed, ": ", problem)};
  return filled;
}

// Fills again: in another order, with another instance, on threads, and with denormals flushed.
std::string TryTensor(const Instance& instance, const Instance& other, uint32_t tensor) {
  constexpr uint64_t kSeeds[] = {0, 1, ~uint64_t{0}, 0x8000000000000000u, 0x123456789abcdefu};
  constexpr size_t kCount = std::size(kSeeds);
  ProcessWatch watch;
  std::vector<Values> must;
  for (const uint64_t seed : kSeeds) {
    must.push_back(FillOnce(instance, tensor, seed, Place::Flush::kEnd));
  }
  std::atomic<bool> differs{false};
  const auto again = [&](const Instance& own) {
    try {
      for (size_t k = kCount; k-- > 0;) {
        const ScopedFlushing flushing(k == 1);
        const Values got = FillOnce(own, tensor, kSeeds[k], Place::Flush::kStart);
        // Denormals may count as zero.
        const double least = std::numeric_limits<float>::min();
        if (!FirstDeviation("", got, must[k], 1, 0, least).empty()) differs = true;
      }
    } catch (const CheckEnded&) {
      differs = true;
    }
  };
  again(instance);
  again(other);
  std::string text = differs ? "other values when it is called again, or in another instance" : "";
  std::thread first([&] { again(instance); }), second([&] { again(other); });
  first.join();
  second.join();
  if (text.empty() && differs) text = "other values when other threads call it too";
  const std::string changes = watch.End();
  return changes.empty() ? text : "changes of the process: " + changes;
}

}  // namespace

void CheckLife(const Norm& norm, const Explorer& explore, Report*) {
  // This comes before the very first creation, so that one-time changes are detected.
  const ProcessState before = ProcessState::Take();
  explore([&](const Point& point) -> Result {
    const ScopedFlushing exact(false);  // same mode as `before`
    const auto dim = static_cast<uint32_t>(point[kDim]);
    const auto index = static_cast<size_t>(point[kAttributes]);
    if (index >= GetCases(norm).size()) return std::nullopt;
    const AttributeCase& used = GetCases(norm)[index];
    const bool is_made = InstanceAt(norm, point) != nullptr;
    std::string text = before.ChangesSince();
    if (!text.empty()) text = "create and destroy, or those before, change the process: " + text;
    for (const AttributeValues& values : ValuesToTry(norm, used)) {
      if (text.empty()) text = WatchLife(norm, dim, values);
    }
    if (text.empty() && !is_made) return std::nullopt;
    if (text.empty()) text = SurvivesShortMemory(norm, dim, used.values);
    if (text.empty()) text = OverwriteStrings(norm, point, used.values);
    if (text.empty()) text = LiveTogether(norm, LivesAt(norm, point));
    return text.empty() ? text : absl::StrCat("dim=", dim, " ", used.name, ": ", text);
  });
}

void CheckFill(const Subject& subject, Report* report) {
  constexpr int64_t kMaxFilled = int64_t{1} << 22;
  bool any = false;
  for (int64_t i = 0; i < kSingleCases; ++i) {
    for (const Point& point :
         ParsePoints("dim=1|2|3|8|17|64|100|768|4096,rows=6,heads=0|3,type=f32")) {
      Point at = point;
      at[kAttributes] = i;
      const std::unique_ptr<Instance> instance = InstanceAt(*subject.norm, at);
      const std::unique_ptr<Instance> other = InstanceAt(*subject.norm, at);
      for (uint32_t t = 0; instance != nullptr && t < instance->n_tensors(); ++t) {
        const plumb_tensor_def& def = instance->tensor(t);
        if (!instance->IsFilled(t) || CountElements(def) > kMaxFilled) continue;
        any = true;
        const std::string text = TryTensor(*instance, *other, t);
        if (text.empty()) continue;
        return report->Fail(absl::StrCat("fill of ", def.name, ", ", NameOfPoint(at), ": ", text));
      }
    }
  }
  if (!any) report->Skip("the host draws all of its initial values");
}

}  // namespace plumb::check
