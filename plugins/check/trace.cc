// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/trace.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/calls.h"
#include "plugins/check/rows.h"

namespace plumb::check {
namespace {

constexpr const char* kOperands[] = {"x", "y", "dy", "dx"};
// Max distance of an address from an operand to which it is attributed: more than a guard page.
constexpr uint64_t kNear = 1 << 16;

TracePage** PagePointer() {
  static TracePage own;  // zeroed; used if there is no parent to share a page with
  static TracePage* page = &own;
  return &page;
}

int& ThisThreadsSlot() {
  thread_local int slot = -1;
  return slot;
}

TraceSlot* ClaimSlot() {
  TracePage* page = ThisTracePage();
  int& slot = ThisThreadsSlot();
  if (slot < 0) slot = static_cast<int>(page->threads.fetch_add(1) % kTraceSlots);
  return &page->slots[slot];
}

#if !defined(__SANITIZE_ADDRESS__)  // its own handlers report more
void OnFatalSignal(int signal, siginfo_t* info, void* context) {
  TracePage* page = ThisTracePage();
  page->slot = ThisThreadsSlot();
  page->has_address = (signal == SIGSEGV || signal == SIGBUS) && info->si_code > 0;
  page->address = reinterpret_cast<uint64_t>(info->si_addr);
#if defined(__x86_64__)
  const auto* machine = static_cast<const ucontext_t*>(context);
  page->is_write = (machine->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  (void)context;
  page->is_write = false;
#endif
  page->signal.store(signal);
  // The handler was reset on entry, so returning to the fault, or raising again, ends the process.
  if (info->si_code <= 0) raise(signal);
}
#endif

[[noreturn]] void OnTerminate() {
  TracePage* page = ThisTracePage();
  std::string words = "std::terminate was called";
  if (std::current_exception() != nullptr) words += " for exception " + CurrentExceptionType();
  std::strncpy(page->words, words.c_str(), sizeof(page->words) - 1);
  std::abort();
}

// Returns text such as "4 bytes past the end of dx"; "" if the address is near no operand.
std::string DescribeAddress(const TraceSlot& slot, uint64_t address) {
  if (slot.dim == 0 || slot.rows <= 0) return "";
  std::string best;
  uint64_t best_distance = kNear;
  for (int i = 0; i < 4; ++i) {
    if (slot.base[i] == nullptr) continue;
    const uint64_t begin = reinterpret_cast<uint64_t>(slot.base[i]);
    const uint64_t end = begin + static_cast<uint64_t>((slot.rows - 1) * slot.pitch[i]) +
                         slot.dim * TypeSize(slot.dtype);
    if (address >= end && address - end < best_distance) {
      best_distance = address - end;
      best = absl::StrFormat("%d bytes past the end of %s", best_distance, kOperands[i]);
    } else if (address < begin && begin - address < best_distance) {
      best_distance = begin - address;
      best = absl::StrFormat("%d bytes before the beginning of %s", best_distance, kOperands[i]);
    } else if (address >= begin && address < end && best_distance > 0) {
      best_distance = 0;
      best = absl::StrFormat("byte %d of %s, which it may not", address - begin, kOperands[i]);
    }
  }
  return best;
}

std::string NameOfSignal(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? absl::StrCat("signal ", signal) : absl::StrCat("SIG", name);
}

}  // namespace

const char* NameOf(Function function) {
  constexpr const char* kNames[] = {"dlopen",
                                    PLUMB_NORM_ENTRY_SYMBOL,
                                    "available",
                                    "create",
                                    "destroy",
                                    "layout",
                                    "forward",
                                    "backward",
                                    "stats_partial",
                                    "stats_combine",
                                    "stats_finalize",
                                    "get_extension",
                                    "residual forward",
                                    "residual backward",
                                    "fill"};
  return kNames[static_cast<size_t>(function)];
}

void TracePoint(const std::string& point) {
  TracePage* page = ThisTracePage();
  std::strncpy(page->point, point.c_str(), sizeof(page->point) - 1);
}

TracePage* ThisTracePage() { return *PagePointer(); }

TracePagePointer MakeSharedTracePage() {
  void* memory =
      mmap(nullptr, sizeof(TracePage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return TracePagePointer(memory == MAP_FAILED ? nullptr : static_cast<TracePage*>(memory));
}

void UnmapTracePage::operator()(TracePage* page) const { munmap(page, sizeof(TracePage)); }

void UseTracePage(TracePage* page) {
  *PagePointer() = page;
  ThisThreadsSlot() = -1;
}

Trace::Trace(Function function, uint32_t dim) : slot_(ClaimSlot()) {
  slot_->function = function;
  slot_->dtype = 0;
  slot_->dim = dim;
  slot_->rows = 0;
  slot_->sequence.fetch_add(1, std::memory_order_release);
}

Trace::Trace(Function function, const plumb_norm_call& call, int64_t r0, int64_t r1)
    : slot_(ClaimSlot()) {
  slot_->function = function;
  slot_->dtype = call.dtype;
  slot_->dim = call.dim;
  slot_->rows = call.rows;
  slot_->r0 = r0;
  slot_->r1 = r1;
  const void* const bases[] = {call.x, call.y, call.dy, call.dx};
  const int64_t pitches[] = {call.x_pitch, call.y_pitch, call.dy_pitch, call.dx_pitch};
  std::memcpy(slot_->base, bases, sizeof(bases));
  std::memcpy(slot_->pitch, pitches, sizeof(pitches));
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

std::string DescribeCall(const TraceSlot& slot) {
  std::string text = NameOf(slot.function);
  if (slot.dtype != 0) absl::StrAppend(&text, " ", TypeName(slot.dtype));
  if (slot.dim != 0) absl::StrAppend(&text, " dim=", slot.dim);
  if (slot.dtype != 0) absl::StrAppend(&text, " rows ", slot.r0, "..", slot.r1);
  return text;
}

namespace {

// Returns the call that the process is in, or "".
std::string DescribeRunning(const TracePage& page) {
  for (const TraceSlot& slot : page.slots) {
    if (slot.sequence.load(std::memory_order_acquire) % 2 == 1) return DescribeCall(slot);
  }
  return "";
}

std::string DescribeCrash(const TracePage& page, int signal) {
  std::string text = NameOfSignal(signal);
  const bool recorded = page.signal.load() == signal;
  const int at = recorded ? page.slot : -1;
  const bool in_call = at >= 0 && at < kTraceSlots && page.slots[at].sequence.load() % 2 == 1;
  if (in_call) {
    absl::StrAppend(&text, " in ", DescribeCall(page.slots[at]));
  } else if (const std::string running = DescribeRunning(page); !running.empty()) {
    absl::StrAppend(&text, recorded ? ", not in a call by the checker, during " : " during ",
                    running);
  }
  if (recorded && page.has_address) {
    const std::string place = in_call ? DescribeAddress(page.slots[at], page.address) : "";
    absl::StrAppend(&text, page.is_write ? " (wrote " : " (read ",
                    place.empty() ? absl::StrFormat("at address %#x", page.address) : place, ")");
  }
  if (page.words[0] != '\0') {
    absl::StrAppend(&text, ": ", std::string(page.words, strnlen(page.words, sizeof(page.words))));
  }
  return text;
}

}  // namespace

std::string DescribeEnd(const TracePage& page, int status) {
  if (WIFSIGNALED(status)) return DescribeCrash(page, WTERMSIG(status));
  const std::string running = DescribeRunning(page);
  const int code = WEXITSTATUS(status);
  return absl::StrCat("ended the process",
                      code == 0 ? "" : absl::StrCat(" with exit status ", code),
                      running.empty() ? " before the check was over" : " during ", running);
}

}  // namespace plumb::check
