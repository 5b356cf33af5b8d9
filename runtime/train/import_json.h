// SPDX-License-Identifier: Apache-2.0
// import.json of an imported run: location of its weights. Stateless.
//
//   {"format": "plumb-import", "version": 1, "family": "gpt2", "source": "/absolute/directory",
//    "files": {"model.safetensors": {"header": "16 hex digits", "size": 1048576, "modified_ns": ..,
//      "inode": .., "hash": "16 hex digits"}},
//    "config": {config.json, without the keys of --allow-unread},
//    "config_keys": [{"key": "rope_parameters.rope_theta", "use": "read"},
//      {"key": "use_cache", "use": "irrelevant", "reason": ".."}, ..],
//    "tensors": [
//      {"source": "h.0.ln_1.weight", "file": "model.safetensors", "dtype": "F32", "shape": [768],
//       "became": [{"tensor": "layers.0.attention.norm.weight", "from": 0}]},
//      {"source": "h.0.attn.c_attn.weight", .., "became": [
//        {"tensor": "layers.0.attention.q.weight", "transposed": true,
//         "rows": {"groups": 1, "first": 0, "count": 768}, "converted": true}, ..]},
//      {"source": "h.0.attn.bias", .., "ignored": "a causal mask"}],
//    "filled": [{"tensor": "..", "value": 0}]}
//
// "from": plumb reads the tensor in the checkpoint's file, starting at this element of the source.
// "converted" and "filled": the tensor is in the run's weights.safetensors. "part": index among
// stacked sources. "computed_from": the source is not in the file as it is described, but computed
// from tensors that this names: dequantized, or merged with an adapter.
#ifndef PLUMB_RUNTIME_TRAIN_IMPORT_JSON_H_
#define PLUMB_RUNTIME_TRAIN_IMPORT_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/plumb_api.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/config_keys.h"
#include "runtime/zoo/family.h"
#include "runtime/zoo/tensor_plan.h"

namespace plumb {

inline constexpr char kImportFile[] = "import.json";
inline constexpr char kImportedWeights[] = "weights.safetensors";

// Returns the first element in the source if the tensor stays in the checkpoint, otherwise -1.
int64_t MappedOffset(const PlannedTensor& tensor);

// Content of a config.json at import.
struct ImportedConfig {
  nlohmann::json config;             // without the keys in `allowed`
  std::vector<ConfigKey> keys;       // keys of `config`
  std::vector<std::string> allowed;  // keys that were removed at the user's request
};

// Returns the text of import.json. Reads all files of the checkpoint, to hash them. `copied`:
// nothing stays in the checkpoint.
absl::StatusOr<std::string> ImportJson(const Family& family, const ImportedConfig& config,
                                       const CheckpointDirectory& checkpoint,
                                       const TensorPlan& plan, bool copied);

bool IsImportedRun(const std::string& run);

struct ImportedFamily {
  std::string family;
  nlohmann::json config;
};
absl::StatusOr<ImportedFamily> ReadImportedFamily(const std::string& run);

// Maps the weights of an imported run into its model. Errors: kDataLoss if a file of the checkpoint
// is missing or has changed.
absl::Status MapImportedWeights(const std::string& run, api::Model* model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_IMPORT_JSON_H_
