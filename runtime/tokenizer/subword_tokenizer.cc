// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/subword_tokenizer.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/vocabulary_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;

absl::StatusOr<std::unique_ptr<SubwordModel>> ReadModel(const Json& json, bool byte_level) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "model"));
  PLUMB_ASSIGN_OR_RETURN(std::string type, fields.String("type", ""));
  if (type.empty()) {  // old files do not state the type
    const Json* vocab = fields.Take("vocab");
    const bool is_list = vocab != nullptr && vocab->is_array();
    type = fields.Take("merges") != nullptr ? "BPE" : is_list ? "Unigram" : "WordPiece";
  }
  if (byte_level && (type == "Unigram" || type == "WordPiece")) {
    return fields.Error(
        absl::StrCat("type ", type, " after a ByteLevel pre-tokenizer is not supported"));
  }
  if (type == "BPE") return ReadBpe(json, byte_level);
  if (type == "Unigram") return ReadUnigram(json);
  if (type == "WordPiece") return ReadWordPiece(json);
  return UnsupportedType(fields, type, {"BPE", "Unigram", "WordPiece"});
}

}  // namespace

void SubwordTokenizer::AddPieces(const std::vector<AddedToken>& added) {
  pieces_ = model_->pieces();
  for (const AddedToken& token : added) {
    const size_t id = static_cast<size_t>(token.id);
    if (id >= pieces_.size()) pieces_.resize(id + 1);
    pieces_[id] = token.content;
  }
  special_.resize(pieces_.size());
  for (const AddedToken& token : added) special_[static_cast<size_t>(token.id)] = token.special;
}

absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> SubwordTokenizer::FromJson(
    absl::string_view json) {
  absl::StatusOr<Json> parsed = ParseStrictJson(json, kMaxDepth);
  if (!parsed.ok()) return Annotate(parsed.status(), "not valid JSON: ");
  return FromParsed(json, *parsed);
}

absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> SubwordTokenizer::FromParsed(
    absl::string_view json, const Json& root) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(root, ""));
  // These affect batches of texts, and not the tokens of a text.
  for (const char* name : {"version", "truncation", "padding"}) fields.Ignore(name);
  std::shared_ptr<SubwordTokenizer> made(new SubwordTokenizer);
  PLUMB_ASSIGN_OR_RETURN(made->normalizer_,
                         Normalizer::Read(fields.Take("normalizer"), "normalizer"));
  PLUMB_ASSIGN_OR_RETURN(made->pre_tokenizer_,
                         PreTokenizer::Read(fields.Take("pre_tokenizer"), "pre_tokenizer"));
  const Json* model = fields.Take("model");
  if (model == nullptr) return fields.Error("model is missing");
  PLUMB_ASSIGN_OR_RETURN(made->model_, ReadModel(*model, made->pre_tokenizer_->byte_level()));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<AddedToken> added,
                         ReadAddedTokens(fields.Take("added_tokens"), "added_tokens", *made->model_,
                                         *made->normalizer_));
  made->AddPieces(added);
  PLUMB_ASSIGN_OR_RETURN(
      made->post_processor_,
      ReadPostProcessor(fields.Take("post_processor"), "post_processor", made->vocab_size()));
  PLUMB_ASSIGN_OR_RETURN(made->decoder_, Decoder::Read(fields.Take("decoder"), "decoder"));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  made->added_ = std::make_unique<AddedTokenFinder>(added, /*normalized=*/false);
  made->added_normalized_ = std::make_unique<AddedTokenFinder>(added, /*normalized=*/true);
  made->cuts_at_marks_ = !made->pre_tokenizer_->cuts() && made->model_->NeverCrosses(kSpaceMark);
  made->json_ = std::string(json);
  return std::shared_ptr<const SubwordTokenizer>(std::move(made));
}

absl::StatusOr<std::string> SubwordTokenizer::JsonOfVocabAndMerges(absl::string_view vocab_json,
                                                                   absl::string_view merges_text) {
  absl::StatusOr<Json> vocab = ParseStrictJson(vocab_json, /*max_depth=*/1);
  if (!vocab.ok()) return Annotate(vocab.status(), "vocab.json: ");
  PLUMB_ASSIGN_OR_RETURN(const PieceIds ids, ReadVocabulary(*vocab, "vocab.json"));
  Json merges = Json::array();
  while (!merges_text.empty()) {
    const size_t newline = merges_text.find('\n');
    absl::string_view line = merges_text.substr(0, newline);
    merges_text.remove_prefix(newline == absl::string_view::npos ? merges_text.size()
                                                                 : newline + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty() || (merges.empty() && line.substr(0, 9) == "#version:")) continue;
    if (FindInvalidUtf8(line)) {
      return absl::InvalidArgumentError(
          absl::StrCat("merges.txt: merge ", merges.size() + 1, " is not UTF-8"));
    }
    merges.push_back(std::string(line));
  }
  Json added = Json::array();
  if (const auto end = ids.find("<|endoftext|>"); end != ids.end()) {
    added.push_back({{"id", end->second},
                     {"content", end->first},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json byte_level = {{"type", "ByteLevel"},
                           {"add_prefix_space", false},
                           {"trim_offsets", true},
                           {"use_regex", true}};
  const Json root = {
      {"version", "1.0"},
      {"added_tokens", std::move(added)},
      {"normalizer", nullptr},
      {"pre_tokenizer", byte_level},
      {"post_processor", nullptr},
      {"decoder", byte_level},
      {"model", {{"type", "BPE"}, {"vocab", *std::move(vocab)}, {"merges", std::move(merges)}}}};
  return absl::StrCat(root.dump(), "\n");
}

std::string SubwordTokenizer::GetText(int32_t token) const {
  std::string bytes = piece(token);
  if (is_byte_level()) {
    if (absl::optional<std::string> found = FromByteAlphabet(bytes)) bytes = *std::move(found);
  }
  std::string shown;
  for (size_t at = 0; at < bytes.size();) {
    if (const absl::optional<uint32_t> c = NextCodePoint(bytes, &at)) {
      shown += DisplayCharacter(*c);
    } else {
      absl::StrAppendFormat(&shown, "\\x%02x", static_cast<unsigned char>(bytes[at++]));
    }
  }
  return shown.empty() ? "<none>" : shown;
}

absl::StatusOr<std::string> SubwordTokenizer::Decode(absl::Span<const int32_t> tokens,
                                                     const DecodeOptions& options) const {
  std::vector<std::string> pieces;
  pieces.reserve(tokens.size());
  for (const int32_t token : tokens) {
    if (options.skip_special && is_special(token)) continue;
    pieces.push_back(piece(token));
  }
  size_t bytes = 0;
  for (const std::string& piece : pieces) bytes += piece.size();
  WorkBudget budget(bytes);
  PLUMB_RETURN_IF_ERROR(decoder_->Apply(options.continues, &budget, &pieces));
  return absl::StrJoin(pieces, "");
}

}  // namespace plumb
