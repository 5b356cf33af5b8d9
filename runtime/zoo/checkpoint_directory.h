// SPDX-License-Identifier: Apache-2.0
// CheckpointDirectory: a checkpoint as Hugging Face's libraries lay it out: config.json, and
// model.safetensors or shards with model.safetensors.index.json. Every byte is distrusted: nothing
// outside of the directory is opened, whatever an index or a link says, but for the blobs of a hub
// cache, to which its links lead (snapshots/REVISION/FILE -> ../../blobs/HASH). Tensors stay in
// their files, mapped. Immutable; move-only.
#ifndef PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_
#define PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_

#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

struct CheckpointTensor {
  size_t file = 0;  // of CheckpointDirectory::files()
  const TensorEntry* entry = nullptr;
};

class CheckpointDirectory {
 public:
  // Reads config.json, and opens no weights yet. Errors: kNotFound and kInvalidArgument, with the
  // file.
  static absl::StatusOr<CheckpointDirectory> Open(const std::string& path);
  // Maps the weights. Errors: kNotFound, kInvalidArgument and kDataLoss, with the file. All tensors
  // that the index and the shards disagree on are listed at once.
  absl::Status OpenWeights();

  const std::string& path() const { return path_; }
  std::string config_path() const;
  const nlohmann::json& config() const { return config_; }
  // Names of files in the directory, and their content.
  const std::vector<std::string>& file_names() const { return file_names_; }
  const SafetensorsFile& file(size_t i) const { return *files_[i]; }
  // In the order of the files and their data.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* Find(absl::string_view name) const;  // null: none

 private:
  absl::Status OpenShards(const std::string& index_path);
  absl::Status AddFile(const std::string& name);

  std::string path_;
  nlohmann::json config_;
  std::vector<std::string> file_names_;
  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::vector<CheckpointTensor> tensors_;
  absl::flat_hash_map<std::string, size_t> index_;
};

// The path of `name` in `directory`, if it is a plain name and leads nowhere else.
// kInvalidArgument otherwise; kNotFound: there is no such file.
absl::StatusOr<std::string> PathInside(const std::string& directory, absl::string_view name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_
