// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/operand_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "runtime/base/aligned_buffer.h"
#include "runtime/base/check.h"

namespace plumb {
namespace {

constexpr unsigned char kGuardByte = 0x7b;
// Size of the canary before the first row and behind the last; between rows there are kAlignment
// bytes.
constexpr int64_t kCanaryBytes = 256;
// Size of the unreadable ranges around that, which take addresses but no memory.
constexpr int64_t kUnreadableBytes = 1 << 20;

char* ToPage(char* address, bool up) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto at = reinterpret_cast<uintptr_t>(address);
  return reinterpret_cast<char*>((up ? at + page - 1 : at) / page * page);
}

// Returns the first byte of [from, to) that is not a canary; `to` if all are.
const char* FirstDamaged(const char* from, const char* to) {
  return std::find_if(from, to, [](char c) { return static_cast<unsigned char>(c) != kGuardByte; });
}

}  // namespace

OperandGuard::~OperandGuard() {
  for (const Operand& operand : operands_) munmap(operand.map, operand.map_bytes);
}

const OperandGuard::Operand& OperandGuard::Add(const char* name, Access access, char* base,
                                               int64_t rows, int64_t r0, int64_t r1,
                                               int64_t row_bytes, int64_t pitch) {
  char* const original = base + r0 * pitch;
  for (const Operand& other : operands_) {
    if (other.original == original && other.original_pitch == pitch &&
        other.row_bytes == row_bytes && other.rows == r1 - r0) {
      PLUMB_CHECK(access == Access::kRead || other.access == Access::kWrite,
                  "operands that are written come before those that are read");
      return other;
    }
  }
  Operand operand = {};
  operand.name = name;
  operand.access = access;
  operand.original = original;
  operand.original_pitch = pitch;
  operand.is_one_row = rows == 1;
  operand.first_row = r0;
  operand.rows = r1 - r0;
  operand.row_bytes = row_bytes;
  operand.pitch = AlignUp(row_bytes) + kAlignment;
  // Reserves addresses for all rows, so that a row outside of this call is not other memory.
  operand.map_bytes = static_cast<size_t>(rows * operand.pitch + 2 * kUnreadableBytes);
  void* const map = mmap(nullptr, operand.map_bytes, PROT_NONE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return Unguarded(operand);
  operand.map = static_cast<char*>(map);
  operand.data = operand.map + kUnreadableBytes + r0 * operand.pitch;
  operand.window = ToPage(operand.data - kCanaryBytes, false);
  char* const window_end = ToPage(operand.data + operand.rows * operand.pitch + kCanaryBytes, true);
  operand.window_bytes = static_cast<size_t>(window_end - operand.window);
  if (mprotect(operand.window, operand.window_bytes, PROT_READ | PROT_WRITE) != 0) {
    munmap(operand.map, operand.map_bytes);
    return Unguarded(operand);
  }
  std::memset(operand.window, kGuardByte, operand.window_bytes);
  for (int64_t i = 0; i < operand.rows; ++i) {
    std::memcpy(operand.Row(i), original + i * pitch, static_cast<size_t>(row_bytes));
  }
  operands_.push_back(operand);
  return operands_.back();
}

// Returns the unguarded operand if there is no memory; the call is then not made.
const OperandGuard::Operand& OperandGuard::Unguarded(Operand operand) {
  operand.data = operand.original;
  operand.pitch = operand.original_pitch;
  unguarded_ = operand;
  return *unguarded_;
}

bool OperandGuard::Seal() {
  bool sealed = !unguarded_.has_value();
  for (const Operand& operand : operands_) {
    if (operand.access != Access::kRead) continue;
    sealed &= mprotect(operand.window, operand.window_bytes, PROT_READ) == 0;
  }
  return sealed;
}

std::string OperandGuard::Damage() const {
  for (const Operand& operand : operands_) {
    if (operand.access == Access::kRead) continue;
    const auto of_row = [&](int64_t row) {
      return operand.is_one_row
                 ? std::string(operand.name)
                 : absl::StrCat("row ", operand.first_row + row, " of ", operand.name);
    };
    const char* from = operand.window;
    for (int64_t i = 0; i <= operand.rows; ++i) {
      const bool is_last = i == operand.rows;
      const char* const to = is_last ? operand.window + operand.window_bytes : operand.Row(i);
      const char* const damaged = FirstDamaged(from, to);
      if (damaged != to) {
        // Reports the nearer row.
        if (i == 0 || (!is_last && to - damaged < damaged - from)) {
          const char* last = to;
          while (static_cast<unsigned char>(last[-1]) == kGuardByte) --last;
          return absl::StrCat(to - (last - 1), " bytes before ", of_row(i));
        }
        return absl::StrCat("byte ", damaged - from, " behind ", of_row(i - 1));
      }
      if (!is_last) from = operand.Row(i) + operand.row_bytes;
    }
  }
  return "";
}

void OperandGuard::CopyBack() const {
  for (const Operand& operand : operands_) {
    if (operand.access == Access::kRead) continue;
    for (int64_t i = 0; i < operand.rows; ++i) {
      std::memcpy(operand.original + i * operand.original_pitch, operand.Row(i),
                  static_cast<size_t>(operand.row_bytes));
    }
  }
}

const char* OperandGuard::Find(const void* address, int64_t* bytes, bool* read_only) const {
  const char* const at = static_cast<const char*>(address);
  for (const Operand& operand : operands_) {
    if (at < operand.map || at >= operand.map + operand.map_bytes) continue;
    *read_only = at >= operand.data && at < operand.end();
    *bytes = at < operand.end() ? at - operand.data : at - operand.end();
    return operand.name;
  }
  return nullptr;
}

}  // namespace plumb
