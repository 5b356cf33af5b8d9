// SPDX-License-Identifier: Apache-2.0
// Tokenizer::ToJson and FromJson; tokenizer.h specifies the schema.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int64_t kVersion = 1;
constexpr int kMaxJsonDepth = 16;  // enough for files of other programs

absl::Status Error(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("tokenizer: ", what));
}

absl::Status CheckNames(const Json& root) {
  const std::vector<std::string> known = {"format",     "version",         "kind",
                                          "characters", "begin_end_token", "vocab_size"};
  for (const auto& [name, value] : root.get_ref<const Json::object_t&>()) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      return Error(absl::StrCat("unknown field ", QuoteName(name), DidYouMean(name, known)));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<uint32_t>> ParseCharacters(const Json& root) {
  const Json* array = FindMember(root, "characters");
  if (array == nullptr || !array->is_array() || array->empty()) {
    return Error("kind \"characters\" needs a list \"characters\" that is not empty");
  }
  std::vector<uint32_t> characters;
  characters.reserve(array->size());
  for (const Json& element : *array) {
    const std::string place = absl::StrCat("characters[", characters.size(), "]");
    if (!element.is_string()) return Error(absl::StrCat(place, " is not a string"));
    const std::string& text = element.get_ref<const std::string&>();
    size_t offset = 0;
    const absl::optional<uint32_t> code_point =
        text.empty() ? absl::nullopt : NextCodePoint(text, &offset);
    if (!code_point || offset != text.size()) {
      return Error(absl::StrCat(place, " is ", QuoteName(text), ", not one character"));
    }
    if (!characters.empty() && *code_point <= characters.back()) {
      return Error(absl::StrCat(place, ": ", CodePointName(*code_point), " after ",
                                CodePointName(characters.back()),
                                "; characters stand once each, in the order of their code points"));
    }
    characters.push_back(*code_point);
  }
  return characters;
}

}  // namespace

std::string Tokenizer::ToJson() const {
  if (subwords_ != nullptr) return subwords_->json();
  nlohmann::ordered_json root;
  root["format"] = "plumb-tokenizer";
  root["version"] = kVersion;
  root["kind"] = kind_ == Kind::kBytes ? "bytes" : "characters";
  if (kind_ == Kind::kCharacters) {
    nlohmann::ordered_json characters = nlohmann::ordered_json::array();
    for (uint32_t c : characters_) {
      std::string text;
      AppendUtf8(c, &text);
      characters.push_back(std::move(text));
    }
    root["characters"] = std::move(characters);
  }
  if (has_begin_end_) {
    root["begin_end_token"] = num_symbols();
  } else {
    root["begin_end_token"] = nullptr;
  }
  root["vocab_size"] = vocab_size();
  return absl::StrCat(root.dump(), "\n");
}

absl::StatusOr<Tokenizer> Tokenizer::FromJson(absl::string_view json) {
  absl::StatusOr<Json> parsed = ParseStrictJson(json, kMaxJsonDepth);
  if (!parsed.ok()) return Annotate(parsed.status(), "tokenizer: not valid JSON: ");
  const Json& root = *parsed;
  const Json* format = FindMember(root, "format");
  if (format == nullptr && FindMember(root, "model") != nullptr) {
    absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> subwords =
        SubwordTokenizer::FromParsed(json, root);
    if (!subwords.ok()) return Annotate(subwords.status(), "tokenizer: ");
    return Subwords(*std::move(subwords));
  }
  if (format == nullptr || !format->is_string() || *format != "plumb-tokenizer") {
    return Error(
        "\"format\" is not \"plumb-tokenizer\", and there is no \"model\" as in Hugging Face's "
        "files");
  }
  const Json* version = FindMember(root, "version");
  if (version == nullptr || AsInt64(*version) != kVersion) {
    return Error(absl::StrCat("\"version\" is ", version == nullptr ? "missing" : version->dump(),
                              "; this plumb reads version ", kVersion));
  }
  PLUMB_RETURN_IF_ERROR(CheckNames(root));

  const Json* begin_end = FindMember(root, "begin_end_token");
  if (begin_end == nullptr) return Error("\"begin_end_token\" is missing (an id or null)");
  const bool has_begin_end = !begin_end->is_null();

  const Json* kind = FindMember(root, "kind");
  absl::optional<Tokenizer> tokenizer;
  if (kind != nullptr && *kind == "bytes") {
    if (FindMember(root, "characters") != nullptr) {
      return Error("kind \"bytes\" has no \"characters\"");
    }
    tokenizer = Bytes(has_begin_end);
  } else if (kind != nullptr && *kind == "characters") {
    PLUMB_ASSIGN_OR_RETURN(std::vector<uint32_t> characters, ParseCharacters(root));
    tokenizer = Tokenizer(Kind::kCharacters, std::move(characters), has_begin_end);
  } else {
    return Error("\"kind\" is neither \"characters\" nor \"bytes\"");
  }

  if (has_begin_end && AsInt64(*begin_end) != tokenizer->num_symbols()) {
    return Error(absl::StrCat("\"begin_end_token\" is ", begin_end->dump(),
                              ", but must be the last id, ", tokenizer->num_symbols()));
  }
  const Json* vocab_size = FindMember(root, "vocab_size");
  if (vocab_size == nullptr || AsInt64(*vocab_size) != tokenizer->vocab_size()) {
    return Error(absl::StrCat("\"vocab_size\" is ",
                              vocab_size == nullptr ? "missing" : vocab_size->dump(),
                              ", but the tokens are ", tokenizer->vocab_size()));
  }
  return *std::move(tokenizer);
}

}  // namespace plumb
