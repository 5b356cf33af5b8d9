// SPDX-License-Identifier: Apache-2.0
// FlatTable: a hash table from 64-bit keys to 64-bit values in one array, with open addressing and
// a load factor of at most one half. It is filled once and then looked up very often. A value;
// thread-safe for lookups.
#ifndef PLUMB_RUNTIME_TOKENIZER_FLAT_TABLE_H_
#define PLUMB_RUNTIME_TOKENIZER_FLAT_TABLE_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace plumb {

class FlatTable {
 public:
  static constexpr uint64_t kNone = ~uint64_t{0};  // reserved: neither a key nor a value

  FlatTable() { Resize(16); }

  // Sets the value of a key. Returns false and changes nothing if the key has a value.
  bool Insert(uint64_t key, uint64_t value) {
    if (2 * (size_ + 1) > slots_.size()) Resize(2 * slots_.size());
    Slot& slot = slots_[Place(key)];
    if (slot.key == key) return false;
    slot = {key, value};
    ++size_;
    return true;
  }

  // Sets or replaces the value of a key.
  void Set(uint64_t key, uint64_t value) {
    if (!Insert(key, value)) slots_[Place(key)].value = value;
  }

  // Returns the value of a key; kNone if it has none.
  uint64_t Find(uint64_t key) const { return slots_[Place(key)].value; }

 private:
  struct Slot {
    uint64_t key = kNone;
    uint64_t value = kNone;
  };

  // Returns the slot of the key, or the free slot for it.
  size_t Place(uint64_t key) const {
    size_t at = static_cast<size_t>((key * 0x9E3779B97F4A7C15u) >> shift_);
    while (slots_[at].key != key && slots_[at].key != kNone) at = (at + 1) & (slots_.size() - 1);
    return at;
  }

  void Resize(size_t slots) {
    std::vector<Slot> old(slots);
    old.swap(slots_);
    shift_ = 64;
    for (size_t n = slots; n > 1; n /= 2) --shift_;
    for (const Slot& slot : old) {
      if (slot.key != kNone) slots_[Place(slot.key)] = slot;
    }
  }

  std::vector<Slot> slots_;
  size_t size_ = 0;
  int shift_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_FLAT_TABLE_H_
