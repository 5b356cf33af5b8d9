// Hash tables for code that may run out of memory: std::bad_alloc leaves them as they were.
// (Abseil's are built for programs without exceptions; one that could not grow frees what it does
// not own.)
#ifndef PLUMB_RUNTIME_BASE_HASH_MAP_H_
#define PLUMB_RUNTIME_BASE_HASH_MAP_H_

#include <unordered_map>
#include <unordered_set>

#include "absl/hash/hash.h"

namespace plumb {

template <class Key, class Value>
using HashMap = std::unordered_map<Key, Value, absl::Hash<Key>>;

template <class Key>
using HashSet = std::unordered_set<Key, absl::Hash<Key>>;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_BASE_HASH_MAP_H_
