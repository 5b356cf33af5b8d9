// SPDX-License-Identifier: Apache-2.0
// Trace of a plugin's call: the function, the rows and the operands. It is stored in memory shared
// with the checker's parent process, so that it survives a crash or a hang of this process.
//
// There is one page per process, because a signal handler and every thread must find it; writing to
// it takes no lock and allocates nothing. Thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_TRACE_H_
#define PLUMB_PLUGINS_CHECK_TRACE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "plumb/norm_plugin.h"

namespace plumb::check {

enum class Function : uint32_t {
  kLoad,
  kEntry,
  kAvailable,
  kCreate,
  kDestroy,
  kLayout,
  kForward,
  kBackward,
  kStatsPartial,
  kStatsCombine,
  kStatsFinalize,
  kGetExtension,
  kResidualForward,
  kResidualBackward,
  kFill,
};
const char* NameOf(Function function);  // "forward"

// Trace of one thread.
struct TraceSlot {
  std::atomic<uint64_t> sequence;  // odd: inside a call of the plugin; grows with every call
  Function function;
  uint32_t dtype, dim;  // dim 0: the call has no rows
  int64_t rows, r0, r1;
  const void* base[4];  // x, y, dy, dx
  int64_t pitch[4];
};

inline constexpr int kTraceSlots = 64;

struct TracePage {
  std::atomic<uint32_t> threads;  // threads so far; those beyond kTraceSlots share slots
  TraceSlot slots[kTraceSlots];
  // Facts recorded by the signal handler before the process died; signal 0: none.
  std::atomic<int32_t> signal;
  int32_t slot;  // slot of the thread that died; -1: it was in no call
  uint64_t address;
  bool has_address, is_write;
  char words[256];  // reason of std::terminate
  char point[256];  // point that an exploring check tries (points.h), or ""
};

struct UnmapTracePage {
  void operator()(TracePage* page) const;
};
using TracePagePointer = std::unique_ptr<TracePage, UnmapTracePage>;
// Creates a page that this process shares with its children. Returns null if there is no memory.
TracePagePointer MakeSharedTracePage();
// Returns the page of this process, which is private memory until UseTracePage has been called.
TracePage* ThisTracePage();
void UseTracePage(TracePage* page);

// Records the point.
void TracePoint(const std::string& point);

// Scope in which this thread is inside a call of the plugin.
class Trace {
 public:
  explicit Trace(Function function, uint32_t dim = 0);
  Trace(Function function, const plumb_norm_call& call, int64_t r0, int64_t r1);
  ~Trace() { slot_->sequence.fetch_add(1, std::memory_order_release); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

 private:
  TraceSlot* slot_;
};

// Makes the process record in the page what kills it (signals, std::terminate) before it dies.
void InstallCrashHandlers();

// Returns text such as "backward f32 dim=17 rows 3..7" (rows 3 to 6).
std::string DescribeCall(const TraceSlot& slot);
// Returns how a process with this page ended, from the status of waitpid: "SIGSEGV in backward f32
// dim=17 rows 3..7 (wrote 4 bytes past the end of dx)", "ended the process during forward ...".
std::string DescribeEnd(const TracePage& page, int status);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TRACE_H_
