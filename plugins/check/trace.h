// SPDX-License-Identifier: Apache-2.0
// Trace of the calls of a plugin, in memory that a process shares with its parent, so that the
// parent can say how it crashed or where it hangs; and the exceptions that end a check.
//
// There is one page per process, because a signal handler and every thread must find it; writing to
// it takes no lock and allocates nothing. Thread-safe.
#ifndef PLUMB_PLUGINS_CHECK_TRACE_H_
#define PLUMB_PLUGINS_CHECK_TRACE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "plumb/norm_plugin.h"

namespace plumb::check {

// Exception that ends a check, which then fails with this text. Thrown if the plugin lets an
// exception escape, and by checks that cannot continue.
struct CheckEnded {
  std::string text;  // "exception std::bad_alloc left forward()"
};

// Exception of a check that this machine cannot perform.
struct NotTried {
  std::string reason;
};

// Call of the plugin. A call without rows has dtype 0, and perhaps no dim.
struct TracedCall {
  const char* function = nullptr;
  plumb_norm_call call = {};
  int64_t r0 = 0, r1 = 0;
};

// Latest call of one thread.
struct TraceSlot {
  std::atomic<uint64_t> sequence;  // odd: inside a call of the plugin; grows with every call
  TracedCall call;
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
  char point[256];  // point that a check tries (points.h), or ""
  size_t result_size;
  char result[1 << 20];  // findings of the process; untouched pages use no memory
};

// Sets the page of this process, which is private memory until then.
void UseTracePage(TracePage* page);

// Records the point that is tried.
void TracePoint(const std::string& point);

// Scope in which this thread is inside a call of the plugin.
class Trace {
 public:
  explicit Trace(const TracedCall& call);
  ~Trace() { slot_->sequence.fetch_add(1, std::memory_order_release); }
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

 private:
  TraceSlot* slot_;
};

// Returns the type of the exception that is being handled, such as "std::bad_alloc".
std::string CurrentExceptionType();

// Calls `call` and returns its result. Throws CheckEnded if an exception escapes.
template <class F>
auto Guarded(const TracedCall& traced, F call) -> decltype(call()) {
  const Trace trace(traced);
  try {
    return call();
  } catch (...) {
    throw CheckEnded{"exception " + CurrentExceptionType() + " left " + traced.function + "()"};
  }
}

// Does the same for a function without rows, of an instance of `dim` if that is not 0.
template <class F>
auto Guarded(const char* function, uint32_t dim, F call) -> decltype(call()) {
  TracedCall traced;
  traced.function = function;
  traced.call.dim = dim;
  return Guarded(traced, std::move(call));
}

// Makes the process record in the page what kills it (signals, std::terminate) before it dies.
void InstallCrashHandlers();

// Returns text such as "backward f32 dim=17 rows 3..7" (rows 3 to 6).
std::string DescribeCall(const TracedCall& call);
// Returns how a process with this page ended, from the status of waitpid: "SIGSEGV in backward f32
// dim=17 rows 3..7 (wrote 4 bytes past the end of dx)", "ended the process during forward ...".
std::string DescribeEnd(const TracePage& page, int status);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_TRACE_H_
