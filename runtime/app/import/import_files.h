// SPDX-License-Identifier: Apache-2.0
// What import and export share: a family's model, its tensors, and the tokenizer's files. Private
// to runtime/app.
#ifndef PLUMB_RUNTIME_APP_IMPORT_IMPORT_FILES_H_
#define PLUMB_RUNTIME_APP_IMPORT_IMPORT_FILES_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/host_runtime.h"
#include "runtime/app/model.h"
#include "runtime/formats/safetensors.h"
#include "runtime/tokenizer/special_tokens.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

// The model that the family's template describes. Its errors are the family's author's, or of sizes
// in config.json that no model has.
absl::StatusOr<api::Model> MakeModel(HostRuntime* runtime, const Family& family,
                                     const ConfigValues& values);

// The weights of a model, in its order. kInvalidArgument for one that keeps statistics of norms,
// which no family has.
absl::StatusOr<std::vector<WantedTensor>> TensorsOfModel(const api::Model& model);

// Copies the files of a tokenizer that `from` has to `to`, and generation_config.json.
absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to);

// Returns the special tokens of a new run that has the files above, of a checkpoint with `config`.
// The run's generation_config.json says them afterwards; what it said already stays.
absl::StatusOr<SpecialTokens> KeepSpecialTokens(const std::string& run,
                                                const nlohmann::json& config, int64_t vocab_size);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_APP_IMPORT_IMPORT_FILES_H_
