// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/trace.h"

#include <cxxabi.h>
#include <sys/wait.h>
#include <ucontext.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rows.h"
#include "plugins/check/state.h"

namespace plumb::check {
namespace {

TracePage** PagePointer() {
  static TracePage own;  // zeroed; used if there is no parent to share a page with
  static TracePage* page = &own;
  return &page;
}

int& ThisThreadsSlot() {
  thread_local int slot = -1;
  return slot;
}

#if !defined(__SANITIZE_ADDRESS__)  // its own handlers report more
void OnFatalSignal(int signal, siginfo_t* info, void* context) {
  TracePage* page = *PagePointer();
  page->slot = ThisThreadsSlot();
  page->has_address = (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0;
  page->address = reinterpret_cast<uint64_t>(info->si_addr);
#if defined(__x86_64__)
  const auto* machine = static_cast<const ucontext_t*>(context);
  page->is_write = (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  (void)context;
#endif
  page->signal.store(signal);
  // The handler was reset on entry, so returning to the fault, or raising again, ends the process.
  if (info->si_code <= 0) raise(signal);
}
#endif

[[noreturn]] void OnTerminate() {
  TracePage* page = *PagePointer();
  std::string words = "std::terminate was called";
  if (std::current_exception() != nullptr) words += " for exception " + CurrentExceptionType();
  std::strncpy(page->words, words.c_str(), sizeof(page->words) - 1);
  std::abort();
}

// Returns text such as "4 bytes past the end of dx"; "" if the address is near no operand.
std::string DescribeAddress(const plumb_norm_call& call, uint64_t address) {
  constexpr uint64_t kNear = 1 << 16;  // more than a guard page
  const struct {
    const char* name;
    const void* base;
    int64_t pitch;
  } operands[] = {{"x", call.x, call.x_pitch},
                  {"y", call.y, call.y_pitch},
                  {"dy", call.dy, call.dy_pitch},
                  {"dx", call.dx, call.dx_pitch}};
  std::string nearest;
  uint64_t distance = kNear;
  for (const auto& operand : operands) {
    if (operand.base == nullptr || call.dtype == 0 || call.rows <= 0) continue;
    const uint64_t begin = reinterpret_cast<uint64_t>(operand.base);
    const uint64_t end = begin + static_cast<uint64_t>((call.rows - 1) * operand.pitch) +
                         call.dim * TypeSize(call.dtype);
    if (address >= end && address - end < distance) {
      distance = address - end;
      nearest = absl::StrFormat("%d bytes past the end of %s", distance, operand.name);
    } else if (address < begin && begin - address < distance) {
      distance = begin - address;
      nearest = absl::StrFormat("%d bytes before the beginning of %s", distance, operand.name);
    }
  }
  return nearest;
}

// Returns the call that the process is in, or "".
std::string DescribeRunning(const TracePage& page) {
  for (const TraceSlot& slot : page.slots) {
    if (slot.sequence.load() % 2 == 1) return " during " + DescribeCall(slot.call);
  }
  return "";
}

}  // namespace

void TracePoint(const std::string& point) {
  TracePage* page = *PagePointer();
  std::strncpy(page->point, point.c_str(), sizeof(page->point) - 1);
}

void UseTracePage(TracePage* page) {
  *PagePointer() = page;
  ThisThreadsSlot() = -1;
}

Trace::Trace(const TracedCall& call) {
  TracePage* page = *PagePointer();
  int& slot = ThisThreadsSlot();
  if (slot < 0) slot = static_cast<int>(page->threads.fetch_add(1) % kTraceSlots);
  slot_ = &page->slots[slot];
  slot_->call = call;
  slot_->sequence.fetch_add(1, std::memory_order_release);
}

std::string CurrentExceptionType() {
  const std::type_info* type = abi::__cxa_current_exception_type();
  if (type == nullptr) return "of a foreign language";
  int status = 0;
  char* readable = abi::__cxa_demangle(type->name(), nullptr, nullptr, &status);
  std::string name = readable == nullptr ? type->name() : readable;
  std::free(readable);
  return name;
}

void InstallCrashHandlers() {
  std::set_terminate(OnTerminate);
#if !defined(__SANITIZE_ADDRESS__)
  static char stack[64 << 10];  // a plugin may have exhausted the other stack
  stack_t alternative = {};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof(stack);
  sigaltstack(&alternative, nullptr);
  struct sigaction action = {};
  action.sa_sigaction = OnFatalSignal;
  action.sa_flags = static_cast<int>(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
  for (const int signal : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP}) {
    sigaction(signal, &action, nullptr);
  }
#endif
}

std::string DescribeCall(const TracedCall& traced) {
  const plumb_norm_call& call = traced.call;
  std::string text = traced.function;
  if (call.dtype != 0) absl::StrAppend(&text, " ", TypeName(call.dtype));
  if (call.dim != 0) absl::StrAppend(&text, " dim=", call.dim);
  if (call.dtype != 0) absl::StrAppend(&text, " rows ", traced.r0, "..", traced.r1);
  return text;
}

std::string DescribeEnd(const TracePage& page, int status) {
  if (!WIFSIGNALED(status)) {
    const std::string running = DescribeRunning(page);
    const int code = WEXITSTATUS(status);
    return absl::StrCat("ended the process",
                        code == 0 ? "" : absl::StrCat(" with exit status ", code),
                        running.empty() ? " before the check was over" : running);
  }
  const bool recorded = page.signal.load() == WTERMSIG(status);
  const TraceSlot* slot = recorded && page.slot >= 0 ? &page.slots[page.slot] : nullptr;
  const bool in_call = slot != nullptr && slot->sequence.load() % 2 == 1;
  std::string text = NameOfSignal(WTERMSIG(status));
  absl::StrAppend(&text, in_call ? " in " + DescribeCall(slot->call) : DescribeRunning(page));
  if (recorded && page.has_address) {
    std::string place = in_call ? DescribeAddress(slot->call.call, page.address) : "";
    if (place.empty()) place = absl::StrFormat("at address %#x", page.address);
    absl::StrAppend(&text, page.is_write ? " (wrote " : " (read ", place, ")");
  }
  return page.words[0] == '\0' ? text : absl::StrCat(text, ": ", page.words);
}

}  // namespace plumb::check
