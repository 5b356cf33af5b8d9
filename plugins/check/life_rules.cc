// Rules of create, layout and destroy, in any dim and with any attributes, refused ones too: what
// they leave of the process, of memory, of strings that the host frees or that are long, and of each
// other.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plugins/check/rules.h"
#include "plugins/check/float_state.h"
#include "plugins/check/guarded.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/process_state.h"
#include "plugins/check/silence.h"

namespace plumb::check {
namespace {

using AttributeValues = std::vector<plumb_attr_value>;

// The values with strings of their own, which are overwritten when the object ends.
class HeapValues {
 public:
  explicit HeapValues(AttributeValues values) : values_(std::move(values)) {
    for (plumb_attr_value& value : values_) {
      if (value.s == nullptr) continue;
      copies_.push_back(std::make_unique<std::string>(value.s));
      value.s = copies_.back()->c_str();
    }
  }
  ~HeapValues() {
    for (const auto& copy : copies_) std::fill(copy->begin(), copy->end(), '?');
    const double nan = std::numeric_limits<double>::quiet_NaN();
    std::fill(values_.begin(), values_.end(), plumb_attr_value{nan, -1, nullptr});
  }
  HeapValues(const HeapValues&) = delete;
  HeapValues& operator=(const HeapValues&) = delete;
  const plumb_attr_value* data() const { return values_.data(); }

 private:
  AttributeValues values_;
  std::vector<std::unique_ptr<std::string>> copies_;
};

// Values that the schema forbids, one attribute each, and strings, of which a norm may take any.
std::vector<AttributeValues> RefusedValues(const plumb_norm_plugin& norm) {
  std::vector<AttributeValues> all;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const plumb_attr_def& def = AttrOf(norm, i);
    AttributeValues values = DefaultValues(norm);
    if (def.type == PLUMB_ATTR_F64) {
      values[i].f = std::isnan(def.max) ? std::numeric_limits<double>::quiet_NaN() : def.max + 1;
    } else if (def.type == PLUMB_ATTR_I64 && !std::isnan(def.min)) {
      values[i].i = static_cast<int64_t>(def.min) - 1;
    } else if (def.type == PLUMB_ATTR_ENUM) {
      values[i].s = "no such choice";
    } else if (def.type == PLUMB_ATTR_STRING) {
      // A number, which is read by the rules of a locale, and no number.
      values[i].s = "0.75";
      all.push_back(values);
      values[i].s = "no such word";
    } else {
      continue;
    }
    all.push_back(std::move(values));
  }
  return all;
}

// create, layout and destroy; `err` as given. What was left behind by it, in blocks.
int64_t Live(const plumb_norm_plugin& norm, uint32_t dim, const plumb_attr_value* values, char* err,
             size_t cap) {
  plumb_norm_instance* instance = nullptr;
  plumb_norm_layout layout{};
  layout.struct_size = sizeof(layout);
  AllocationWatch watch;
  const plumb_status status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&TestHost(), dim, values, &instance, err, cap);
  });
  if (status != PLUMB_OK) return watch.outstanding();
  Guarded(Function::kLayout, dim, [&] { return norm.layout(instance, &layout); });
  Guarded(Function::kDestroy, dim, [&] { norm.destroy(instance); });
  return watch.outstanding();
}

// The process at a moment.
struct Moment {
  const ProcessState process = ProcessState::Take();
  const FloatState floats = FloatState::Current();

  // What differs now, but for the floating-point modes, which must be `wanted` and are left so.
  std::vector<std::string> ChangesSince(const FloatState& wanted) const {
    const FloatState now = FloatState::Current();
    floats.Apply();
    std::vector<std::string> changes = process.ChangesSince();
    wanted.Apply();
    if (!(now == wanted)) {
      changes.push_back(
          absl::StrCat("floating-point modes are ", now.Text(), ", were ", wanted.Text()));
    }
    return changes;
  }
};

// Something between two moments of the process.
class ProcessWatch {
 public:
  std::string End() {
    const int64_t printed = silence_.End();
    std::vector<std::string> changes = before_.ChangesSince(before_.floats);
    if (printed > 0) changes.push_back(absl::StrCat(printed, " bytes are printed"));
    return absl::StrJoin(changes, "; ");
  }

 private:
  const Moment before_ = {};
  Silence silence_;
};

// Words for a host that has room for few of them: what lies behind the room, and the NUL in it.
std::string WordsBeyond(const plumb_norm_plugin& norm, uint32_t dim,
                        const plumb_attr_value* values) {
  constexpr char kThere = 0x55;
  for (const size_t cap : {size_t{0}, size_t{1}, size_t{7}}) {
    std::string room(64, kThere);
    Live(norm, dim, values, room.data(), cap);
    if (room.find_first_not_of(kThere, cap) != std::string::npos) {
      return absl::StrCat("create writes words beyond ", cap, " bytes of room");
    }
    const bool written = room.find_first_not_of(kThere) != std::string::npos;
    if (written && room.find('\0') >= cap) {
      return absl::StrCat("create writes words without a NUL into ", cap, " bytes of room");
    }
  }
  return "";
}

std::string WatchLife(const plumb_norm_plugin& norm, uint32_t dim, const AttributeValues& values,
                      const char* which) {
  char err[256] = {};
  ProcessWatch watch;
  // The first time may allocate what all share.
  Live(norm, dim, values.data(), err, sizeof(err));
  const int64_t left = Live(norm, dim, values.data(), err, sizeof(err));
  const std::string room(sizeof(err), 0x55);
  std::memcpy(err, room.data(), sizeof(err));
  Live(norm, dim, values.data(), nullptr, 0);  // a host may not want words
  const bool kept = std::memcmp(err, room.data(), sizeof(err)) != 0;
  std::string changes = watch.End();
  if (changes.empty()) changes = WordsBeyond(norm, dim, values.data());
  const std::string where = absl::StrCat("create and destroy with dim=", dim, which);
  if (kept) return absl::StrCat(where, " write to the room for words of an earlier call");
  if (!changes.empty()) return absl::StrCat(where, " change the process: ", changes);
  if (AllocationsAreSeen() && left > 0) {
    return absl::StrCat(where, " leave ", left, " blocks of memory");
  }
  return "";
}

// Every number of a layout: a copy that can be compared.
std::string TextOfLayout(const Instance& instance) {
  const plumb_norm_layout& l = instance.layout();
  const auto describe = [](const plumb_tensor_def& def) {
    std::string dims;
    for (uint32_t i = 0; i < std::min(def.ndim, 4u); ++i) absl::StrAppend(&dims, " ", def.dims[i]);
    return absl::StrCat(" ", def.name, ":", dims, " ", def.init, " ", def.init_a, " ", def.init_b,
                        " ", def.lr_scale, " ", def.offset, " ", def.flags);
  };
  std::string text = absl::StrCat(l.saved_per_row, " ", l.saved_per_call, " ", l.partial_elems, " ",
                                  l.scratch_bytes, " ", l.scratch_bytes_per_row);
  for (uint32_t i = 0; i < l.n_params; ++i) {
    absl::StrAppend(&text, describe(instance.param(i)));
  }
  for (uint32_t i = 0; i < l.n_buffers; ++i) {
    absl::StrAppend(&text, describe(instance.buffer(i)));
  }
  return text;
}

// What one of several threads creates, and y of it.
struct Creation {
  uint32_t dim = 0;
  AttributeValues values;
  Point point;
  Operands operands;
  std::string layout;
  std::vector<double> y;
};

std::vector<Creation> CreationsAt(const plumb_norm_plugin& norm, const Point& point) {
  std::vector<Creation> creations;
  const std::vector<AttributeCase>& cases = ExploredCases(norm);
  for (int64_t k = 0; k < 4; ++k) {
    Point at = Plain(point);
    at[kDim] = point[kDim] * (k + 1);
    at[kAttributes] = (point[kAttributes] + k) % static_cast<int64_t>(cases.size());
    at[kRows] = at[kTo] = 2;
    at[kType] = 0;
    const std::unique_ptr<Instance> instance = InstanceAt(norm, at);
    if (instance == nullptr) continue;
    Creation creation;
    creation.dim = static_cast<uint32_t>(at[kDim]);
    creation.values = cases[static_cast<size_t>(at[kAttributes])].values;
    creation.point = at;
    creation.operands = OperandsAt(*instance, at);
    creation.layout = TextOfLayout(*instance);
    creation.y = PlainY(*instance, at, PLUMB_F32, creation.operands);
    creations.push_back(std::move(creation));
  }
  return creations;
}

// Instances that live at the same time, of other dims and attributes, and the end of one of them
// change nothing of the others.
std::string LiveTogether(const plumb_norm_plugin& norm, const Point& point) {
  std::vector<Creation> creations = CreationsAt(norm, point);
  if (creations.empty()) return "";
  // The same again, and the same dim with other attributes.
  creations.push_back(creations[0]);
  Point other = point;
  const auto cases = static_cast<int64_t>(ExploredCases(norm).size());
  for (int64_t k = 1; k <= 4; ++k) {
    other[kAttributes] = (point[kAttributes] + k * 7 + 1) % cases;
    for (const Creation& creation : CreationsAt(norm, other)) {
      if (creation.dim == creations[0].dim) creations.push_back(creation);
    }
  }
  std::vector<std::unique_ptr<Instance>> instances;
  for (const Creation& creation : creations) {
    instances.push_back(std::make_unique<Instance>(norm, creation.dim, creation.values));
  }
  const auto look = [&](size_t from) -> std::string {
    for (size_t k = from; k < creations.size(); ++k) {
      const Creation& own = creations[k];
      const bool laid_out = TextOfLayout(*instances[k]) == own.layout;
      if (laid_out &&
          FirstDifference("y", PlainY(*instances[k], own.point, PLUMB_F32, own.operands), own.y,
                          own.dim)
              .empty()) {
        continue;
      }
      return absl::StrCat("dim=", own.dim, ": an instance among others ",
                          laid_out ? "computes" : "is laid out", " otherwise than alone");
    }
    return "";
  };
  std::string text = look(0);
  instances[0].reset();
  if (text.empty()) text = look(1);
  if (!text.empty()) return text;
  // A layout depends on nothing but attributes and dim.
  const char* old = std::getenv("OMP_NUM_THREADS");
  const std::string kept = old == nullptr ? "" : old;
  setenv("OMP_NUM_THREADS", "1", 1);
  std::string layout;
  {
    const Instance again(norm, creations[0].dim, creations[0].values);
    layout = TextOfLayout(again);
  }
  old == nullptr ? unsetenv("OMP_NUM_THREADS") : setenv("OMP_NUM_THREADS", kept.c_str(), 1);
  if (layout == creations[0].layout) return "";
  return absl::StrCat("dim=", creations[0].dim,
                      ": the layout depends on OMP_NUM_THREADS in the environment");
}

// Threads create instances at once; each must get its own.
std::string CreateAtOnce(const plumb_norm_plugin& norm, const Point& point) {
  constexpr auto kTime = std::chrono::milliseconds(30);
  constexpr int kFewest = 60;  // on a machine that is busy with others
  const std::vector<Creation> creations = CreationsAt(norm, point);
  if (creations.size() < 2) return "";
  std::atomic<int> wrong{-1};
  std::atomic<size_t> ready{0};
  std::vector<std::thread> threads;
  for (size_t k = 0; k < creations.size(); ++k) {
    threads.emplace_back([&, k] {
      const Creation& own = creations[k];
      for (++ready; ready < creations.size();) std::this_thread::yield();
      const auto end = std::chrono::steady_clock::now() + kTime;
      try {
        for (int i = 0; wrong < 0 && (i < kFewest || std::chrono::steady_clock::now() < end); ++i) {
          const Instance instance(norm, own.dim, own.values);
          const bool same =
              TextOfLayout(instance) == own.layout &&
              FirstDifference("y", PlainY(instance, own.point, PLUMB_F32, own.operands), own.y,
                              own.dim)
                  .empty();
          if (!same) wrong = static_cast<int>(k);
        }
      } catch (const CheckEnded&) {
        wrong = static_cast<int>(k);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (wrong < 0) return "";
  return absl::StrCat("create dim=", creations[static_cast<size_t>(wrong.load())].dim,
                      " while other threads create gives another instance");
}

// y of an instance whose attributes' strings are gone.
std::string ForgetStrings(const plumb_norm_plugin& norm, const Point& point,
                          const AttributeValues& values) {
  const Instance kept(norm, static_cast<uint32_t>(point[kDim]), values);
  std::unique_ptr<Instance> forgotten;
  {
    const HeapValues heap(values);
    forgotten =
        std::make_unique<Instance>(norm, static_cast<uint32_t>(point[kDim]),
                                   AttributeValues(heap.data(), heap.data() + values.size()));
  }
  Point small = Plain(point);
  small[kRows] = small[kTo] = std::min<int64_t>(point[kRows], 4);
  const Operands operands = OperandsAt(kept, small);
  const Outcome must = RunAt(kept, small, TypeOf(point), operands).outcome;
  const Outcome got = RunAt(*forgotten, small, TypeOf(point), operands).outcome;
  const std::string text = FirstDifference(got, must, point[kDim]);
  return text.empty() ? text
                      : absl::StrCat("dim=", point[kDim],
                                     " after the strings given to create were overwritten: ", text);
}

// What a process sees of an instance whose first it is: its layout, and y.
std::string TextOf(const std::string& layout, const std::vector<double>& y) {
  return absl::StrCat(
      layout, "\n", std::string(reinterpret_cast<const char*>(y.data()), y.size() * sizeof(y[0])));
}

// Strings of any length that differ in how often `fill` is repeated.
struct StringPattern {
  std::string head, fill, tail, other_tail;  // without another tail there is one string
  std::string With(size_t times, const std::string& end) const {
    std::string text = head;
    for (size_t i = 0; i < times; ++i) text += fill;
    return text + end;
  }
};

// Layout and y with one string; "" where create refuses it.
std::string AnswerToString(const plumb_norm_plugin& norm, const Point& point,
                           AttributeValues values, size_t attribute, const std::string& text) {
  values[attribute].s = text.c_str();
  const std::unique_ptr<Instance> instance =
      TryInstance(norm, static_cast<uint32_t>(point[kDim]), values);
  if (instance == nullptr) return "";
  return TextOf(TextOfLayout(*instance),
                PlainY(*instance, point, PLUMB_F32, OperandsAt(*instance, point)));
}

// A long string is refused, or all of it counts: repetitions that change nothing in short strings
// change nothing in long ones, and an end that counts in short strings counts in long ones.
std::string TakeWhole(const plumb_norm_plugin& norm, const Point& point, size_t attribute,
                      const AttributeValues& values, const StringPattern& pattern) {
  constexpr size_t kShort = 3, kMaxLength = 4096;  // of the host
  const auto answer = [&](size_t times, const std::string& tail) {
    return AnswerToString(norm, point, values, attribute, pattern.With(times, tail));
  };
  bool fill_is_nothing = true, end_counts = !pattern.other_tail.empty();
  const std::string first = answer(1, pattern.tail);
  for (size_t times = 1; times <= kShort; ++times) {
    const std::string one = answer(times, pattern.tail);
    fill_is_nothing = fill_is_nothing && one == first;
    end_counts = end_counts && one != answer(times, pattern.other_tail);
    if (one.empty()) return "";
  }
  const size_t ends = pattern.head.size() + pattern.tail.size();
  for (size_t room = 16; room <= kMaxLength; room *= 2) {
    for (const size_t length : {room, std::min(room + 1, kMaxLength)}) {
      const size_t times = (length - std::min(length, ends)) / pattern.fill.size();
      const std::string one = answer(times, pattern.tail);
      if (one.empty()) continue;
      const std::string text = absl::StrCat(
          "dim=", point[kDim], ": attribute ", AttrOf(norm, static_cast<uint32_t>(attribute)).name,
          " of ", ends + times * pattern.fill.size(), " characters (\"", pattern.head, "\", ",
          times, " times \"", pattern.fill, "\", \"", pattern.tail, "\")");
      if (fill_is_nothing && one != first) {
        return absl::StrCat(text, " gives another instance than with fewer repetitions");
      }
      if (end_counts && one == answer(times, pattern.other_tail)) {
        return absl::StrCat(text, " gives the same instance with \"", pattern.other_tail,
                            "\" at its end, which shorter strings do not");
      }
    }
  }
  return "";
}

std::string TakeLongStrings(const plumb_norm_plugin& norm, const Point& point,
                            const AttributeValues& values) {
  // There are hundreds of instances: not at every point.
  if (point[kDim] > 300 || point[kSeed] % 16 != 0) return "";
  Point small = Plain(point);
  small[kRows] = small[kTo] = 2;
  small[kType] = 0;
  std::string text;
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    if (AttrOf(norm, i).type != PLUMB_ATTR_STRING) continue;
    const std::string usual = values[i].s;
    for (const StringPattern& pattern :
         {StringPattern{"", "a", "1", "2"}, StringPattern{"", "0", "1", "2"},
          StringPattern{"", "1,", "1", "2"}, StringPattern{"", " ", usual, ""},
          StringPattern{usual, "0", "", ""}, StringPattern{usual, ",1", ",1", ",2"}}) {
      if (text.empty()) text = TakeWhole(norm, small, i, values, pattern);
    }
  }
  return text;
}

// `before`: when nothing had been created.
std::optional<std::string> LeavesNothing(const plumb_norm_plugin& norm, const Point& point,
                                         const Moment& before) {
  // Of a point that flushes denormals, those that it has set.
  const FloatState floats = point[kFlushed] == 0 ? before.floats : FloatState::Current();
  if (InstanceAt(norm, point) == nullptr) return std::nullopt;
  const std::vector<std::string> changes = before.ChangesSince(floats);
  if (!changes.empty()) {
    return absl::StrCat(
        "create and destroy with dim=", point[kDim],
        ", or a dim tried before, change the process: ", absl::StrJoin(changes, "; "));
  }
  const std::vector<AttributeCase>& cases = ExploredCases(norm);
  const AttributeCase& attributes = cases[static_cast<size_t>(point[kAttributes])];
  const auto dim = static_cast<uint32_t>(point[kDim]);
  std::string text = WatchLife(norm, dim, attributes.values, "");
  for (const AttributeValues& refused : RefusedValues(norm)) {
    if (!text.empty()) return text;
    text = WatchLife(norm, dim, refused, ", attributes that it may refuse");
  }
  if (text.empty()) text = ForgetStrings(norm, point, attributes.values);
  if (text.empty()) text = TakeLongStrings(norm, point, attributes.values);
  if (text.empty()) text = LiveTogether(norm, point);
  if (text.empty()) text = CreateAtOnce(norm, point);
  return text;
}

// One create, and the destroy that belongs to it if it succeeds.
struct Attempt {
  plumb_status status = PLUMB_OK;
  plumb_norm_instance* out = nullptr;
  int64_t allocations = 0, outstanding = 0;
};

// Calls create with its `k`-th allocation failing, 0: none. `out` holds `before` at first.
Attempt CreateShort(const plumb_norm_plugin& norm, uint32_t dim, int64_t k,
                    plumb_norm_instance* before) {
  const AttributeValues values = DefaultValues(norm);
  char err[256] = {};
  Attempt attempt;
  attempt.out = before;
  AllocationWatch watch;
  if (k > 0) watch.FailAt(k);
  attempt.status = Guarded(Function::kCreate, dim, [&] {
    return norm.create(&TestHost(), dim, values.data(), &attempt.out, err, sizeof(err));
  });
  attempt.allocations = watch.allocations();
  watch.FailAt(0);
  if (attempt.status == PLUMB_OK) {
    Guarded(Function::kDestroy, dim, [&] { norm.destroy(attempt.out); });
  }
  attempt.outstanding = watch.outstanding();
  return attempt;
}

}  // namespace

std::optional<std::string> SurvivesShortMemory(const plumb_norm_plugin& norm, const Point& point) {
  constexpr int64_t kMost = 2000;
  if (!AllocationsAreSeen() || InstanceAt(norm, point) == nullptr) return std::nullopt;
  const auto dim = static_cast<uint32_t>(point[kDim]);
  char untouched_storage = 0;
  auto* const untouched = reinterpret_cast<plumb_norm_instance*>(&untouched_storage);
  CreateShort(norm, dim, 0, nullptr);  // what the first instance of a process allocates for all
  for (int64_t k = 1; k <= kMost; ++k) {
    const Attempt attempt = CreateShort(norm, dim, k, untouched);
    if (attempt.allocations < k) break;  // it needed fewer: all have failed once
    // One that can do without this memory may go on.
    if (attempt.status == PLUMB_OK) continue;
    const std::string where =
        absl::StrCat("create(dim=", dim, ") with allocation ", k, " failing ");
    if (attempt.status != PLUMB_RESOURCE_EXHAUSTED) {
      return absl::StrCat(where, "answers ", StatusText(attempt.status),
                          ", must be RESOURCE_EXHAUSTED");
    }
    if (attempt.out != untouched) return where + "changes *out";
    if (attempt.outstanding > 0) {
      return absl::StrCat(where, "keeps ", attempt.outstanding, " blocks of memory");
    }
  }
  return "";
}

std::optional<std::string> LeavesNothing(const plumb_norm_plugin& norm, const Point& point) {
  constexpr int kRounds = 1000;
  if (point[kFlushed] != 0 || point[kType] != 0 || InstanceAt(norm, point) == nullptr) {
    return std::nullopt;
  }
  const auto dim = static_cast<uint32_t>(point[kDim]);
  const AttributeValues values = DefaultValues(norm);
  const Moment before = {};
  char err[256] = {};
  for (int i = 0; i < kRounds; ++i) {
    const int64_t left = Live(norm, dim, values.data(), err, sizeof(err));
    // The first time may allocate what all share.
    if (i == 0 || left <= 0 || !AllocationsAreSeen()) continue;
    return absl::StrCat("create(dim=", dim, ") and destroy leave ", left, " blocks of memory");
  }
  const std::vector<std::string> changes = before.ChangesSince(before.floats);
  if (changes.empty()) return "";
  return absl::StrCat(kRounds, " pairs of create(dim=", dim,
                      ") and destroy change the process: ", changes.front());
}

void ExploreLife(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  // The very first creation is after this, which looks for the dims that the norm takes: what is
  // set once shows.
  const Moment before = {};
  Explore(
      subject, "X6", [&](const Point& point) { return LeavesNothing(norm, point, before); },
      report);
}

}  // namespace plumb::check
