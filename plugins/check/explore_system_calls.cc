// X7: hot functions allocate nothing, call nothing of the system and leave the floating-point modes
// alone, at any size; create and destroy read files and allocate, no more.
#include <fcntl.h>
#include <sys/syscall.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/float_state.h"
#include "plugins/check/hot_calls.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/process_state.h"
#include "plugins/check/system_calls.h"

namespace plumb::check {
namespace {

class AllocationCount : public CallWatcher {
 public:
  void Before() override {
    modes_ = FloatState::Current();
    logs_ = HostLogs();
    watch_ = std::make_unique<AllocationWatch>();
  }
  void After(const char* function) override {
    const int64_t n = watch_->allocations() + watch_->frees();
    watch_.reset();
    const bool same = FloatState::Current() == modes_;
    modes_.Apply();
    if (problem_.empty() && n > 0) problem_ = absl::StrCat(function, " allocates or frees memory");
    if (problem_.empty() && HostLogs() != logs_) {
      problem_ = absl::StrCat(function, " writes to the host's log");
    }
    if (problem_.empty() && !same)
      problem_ = absl::StrCat(function, " changes rounding or flushing");
  }
  const std::string& problem() const { return problem_; }

 private:
  std::unique_ptr<AllocationWatch> watch_;
  FloatState modes_;
  int64_t logs_ = 0;
  std::string problem_;
};

class SystemCallMarks : public CallWatcher {
 public:
  void Before() override { BeginTraced(); }
  void After(const char*) override { EndTraced(); }
};

// What an author may need to make an instance: memory, locks, files to read.
bool CreateMayCall(const SystemCall& call) {
  constexpr long kFree[] = {
      SYS_brk, SYS_mmap, SYS_munmap, SYS_mprotect, SYS_madvise, SYS_mremap, SYS_futex,
      SYS_getrandom, SYS_read, SYS_pread64, SYS_close, SYS_fstat, SYS_newfstatat, SYS_lseek,
      SYS_clock_gettime, SYS_sched_getaffinity, SYS_gettid, SYS_getpid, SYS_uname, SYS_sysinfo,
      SYS_rseq, SYS_sched_yield,
      // a thread that is joined before create returns
      SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_rt_sigprocmask, SYS_exit};
  if (call.number == SYS_openat) {
    return (call.arguments[2] & (O_ACCMODE | O_CREAT | O_TRUNC)) == O_RDONLY;
  }
  return std::find(std::begin(kFree), std::end(kFree), call.number) != std::end(kFree);
}

std::string TraceCreate(const plumb_norm_plugin& norm, const Point& point, bool* traced) {
  const std::vector<AttributeCase> cases = ExploredCases(norm);
  const AttributeCase& c = cases[static_cast<size_t>(point[kAttributes])];
  const std::optional<SystemCall> found = FirstSystemCall(
      [&] {
        BeginTraced();
        const Instance instance(norm, static_cast<uint32_t>(point[kDim]), c.values);
        EndTraced();
        BeginTraced();
      },
      CreateMayCall, traced);
  if (!found.has_value()) return "";
  return absl::StrCat("create, layout or destroy with dim=", point[kDim], " ",
                      NameOfSystemCall(*found));
}

// The calls of a point, with its operands, whatever they are.
void MakeCalls(const Instance& instance, const Point& point, const Operands& operands,
               CallWatcher* watcher) {
  NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
  AssignTo(operands, &run);
  MakeHotCalls(&run, watcher);
}

// Calls in element types that the norm does not offer, one of which no header has yet, with room
// for words and without.
void MakeRefusedCalls(const Instance& instance, CallWatcher* watcher) {
  constexpr uint32_t kLaterType = 1u << 3;
  for (const uint32_t type :
       {uint32_t{PLUMB_F32}, uint32_t{PLUMB_BF16}, uint32_t{PLUMB_F64}, kLaterType}) {
    if ((instance.norm().dtypes & type) != 0) continue;
    // Memory of the widest type: whatever the plugin takes the elements for, it stays inside.
    NormRun run(instance, PLUMB_F64, 2, 1);
    const auto call = [&](bool forward, bool words) {
      plumb_norm_call refused = forward ? run.ForwardCall(true) : run.BackwardCall(false);
      refused.dtype = type;
      if (!words) refused.err = nullptr, refused.err_cap = 0;
      watcher->Before();
      forward ? Forward(instance, refused, 0, 2) : Backward(instance, refused, 0, 2);
      watcher->After(forward ? "forward in a type that is not offered"
                             : "backward in a type that is not offered");
    };
    for (const bool forward : {true, false}) {
      for (const bool words : {true, false}) call(forward, words);
    }
  }
}

std::string TraceHotCalls(const Instance& instance, const Point& point, const Operands& operands,
                          bool* traced) {
  const std::optional<SystemCall> found = FirstSystemCall(
      [&] {
        SystemCallMarks marks;
        MakeCalls(instance, point, operands, &marks);
      },
      [](const SystemCall&) { return false; }, traced);
  if (!found.has_value()) return "";
  return absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim], " rows=", point[kRows],
                      ": forward, backward or statistics ", NameOfSystemCall(*found));
}

std::optional<std::string> CallsNothing(const plumb_norm_plugin& norm, Point point, bool* traced) {
  // Numbers are not looked at here, so that rows may be what no other check of numbers can judge.
  if (point[kSeed] % 3 == 1) point[kX] = kNanX + point[kSeed] / 3 % 2;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const std::string name =
      absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim], " rows=", point[kRows], ": ");
  const ProcessState before = ProcessState::Take();
  AllocationCount count;
  MakeCalls(*instance, point, operands, &count);
  MakeRefusedCalls(*instance, &count);
  if (!count.problem().empty()) return absl::StrCat(name, count.problem());
  const std::vector<std::string> changes = before.ChangesSince();
  if (!changes.empty()) {
    return absl::StrCat(name, "hot calls change the process: ", absl::StrJoin(changes, "; "));
  }
  std::string text;
  if (*traced) text = TraceHotCalls(*instance, point, operands, traced);
  if (*traced && text.empty()) text = TraceCreate(norm, point, traced);
  return text;
}

}  // namespace

void ExploreSystemCalls(const Subject& subject, Report* report) {
  bool traced = true;
  Explore(
      subject, "X7",
      [&](const Point& point) { return CallsNothing(*subject.norm, point, &traced); }, report);
  if (!traced) {
    report->Note("this system does not let a process be traced: system calls were not watched");
  }
}

}  // namespace plumb::check
