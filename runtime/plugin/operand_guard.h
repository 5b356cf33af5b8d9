// SPDX-License-Identifier: Apache-2.0
// OperandGuard: copies of the operands of one plugin call, between canaries and unreadable pages,
// so that a plugin that accesses other memory is detected at once or after the call. Read-only
// operands cannot be written. Thread-compatible; lives as long as the call. Slow.
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
  enum class Access { kRead, kWrite };  // kWrite: read and write

  OperandGuard() = default;
  ~OperandGuard();
  OperandGuard(const OperandGuard&) = delete;
  OperandGuard& operator=(const OperandGuard&) = delete;

  // Adds rows [r0, r1) of an operand with `rows` rows of `row_bytes` each: *base and *pitch become
  // those of the guarded rows, which keep their indices; other rows are inaccessible. Null stays
  // null. An operand with the same base as another shares its guarded memory: add written operands
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
  // Adds `bytes` at *data.
  template <class Pointer>
  void AddVector(const char* name, Access access, int64_t bytes, Pointer* data) {
    int64_t pitch = bytes;
    AddRows(name, access, 1, 0, 1, bytes, data, &pitch);
  }

  // Makes read-only operands unwritable. Call it after the last operand and before the call.
  // Returns false if memory did not suffice, and the call must not be made.
  bool Seal();

  // Returns where a canary was overwritten: "byte 3 behind row 7 of y"; "" if none was.
  std::string Damage() const;

  // Copies written operands back to their originals.
  void CopyBack() const;

  // Returns the operand in whose guard `address` is, or null. *bytes is its offset: negative before
  // the first byte, or within the operand if that must not be written, or from its end.
  // Async-signal-safe.
  const char* Find(const void* address, int64_t* bytes, bool* read_only) const;

 private:
  struct Operand {
    const char* name;
    Access access;
    char* original;  // row r0
    int64_t original_pitch;
    bool is_one_row;  // a vector, the same in all calls
    int64_t first_row, rows, row_bytes;
    char* map;  // the whole mapping
    size_t map_bytes;
    char* window;  // accessible part of the mapping
    size_t window_bytes;
    char* data;  // row r0
    int64_t pitch;

    char* Row(int64_t i) const { return data + i * pitch; }
    const char* end() const { return rows == 0 ? data : Row(rows - 1) + row_bytes; }
  };

  const Operand& Add(const char* name, Access access, char* base, int64_t rows, int64_t r0,
                     int64_t r1, int64_t row_bytes, int64_t pitch);

  const Operand& Unguarded(Operand operand);

  std::vector<Operand> operands_;
  std::optional<Operand> unguarded_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_OPERAND_GUARD_H_
