// SPDX-License-Identifier: Apache-2.0
// DatasetCache: the datasets that the runs of a study have in common. Thread-safe.
#ifndef PLUMB_RUNTIME_CLIENT_DATASET_CACHE_H_
#define PLUMB_RUNTIME_CLIENT_DATASET_CACHE_H_

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "runtime/client/recipe.h"
#include "runtime/data/data.h"

namespace plumb {

class DatasetCache {
 public:
  // Returns the data of `path` as the recipe reads it, which it keeps: a file that changes later is
  // not read again. Errors: those of Dataset::Load, which are not kept.
  absl::StatusOr<std::shared_ptr<const Dataset>> Load(const std::string& path,
                                                      const Recipe& recipe);

 private:
  std::mutex mutex_;
  // The key is the path and the recipe's `data`.
  std::map<std::pair<std::string, std::string>, std::shared_ptr<const Dataset>> datasets_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_DATASET_CACHE_H_
