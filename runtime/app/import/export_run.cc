// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/app/checkpoint/staged_directory.h"
#include "runtime/app/import/families.h"
#include "runtime/app/import/import.h"
#include "runtime/app/import/import_files.h"
#include "runtime/app/import/import_json.h"
#include "runtime/app/model.h"
#include "runtime/app/train/run_directory.h"
#include "runtime/app/train/run_model.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"
#include "runtime/tokenizer/library_json.h"
#include "runtime/tokenizer/special_tokens.h"
#include "runtime/zoo/config_values.h"
#include "runtime/zoo/family_export.h"
#include "runtime/zoo/tensor_plan.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Number of tokens in the compared graphs: enough for every op to appear.
constexpr int64_t kComparedTokens = 8;

absl::StatusOr<std::vector<std::string>> GraphOf(const api::Model& model) {
  const int64_t seq = std::min(kComparedTokens, model.Info().context_length);
  PLUMB_ASSIGN_OR_RETURN(const std::string graph, ExplainModel(model, "graph", 1, seq));
  return absl::StrSplit(graph, '\n');
}

// Returns a line of a graph without the numbers of its values, which change with any difference.
std::string WithoutNumbers(absl::string_view line) {
  std::string text;
  for (size_t i = 0; i < line.size(); ++i) {
    text += line[i];
    if (line[i] != '%') continue;
    while (i + 1 < line.size() && line[i + 1] >= '0' && line[i + 1] <= '9') ++i;
  }
  return text;
}

// Fails unless the family's model has the same graph as `model`, and therefore the same weights.
absl::Status CheckSameModel(const Family& family, const api::Model& model,
                            const api::Model& of_family) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> own, GraphOf(model));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> other, GraphOf(of_family));
  if (own == other) return absl::OkStatus();
  size_t at = 0;
  while (at < own.size() && at < other.size() && own[at] == other[at]) ++at;
  const auto line = [at](const std::vector<std::string>& graph) {
    return at < graph.size() && !graph[at].empty() ? WithoutNumbers(graph[at])
                                                   : std::string("nothing more");
  };
  return absl::InvalidArgumentError(absl::StrCat(
      family.name,
      " cannot express this model: what it would compute differs, first in\n  this model: ",
      line(own), "\n  ", family.name, ":",
      std::string(family.name.size() < 10 ? 10 - family.name.size() : 0, ' '), " ", line(other)));
}

// Returns the dimensions, and the attributes that have the same value in all norms of the layers.
std::map<std::string, double> FactsOf(const nlohmann::ordered_json& description) {
  std::map<std::string, double> facts;
  std::set<std::string> differ;
  for (const auto& group : description["layers"]) {
    // "slot norm: rms_norm(affine=true, eps=1e-05)[32]"
    for (const std::string slot : group["norms"]) {
      const size_t open = slot.find('('), close = slot.rfind(')');
      if (open == std::string::npos || close == std::string::npos || close < open) continue;
      const std::string attributes = slot.substr(open + 1, close - open - 1);
      for (const absl::string_view attribute : absl::StrSplit(attributes, ", ")) {
        const std::pair<std::string, std::string> parts = absl::StrSplit(attribute, '=');
        double value;
        if (!absl::SimpleAtod(parts.second, &value)) continue;
        const std::string name = absl::StrCat("norm_attr.", parts.first);
        const auto [at, added] = facts.emplace(name, value);
        if (!added && at->second != value) differ.insert(name);
      }
    }
  }
  for (const std::string& name : differ) facts.erase(name);
  for (const auto& [name, value] : description["dims"].items()) facts[name] = value;
  return facts;
}

// Assembles the tensors of the checkpoint from those of the model.
class Assembly {
 public:
  Assembly(const api::Model& model, std::vector<TensorPiece> pieces)
      : model_(model), pieces_(std::move(pieces)) {}

  absl::StatusOr<std::vector<TensorToWrite>> Tensors() {
    std::vector<std::string> order;
    std::vector<std::string> errors;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      const TensorPiece& piece = pieces_[i];
      if (piece.fill.has_value() && !IsFilled(i)) {
        errors.push_back(absl::StrCat(piece.name, " is trained, and the checkpoint has it as ",
                                      *piece.fill, " everywhere"));
      }
      for (size_t number = 0; number < piece.sources.size(); ++number) {
        std::vector<Part>& parts = sources_[piece.sources[number]];
        if (parts.empty()) order.push_back(piece.sources[number]);
        parts.push_back({i, static_cast<int64_t>(number)});
      }
    }
    if (!errors.empty()) return absl::InvalidArgumentError(ListDiagnostics(errors));
    std::vector<TensorToWrite> tensors;
    for (const std::string& name : order) tensors.push_back(ToWrite(name));
    return tensors;
  }

 private:
  struct Part {
    size_t piece;
    int64_t number;  // index among its sources
  };

  const float* DataOf(size_t piece) const {
    const auto tensor = model_.Tensor(piece);
    return tensor.ok() ? tensor->data.data() : nullptr;
  }

  bool IsFilled(size_t piece) const {
    const float* const data = DataOf(piece);
    const auto value = static_cast<float>(*pieces_[piece].fill);
    return std::all_of(data, data + pieces_[piece].shape.num_elements(),
                       [value](float each) { return each == value; });
  }

  // Returns the length that an axis of the source needs, if the piece has `own` elements of it.
  static int64_t Length(int64_t own, const AxisSlice& part) {
    return part.all() ? own : part.groups * (part.first + part.count);
  }

  // Returns the shape of a source: the smallest that has the elements of all its parts.
  Shape ShapeOf(const std::vector<Part>& parts) const {
    int64_t rows = 0, columns = 0;
    for (const Part& part : parts) {
      const TensorPiece& piece = pieces_[part.piece];
      const MatrixDims own = DimsOf(piece.shape);
      int64_t down = Length(own.rows, piece.rows), across = Length(own.columns, piece.columns);
      if (piece.transpose) std::swap(down, across);
      rows = std::max(rows, down);
      columns = std::max(columns, across);
    }
    const TensorPiece& piece = pieces_[parts[0].piece];
    const MatrixDims own = DimsOf(piece.shape);
    if (piece.flat_rows > 0) {
      return {piece.flat_rows, piece.shape.num_elements() / piece.flat_rows};
    }
    if (piece.shape.rank() == 1) return {rows};
    if (piece.depthwise) return {rows, 1, columns};
    if (piece.shape.rank() == 3 && !piece.stacked()) return {own.batch, rows, columns};
    return {rows, columns};
  }

  TensorToWrite ToWrite(const std::string& name) const {
    const std::vector<Part>& parts = sources_.at(name);
    TensorToWrite write;
    write.name = name;
    write.type = F32(ShapeOf(parts));
    const TensorPiece& first = pieces_[parts[0].piece];
    if (!first.stacked() && !first.transpose && !first.depthwise && first.rows.all() &&
        first.columns.all()) {
      write.data = DataOf(parts[0].piece);
      return write;
    }
    // Tensors are written one after the other, so each is assembled when its first element is read.
    auto whole = std::make_shared<std::vector<float>>();
    write.copy = [this, &parts, shape = write.type.shape, whole](int64_t begin, int64_t n,
                                                                 void* to) {
      const int64_t all = shape.num_elements();
      if (begin == 0) {
        whole->assign(static_cast<size_t>(all), 0.0f);
        for (const Part& part : parts) {
          ScatterPiece(pieces_[part.piece], shape, part.number, DataOf(part.piece), whole->data());
        }
      }
      std::memcpy(to, whole->data() + begin, static_cast<size_t>(n) * sizeof(float));
      if (begin + n == all) std::vector<float>().swap(*whole);
    };
    return write;
  }

  const api::Model& model_;
  const std::vector<TensorPiece> pieces_;
  std::map<std::string, std::vector<Part>> sources_;
};

// Adds the ids of the run's special tokens to config.json, null for none, since otherwise readers
// assume ids of their own. Keeps those of the imported config.json or the family.
void PutMissingIds(const SpecialTokens& special, Json* config) {
  Json ids = Json::object();
  PutSpecialTokenIds(special, &ids);
  for (auto& [key, value] : ids.items()) {
    if (!config->contains(key)) (*config)[key] = value;
  }
}

// Writes the tokenizer's files and generation_config.json: those of an imported run, else generated
// ones.
absl::Status WriteTokenizerFiles(const std::string& run, const RunFiles& files,
                                 int64_t context_length, const std::string& out) {
  if (IsImportedRun(run)) PLUMB_RETURN_IF_ERROR(CopyTokenizerFiles(run, out));
  const auto write = [&out](const char* name, const std::string& text) -> absl::Status {
    const std::string path = JoinPath(out, name);
    return FileExists(path) ? absl::OkStatus() : WriteFileAtomically(path, text);
  };
  PLUMB_RETURN_IF_ERROR(write(kGenerationConfigFile, GenerationConfigJson(files.special)));
  if (!files.tokenizer.ok()) return absl::OkStatus();
  const bool begins_texts = HasDocuments(files.recipe);
  PLUMB_ASSIGN_OR_RETURN(const std::string tokenizer,
                         LibraryTokenizerJson(*files.tokenizer, begins_texts));
  PLUMB_RETURN_IF_ERROR(write("tokenizer.json", tokenizer));
  return write("tokenizer_config.json", LibraryTokenizerConfig(*files.tokenizer, context_length));
}

struct Target {
  Family family;
  Json config = Json::object();
};

// Returns the target family and, for an imported run, the config.json that it was imported from.
absl::StatusOr<Target> FindTarget(const HostRuntime& runtime, const ExportRequest& request,
                                  const std::string& run) {
  Target target;
  std::string name = request.family;
  if (IsImportedRun(run)) {
    PLUMB_ASSIGN_OR_RETURN(ImportedFamily imported, ReadImportedFamily(run));
    if (name.empty()) name = imported.family;
    if (name == imported.family) target.config = std::move(imported.config);
  }
  if (!request.family_file.empty()) {
    PLUMB_ASSIGN_OR_RETURN(target.family, ReadFamily(runtime, request.family_file));
    return target;
  }
  if (name.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(run, ": was trained here, not imported: give the layout with --family"));
  }
  PLUMB_ASSIGN_OR_RETURN(target.family, FindFamilyNamed(runtime, name));
  return target;
}

// Returns the values of config.json if it describes exactly this model, so that fields missing in
// the description, such as the factor of a scaling, are kept; otherwise nullopt.
absl::StatusOr<std::optional<ConfigValues>> ValuesOfSameModel(HostRuntime* runtime,
                                                              const Family& family,
                                                              const api::Model& model,
                                                              const Json& config) {
  absl::StatusOr<ConfigValues> values = ReadConfigValues(family, config, "config.json");
  if (!values.ok()) return std::nullopt;
  const absl::StatusOr<api::Model> of_family = MakeModel(runtime, family, *values);
  if (!of_family.ok()) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> own, GraphOf(model));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> other, GraphOf(*of_family));
  PLUMB_ASSIGN_OR_RETURN(const auto described, DescribeModel(model));
  PLUMB_ASSIGN_OR_RETURN(const auto expected, DescribeModel(*of_family));
  // The graph of a model with a rotary embedding does not contain the context length.
  if (own != other || described["dims"] != expected["dims"]) {
    return std::nullopt;
  }
  return std::optional<ConfigValues>(*std::move(values));
}

absl::StatusOr<ExportReport> Export(HostRuntime* runtime, const ExportRequest& request) {
  PLUMB_RETURN_IF_ERROR(StagedDirectory::CheckFree(request.out));
  PLUMB_ASSIGN_OR_RETURN(const RunModel opened,
                         OpenRunModel(runtime, request.run, request.average));
  PLUMB_ASSIGN_OR_RETURN(const Target target, FindTarget(*runtime, request, opened.run));
  const Family& family = target.family;
  PLUMB_ASSIGN_OR_RETURN(const auto description, DescribeModel(opened.model));
  const std::map<std::string, double> facts = FactsOf(description);
  Json config = target.config;
  PLUMB_ASSIGN_OR_RETURN(std::optional<ConfigValues> same,
                         ValuesOfSameModel(runtime, family, opened.model, config));
  if (!same.has_value()) {
    PLUMB_ASSIGN_OR_RETURN(config, ConfigForModel(family, opened.text, facts, target.config));
    PLUMB_ASSIGN_OR_RETURN(same, ReadConfigValues(family, config, "the config.json of this model"));
    PLUMB_ASSIGN_OR_RETURN(const api::Model of_family, MakeModel(runtime, family, *same));
    PLUMB_RETURN_IF_ERROR(CheckSameModel(family, opened.model, of_family));
  }
  const ConfigValues& values = *same;
  PLUMB_ASSIGN_OR_RETURN(const std::vector<WantedTensor> wanted, TensorsOfModel(opened.model));
  PLUMB_ASSIGN_OR_RETURN(std::vector<TensorPiece> pieces, ResolvePieces(family, values, wanted));
  Assembly assembly(opened.model, std::move(pieces));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<TensorToWrite> tensors, assembly.Tensors());

  config["torch_dtype"] = "float32";
  PLUMB_ASSIGN_OR_RETURN(const RunFiles files, ReadRunFiles(opened.run, {}));
  PutMissingIds(files.special, &config);
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<StagedDirectory> staged,
                         StagedDirectory::Create(request.out));
  const std::string weights = JoinPath(staged->path(), "model.safetensors");
  PLUMB_RETURN_IF_ERROR(WriteSafetensors(weights, tensors));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(
      JoinPath(staged->path(), "config.json"),
      absl::StrCat(config.dump(2, ' ', false, Json::error_handler_t::replace), "\n")));
  PLUMB_RETURN_IF_ERROR(WriteTokenizerFiles(
      opened.run, files, static_cast<int64_t>(facts.at("context_length")), staged->path()));
  PLUMB_RETURN_IF_ERROR(staged->Commit());
  ExportReport report{family.name, static_cast<int64_t>(tensors.size()), 0};
  for (const TensorToWrite& tensor : tensors) report.bytes += tensor.type.bytes();
  return report;
}

}  // namespace

absl::StatusOr<ExportReport> ExportRun(HostRuntime* runtime, const ExportRequest& request) {
  return OrOutOfMemory("the weights", [&] { return Export(runtime, request); });
}

}  // namespace plumb
