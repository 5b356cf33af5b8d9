// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/library_json.h"

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/byte_alphabet.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr char kBeginEnd[] = "<|endoftext|>";

// Returns the name of a token in the library.
std::string GetName(const Tokenizer& tokenizer, int32_t token) {
  if (tokenizer.subwords() != nullptr) return tokenizer.subwords()->piece(token);
  if (tokenizer.has_begin_end() && token == tokenizer.vocab_size() - 1) return kBeginEnd;
  const std::string text = tokenizer.Decode(absl::MakeConstSpan(&token, 1)).value();
  return tokenizer.kind() == Tokenizer::Kind::kBytes ? ToByteAlphabet(text) : text;
}

// Returns a post-processor that puts the begin token before every text.
Json BeginTemplate(const Tokenizer& tokenizer, int32_t begin) {
  const std::string name = GetName(tokenizer, begin);
  const auto special = [&](int type) {
    return Json{{"SpecialToken", {{"id", name}, {"type_id", type}}}};
  };
  const auto text = [](const char* id, int type) {
    return Json{{"Sequence", {{"id", id}, {"type_id", type}}}};
  };
  return {{"type", "TemplateProcessing"},
          {"single", {special(0), text("A", 0)}},
          {"pair", {special(0), text("A", 0), special(1), text("B", 1)}},
          {"special_tokens", {{name, {{"id", name}, {"ids", {begin}}, {"tokens", {name}}}}}}};
}

Json CharacterModel(const Tokenizer& tokenizer, int32_t symbols) {
  Json vocab = Json::array();
  for (int32_t token = 0; token < symbols; ++token) {
    vocab.push_back(Json::array({GetName(tokenizer, token), 0.0}));
  }
  return {{"type", "Unigram"}, {"unk_id", nullptr}, {"vocab", vocab}, {"byte_fallback", false}};
}

Json ByteModel(const Tokenizer& tokenizer, int32_t symbols) {
  Json vocab = Json::object();
  for (int32_t token = 0; token < symbols; ++token) vocab[GetName(tokenizer, token)] = token;
  return {{"type", "BPE"}, {"vocab", vocab}, {"merges", Json::array()}};
}

Json SymbolsJson(const Tokenizer& tokenizer) {
  const bool is_bytes = tokenizer.kind() == Tokenizer::Kind::kBytes;
  const int32_t symbols = tokenizer.vocab_size() - (tokenizer.has_begin_end() ? 1 : 0);
  Json added = Json::array();
  if (tokenizer.has_begin_end()) {
    added.push_back({{"id", symbols},
                     {"content", kBeginEnd},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", false}};
  return {{"version", "1.0"},
          {"truncation", nullptr},
          {"padding", nullptr},
          {"added_tokens", added},
          {"normalizer", nullptr},
          {"pre_tokenizer", is_bytes ? byte_level : Json()},
          {"post_processor", nullptr},
          {"decoder", is_bytes ? byte_level : Json{{"type", "Fuse"}}},
          {"model", is_bytes ? ByteModel(tokenizer, symbols) : CharacterModel(tokenizer, symbols)}};
}

}  // namespace

absl::StatusOr<std::string> LibraryTokenizerJson(const Tokenizer& tokenizer, bool begins_texts) {
  const absl::optional<int32_t> begin = tokenizer.begin_token();
  const bool has_template =
      tokenizer.subwords() != nullptr && begin &&
      tokenizer.subwords()->post_processor().before == std::vector<int32_t>{*begin};
  const bool wants_template = begins_texts && begin && !has_template;
  Json json;
  if (tokenizer.subwords() == nullptr) {
    json = SymbolsJson(tokenizer);
  } else if (wants_template) {
    constexpr int kDepth = 16;
    PLUMB_ASSIGN_OR_RETURN(json, ParseStrictJson(tokenizer.ToJson(), kDepth));
  } else {
    return tokenizer.ToJson();
  }
  if (wants_template) json["post_processor"] = BeginTemplate(tokenizer, *begin);
  return absl::StrCat(json.dump(), "\n");
}

std::string LibraryTokenizerConfig(const Tokenizer& tokenizer, int64_t context_length) {
  const SpecialTokens& special = tokenizer.special_tokens();
  const auto name_or_null = [&](const absl::optional<int32_t>& token) {
    return token ? Json(GetName(tokenizer, *token)) : Json();
  };
  const Json json = {{"tokenizer_class", "PreTrainedTokenizerFast"},
                     {"model_max_length", context_length},
                     {"clean_up_tokenization_spaces", false},
                     {"bos_token", name_or_null(special.begin)},
                     {"eos_token", name_or_null(tokenizer.end_token())},
                     {"pad_token", name_or_null(special.pad)}};
  return absl::StrCat(json.dump(2), "\n");
}

}  // namespace plumb
