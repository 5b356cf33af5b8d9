// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/import_json.h"

#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/file_hash.h"
#include "runtime/formats/hash.h"
#include "runtime/formats/safetensors.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int64_t kImportVersion = 1;
constexpr int kImportDepth = 40;

std::string Absolute(const std::string& path) {
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  return error ? path : whole.string();
}

Json SliceJson(const AxisSlice& part) {
  return {{"groups", part.groups}, {"first", part.first}, {"count", part.count}};
}

// Returns the JSON for the part of a source in one of plumb's tensors.
Json TargetJson(const PlannedTensor& tensor, size_t source, bool copied) {
  const TensorPiece& piece = tensor.piece;
  Json target = {{"tensor", piece.name}};
  if (piece.transpose) target["transposed"] = true;
  if (piece.depthwise) target["depthwise"] = true;
  if (!piece.rows.all()) target["rows"] = SliceJson(piece.rows);
  if (!piece.columns.all()) target["columns"] = SliceJson(piece.columns);
  if (piece.stacked()) target["part"] = source;
  const int64_t from = copied ? -1 : MappedOffset(tensor);
  if (from >= 0) {
    target["from"] = from;
  } else {
    target["converted"] = true;
  }
  return target;
}

absl::Status Damaged(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": is damaged: ", what));
}

absl::StatusOr<Json> ReadImportJson(const std::string& run) {
  const std::string path = JoinPath(run, kImportFile);
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxStateBytes));
  absl::StatusOr<Json> json = ParseStrictJson(text, kImportDepth);
  if (!json.ok()) return Damaged(path, json.status().message());
  const Json* format = FindMember(*json, "format");
  if (format == nullptr || *format != "plumb-import") {
    return Damaged(path, "\"format\" is not \"plumb-import\"");
  }
  const Json* version = FindMember(*json, "version");
  if (version == nullptr || AsInt64(*version) != kImportVersion) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": has another version; this plumb reads version ", kImportVersion,
                     "; import the checkpoint again"));
  }
  return json;
}

// Returns the JSON that identifies a file of the checkpoint whose weights are used in place.
absl::StatusOr<Json> FileJson(const SafetensorsFile& file) {
  PLUMB_ASSIGN_OR_RETURN(const FileStamp stamp, StampOfFile(file.path()));
  PLUMB_ASSIGN_OR_RETURN(const std::string hash, HashOfFile(file.path()));
  return Json{{"header", HexDigits(ContentHash(file.header()))},
              {"size", stamp.size},
              {"modified_ns", stamp.modified_ns},
              {"inode", stamp.inode},
              {"hash", hash}};
}

FileStamp StampMember(const Json& file) {
  const auto number = [&file](absl::string_view name) {
    const Json* found = FindMember(file, name);
    return found == nullptr ? -1 : AsInt64(*found).value_or(-1);
  };
  return {number("size"), number("modified_ns"), number("inode")};
}

Json KeysJson(const ImportedConfig& config) {
  Json keys = Json::array();
  for (const ConfigKey& key : config.keys) {
    keys.push_back({{"key", key.key}, {"use", KeyUseName(key.use)}});
    if (!key.reason.empty()) keys.back()["reason"] = key.reason;
  }
  for (const std::string& key : config.allowed) keys.push_back({{"key", key}, {"use", "allowed"}});
  return keys;
}

// Builds the list of tensors in files for plumb.h. Owns the names that the list refers to.
class FileTensorList {
 public:
  explicit FileTensorList(std::string run)
      : run_(std::move(run)), path_(JoinPath(run_, kImportFile)) {}

  absl::Status Read(const Json& json) {
    const Json* tensors = FindMember(json, "tensors");
    const Json* files = FindMember(json, "files");
    if (tensors == nullptr || !tensors->is_array() || files == nullptr || !files->is_object()) {
      return Damaged(path_, "\"tensors\" or \"files\" is missing");
    }
    source_ = TextMember(json, "source");
    files_ = files;
    for (const Json& tensor : *tensors) PLUMB_RETURN_IF_ERROR(ReadTensor(tensor));
    return ReadOwn();
  }

  absl::Status Map(api::Model* model) const {
    std::vector<plumb_tensor_in_file> given;
    for (const Tensor& tensor : tensors_) {
      given.push_back({0, tensor.dtype, tensor.name.c_str(), tensor.path.c_str(), tensor.offset});
    }
    return ToStatus(model->MapTensors(std::move(given)));
  }

 private:
  struct Tensor {
    std::string name, path;
    int64_t offset;
    int32_t dtype;
  };

  absl::Status ReadTensor(const Json& tensor) {
    const Json* target = FindMember(tensor, "became");
    if (target == nullptr || !target->is_array()) return absl::OkStatus();  // ignored
    for (const Json& each : *target) {
      const Json* from = FindMember(each, "from");
      if (from == nullptr) continue;  // converted
      const absl::optional<int64_t> first = AsInt64(*from);
      if (!first || *first < 0) return Damaged(path_, "\"from\" is not the index of an element");
      PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile* file, OpenSource(TextMember(tensor, "file")));
      const TensorEntry* entry = file->Find(TextMember(tensor, "source"));
      if (entry == nullptr) return Damaged(path_, "a tensor is not in the file that it names");
      PLUMB_RETURN_IF_ERROR(Add(TextMember(each, "tensor"), *file, *entry, *first));
    }
    return absl::OkStatus();
  }

  absl::Status Add(std::string name, const SafetensorsFile& file, const TensorEntry& entry,
                   int64_t first) {
    int32_t dtype = PLUMB_DTYPE_F16;
    if (entry.dtype == "F32") dtype = PLUMB_DTYPE_F32;
    if (entry.dtype == "BF16") dtype = PLUMB_DTYPE_BF16;
    const int64_t size = dtype == PLUMB_DTYPE_F32 ? 4 : 2;
    if (first > entry.shape.num_elements()) {
      return Damaged(path_, "\"from\" is beyond the end of its tensor");
    }
    tensors_.push_back({std::move(name), file.path(), file.GetOffset(entry) + first * size, dtype});
    return absl::OkStatus();
  }

  // Opens a file of the checkpoint. Fails unless it is the one that was imported.
  absl::StatusOr<const SafetensorsFile*> OpenSource(const std::string& name) {
    const auto at = open_.find(name);
    if (at != open_.end()) return &at->second;
    const absl::StatusOr<std::string> path = PathInside(source_, name);
    if (absl::IsNotFound(path.status())) {
      return absl::DataLossError(
          absl::StrCat(JoinPath(source_, name), ": is gone, and ", run_,
                       " reads its weights there; import it again, "
                       "or with --copy, which makes a run that needs no other directory"));
    }
    if (!path.ok()) return path.status();
    PLUMB_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(*path));
    const Json* known = FindMember(*files_, name);
    bool is_same =
        known != nullptr && TextMember(*known, "header") == HexDigits(ContentHash(file.header()));
    if (is_same && FindMember(*known, "hash") != nullptr) {  // plumb 0.1 knew only the header
      PLUMB_ASSIGN_OR_RETURN(is_same,
                             HasContent(*path, StampMember(*known), TextMember(*known, "hash")));
    }
    if (!is_same) {
      return absl::DataLossError(
          absl::StrCat(*path, ": changed since ", run_, " was imported from it; import it again"));
    }
    return &open_.emplace(name, std::move(file)).first->second;
  }

  // Adds the tensors that import wrote into the run.
  absl::Status ReadOwn() {
    const std::string path = JoinPath(run_, kImportedWeights);
    if (!FileExists(path)) return absl::OkStatus();
    PLUMB_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
    const SafetensorsFile& file = open_.emplace("", std::move(opened)).first->second;
    for (const TensorEntry& entry : file.tensors()) {
      PLUMB_RETURN_IF_ERROR(Add(entry.name, file, entry, 0));
    }
    return absl::OkStatus();
  }

  std::string run_, path_, source_;
  const Json* files_ = nullptr;
  std::map<std::string, SafetensorsFile> open_;
  std::vector<Tensor> tensors_;
};

}  // namespace

int64_t MappedOffset(const PlannedTensor& tensor) {
  if (tensor.sources.empty() || tensor.sources[0]->is_computed()) return -1;
  return tensor.piece.ContiguousFrom(tensor.sources[0]->entry->shape);
}

absl::StatusOr<std::string> ImportJson(const Family& family, const ImportedConfig& config,
                                       const CheckpointDirectory& checkpoint,
                                       const TensorPlan& plan, bool copied) {
  std::map<const CheckpointTensor*, Json> target;
  Json filled = Json::array();
  for (const PlannedTensor& tensor : plan.tensors) {
    if (tensor.piece.fill.has_value()) {
      filled.push_back({{"tensor", tensor.piece.name}, {"value", *tensor.piece.fill}});
    }
    for (size_t i = 0; i < tensor.sources.size(); ++i) {
      Json& list = target[tensor.sources[i]];
      if (list.is_null()) list = Json::array();
      list.push_back(TargetJson(tensor, i, copied));
    }
  }
  std::map<const CheckpointTensor*, std::string> ignored;
  for (const TensorPlan::Ignored& each : plan.ignored) ignored[each.tensor] = each.reason;
  Json tensors = Json::array();
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    const TensorEntry& entry = *tensor.entry;
    Json line = {{"source", entry.name},
                 {"file", checkpoint.file_names()[tensor.file]},
                 {"dtype", entry.dtype},
                 {"shape", Json(std::vector<int64_t>(entry.shape.dims().begin(),
                                                     entry.shape.dims().end()))}};
    if (tensor.is_computed()) line["computed_from"] = tensor.computed_from;
    if (const auto at = target.find(&tensor); at != target.end()) line["became"] = at->second;
    if (const auto at = ignored.find(&tensor); at != ignored.end()) line["ignored"] = at->second;
    tensors.push_back(std::move(line));
  }
  Json files = Json::object();
  for (size_t i = 0; i < checkpoint.file_names().size(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(files[checkpoint.file_names()[i]], FileJson(checkpoint.file(i)));
  }
  const Json json = {{"format", "plumb-import"},
                     {"version", kImportVersion},
                     {"family", family.name},
                     {"source", Absolute(checkpoint.path())},
                     {"files", files},
                     {"config", config.config},
                     {"tensors", tensors},
                     {"filled", filled},
                     {"config_keys", KeysJson(config)}};
  return absl::StrCat(json.dump(1, ' ', false, Json::error_handler_t::replace), "\n");
}

bool IsImportedRun(const std::string& run) { return FileExists(JoinPath(run, kImportFile)); }

absl::StatusOr<ImportedFamily> ReadImportedFamily(const std::string& run) {
  PLUMB_ASSIGN_OR_RETURN(const Json json, ReadImportJson(run));
  const Json* config = FindMember(json, "config");
  if (config == nullptr || !config->is_object()) {
    return Damaged(JoinPath(run, kImportFile), "\"config\" is missing");
  }
  return ImportedFamily{TextMember(json, "family"), *config};
}

absl::Status MapImportedWeights(const std::string& run, api::Model* model) {
  PLUMB_ASSIGN_OR_RETURN(const Json json, ReadImportJson(run));
  FileTensorList file_tensors(run);
  PLUMB_RETURN_IF_ERROR(file_tensors.Read(json));
  return file_tensors.Map(model);
}

}  // namespace plumb
