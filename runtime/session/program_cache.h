// SPDX-License-Identifier: Apache-2.0
// ProgramCache: what was compiled last, for the sessions of one runtime: those whose models, types
// and lengths agree share programs, as the runs of a study do, and a model's lengths share the
// graph of its forward pass. Thread-safe.
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

// The values that were used last, at most `most` of them. Thread-safe.
template <class T>
class LastUsed {
 public:
  using Shared = std::shared_ptr<const T>;

  explicit LastUsed(size_t most) : most_(most) {}

  // Returns the value of `key`, which says all that `make` depends on; calls `make` if there is
  // none. Errors: those of `make`.
  absl::StatusOr<Shared> Get(const std::string& key,
                             absl::FunctionRef<absl::StatusOr<Shared>()> make) {
    if (Shared known = Find(key); known != nullptr) return known;
    // Without the lock: two threads may make the same; the first one's stays.
    PLUMB_ASSIGN_OR_RETURN(Shared made, make());
    if (Shared known = Find(key); known != nullptr) return known;
    const std::lock_guard<std::mutex> lock(mutex_);
    used_.emplace_front(key, made);
    entries_[key] = used_.begin();
    if (used_.size() > most_) {
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

  const size_t most_;
  std::mutex mutex_;
  std::list<Entry> used_;  // the last one first
  absl::flat_hash_map<std::string, typename std::list<Entry>::iterator> entries_;
};

struct ProgramCache {
  LastUsed<CompiledProgram> programs{48};  // a model that learns texts of all lengths has dozens
  LastUsed<Graph> forward{128};            // of one length each, for the others
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_PROGRAM_CACHE_H_
