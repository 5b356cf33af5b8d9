// SPDX-License-Identifier: Apache-2.0
// OperandGuard: the operands of one call of a plugin, in memory of their own between canaries and
// unreadable pages, so that a plugin that leaves them is caught in the act or right after it. What
// the call may only read cannot be written. Thread-compatible; lives as long as the call. Slow.
#ifndef PLUMB_RUNTIME_PLUGIN_OPERAND_GUARD_H_
#define PLUMB_RUNTIME_PLUGIN_OPERAND_GUARD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace plumb {

class OperandGuard {
 public:
  enum class Access { kRead, kWrite };  // kWrite: and read

  OperandGuard() = default;
  ~OperandGuard();
  OperandGuard(const OperandGuard&) = delete;
  OperandGuard& operator=(const OperandGuard&) = delete;

  // Rows [r0, r1) of an operand of `rows` rows of `row_bytes` each: *base and *pitch become those
  // of the guarded rows, which keep their indices; the other rows are not there. Null stays null.
  // An operand that another one lies in (same base) shares its memory: add those that are written
  // first. `name` outlives this.
  template <class Pointer>
  void AddRows(const char* name, Access access, int64_t rows, int64_t r0, int64_t r1,
               int64_t row_bytes, Pointer* base, int64_t* pitch) {
    if (*base == nullptr) return;
    const Operand& operand = Add(name, access, const_cast<char*>(static_cast<const char*>(*base)),
                                 rows, r0, r1, row_bytes, *pitch);
    *pitch = operand.pitch;
    *base = reinterpret_cast<Pointer>(reinterpret_cast<uintptr_t>(operand.data) -
                                      static_cast<uintptr_t>(r0 * operand.pitch));
  }
  // `bytes` at *data.
  template <class Pointer>
  void AddVector(const char* name, Access access, int64_t bytes, Pointer* data) {
    int64_t pitch = bytes;
    AddRows(name, access, 1, 0, 1, bytes, data, &pitch);
  }

  // After the last operand, before the call: what is only read becomes unwritable. False when there
  // is no memory for all of this, and the call must not be made.
  bool Seal();

  // Where a canary was overwritten: "byte 3 behind row 7 of y"; "" if none was.
  std::string Damage() const;

  // What was written goes where the operands were taken from.
  void CopyBack() const;

  // The operand whose guard `address` is in; null if it is in none. *bytes: before its first byte
  // (negative), within it if it must not be written, or behind its last one. Async-signal-safe.
  const char* Find(const void* address, int64_t* bytes, bool* read_only) const;

 private:
  struct Operand {
    const char* name;
    Access access;
    char* original;  // row r0
    int64_t original_pitch;
    bool is_one_row;  // of this call and any other: a vector
    int64_t first_row, rows, row_bytes;
    char* map;  // everything
    size_t map_bytes;
    char* window;  // what is mapped for reading or writing
    size_t window_bytes;
    char* data;  // row r0
    int64_t pitch;

    char* Row(int64_t i) const { return data + i * pitch; }
    const char* end() const { return rows == 0 ? data : Row(rows - 1) + row_bytes; }
  };

  const Operand& Add(const char* name, Access access, char* base, int64_t rows, int64_t r0,
                     int64_t r1, int64_t row_bytes, int64_t pitch);

  const Operand& GiveUp(Operand operand);

  std::vector<Operand> operands_;
  std::optional<Operand> unguarded_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_OPERAND_GUARD_H_
