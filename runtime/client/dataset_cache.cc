// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/dataset_cache.h"

#include "runtime/base/status.h"
#include "runtime/schema/reader.h"

namespace plumb {

absl::StatusOr<std::shared_ptr<const Dataset>> DatasetCache::Load(const std::string& path,
                                                                  const Recipe& recipe) {
  // Other threads wait for the same file, and seldom for another one.
  const std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<const Dataset>& kept =
      datasets_[{path, textproto::PrintText(recipe.fields.data())}];
  if (kept == nullptr) {
    PLUMB_ASSIGN_OR_RETURN(Dataset read, Dataset::Load(path, ToDatasetOptions(recipe)));
    kept = std::make_shared<const Dataset>(std::move(read));
  }
  return kept;
}

}  // namespace plumb
