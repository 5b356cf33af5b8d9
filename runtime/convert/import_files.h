// SPDX-License-Identifier: Apache-2.0
// Shared by import and export: a family's model, its tensors, and the tokenizer's files. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_IMPORT_FILES_H_
#define PLUMB_RUNTIME_CONVERT_IMPORT_FILES_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"
#include "runtime/formats/safetensors.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family.h"

namespace plumb {

// Creates the model that the family's template describes. Errors: those of the family's author, or
// impossible sizes in config.json.
absl::StatusOr<api::Model> MakeModel(HostRuntime* runtime, const Family& family,
                                     const ConfigValues& values);

// Returns the weights of a model, in its order. Errors: kInvalidArgument if its norms have
// statistics, which no family can express.
absl::StatusOr<std::vector<WantedTensor>> TensorsOfModel(const api::Model& model);

// Copies the tokenizer's files and generation_config.json from `from` to `to`, as far as they
// exist.
absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to);

// Returns the special tokens of a new run, from its tokenizer files and the checkpoint's `config`.
// Adds them to the run's generation_config.json without replacing existing entries.
absl::StatusOr<SpecialTokens> KeepSpecialTokens(const std::string& run,
                                                const nlohmann::json& config, int64_t vocab_size);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_IMPORT_FILES_H_
