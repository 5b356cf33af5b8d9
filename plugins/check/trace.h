// SPDX-License-Identifier: Apache-2.0
// The trace of a plugin's call: the function, the rows and the operands. It is in memory shared
// with the checker's parent process, so that it outlives a crash or a hang here.
//
// One page for the process, because a signal handler and every thread must find it; writing to it
// takes no lock and no memory. Thread-safe.
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
const char* NameOf(Function function);    // "forward"

// What one thread does.
struct TraceSlot {
  std::atomic<uint64_t> sequence;  // odd: inside a call of the plugin; grows with every call
  Function function;
  uint32_t dtype, dim;  // dim 0: the call is not about rows
  int64_t rows, r0, r1;
  const void* base[4];  // x, y, dy, dx
  int64_t pitch[4];
};

inline constexpr int kTraceSlots = 64;

struct TracePage {
  std::atomic<uint32_t> threads;  // that have called so far; beyond kTraceSlots they share slots
  TraceSlot slots[kTraceSlots];
  // What the signal handler found, before the process died of it; signal 0: nothing.
  std::atomic<int32_t> signal;
  int32_t slot;  // of the thread that died, -1: it was in no call
  uint64_t address;
  bool has_address, is_write;
  char words[256];  // of std::terminate
  char point[256];  // that an exploring check tries (points.h), "": none
};

struct UnmapTracePage {
  void operator()(TracePage* page) const;
};
using TracePagePointer = std::unique_ptr<TracePage, UnmapTracePage>;
// Makes a page that this process shares with those that it starts; null if there is no memory.
TracePagePointer MakeSharedTracePage();
// Returns the page of this process: memory of its own until UseTracePage has been called.
TracePage* ThisTracePage();
void UseTracePage(TracePage* page);

// Writes the point down.
void TracePoint(const std::string& point);
// Forgets what a process that shares the page, and has ended, has left there.
void ForgetTrace();

// From construction to destruction this thread is inside a call of the plugin.
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

// Has the process write down in the page what kills it (signals, std::terminate) before it dies.
void InstallCrashHandlers();

// "backward f32 dim=17 rows 3..7" (rows 3 to 6).
std::string DescribeCall(const TraceSlot& slot);
// Describes how a process with this page ended, from the status of waitpid: "SIGSEGV in backward f32
// dim=17 rows 3..7 (wrote 4 bytes past the end of dx)", "ended the process during forward ...".
std::string DescribeEnd(const TracePage& page, int status);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TRACE_H_
