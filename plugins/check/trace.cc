#include "plugins/check/trace.h"

#include <cxxabi.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <typeinfo>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/guarded.h"

namespace plumb::check {
namespace {

constexpr const char* kOperands[] = {"x", "y", "dy", "dx"};
// How far from an operand an address still counts as belonging to it: a guard page and some.
constexpr uint64_t kNear = 1 << 16;

TracePage** PagePointer() {
  static TracePage own;  // zeroed; used when there is no parent to share a page with
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

size_t ElementSize(uint32_t dtype) { return dtype == PLUMB_F64 ? 8 : dtype == PLUMB_BF16 ? 2 : 4; }

#if !defined(__SANITIZE_ADDRESS__)  // whose own handlers say more
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
  // The handler was reset on entry: returning to the fault, or raising again, is the end.
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

// "4 bytes past the end of dx", "" when the address is near no operand.
std::string DescribeAddress(const TraceSlot& slot, uint64_t address) {
  if (slot.dim == 0 || slot.rows <= 0) return "";
  std::string best;
  uint64_t best_distance = kNear;
  for (int i = 0; i < 4; ++i) {
    if (slot.base[i] == nullptr) continue;
    const uint64_t begin = reinterpret_cast<uint64_t>(slot.base[i]);
    const uint64_t end = begin + static_cast<uint64_t>((slot.rows - 1) * slot.pitch[i]) +
                         slot.dim * ElementSize(slot.dtype);
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
  switch (function) {
    case Function::kLoad:
      return "dlopen";
    case Function::kEntry:
      return PLUMB_NORM_ENTRY_SYMBOL;
    case Function::kAvailable:
      return "available";
    case Function::kCreate:
      return "create";
    case Function::kDestroy:
      return "destroy";
    case Function::kLayout:
      return "layout";
    case Function::kForward:
      return "forward";
    case Function::kBackward:
      return "backward";
    case Function::kStatsPartial:
      return "stats_partial";
    case Function::kStatsCombine:
      return "stats_combine";
    case Function::kStatsFinalize:
      return "stats_finalize";
    case Function::kGetExtension:
      return "get_extension";
    case Function::kResidualForward:
      return "residual forward";
    case Function::kResidualBackward:
      return "residual backward";
    case Function::kFill:
      return "fill";
  }
  return "?";
}

const char* NameOfDtype(uint32_t dtype) {
  switch (dtype) {
    case PLUMB_F32:
      return "f32";
    case PLUMB_BF16:
      return "bf16";
    case PLUMB_F64:
      return "f64";
    default:
      return "dtype?";
  }
}

void TracePoint(const std::string& point) {
  TracePage* page = ThisTracePage();
  std::strncpy(page->point, point.c_str(), sizeof(page->point) - 1);
}

void ForgetTrace() {
  TracePage* page = ThisTracePage();
  page->signal.store(0);
  page->words[0] = '\0';
  for (TraceSlot& slot : page->slots) {
    if (slot.sequence.load() % 2 == 1) slot.sequence.fetch_add(1);
  }
}

TracePage* ThisTracePage() { return *PagePointer(); }

bool UseTracePage(int fd) {
  void* memory = mmap(nullptr, sizeof(TracePage), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return false;
  *PagePointer() = static_cast<TracePage*>(memory);
  ThisThreadsSlot() = -1;
  return true;
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
  static char stack[64 << 10];  // a plugin may have used up the other one
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
  if (slot.dtype != 0) absl::StrAppend(&text, " ", NameOfDtype(slot.dtype));
  if (slot.dim != 0) absl::StrAppend(&text, " dim=", slot.dim);
  if (slot.dtype != 0) absl::StrAppend(&text, " rows ", slot.r0, "..", slot.r1);
  return text;
}

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

}  // namespace plumb::check
