// SPDX-License-Identifier: Apache-2.0
// Rules R1, R7 and M5 of calls, whatever they compute: calls of hot functions change nothing but
// their results, return, and work with hosts of other versions.
#include <link.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/state.h"

namespace plumb::check {
namespace {

// Memory together with a copy of its content.
struct Snapshot {
  const void* begin;
  std::string copy;
};

#if defined(__SANITIZE_ADDRESS__)
constexpr bool kSanitizerWritesBetweenVariables = true;
#else
constexpr bool kSanitizerWritesBetweenVariables = false;
#endif

Snapshot TakeSnapshot(const void* begin, size_t size) {
  return {begin, std::string(static_cast<const char*>(begin), size)};
}

// Returns the writable memory of the library that contains `inside`.
std::vector<Snapshot> CaptureVariables(const void* inside) {
  std::pair<uintptr_t, std::vector<Snapshot>> search(reinterpret_cast<uintptr_t>(inside), {});
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto& [address, found] = *static_cast<decltype(search)*>(data);
        bool is_it = false;
        std::vector<Snapshot> writable;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          if (header.p_type != PT_LOAD) continue;
          is_it = is_it || (address >= begin && address < begin + header.p_memsz);
          if ((header.p_flags & (PF_W | PF_R)) != (PF_W | PF_R)) continue;
          writable.push_back(TakeSnapshot(reinterpret_cast<const void*>(begin), header.p_memsz));
        }
        if (is_it) found = std::move(writable);
        return is_it ? 1 : 0;
      },
      &search);
  return search.second;
}

// Makes calls and looks for what they change: memory, floating-point control, and from TakeState()
// on the library's variables and the instance.
class CallWatcher {
 public:
  // Facts that a norm determines once in its first calls, such as the instruction set, are not
  // state.
  void TakeState(const Instance& instance) {
    if (kSanitizerWritesBetweenVariables) return;
    state_ = CaptureVariables(reinterpret_cast<const void*>(instance.norm().create));
    for (const Block& block : instance.blocks()) {
      state_.push_back(TakeSnapshot(block.address, block.size));
    }
  }

  plumb_status Call(const Instance& instance, Hot function, const plumb_norm_call& call, int64_t r0,
                    int64_t r1, const HotArguments& more = {}) {
    const uint64_t control = FloatControl();
    const int64_t logs = HostLogs();
    int64_t allocations = 0;
    plumb_status status = PLUMB_OK;
    {
      const AllocationWatch watch;
      status = instance.Call(function, call, r0, r1, more);
      allocations = watch.allocations() + watch.frees();
    }
    const bool same_control = FloatControl() == control;
    SetFloatControl(control);
    const auto expect = [&](bool holds, const char* what) {
      if (!holds && problem_.empty()) problem_ = absl::StrCat(GetName(function), what);
    };
    expect(allocations == 0, " allocates or frees memory");
    expect(HostLogs() == logs, " writes to the host's log");
    expect(same_control, " changes rounding or flushing");
    for (const Snapshot& snapshot : state_) {
      expect(std::memcmp(snapshot.begin, snapshot.copy.data(), snapshot.copy.size()) == 0,
             " changes a variable of the library, or the instance, which is read-only");
    }
    return status;
  }
  const std::string& problem() const { return problem_; }

 private:
  std::vector<Snapshot> state_;
  std::string problem_;
};

// Makes the calls of a point, with any operands: every hot function of a norm, on all rows and then
// on ranges of them, in training and in evaluation. Ignores statuses.
void MakeCalls(const Instance& instance, const Point& point, CallWatcher* watcher) {
  const int64_t rows = point[kRows], half = rows / 2;
  const Operands operands = OperandsAt(instance, point);
  NormRun run(instance, Plain(point), operands);
  const int64_t width = instance.layout().partial_elems;
  Rows partial(AccumulateType(run.dtype()), 1, width), total(AccumulateType(run.dtype()), 1, width);
  const auto statistics = [&](uint32_t phase, const plumb_norm_call& call) {
    HotArguments more;
    more.phase = phase;
    total.Fill(0);
    for (const int64_t from : {int64_t{0}, half}) {
      partial.Fill(0);
      more.acc = partial.data();
      watcher->Call(instance, Hot::kStatsPartial, call, from, from == 0 ? half : rows, more);
      more.acc = total.data();
      more.partial = partial.data();
      watcher->Call(instance, Hot::kStatsCombine, call, 0, rows, more);
    }
    watcher->Call(instance, Hot::kStatsFinalize, call, 0, rows, more);
  };
  const std::pair<int64_t, int64_t> ranges[] = {
      {0, rows}, {0, half}, {half, rows}, {rows - 1, rows}, {0, 0}};
  for (const bool train : {true, false}) {
    const plumb_norm_call forward = run.ForwardCall(train);
    if (run.TakesStatistics(train)) statistics(PLUMB_PHASE_FORWARD, forward);
    for (const auto& [from, to] : ranges) {
      watcher->Call(instance, Hot::kForward, forward, from, to);
    }
    for (const bool accumulate : {false, true}) {
      if (!train) continue;
      const plumb_norm_call backward = run.BackwardCall(accumulate);
      if (run.TakesStatistics(train)) statistics(PLUMB_PHASE_BACKWARD, backward);
      for (const auto& [from, to] : ranges) {
        watcher->Call(instance, Hot::kBackward, backward, from, to);
      }
    }
  }
}

// Makes calls in element types that the norm does not offer, one of which no header defines yet,
// with and without a message buffer. They must be refused.
std::string MakeRefusedCalls(const Instance& instance, CallWatcher* watcher) {
  std::string text;
  // Memory of the widest type, so that the plugin stays inside it whatever type it assumes.
  Point point = *ParsePoint("dim=1,rows=2");
  point[kDim] = instance.dim();
  const Operands operands = OperandsAt(instance, point);
  NormRun run(instance, point, operands, PLUMB_DTYPE_F64);
  Rows partial(PLUMB_DTYPE_F64, 1, instance.layout().partial_elems);
  HotArguments more;
  more.acc = partial.data();
  for (const uint32_t type : {1u << 0, 1u << 1, 1u << 2, 1u << 3}) {
    for (const Hot function : {Hot::kForward, Hot::kBackward, Hot::kStatsPartial}) {
      if ((instance.norm().dtypes & type) != 0) continue;
      if (function == Hot::kStatsPartial && !instance.Has(PLUMB_NORM_CROSS_ROW)) continue;
      for (const bool words : {true, false}) {
        plumb_norm_call call =
            function == Hot::kBackward ? run.BackwardCall(false) : run.ForwardCall(true);
        call.dtype = type;
        if (!words) call.err = nullptr, call.err_cap = 0;
        const plumb_status status = watcher->Call(instance, function, call, 0, 2, more);
        if (status == PLUMB_STATUS_UNIMPLEMENTED || !text.empty()) continue;
        text = absl::StrCat(GetName(function), "() with dtype ", type,
                            ", which is not offered, answers ", StatusText(status),
                            ", must be UNIMPLEMENTED");
      }
    }
  }
  return text;
}

}  // namespace

Result ChangesNothing(const Norm& norm, const Point& given) {
  // Numbers are not compared here, so rows may have values that no other rule can judge.
  const Point point = given[kSeed] % 3 == 1 ? WithOddX(given) : given;
  const ProcessState before = ProcessState::Take();
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  CallWatcher watcher;
  Point other = Plain(point);  // another call first, which the norm may remember
  other[kRows] = other[kTo] = std::max<int64_t>(point[kHeads], 1) * 2;
  ++other[kSeed];
  MakeCalls(*instance, other, &watcher);
  watcher.TakeState(*instance);
  MakeCalls(*instance, point, &watcher);
  MakeRefusedCalls(*instance, &watcher);
  if (!watcher.problem().empty()) return At(point, watcher.problem());
  const std::string changes = before.ChangesSince();
  return changes.empty() ? "" : At(point, "hot calls change the process: " + changes);
}

Result Returns(const Norm& norm, const Point& given) {
  if (norm.available != nullptr) {  // queried without room for a message
    Guarded("available", 0, [&] { return norm.available(nullptr, 0); });
  }
  QueryExtension(norm, "");
  const std::unique_ptr<Instance> instance = InstanceAt(norm, given);
  if (instance == nullptr) return std::nullopt;
  Point point = Plain(given);
  RunAt(*instance, point, OperandsAt(*instance, point));
  // Calls without rows, without room for a message, and with rows of both infinities.
  for (const int64_t rows : {int64_t{0}, point[kRows]}) {
    Point own = point;
    own[kRows] = own[kTo] = rows;
    Operands operands = OperandsAt(*instance, own);
    for (size_t i = 0; i < operands.x.size(); ++i) {
      operands.x[i] = i % 2 == 0 ? HUGE_VAL : -HUGE_VAL;
    }
    NormRun run(*instance, own, operands);
    for (const bool train : {true, false}) {
      if (rows == 0) run.Forward(train);
      if (rows == 0 && train) run.Backward();
      if (run.TakesStatistics(train)) run.Statistics(PLUMB_PHASE_FORWARD, train, run.ChunkRows());
      plumb_norm_call call = run.ForwardCall(train);
      call.err = nullptr, call.err_cap = 0;
      instance->Call(Hot::kForward, call, 0, rows);
    }
  }
  CallWatcher ignored;
  MakeCalls(*instance, point[kSeed] % 3 == 1 ? WithOddX(point) : point, &ignored);
  return "";
}

Result WorksWithOtherHosts(const Norm& norm, const Point& given) {
  Point point = given;
  point[kHeads] = point[kContext] = 0;  // which an older host cannot give
  const std::unique_ptr<Instance> model = InstanceAt(norm, point);
  if (model == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*model, point);
  const Outcome must = RunAt(*model, point, operands);
  for (const HostVersion host : {HostVersion::kFirst, HostVersion::kNewer}) {
    Point other = point;
    other[kHost] = static_cast<int64_t>(host);
    const std::unique_ptr<Instance> instance = InstanceAt(norm, other);
    if (instance == nullptr) continue;  // that host refuses the norm
    std::string text;
    if (instance->LayoutText() != model->LayoutText()) {
      text =
          absl::StrCat("the layout is ", instance->LayoutText(), ", must be ", model->LayoutText());
    }
    if (text.empty()) text = FirstDifference(RunAt(*instance, other, operands), must);
    if (text.empty()) continue;
    return At(point, absl::StrCat("called by ",
                                  host == HostVersion::kFirst ? "a host of v1.0" : "a newer host",
                                  ": ", text));
  }
  CallWatcher ignored;
  return At(point, MakeRefusedCalls(*model, &ignored));
}

}  // namespace plumb::check
