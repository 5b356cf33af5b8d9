// SPDX-License-Identifier: Apache-2.0
// import.json of an imported run: where its weights lie. Private to runtime/app.
//
//   {"format": "plumb-import", "version": 1, "family": "gpt2", "source": "/absolute/directory",
//    "files": {"model.safetensors": {"header": "16 hex digits"}},
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
// "from": plumb reads it in the checkpoint's file, from this element of the source on. "converted"
// and "filled": it is in the run's weights.safetensors. "part": which of the stacked ones it is.
#ifndef PLUMB_RUNTIME_APP_IMPORT_IMPORT_JSON_H_
#define PLUMB_RUNTIME_APP_IMPORT_IMPORT_JSON_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/config_keys.h"
#include "runtime/zoo/family.h"
#include "runtime/zoo/tensor_plan.h"

namespace plumb {

inline constexpr char kImportFile[] = "import.json";
inline constexpr char kImportedWeights[] = "weights.safetensors";

// Whether a planned tensor stays in the checkpoint: the element that it begins with there; else -1.
int64_t StaysFrom(const PlannedTensor& tensor);

// A config.json as it was imported.
struct ImportedConfig {
  nlohmann::json config;             // without the keys of `allowed`
  std::vector<ConfigKey> keys;       // of `config`
  std::vector<std::string> allowed;  // keys that were removed at the user's word
};

// The text for a run. `copied`: nothing stays in the checkpoint.
std::string ImportJson(const Family& family, const ImportedConfig& config,
                       const CheckpointDirectory& checkpoint, const TensorPlan& plan, bool copied);

bool IsImportedRun(const std::string& run);

struct ImportedFamily {
  std::string family;
  nlohmann::json config;
};
absl::StatusOr<ImportedFamily> ReadImportedFamily(const std::string& run);

// Gives the model of an imported run its weights, where they lie. kDataLoss where a file of the
// checkpoint is gone or is another one now.
absl::Status MapImportedWeights(const std::string& run, api::Model* model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_IMPORT_IMPORT_JSON_H_
