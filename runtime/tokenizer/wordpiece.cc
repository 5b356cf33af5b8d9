// SPDX-License-Identifier: Apache-2.0
// WordPiece as in BERT (Devlin et al. 2018): the longest piece that is a prefix of the word, then
// the longest continuation piece that is a prefix of the rest, and so on. A word that cannot be
// completed this way is one unknown token.
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/subword_model.h"
#include "runtime/tokenizer/vocabulary_json.h"

namespace plumb {
namespace {

class WordPiece : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Read(const nlohmann::json& json);

  absl::Status Append(absl::string_view piece, ModelScratch* scratch,
                      std::vector<int32_t>* tokens) const override;
  bool takes_bytes() const override { return false; }
  bool NeverCrosses(absl::string_view) const override { return false; }
  const char* name() const override { return "WordPiece"; }

 private:
  ByteTrie first_, rest_;
  int32_t unknown_ = -1;
  int64_t max_characters_ = 100;
};

absl::StatusOr<std::unique_ptr<SubwordModel>> WordPiece::Read(const nlohmann::json& json) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "model"));
  auto model = std::make_unique<WordPiece>();
  fields.Ignore("type");
  PLUMB_ASSIGN_OR_RETURN(const std::string unknown, fields.String("unk_token", "[UNK]"));
  PLUMB_ASSIGN_OR_RETURN(const std::string prefix,
                         fields.String("continuing_subword_prefix", "##"));
  PLUMB_ASSIGN_OR_RETURN(model->max_characters_, fields.Int("max_input_chars_per_word", 100));
  const nlohmann::json* vocab = fields.Take("vocab");
  if (vocab == nullptr) return fields.Error("vocab is missing");
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  PLUMB_ASSIGN_OR_RETURN(const PieceIds ids, ReadVocabulary(*vocab, fields.GetPlace("vocab")));
  const auto found = ids.find(unknown);
  if (found == ids.end()) {
    return fields.Error(
        absl::StrCat("unk_token ", QuoteName(unknown), " is not in the vocabulary"));
  }
  model->unknown_ = found->second;
  for (const auto& [piece, id] : ids) {
    if (piece.empty()) continue;
    model->first_.Insert(piece, id);
    if (absl::StartsWith(piece, prefix) && piece.size() > prefix.size()) {
      model->rest_.Insert(absl::string_view(piece).substr(prefix.size()), id);
    }
  }
  model->pieces_ = PiecesById(ids);
  model->entries_ = ids.size();
  return std::unique_ptr<SubwordModel>(std::move(model));
}

absl::Status WordPiece::Append(absl::string_view piece, ModelScratch* scratch,
                               std::vector<int32_t>* tokens) const {
  const size_t begin = tokens->size();
  int64_t characters = 0;
  for (const char c : piece) characters += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  bool known = characters <= max_characters_;
  for (size_t at = 0, length = 0; known && at < piece.size(); at += length) {
    int32_t token = -1;
    const size_t steps =
        (at == 0 ? first_ : rest_).LongestPrefix(piece.substr(at), &length, &token);
    PLUMB_RETURN_IF_ERROR(scratch->budget->ChargeLookup(steps, "the pieces of the vocabulary"));
    known = token >= 0;
    tokens->push_back(token);
  }
  if (!known) {
    tokens->resize(begin);
    tokens->push_back(unknown_);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SubwordModel>> ReadWordPiece(const nlohmann::json& model) {
  return WordPiece::Read(model);
}

}  // namespace plumb
