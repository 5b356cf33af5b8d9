// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/special_tokens.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int kMaxConfigDepth = 64;  // generous, since quantization and RoPE settings are nested

// Collects the ids of each kind of token from the files, which are read by descending priority. Ids
// that the vocabulary does not have are dropped.
class Reader {
 public:
  Reader(const Tokenizer* tokenizer, int64_t vocab_size)
      : tokenizer_(tokenizer), vocab_size_(vocab_size) {}

  // Takes from the file `name` the kinds that no earlier file had.
  absl::Status TakeIds(const Json& root, const std::string& name) {
    return Take(root, name, "_id", [this](const Json& value, std::vector<int32_t>* ids) {
      const Json list = value.is_array() ? value : Json::array({value});
      for (const Json& each : list) {
        const absl::optional<int64_t> id = AsInt64(each);
        if (!id) return false;
        if (*id >= 0 && *id < vocab_size_) ids->push_back(static_cast<int32_t>(*id));
      }
      return true;
    });
  }
  absl::Status TakeNames(const Json& root, const std::string& name) {
    return Take(root, name, "", [this](const Json& value, std::vector<int32_t>* ids) {
      const Json* const content = value.is_object() ? FindMember(value, "content") : &value;
      if (content == nullptr || !content->is_string()) return false;
      if (tokenizer_ == nullptr) return true;
      const auto id = tokenizer_->Find(content->get_ref<const std::string&>());
      if (id && *id < vocab_size_) ids->push_back(*id);
      return true;
    });
  }

  SpecialTokens Finish() const {
    SpecialTokens tokens;
    if (tokenizer_ != nullptr) tokens = tokenizer_->special_tokens();
    if (!begin_.empty()) tokens.begin = begin_.front();
    if (!pad_.empty()) tokens.pad = pad_.front();
    if (!end_.empty()) {
      tokens.end = end_;
      tokens.end_source = end_source_;
    }
    return tokens;
  }

 private:
  template <class Parse>
  absl::Status Take(const Json& root, const std::string& name, const char* suffix,
                    const Parse& parse) {
    const bool had_end = !end_.empty();
    for (const auto& [kind, found] : {std::pair<const char*, std::vector<int32_t>*>{"bos", &begin_},
                                      {"eos", &end_},
                                      {"pad", &pad_}}) {
      const std::string key = absl::StrCat(kind, "_token", suffix);
      const Json* const value = FindMember(root, key);
      if (value == nullptr || value->is_null()) continue;
      std::vector<int32_t> ids;
      if (!parse(*value, &ids)) {
        constexpr size_t kShown = 60;
        return absl::InvalidArgumentError(absl::StrCat(
            name, ": ", key, " is ",
            value->dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, kShown),
            *suffix == '\0' ? ", neither the name of a token nor an object with its \"content\""
                            : ", neither the id of a token nor a list of ids"));
      }
      if (found->empty()) *found = std::move(ids);
    }
    if (!had_end && !end_.empty()) end_source_ = std::string(BaseName(name));
    return absl::OkStatus();
  }
  static absl::string_view BaseName(absl::string_view path) {
    return path.substr(path.rfind('/') + 1);
  }

  const Tokenizer* const tokenizer_;
  const int64_t vocab_size_;
  std::vector<int32_t> begin_, end_, pad_;
  std::string end_source_;
};

absl::StatusOr<Json> ParseObject(absl::string_view text, const std::string& name) {
  absl::StatusOr<Json> json = ParseStrictJson(text, kMaxConfigDepth);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(name, ": not valid JSON: "));
  if (!json->is_object()) return absl::InvalidArgumentError(absl::StrCat(name, ": is no object"));
  return json;
}

// Returns the object in a file of the directory; null if there is no such file.
absl::StatusOr<Json> ReadObject(const std::string& directory, absl::string_view name) {
  const std::string path = JoinPath(directory, name);
  if (!FileExists(path)) return Json();
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseObject(text, path);
}

}  // namespace

absl::StatusOr<SpecialTokens> ReadSpecialTokens(const std::string& directory, const Json* config,
                                                const Tokenizer* tokenizer, int64_t vocab_size) {
  Reader reader(tokenizer, vocab_size);
  PLUMB_ASSIGN_OR_RETURN(const Json generation, ReadObject(directory, kGenerationConfigFile));
  PLUMB_RETURN_IF_ERROR(reader.TakeIds(generation, JoinPath(directory, kGenerationConfigFile)));
  Json read;
  if (config == nullptr) {
    PLUMB_ASSIGN_OR_RETURN(read, ReadObject(directory, "config.json"));
    config = &read;
  }
  PLUMB_RETURN_IF_ERROR(reader.TakeIds(*config, JoinPath(directory, "config.json")));
  for (const char* const name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    PLUMB_ASSIGN_OR_RETURN(const Json names, ReadObject(directory, name));
    PLUMB_RETURN_IF_ERROR(reader.TakeNames(names, JoinPath(directory, name)));
  }
  return reader.Finish();
}

absl::StatusOr<SpecialTokens> SpecialTokensOfJson(absl::string_view json, const std::string& name,
                                                  int64_t vocab_size) {
  Reader reader(nullptr, vocab_size);
  PLUMB_ASSIGN_OR_RETURN(const Json root, ParseObject(json, name));
  PLUMB_RETURN_IF_ERROR(reader.TakeIds(root, name));
  return reader.Finish();
}

void PutSpecialTokenIds(const SpecialTokens& tokens, Json* config) {
  const auto id_or_null = [](const absl::optional<int32_t>& id) { return id ? Json(*id) : Json(); };
  (*config)["bos_token_id"] = id_or_null(tokens.begin);
  (*config)["pad_token_id"] = id_or_null(tokens.pad);
  (*config)["eos_token_id"] = tokens.end.empty()       ? Json()
                              : tokens.end.size() == 1 ? Json(tokens.end.front())
                                                       : Json(tokens.end);
}

std::string GenerationConfigJson(const SpecialTokens& tokens) {
  Json json = Json::object();
  PutSpecialTokenIds(tokens, &json);
  return absl::StrCat(json.dump(2), "\n");
}

}  // namespace plumb
