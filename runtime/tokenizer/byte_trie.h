// SPDX-License-Identifier: Apache-2.0
// ByteTrie: finds the pieces of a vocabulary that are prefixes of a text. Thread-compatible;
// thread-safe for lookups.
#ifndef PLUMB_RUNTIME_TOKENIZER_BYTE_TRIE_H_
#define PLUMB_RUNTIME_TOKENIZER_BYTE_TRIE_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/tokenizer/flat_table.h"

namespace plumb {

class ByteTrie {
 public:
  // Sets the value of a key. Returns false and changes nothing if the key has a value.
  bool Insert(absl::string_view key, int32_t value) {
    uint64_t node = 0;
    for (const char c : key) {
      const uint64_t edge = Edge(node, c);
      uint64_t next = edges_.Find(edge);
      if (next == FlatTable::kNone) {
        next = values_.size();
        values_.push_back(-1);
        edges_.Insert(edge, next);
      }
      node = next;
    }
    if (values_[node] >= 0) return false;
    values_[node] = value;
    return true;
  }

  // Calls visit(length, value) for every key that is a prefix of `text`, shortest first. Returns
  // the number of bytes that were read.
  template <class Visit>
  size_t VisitPrefixes(absl::string_view text, Visit visit) const {
    uint64_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      node = edges_.Find(Edge(node, text[i]));
      if (node == FlatTable::kNone) return i;
      if (values_[node] >= 0) visit(i + 1, values_[node]);
    }
    return text.size();
  }

  // Finds the longest key that is a prefix: sets `*length` and `*value`, which is -1 if there is
  // none. Returns the number of bytes that were read.
  size_t LongestPrefix(absl::string_view text, size_t* length, int32_t* value) const {
    *value = -1;
    return VisitPrefixes(text, [&](size_t n, int32_t found) {
      *length = n;
      *value = found;
    });
  }

 private:
  static uint64_t Edge(uint64_t node, char c) { return node << 8 | static_cast<unsigned char>(c); }

  std::vector<int32_t> values_ = {-1};  // value of each node; -1: no key ends there
  FlatTable edges_;                     // maps node and byte to the next node
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_BYTE_TRIE_H_
