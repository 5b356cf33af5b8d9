// R1, R2 and R6: what the hot functions do besides computing. Each looks at the process right
// before and right after every call of a hot function.
#include <link.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "plugins/check/float_state.h"
#include "plugins/check/hot_calls.h"
#include "plugins/check/malloc_hooks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/robustness_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

// Vectors and what is left of them, and a few sizes that tempt a plugin to ask for memory.
constexpr uint32_t kHotCallDims[] = {1, 7, 64, 1000, 4096};

// Calls visit(run) for every element type and each of kHotCallDims that the norm takes.
template <class Visit>
void ForEachRun(const Subject& subject, int64_t rows, uint64_t seed, const Visit& visit) {
  for (const uint32_t dim : kHotCallDims) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      NormRun run(*instance, dtype, rows, seed);
      visit(&run);
    }
  }
}

// Reports the first offence of each function.
class Offences {
 public:
  explicit Offences(Report* report) : report_(report) {}
  void Add(const char* function, const std::string& where, const std::string& what) {
    if (seen_.insert(function).second) report_->Fail(where + ": " + function + "() " + what);
  }

 private:
  Report* report_;
  std::set<std::string> seen_;
};

// -- R1 ------------------------------------------------------------------------------------------

class AllocationWatcher final : public CallWatcher {
 public:
  AllocationWatcher(std::string where, Offences* offences)
      : where_(std::move(where)), offences_(offences) {}

  void Before() override { watch_.emplace(); }
  void After(const char* function) override {
    const int64_t allocations = watch_->allocations(), frees = watch_->frees();
    watch_.reset();
    if (allocations == 0 && frees == 0) return;
    offences_->Add(function, where_,
                   "allocated " + std::to_string(allocations) + " times and freed " +
                       std::to_string(frees) +
                       " times; memory for a call is declared as "
                       "scratch_bytes");
  }

 private:
  std::string where_;
  Offences* offences_;
  std::optional<AllocationWatch> watch_;
};

// -- R2 ------------------------------------------------------------------------------------------

struct Segment {
  const unsigned char* begin;
  size_t size;
};

// The writable memory of the library that `inside` lies in.
std::vector<Segment> WritableSegments(const void* inside) {
  struct Search {
    uintptr_t address;
    std::vector<Segment> found;
  } search{reinterpret_cast<uintptr_t>(inside), {}};
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        auto* wanted = static_cast<Search*>(data);
        std::vector<Segment> writable;
        bool ours = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const ElfW(Phdr)& header = info->dlpi_phdr[i];
          if (header.p_type != PT_LOAD) continue;
          const uintptr_t begin = info->dlpi_addr + header.p_vaddr;
          ours = ours || (wanted->address >= begin && wanted->address < begin + header.p_memsz);
          if ((header.p_flags & (PF_W | PF_R)) == (PF_W | PF_R)) {
            writable.push_back({reinterpret_cast<const unsigned char*>(begin), header.p_memsz});
          }
        }
        if (ours) wanted->found = std::move(writable);
        return ours ? 1 : 0;
      },
      &search);
  return search.found;
}

// Memory with a copy of what was in it.
class Snapshot {
 public:
  void Take(std::vector<Segment> segments) {
    segments_ = std::move(segments);
    copies_.clear();
    for (const Segment& s : segments_) copies_.emplace_back(s.begin, s.begin + s.size);
  }
  // Whether all is as it was; takes the copy anew when it is not.
  bool Unchanged() {
    bool same = true;
    for (size_t i = 0; i < segments_.size(); ++i) {
      const Segment& s = segments_[i];
      if (std::memcmp(s.begin, copies_[i].data(), s.size) == 0) continue;
      same = false;
      copies_[i].assign(s.begin, s.begin + s.size);
    }
    return same;
  }

 private:
  std::vector<Segment> segments_;
  std::vector<std::vector<unsigned char>> copies_;
};

class StateWatcher final : public CallWatcher {
 public:
  StateWatcher(std::string where, Snapshot* globals, Snapshot* instance, Offences* offences)
      : where_(std::move(where)), globals_(globals), instance_(instance), offences_(offences) {}

  void Before() override {}
  void After(const char* function) override {
    if (!globals_->Unchanged()) {
      offences_->Add(function, where_, "changed a static or global variable of the library");
    }
    if (!instance_->Unchanged()) {
      offences_->Add(function, where_, "changed the instance, which is read-only after create()");
    }
  }

 private:
  std::string where_;
  Snapshot *globals_, *instance_;
  Offences* offences_;
};

// The blocks that were allocated while an instance was made, and still are. None when allocations
// cannot be watched: then only the library's variables are looked at.
class InstanceMemory {
 public:
  InstanceMemory(const plumb_norm_plugin& norm, uint32_t dim) {
    const std::vector<plumb_attr_value> values = DefaultValues(norm);
    {
      const AllocationWatch watch;
      instance_.emplace(norm, dim, values);
    }
    Block blocks[64];
    const size_t n = LiveBlocks(blocks, std::size(blocks));
    for (size_t i = 0; i < n; ++i) {
      segments_.push_back({static_cast<const unsigned char*>(blocks[i].address), blocks[i].size});
    }
  }
  const Instance& instance() const { return *instance_; }
  const std::vector<Segment>& segments() const { return segments_; }

 private:
  std::optional<Instance> instance_;
  std::vector<Segment> segments_;
};

// -- R6 ------------------------------------------------------------------------------------------

class FloatingPointWatcher final : public CallWatcher {
 public:
  FloatingPointWatcher(std::string where, Offences* offences)
      : where_(std::move(where)), offences_(offences) {}

  void Before() override { before_ = FloatState::Current(); }
  void After(const char* function) override {
    const FloatState after = FloatState::Current();
    if (after == before_) return;
    before_.Apply();  // before the checker computes anything
    offences_->Add(function, where_,
                   "changed the floating-point control state from " + before_.Text() + " to " +
                       after.Text() + " (MXCSR, FPCR)");
  }

 private:
  std::string where_;
  Offences* offences_;
  FloatState before_;
};

}  // namespace

void CheckNoAllocation(const Subject& subject, Report* report) {
  if (!AllocationsAreSeen()) return report->Skip(kAllocationsUnseen);
  Offences offences(report);
  ForEachRun(subject, /*rows=*/19, subject.seed, [&](NormRun* run) {
    AllocationWatcher watcher(run->Name(), &offences);
    MakeHotCalls(run, &watcher);
  });
}

// The address sanitizer puts memory that must not be read between a library's variables.
#if defined(__SANITIZE_ADDRESS__)
constexpr bool kVariablesAreGuarded = true;
#else
constexpr bool kVariablesAreGuarded = false;
#endif

void CheckNoState(const Subject& subject, Report* report) {
  if (kVariablesAreGuarded) return report->Skip("a sanitizer guards the library's variables");
  Offences offences(report);
  const std::vector<Segment> globals =
      WritableSegments(reinterpret_cast<const void*>(subject.norm->create));
  for (const uint32_t dim : kHotCallDims) {
    if (!AcceptsDim(*subject.norm, dim)) continue;
    const InstanceMemory memory(*subject.norm, dim);
    // Two pairs of runs, with other numbers and another count of rows in the second: what a plugin
    // remembers of a call shows when the next one differs. What it found out once and for all in
    // the first, its instruction set say, is no state.
    Snapshot global_snapshot, instance_snapshot;
    const auto run_all = [&](int64_t rows, uint64_t seed, bool watched) {
      for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
        NormRun run(memory.instance(), dtype, rows, seed);
        Snapshot nothing;
        StateWatcher watcher(run.Name(), watched ? &global_snapshot : &nothing,
                             watched ? &instance_snapshot : &nothing, &offences);
        MakeHotCalls(&run, &watcher);
      }
    };
    run_all(/*rows=*/5, subject.seed, /*watched=*/false);
    global_snapshot.Take(globals);
    instance_snapshot.Take(memory.segments());
    run_all(/*rows=*/21, subject.seed + 1, /*watched=*/true);
  }
}

void CheckFloatingPointState(const Subject& subject, Report* report) {
  Offences offences(report);
  ForEachRun(subject, /*rows=*/29, subject.seed, [&](NormRun* run) {
    FloatingPointWatcher watcher(run->Name(), &offences);
    MakeHotCalls(run, &watcher);
  });
}

}  // namespace plumb::check
