// SPDX-License-Identifier: Apache-2.0
// The unigram model (Kudo 2018): every piece has a log probability, and a text is segmented so that
// their sum is maximal (Viterbi). A character without a piece is unknown; its score is that of the
// least likely piece minus 10. Adjacent unknown characters are one token, or bytes if the
// vocabulary has these.
#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_trie.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/subword_model.h"
#include "runtime/tokenizer/vocabulary_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr double kUnknownPenalty = 10;

class Unigram : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Read(const Json& json);

  absl::Status Append(absl::string_view piece, ModelScratch* scratch,
                      std::vector<int32_t>* tokens) const override;
  bool takes_bytes() const override { return bytes_.all; }
  bool NeverCrosses(absl::string_view) const override { return false; }
  const char* name() const override { return "unigram"; }

 private:
  absl::Status ReadPieces(const Json& vocab, absl::string_view place);
  absl::Status AppendUnknown(absl::string_view text, std::vector<int32_t>* tokens) const;

  ByteTrie trie_;
  std::vector<double> scores_;
  double unknown_score_ = 0;
  int32_t unknown_ = -1;
  ByteTokens bytes_;
};

absl::Status Unigram::ReadPieces(const Json& vocab, absl::string_view place) {
  double min = std::numeric_limits<double>::infinity();
  for (const Json& entry : vocab) {
    const std::string at = absl::StrCat(place, "[", pieces_.size(), "]");
    if (!entry.is_array() || entry.size() != 2 || !entry[0].is_string() || !entry[1].is_number()) {
      return absl::InvalidArgumentError(absl::StrCat(at, ": is not a piece and its score"));
    }
    pieces_.push_back(entry[0].get<std::string>());
    scores_.push_back(entry[1].get<double>());
    if (!std::isfinite(scores_.back())) {
      return absl::InvalidArgumentError(absl::StrCat(at, ": the score is not a number"));
    }
    min = std::min(min, scores_.back());
  }
  // If a piece occurs twice, the last one counts.
  for (size_t id = pieces_.size(); id-- > 0;) trie_.Insert(pieces_[id], static_cast<int32_t>(id));
  unknown_score_ = min - kUnknownPenalty;
  entries_ = pieces_.size();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<SubwordModel>> Unigram::Read(const Json& json) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "model"));
  auto model = std::make_unique<Unigram>();
  fields.Ignore("type");
  PLUMB_ASSIGN_OR_RETURN(const int64_t unknown, fields.Int("unk_id", -1));
  PLUMB_ASSIGN_OR_RETURN(const bool byte_fallback, fields.Bool("byte_fallback", false));
  PLUMB_ASSIGN_OR_RETURN(const Json* vocab, fields.NeededArray("vocab"));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  if (vocab->empty()) return fields.Error("vocab is empty");
  PLUMB_RETURN_IF_ERROR(model->ReadPieces(*vocab, fields.GetPlace("vocab")));
  if (unknown < -1 || unknown >= static_cast<int64_t>(model->pieces_.size())) {
    return fields.Error(absl::StrCat("unk_id ", unknown, " is outside of the vocabulary"));
  }
  model->unknown_ = static_cast<int32_t>(unknown);
  PieceIds ids;
  if (byte_fallback) {
    for (size_t id = model->pieces_.size(); id-- > 0;) {
      ids.emplace(model->pieces_[id], static_cast<int32_t>(id));
    }
  }
  model->bytes_ = FindByteTokens(ids);
  return std::unique_ptr<SubwordModel>(std::move(model));
}

// Appends the tokens of a run of unknown characters: the piece with this text (possibly that of the
// unknown token), its bytes if all of them have tokens, or one unknown token.
absl::Status Unigram::AppendUnknown(absl::string_view text, std::vector<int32_t>* tokens) const {
  size_t length = 0;
  int32_t piece = -1;
  trie_.LongestPrefix(text, &length, &piece);
  if (piece >= 0 && length == text.size()) {
    tokens->push_back(piece);
    return absl::OkStatus();
  }
  if (bytes_.Has(text)) {
    for (const char c : text) tokens->push_back(bytes_.ids[static_cast<unsigned char>(c)]);
    return absl::OkStatus();
  }
  if (unknown_ >= 0) {
    tokens->push_back(unknown_);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(QuoteName(text), " has no tokens, and there is no unk_id"));
}

absl::Status Unigram::Append(absl::string_view piece, ModelScratch* scratch,
                             std::vector<int32_t>* tokens) const {
  // Best::from has 32 bits.
  if (piece.size() > static_cast<size_t>(INT32_MAX)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a piece of ", piece.size(), " bytes that no pattern cuts is longer than 2 GiB"));
  }
  auto& best = scratch->best;
  best.assign(piece.size() + 1, {0, -1, -1});
  const auto offer = [&](size_t from, size_t to, double score, int32_t token) {
    if (best[to].from >= 0 && best[to].score >= score) return;
    best[to] = {score, static_cast<int32_t>(from), token};
  };
  for (size_t at = 0; at < piece.size();) {
    size_t next = at;
    if (!NextCodePoint(piece, &next)) ++next;  // a byte that is not UTF-8 counts as unknown
    bool has_single = false;
    const double score = best[at].score;
    const size_t steps = trie_.VisitPrefixes(piece.substr(at), [&](size_t length, int32_t token) {
      has_single = has_single || length == next - at;
      offer(at, at + length, score + scores_[static_cast<size_t>(token)], token);
    });
    PLUMB_RETURN_IF_ERROR(scratch->budget->ChargeLookup(steps, "the pieces of the vocabulary"));
    if (!has_single) offer(at, next, score + unknown_score_, -1);
    at = next;
  }
  // Follows the best segmentation backwards, then emits tokens forwards.
  scratch->tokens.clear();
  std::vector<int32_t>& ends = scratch->tokens;
  for (int32_t at = static_cast<int32_t>(piece.size()); at > 0;
       at = best[static_cast<size_t>(at)].from) {
    ends.push_back(at);
  }
  size_t unknown_begin = 0, at = 0;
  for (auto end = ends.rbegin(); end != ends.rend(); ++end) {
    const int32_t token = best[static_cast<size_t>(*end)].token;
    if (token >= 0 && token != unknown_) {
      if (unknown_begin < at) {
        PLUMB_RETURN_IF_ERROR(
            AppendUnknown(piece.substr(unknown_begin, at - unknown_begin), tokens));
      }
      tokens->push_back(token);
      unknown_begin = static_cast<size_t>(*end);
    }
    at = static_cast<size_t>(*end);
  }
  if (unknown_begin == at) return absl::OkStatus();
  return AppendUnknown(piece.substr(unknown_begin, at - unknown_begin), tokens);
}

}  // namespace

absl::StatusOr<std::unique_ptr<SubwordModel>> ReadUnigram(const Json& model) {
  return Unigram::Read(model);
}

}  // namespace plumb
