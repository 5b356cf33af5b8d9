// SPDX-License-Identifier: Apache-2.0
// Rules R1, R7 and M5 of calls, whatever they compute: calls of hot functions change nothing but
// their results, return, and work with hosts of other versions.
#include <link.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/point_run.h"
#include "plugins/check/process_state.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

// -- Watching calls -------------------------------------------------------------------------------

// Memory together with a copy of its content.
class Snapshot {
 public:
  void Add(const void* begin, size_t size) {
    const auto* bytes = static_cast<const unsigned char*>(begin);
    segments_.push_back({bytes, {bytes, bytes + size}});
  }
  bool Changed() const {
    return std::any_of(segments_.begin(), segments_.end(), [](const Segment& s) {
      return std::memcmp(s.begin, s.copy.data(), s.copy.size()) != 0;
    });
  }

 private:
  struct Segment {
    const unsigned char* begin;
    std::vector<unsigned char> copy;
  };
  std::vector<Segment> segments_;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizerWritesBetweenVariables = true;
#else
constexpr bool kSanitizerWritesBetweenVariables = false;
#endif

// Returns the writable memory of the library that contains `inside`.
Snapshot VariablesOf(const void* inside) {
  struct Search {
    uintptr_t address;
    Snapshot found;
  } search{reinterpret_cast<uintptr_t>(inside), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        bool is_it = false;
        for (const bool is_found : {false, true}) {
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr)& header = info->dlpi_phdr[i];
            if (header.p_type != PT_LOAD) continue;
            const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
            is_it = is_it || (wanted->address >= begin && wanted->address < begin + header.p_memsz);
            if (!is_found || !is_it || (header.p_flags & (PF_W | PF_R)) != (PF_W | PF_R)) continue;
            wanted->found.Add(reinterpret_cast<const void*>(begin), header.p_memsz);
          }
        }
        return is_it ? 1 : 0;
      },
      &search);
  return search.found;
}

// Watch on calls, which looks for what they change.
class CallWatcher {
 public:
  // Creates the instance and records the memory that it allocates. Returns null if it is refused.
  std::unique_ptr<Instance> Create(const plumb_norm_plugin& norm, const Point& point) {
    if (InstanceAt(norm, point) == nullptr) return nullptr;
    const AllocationWatch watch;
    auto instance =
        std::make_unique<Instance>(norm, static_cast<uint32_t>(point[kDim]),
                                   CasesOf(norm)[static_cast<size_t>(point[kAttributes])].values,
                                   static_cast<uint32_t>(point[kHeads]));
    n_blocks_ = LiveBlocks(blocks_, std::size(blocks_));
    return instance;
  }
  // Records the variables and the instance as they must stay. This is done after the first calls,
  // because facts that a norm determines once, such as the instruction set, are not state.
  void TakeState(const plumb_norm_plugin& norm) {
    if (kSanitizerWritesBetweenVariables) return;
    variables_ = VariablesOf(reinterpret_cast<const void*>(norm.create));
    for (size_t i = 0; i < n_blocks_; ++i) instance_.Add(blocks_[i].address, blocks_[i].size);
  }

  template <class Call>
  void Watch(const char* function, const Call& call) {
    const FloatState modes = FloatState::Current();
    const int64_t logs = HostLogs();
    int64_t allocations = 0;
    {
      const AllocationWatch watch;
      call();
      allocations = watch.allocations() + watch.frees();
    }
    const bool same_modes = FloatState::Current() == modes;
    modes.Apply();
    const auto expect = [&](bool holds, const char* what) {
      if (!holds && problem_.empty()) problem_ = absl::StrCat(function, what);
    };
    expect(allocations == 0, " allocates or frees memory");
    expect(HostLogs() == logs, " writes to the host's log");
    expect(same_modes, " changes rounding or flushing");
    expect(!variables_.Changed(), " changes a static or global variable of the library");
    expect(!instance_.Changed(), " changes the instance, which is read-only after create()");
  }
  const std::string& problem() const { return problem_; }

 private:
  Block blocks_[64];
  size_t n_blocks_ = 0;
  Snapshot variables_, instance_;
  std::string problem_;
};

// Makes the calls of a point, with any operands: every hot function of a norm, on all rows and then
// on ranges of them, in training and in evaluation. Allocates memory beforehand, so that the
// checker itself does nothing in the thread during a call. Ignores statuses.
void MakeCalls(const Instance& instance, const Point& point, CallWatcher* watcher) {
  const int64_t rows = point[kRows], half = rows / 2;
  NormRun run(instance, TypeOf(point), rows, 1, {}, false, false);
  const Operands operands = OperandsAt(instance, point);
  AssignTo(operands, &run);
  Rows partial(AccumulateType(run.dtype()), 1, instance.layout().partial_elems);
  Rows total(AccumulateType(run.dtype()), 1, instance.layout().partial_elems);
  const auto statistics = [&](uint32_t phase, const plumb_norm_call& call) {
    total.Fill(0);
    for (const int64_t from : {int64_t{0}, half}) {
      partial.Fill(0);
      watcher->Watch("stats_partial", [&] {
        StatsPartial(instance, phase, call, from, from == 0 ? half : rows, partial.data());
      });
      watcher->Watch("stats_combine",
                     [&] { StatsCombine(instance, phase, call, total.data(), partial.data()); });
    }
    watcher->Watch("stats_finalize", [&] { StatsFinalize(instance, phase, call, total.data()); });
  };
  const std::pair<int64_t, int64_t> ranges[] = {
      {0, rows}, {0, half}, {half, rows}, {rows - 1, rows}, {0, 0}};
  for (const bool train : {true, false}) {
    const plumb_norm_call forward = run.ForwardCall(train);
    if (run.TakesStatistics(train)) statistics(PLUMB_PHASE_FORWARD, forward);
    for (const auto& range : ranges) {
      watcher->Watch("forward", [&] { Forward(instance, forward, range.first, range.second); });
    }
    for (const bool accumulate : {false, true}) {
      if (!train) continue;
      const plumb_norm_call backward = run.BackwardCall(accumulate);
      if (run.TakesStatistics(train)) statistics(PLUMB_PHASE_BACKWARD, backward);
      for (const auto& range : ranges) {
        watcher->Watch("backward",
                       [&] { Backward(instance, backward, range.first, range.second); });
      }
    }
  }
}

// Makes calls in element types that the norm does not offer, one of which no header defines yet,
// with and without a message buffer. They must be refused.
std::string MakeRefusedCalls(const Instance& instance, CallWatcher* watcher) {
  const plumb_norm_plugin& norm = instance.norm();
  std::string text;
  for (const uint32_t type : {1u << 0, 1u << 1, 1u << 2, 1u << 3}) {
    if ((norm.dtypes & type) != 0) continue;
    // Memory of the widest type, so that the plugin stays inside it whatever type it assumes.
    NormRun run(instance, PLUMB_DTYPE_F64, 2, 1);
    Rows partial(PLUMB_DTYPE_F64, 1, instance.layout().partial_elems);
    partial.Fill(0);
    for (const char* function : {"forward", "backward", "stats_partial"}) {
      for (const bool words : {true, false}) {
        const bool forward = function[0] != 'b', statistics = function[0] == 's';
        if (statistics && (norm.flags & PLUMB_NORM_CROSS_ROW) == 0) continue;
        plumb_norm_call call = forward ? run.ForwardCall(true) : run.BackwardCall(false);
        call.dtype = type;
        if (!words) call.err = nullptr, call.err_cap = 0;
        plumb_status status = PLUMB_OK;
        watcher->Watch(function, [&] {
          status = statistics
                       ? StatsPartial(instance, PLUMB_PHASE_FORWARD, call, 0, 2, partial.data())
                   : forward ? Forward(instance, call, 0, 2)
                             : Backward(instance, call, 0, 2);
        });
        if (status == PLUMB_STATUS_UNIMPLEMENTED || !text.empty()) continue;
        text = absl::StrCat(function, "() with dtype ", type, ", which is not offered, answers ",
                            StatusText(status), ", must be UNIMPLEMENTED");
      }
    }
  }
  return text;
}

}  // namespace

std::optional<std::string> ChangesNothing(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  // Numbers are not compared here, so rows may have values that no other rule can judge.
  if (point[kSeed] % 3 == 1) point[kX] = kNanX + point[kSeed] / 3 % 2;
  const ProcessState before = ProcessState::Take();
  CallWatcher watcher;
  const std::unique_ptr<Instance> instance = watcher.Create(norm, point);
  if (instance == nullptr) return std::nullopt;
  Point other = Plain(point);  // another call first, which the norm may remember
  other[kRows] = other[kTo] = std::max<int64_t>(point[kHeads], 1) * 2;
  ++other[kSeed];
  MakeCalls(*instance, other, &watcher);
  watcher.TakeState(norm);
  MakeCalls(*instance, point, &watcher);
  MakeRefusedCalls(*instance, &watcher);
  if (!watcher.problem().empty()) return At(point, watcher.problem());
  const std::vector<std::string> changes = before.ChangesSince();
  if (changes.empty()) return "";
  return At(point, "hot calls change the process: " + absl::StrJoin(changes, "; "));
}

std::optional<std::string> Returns(const plumb_norm_plugin& norm, const Point& given) {
  // Queries without a valid answer or without room for a message.
  char err[8];
  if (norm.available != nullptr) {
    Guarded(Function::kAvailable, 0, [&] { return norm.available(nullptr, 0); });
    Guarded(Function::kAvailable, 0, [&] { return norm.available(err, sizeof(err)); });
  }
  ExtensionOf(norm, "");
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  NormRun none(*instance, TypeOf(point), 0, 1);
  for (const bool train : {false, true}) {
    none.Forward(train);
    if (train) none.Backward();
  }
  PlainRun(*instance, point, TypeOf(point), OperandsAt(*instance, point));
  // Calls without room for a message, and with rows of both infinities.
  NormRun run(*instance, TypeOf(point), point[kRows], 1);
  std::vector<double> infinities = run.x.Values();
  for (size_t i = 0; i < infinities.size(); ++i) infinities[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
  run.x.Assign(infinities);
  for (const bool train : {true, false}) {
    if (run.TakesStatistics(train)) run.Statistics(PLUMB_PHASE_FORWARD, train, run.ChunkRows());
    plumb_norm_call call = run.ForwardCall(train);
    call.err = nullptr, call.err_cap = 0;
    Forward(*instance, call, 0, run.rows());
  }
  if (point[kSeed] % 3 == 1) point[kX] = kNanX + point[kSeed] / 3 % 2;
  CallWatcher ignored;
  MakeCalls(*instance, point, &ignored);
  return "";
}

std::optional<std::string> WorksWithOtherHosts(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> model = InstanceAt(norm, point);
  if (model == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*model, point);
  const Outcome must = OutcomeAt(*model, point, operands);
  for (const HostVersion host : {HostVersion::kFirst, HostVersion::kNewer}) {
    Point other = point;
    other[kHost] = static_cast<int64_t>(host);
    const std::unique_ptr<Instance> instance = InstanceAt(norm, other);
    if (instance == nullptr) continue;  // that host refuses the norm
    std::string text;
    if (TextOfLayout(*instance) != TextOfLayout(*model)) {
      text = absl::StrCat("the layout is ", TextOfLayout(*instance), ", must be ",
                          TextOfLayout(*model));
    }
    if (text.empty()) text = FirstDifference(OutcomeAt(*instance, other, operands), must);
    if (text.empty()) continue;
    return At(point, absl::StrCat("called by ",
                                  host == HostVersion::kFirst ? "a host of v1.0" : "a newer host",
                                  ": ", text));
  }
  CallWatcher ignored;
  return At(point, MakeRefusedCalls(*model, &ignored));
}

}  // namespace plumb::check
