// SPDX-License-Identifier: Apache-2.0
// ProgramCache: recently compiled programs, shared by the sessions of one runtime. Sessions of
// equal models, types and lengths share programs, as the runs of a study do, and the lengths of a
// model share the graph of its forward pass. Thread-safe.
#ifndef PLUMB_RUNTIME_SESSION_PROGRAM_CACHE_H_
#define PLUMB_RUNTIME_SESSION_PROGRAM_CACHE_H_

#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "runtime/base/status.h"
#include "runtime/compile/executable.h"
#include "runtime/graph/graph.h"

namespace plumb {

// An LRU cache of at most `max` values. Thread-safe.
template <class T>
class LastUsed {
 public:
  using Shared = std::shared_ptr<const T>;

  explicit LastUsed(size_t max) : max_size_(max) {}

  // Returns the value of `key`, which must identify everything that `make` depends on; calls `make`
  // if it is not cached. Errors: those of `make`.
  absl::StatusOr<Shared> Get(const std::string& key,
                             absl::FunctionRef<absl::StatusOr<Shared>()> make) {
    if (Shared known = Find(key); known != nullptr) return known;
    // Without the lock: two threads may make the same value; the first to finish is cached.
    PLUMB_ASSIGN_OR_RETURN(Shared made, make());
    if (Shared known = Find(key); known != nullptr) return known;
    const std::lock_guard<std::mutex> lock(mutex_);
    used_.emplace_front(key, made);
    entries_[key] = used_.begin();
    if (used_.size() > max_size_) {
      entries_.erase(used_.back().first);
      used_.pop_back();
    }
    return made;
  }

 private:
  Shared Find(const std::string& key) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto at = entries_.find(key);
    if (at == entries_.end()) return nullptr;
    used_.splice(used_.begin(), used_, at->second);
    return at->second->second;
  }

  using Entry = std::pair<std::string, Shared>;

  const size_t max_size_;
  std::mutex mutex_;
  std::list<Entry> used_;  // most recently used first
  absl::flat_hash_map<std::string, typename std::list<Entry>::iterator> entries_;
};

struct ProgramCache {
  LastUsed<CompiledProgram> programs{48};  // a model trained on texts of all lengths has dozens
  LastUsed<Graph> forward{128};            // one length each, for all lengths
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROGRAM_CACHE_H_
