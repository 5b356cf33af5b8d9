// SPDX-License-Identifier: Apache-2.0
// Descriptions of models (api::Spec) and models (api::Model) as the command line opens, explains
// and runs them, and errors about other files in the place of a model. Values; stateless functions.
#ifndef PLUMB_RUNTIME_CLIENT_MODEL_H_
#define PLUMB_RUNTIME_CLIENT_MODEL_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/plumb_api.h"
#include "runtime/client/probe.h"

namespace plumb {

// ("n_layer", "8") pairs, applied in order.
using Overrides = std::vector<std::pair<std::string, std::string>>;

// Description of a model as given by a user. A value.
struct ModelSource {
  std::string text, name;  // name: of the file, for messages
  Overrides settings;      // ("n_layer", "8"), ("norm[0].attr[0].number", "1e-6")

  // Parses the text and applies the settings. Errors: with "file:line:column", all syntax errors at
  // once; for settings, "model." and the field.
  absl::StatusOr<api::Spec> Parse() const;
};
absl::StatusOr<ModelSource> ReadModelSource(const std::string& path, Overrides settings = {});
// Returns the name in the text of a model; "" if it has none.
absl::StatusOr<std::string> NameInText(const std::string& model_text);
// Reads and parses the file.
absl::StatusOr<api::Spec> ReadSpec(const std::string& path, Overrides settings = {});

// Sets one field. Errors begin with "model." and the field.
absl::Status SetField(const std::string& field, const std::string& value, api::Spec* spec);
int64_t GetVocabSize(const api::Spec& spec);  // 0: not set

// Resolves every name and checks the formulas. Errors: those of the author, with locations.
absl::StatusOr<api::Model> CreateModel(HostRuntime* runtime, const api::Spec& spec);

// Returns the content of plumb_model_describe.
absl::StatusOr<nlohmann::ordered_json> DescribeModel(const api::Model& model);

// Returns the data flow of the blocks as an SVG file: of each kind of layer, or of one layer, from
// 0. Errors: kInvalidArgument if the layer does not exist or a block is too large to be drawn.
absl::StatusOr<std::string> DrawModel(const api::Model& model,
                                      std::optional<int64_t> layer = std::nullopt);

// Returns the names of the stages that ExplainModel prints.
std::vector<std::string> ExplainStages();

// Returns the output of a compiler stage, as plumb_model_explain does; batch and seq of 0 select
// its defaults. Only the overrides `dtype` and `recompute` have an effect.
absl::StatusOr<std::string> ExplainModel(const api::Model& model, const std::string& stage,
                                         int64_t batch, int64_t seq,
                                         const Overrides& train_overrides = {});

// Return the points that can be probed, in the order of the data, and those that are probed by
// default.
absl::StatusOr<std::vector<std::string>> ProbePoints(const api::Model& model);
absl::StatusOr<std::vector<std::string>> DefaultProbePoints(const api::Model& model);

enum class FileKind { kModel, kRecipe, kStudy };

// Returns the kind of file of whose fields the text sets most, `expected` if no other has more.
FileKind LikelyFileKind(FileKind expected, absl::string_view text);

// Returns `error`, which parsing the file as `expected` gave, or, if it is likely of another
// kind, an error that names that kind and how to give such a file to a command.
absl::Status ExplainFileKind(FileKind expected, absl::string_view text, const std::string& file,
                             const absl::Status& error);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CLIENT_MODEL_H_
