// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer_file.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Formats that do not state how a text is normalized and split, or which tokens are special; only
// the code of the programs that use them does. They are recognized for the error message.
struct OtherFormat {
  absl::string_view name;  // usual name of the file
  absl::string_view what;
};
constexpr OtherFormat kTiktoken = {"tiktoken.model", "tiktoken's list of byte strings and ranks"};
constexpr OtherFormat kSentencePiece = {"tokenizer.model", "a SentencePiece model"};
constexpr OtherFormat kWordPiece = {"vocab.txt", "a WordPiece vocabulary, one piece a line"};
constexpr OtherFormat kFormats[] = {kTiktoken,
                                    kSentencePiece,
                                    kWordPiece,
                                    {"spiece.model", kSentencePiece.what},
                                    {"sentencepiece.bpe.model", kSentencePiece.what},
                                    {"qwen.tiktoken", kTiktoken.what},
                                    {"tekken.json", "Mistral's tekken vocabulary"}};

absl::Status Unsupported(const std::string& path, const OtherFormat& format) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": is ", format.what,
      ", which defines neither how texts are cut nor which tokens are special, so that plumb does "
      "not "
      "read it; use the tokenizer.json of the model, which Python's transformers.AutoTokenizer"
      ".from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes"));
}

// Recognizes another format by the beginning of a file; null if it is none of them.
const OtherFormat* GetFormat(absl::string_view text) {
  const absl::string_view begin = text.substr(0, 256);
  // The first field of a SentencePiece model is the piece <unk> or, before it, <pad>.
  if (absl::StartsWith(begin, "\n") &&
      (absl::StrContains(begin, "<unk>") || absl::StrContains(begin, "<pad>")) &&
      begin.find_first_of(absl::string_view("\0\x15", 2)) != absl::string_view::npos) {
    return &kSentencePiece;
  }
  const absl::string_view line = begin.substr(0, begin.find('\n'));
  const size_t space = line.find(' ');
  uint32_t rank = 0;
  std::string bytes;
  if (space != absl::string_view::npos && absl::SimpleAtoi(line.substr(space + 1), &rank) &&
      absl::Base64Unescape(line.substr(0, space), &bytes)) {
    return &kTiktoken;
  }
  const bool is_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(begin), "{");
  return !is_json && absl::StrContains(text, "[UNK]") ? &kWordPiece : nullptr;
}

absl::StatusOr<Tokenizer> FromText(absl::string_view json, const std::string& path) {
  if (const OtherFormat* other = GetFormat(json)) return Unsupported(path, *other);
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), absl::StrCat(path, ": "));
  return tokenizer;
}

absl::StatusOr<Tokenizer> FromVocabAndMerges(const std::string& vocab_path,
                                             const std::string& merges_path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string vocab, ReadFile(vocab_path));
  PLUMB_ASSIGN_OR_RETURN(const std::string merges, ReadFile(merges_path));
  const absl::StatusOr<std::string> json = SubwordTokenizer::JsonOfVocabAndMerges(vocab, merges);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(ParentDirectory(vocab_path), ": "));
  return FromText(*json, ParentDirectory(vocab_path));
}

absl::StatusOr<Tokenizer> ReadWithoutConfigs(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    file = JoinPath(path, "tokenizer.json");
    const std::string vocab = JoinPath(path, "vocab.json"), merges = JoinPath(path, "merges.txt");
    if (!FileExists(file)) {
      if (FileExists(vocab) && FileExists(merges)) return FromVocabAndMerges(vocab, merges);
      for (const OtherFormat& format : kFormats) {
        const std::string other = JoinPath(path, format.name);
        if (FileExists(other)) return Unsupported(other, format);
      }
      return absl::NotFoundError(absl::StrCat(
          path, ": holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"));
    }
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string json, ReadFile(file));
  return FromText(json, file);
}

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

absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadWithoutConfigs(path));
  if (!IsDirectory(path)) return tokenizer;
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special,
                         ReadSpecialTokens(path, nullptr, &tokenizer, tokenizer.vocab_size()));
  tokenizer.set_special_tokens(std::move(special));
  return tokenizer;
}

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
