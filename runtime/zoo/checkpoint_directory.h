// SPDX-License-Identifier: Apache-2.0
// CheckpointDirectory: checkpoint in the layout of Hugging Face's libraries: config.json, and
// model.safetensors or shards with model.safetensors.index.json. Treats every byte as untrusted: it
// opens no file outside of the directory, whatever an index or a link refers to, except blobs of a
// hub cache, to which the cache's links lead (snapshots/REVISION/FILE -> ../../blobs/HASH). Tensors
// stay in their files, which are mapped, unless SetTensors replaces them. Move-only.
#ifndef PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_
#define PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/formats/safetensors.h"

namespace plumb {

// Tensor in a file of the checkpoint, or one that is computed from such tensors while it is read.
struct CheckpointTensor {
  size_t file = 0;                                 // index in CheckpointDirectory::files
  std::shared_ptr<const TensorEntry> entry;        // data: empty if the tensor is computed
  std::function<std::string()> compute = nullptr;  // returns the data of a computed tensor
  std::string computed_from = {};                  // note for import.json

  bool is_computed() const { return compute != nullptr; }
  // Returns the data, which are stored in `buffer` if the tensor is computed.
  absl::string_view Data(std::string* buffer) const {
    return is_computed() ? *buffer = compute() : entry->data;
  }
};

class CheckpointDirectory {
 public:
  // Reads config.json without opening the weights. Errors: kNotFound and kInvalidArgument, with the
  // file's path.
  static absl::StatusOr<CheckpointDirectory> Open(const std::string& path);
  // Maps the weights. Errors: kNotFound, kInvalidArgument and kDataLoss, with the file's path.
  // Lists all tensors on which the index and the shards disagree.
  absl::Status OpenWeights();

  const std::string& path() const { return path_; }
  std::string config_path() const;
  const nlohmann::json& config() const { return config_; }
  // Names of the opened weight files in the directory; file(i) is the content of the i-th.
  const std::vector<std::string>& file_names() const { return file_names_; }
  const SafetensorsFile& file(size_t i) const { return *files_[i]; }
  // All tensors, ordered by file and by their offset in it.
  const std::vector<CheckpointTensor>& tensors() const { return tensors_; }
  const CheckpointTensor* Find(absl::string_view name) const;  // null: none
  // Replaces all tensors. Requires: their names differ. Invalidates pointers to the old ones.
  void SetTensors(std::vector<CheckpointTensor> tensors);

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

// Returns the path of the file `name` in `directory`. Errors: kInvalidArgument unless `name` is a
// plain file name that does not lead out of the directory; kNotFound if the file does not exist.
absl::StatusOr<std::string> PathInside(const std::string& directory, absl::string_view name);

// Reads a file that PathInside accepts. Errors: also those of files that are not a JSON object.
absl::StatusOr<nlohmann::json> ReadJsonInside(const std::string& directory, absl::string_view name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_CHECKPOINT_DIRECTORY_H_
