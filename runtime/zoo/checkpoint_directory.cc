// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/checkpoint_directory.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kConfig[] = "config.json";
constexpr char kWeights[] = "model.safetensors";
constexpr char kIndex[] = "model.safetensors.index.json";
constexpr char kGguf[] = ".gguf";
constexpr char kGgufHint[] =
    " is a GGUF file, which plumb does not read: import the safetensors that it was made from";
constexpr int kMaxDepth = 32;
// All shards are open at the same time.
constexpr size_t kMaxShards = 1000;
// Limit for an index. A hundred thousand tensors take ten megabytes, and the parsed tree a multiple
// of that.
constexpr int64_t kMaxIndexBytes = int64_t{32} << 20;

// Returns the text with each bare Infinity, -Infinity and NaN, which Python writes and JSON does
// not have, as the object {"__float__": "Infinity"} that transformers 5 writes instead.
std::string WrapBareFloats(absl::string_view text) {
  std::string wrapped;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') in_string = !in_string;
    if (in_string && text[i] == '\\') wrapped += text[i++];
    absl::string_view found;
    for (const absl::string_view name : {"-Infinity", "Infinity", "NaN"}) {
      if (!in_string && absl::StartsWith(text.substr(i), name)) found = name;
    }
    if (!found.empty()) {
      absl::StrAppend(&wrapped, "{\"__float__\": \"", found, "\"}");
      i += found.size() - 1;
    } else if (i < text.size()) {
      wrapped += text[i];
    }
  }
  return wrapped;
}

absl::StatusOr<Json> ReadJsonObject(const std::string& path, int64_t max_bytes) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, max_bytes));
  absl::StatusOr<Json> json = ParseStrictJson(WrapBareFloats(text), kMaxDepth);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(path, ": "));
  if (!json->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a JSON object"));
  }
  return json;
}

// Returns true if `path` is below `directory`. Requires: both are canonical.
bool IsBelow(const std::filesystem::path& path, const std::filesystem::path& directory) {
  const std::filesystem::path relative = path.lexically_relative(directory);
  return !relative.empty() && *relative.begin() != ".." && relative != ".";
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && name != "." && name != ".." && !absl::StrContains(name, '/') &&
         !absl::StrContains(name, '\\') && name.find('\0') == absl::string_view::npos &&
         name.size() <= 255;
}

// Returns what to do with a directory that has a model in another format; "" if it has none.
std::string ExplainOtherFormat(const std::string& directory) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    const std::string name = entry.path().filename().string();
    if (absl::EndsWith(name, kGguf)) return absl::StrCat("; ", name, kGgufHint);
    if (name == "adapter_config.json") {
      return absl::StrCat("; ", name,
                          " is that of a PEFT adapter: import the model that it adapts, with "
                          "--adapter ",
                          directory);
    }
    if (absl::StartsWith(name, "pytorch_model") &&
        (absl::EndsWith(name, ".bin") || absl::EndsWith(name, ".bin.index.json"))) {
      return absl::StrCat("; ", name,
                          " belongs to pickled objects, which are a program that plumb does not "
                          "run: save the model with safe_serialization=True");
    }
  }
  return "";
}

// Returns the shard of each tensor of an index, and adds them to `shards`.
absl::StatusOr<std::map<std::string, std::string>> ReadIndex(const std::string& path,
                                                             std::set<std::string>* shards) {
  PLUMB_ASSIGN_OR_RETURN(const Json json, ReadJsonObject(path, kMaxIndexBytes));
  const Json* map = FindMember(json, "weight_map");
  if (map == nullptr || !map->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": \"weight_map\" is missing"));
  }
  std::map<std::string, std::string> shard_of;
  std::vector<std::string> errors;
  for (const auto& [tensor, shard] : map->get_ref<const Json::object_t&>()) {
    const std::string name = shard.is_string() ? shard.get<std::string>() : "";
    if (!IsPlainName(name) || !absl::EndsWith(name, ".safetensors")) {
      errors.push_back(absl::StrCat(
          QuoteName(tensor), " is in ",
          shard.is_string() ? QuoteName(name) : std::string("a value that is not text"),
          "; a shard is a file of this directory whose name ends with .safetensors"));
      continue;
    }
    shards->insert(name);
    shard_of.emplace(tensor, name);
  }
  if (shards->size() > kMaxShards) {
    errors.push_back(
        absl::StrCat("names ", shards->size(), " shards; at most ", kMaxShards, " are read"));
  }
  if (errors.empty()) return shard_of;
  return absl::InvalidArgumentError(absl::StrCat(path, ":\n  ", ListDiagnostics(errors, "\n  ")));
}

}  // namespace

absl::StatusOr<std::string> PathInside(const std::string& directory, absl::string_view name) {
  const std::string path = JoinPath(directory, name);
  if (!IsPlainName(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteName(name), " is not the name of a file in ", directory));
  }
  std::error_code error;
  const std::filesystem::path whole = std::filesystem::canonical(path, error);
  if (error) return absl::NotFoundError(absl::StrCat(path, ": there is no such file"));
  const std::filesystem::path inside = std::filesystem::canonical(directory, error);
  if (error) return absl::NotFoundError(absl::StrCat(directory, ": there is no such directory"));
  if (!std::filesystem::is_regular_file(whole, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is not a regular file"));
  }
  const bool in_cache = inside.parent_path().filename() == "snapshots" &&
                        IsBelow(whole, inside.parent_path().parent_path() / "blobs");
  if (!IsBelow(whole, inside) && !in_cache) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is a link that leads out of the directory"));
  }
  return path;
}

absl::StatusOr<Json> ReadJsonInside(const std::string& directory, absl::string_view name) {
  PLUMB_ASSIGN_OR_RETURN(const std::string path, PathInside(directory, name));
  return ReadJsonObject(path, kMaxTextBytes);
}

std::string CheckpointDirectory::config_path() const { return JoinPath(path_, kConfig); }

absl::StatusOr<CheckpointDirectory> CheckpointDirectory::Open(const std::string& path) {
  if (!FileExists(path)) {
    const bool may_be_on_hub = std::count(path.begin(), path.end(), '/') == 1 && path[0] != '/' &&
                               path[0] != '.' && path.back() != '/';
    return absl::NotFoundError(absl::StrCat(
        path, ": there is no such directory",
        may_be_on_hub ? "; plumb downloads nothing: a model of a hub must be downloaded before, "
                        "for example by `hf download`"
                      : ""));
  }
  if (!IsDirectory(path)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, absl::EndsWith(path, kGguf)
                               ? kGgufHint
                               : ": is not a directory; a checkpoint is one with config.json"));
  }
  CheckpointDirectory made;
  made.path_ = path;
  absl::StatusOr<Json> config = ReadJsonInside(path, kConfig);
  if (absl::IsNotFound(config.status())) {
    return absl::NotFoundError(absl::StrCat(
        path, ": holds no config.json, so it is not a checkpoint", ExplainOtherFormat(path)));
  }
  if (!config.ok()) return config.status();
  made.config_ = *std::move(config);
  return made;
}

absl::Status CheckpointDirectory::OpenWeights() {
  if (FileExists(JoinPath(path_, kIndex))) {
    PLUMB_ASSIGN_OR_RETURN(const std::string inside, PathInside(path_, kIndex));
    return OpenShards(inside);
  }
  if (FileExists(JoinPath(path_, kWeights))) return AddFile(kWeights);
  return absl::NotFoundError(absl::StrCat(path_, ": holds neither ", kWeights, " nor ", kIndex,
                                          ExplainOtherFormat(path_)));
}

absl::Status CheckpointDirectory::OpenShards(const std::string& index_path) {
  std::set<std::string> shards;
  PLUMB_ASSIGN_OR_RETURN(const auto shard_of, ReadIndex(index_path, &shards));
  if (FileExists(JoinPath(path_, kWeights)) && shards.count(kWeights) == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(index_path, ": names other shards than ", kWeights,
                     ", which is in the directory too: remove the one that is not the model"));
  }
  std::vector<std::string> errors;
  for (const std::string& shard : shards) {
    const absl::Status added = AddFile(shard);
    if (absl::IsNotFound(added)) {
      errors.push_back(absl::StrCat("the shard ", QuoteName(shard), " is missing"));
      continue;
    }
    PLUMB_RETURN_IF_ERROR(added);
  }
  for (const auto& [tensor, shard] : shard_of) {
    const CheckpointTensor* found = Find(tensor);
    if (found == nullptr) {
      errors.push_back(absl::StrCat(QuoteName(tensor), " is not in ", shard));
    } else if (file_names_[found->file] != shard) {
      errors.push_back(
          absl::StrCat(QuoteName(tensor), " is in ", file_names_[found->file], ", not in ", shard));
    }
  }
  for (const CheckpointTensor& tensor : tensors_) {
    if (shard_of.count(tensor.entry->name) > 0) continue;
    errors.push_back(absl::StrCat(QuoteName(tensor.entry->name), " of ", file_names_[tensor.file],
                                  " is not in the index"));
  }
  if (errors.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(index_path, ": does not fit its shards:\n  ", ListDiagnostics(errors, "\n  ")));
}

absl::Status CheckpointDirectory::AddFile(const std::string& name) {
  PLUMB_ASSIGN_OR_RETURN(const std::string path, PathInside(path_, name));
  PLUMB_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(path));
  files_.push_back(std::make_unique<SafetensorsFile>(std::move(opened)));
  file_names_.push_back(name);
  const size_t number = files_.size() - 1;
  for (const TensorEntry& entry : files_.back()->tensors()) {
    const auto [at, added] = index_.emplace(entry.name, tensors_.size());
    if (!added) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": ", QuoteName(entry.name), " is in ",
                                                     file_names_[tensors_[at->second].file],
                                                     " too"));
    }
    const std::shared_ptr<const TensorEntry> borrowed(std::shared_ptr<void>(), &entry);
    tensors_.push_back({number, borrowed});
  }
  return absl::OkStatus();
}

const CheckpointTensor* CheckpointDirectory::Find(absl::string_view name) const {
  const auto at = index_.find(std::string(name));
  return at == index_.end() ? nullptr : &tensors_[at->second];
}

void CheckpointDirectory::SetTensors(std::vector<CheckpointTensor> tensors) {
  tensors_ = std::move(tensors);
  index_.clear();
  for (size_t i = 0; i < tensors_.size(); ++i) index_.emplace(tensors_[i].entry->name, i);
}

}  // namespace plumb
