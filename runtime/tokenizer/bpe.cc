// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding (Sennrich et al. 2016): a piece starts as single bytes or characters, and the
// adjacent pair with the lowest rank, the leftmost of equals, is merged until no pair can be. A
// short piece searches all pairs for it; a long one keeps a heap, so that n symbols take O(n log n)
// steps in the worst case.
#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/flat_table.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/subword_model.h"
#include "runtime/tokenizer/vocabulary_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr size_t kShortPiece = 32;  // number of symbols
constexpr uint64_t kNoMerge = FlatTable::kNone;

uint64_t PairKey(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}
// Returns a merge's rank and its result in one number. Ranks differ, so merges compare by rank.
uint64_t Merge(size_t rank, int32_t result) {
  return static_cast<uint64_t>(rank) << 32 | static_cast<uint32_t>(result);
}
int32_t GetResult(uint64_t merge) { return static_cast<int32_t>(merge & 0xFFFFFFFF); }

class Bpe : public SubwordModel {
 public:
  static absl::StatusOr<std::unique_ptr<SubwordModel>> Read(const Json& json, bool byte_level);

  absl::Status Append(absl::string_view piece, ModelScratch* scratch,
                      std::vector<int32_t>* tokens) const override;
  bool takes_bytes() const override { return byte_level_ || (byte_fallback_ && bytes_.all); }
  bool NeverCrosses(absl::string_view mark) const override;
  const char* name() const override { return "BPE"; }

 private:
  absl::Status ReadMerges(const Json& merges, const PieceIds& ids, absl::string_view place);
  void TakeSymbols(const PieceIds& ids);
  void TakeWordEnds(const PieceIds& ids);
  absl::Status AppendSymbols(absl::string_view piece, std::vector<int32_t>* symbols) const;
  absl::Status NoToken(absl::string_view character) const;
  void MergeShort(std::vector<int32_t>* symbols) const;
  void MergeLong(ModelScratch* scratch) const;

  bool byte_level_ = false, byte_fallback_ = false, fuse_unknown_ = false, ignore_merges_ = false;
  int32_t unknown_ = -1;
  PieceIds whole_;        // pieces that ignore_merges looks up; in bytes if byte_level_
  ByteTokens bytes_;      // tokens of single bytes
  FlatTable characters_;  // maps code points to tokens; empty if byte_level_
  // end_of_word_suffix, which the last character of a piece has. last_bytes_ and last_characters_
  // are the tokens of one character with the suffix, like bytes_ and characters_ without it.
  std::string suffix_;
  std::array<int32_t, 256> last_bytes_;
  FlatTable last_characters_;
  FlatTable merges_;
};

// Returns the two sides of a merge, "a b" or ["a", "b"]; nullopt if it is malformed.
absl::optional<std::pair<std::string, std::string>> ParseSides(const Json& merge) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return std::make_pair(merge[0].get<std::string>(), merge[1].get<std::string>());
  }
  if (!merge.is_string()) return absl::nullopt;
  const std::string& text = merge.get_ref<const std::string&>();
  const size_t space = text.find(' ');
  if (space == std::string::npos || text.find(' ', space + 1) != std::string::npos) {
    return absl::nullopt;
  }
  return std::make_pair(text.substr(0, space), text.substr(space + 1));
}

// Returns true for the first line of merges.txt, which old files have in their list of merges.
bool IsVersionLine(const Json& merge) {
  return merge.is_string() && absl::StartsWith(merge.get_ref<const std::string&>(), "#version");
}

absl::Status Bpe::ReadMerges(const Json& merges, const PieceIds& ids, absl::string_view place) {
  size_t skipped = 0;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    if (IsVersionLine(merges[rank])) {
      ++skipped;
      continue;
    }
    const auto error = [&](absl::string_view what) {
      return absl::InvalidArgumentError(
          absl::StrCat(place, "[", rank, "]: ", Excerpt(merges[rank].dump(-1, ' ', true)), what));
    };
    const auto sides = ParseSides(merges[rank]);
    if (!sides) return error(" is not two pieces");
    int32_t found[3];
    const std::string* names[3] = {&sides->first, &sides->second, nullptr};
    const std::string both = sides->first + sides->second;
    names[2] = &both;
    for (int i = 0; i < 3; ++i) {
      const auto id = ids.find(*names[i]);
      if (id == ids.end()) {
        return error(absl::StrCat(": ", QuoteName(*names[i]), " is not in the vocabulary"));
      }
      found[i] = id->second;
    }
    // If a pair occurs twice, the last one counts.
    merges_.Set(PairKey(found[0], found[1]), Merge(rank - skipped, found[2]));
  }
  return absl::OkStatus();
}

// Collects the tokens of single bytes or characters, with which pieces start.
void Bpe::TakeSymbols(const PieceIds& ids) {
  if (!byte_level_) {
    bytes_ = FindByteTokens(ids);
  } else {
    bytes_.ids.fill(-1);
  }
  for (const auto& [piece, id] : ids) {
    if (byte_level_) {
      const absl::optional<std::string> bytes = FromByteAlphabet(piece);
      if (!bytes) continue;
      if (bytes->size() == 1) bytes_.ids[static_cast<unsigned char>((*bytes)[0])] = id;
      if (ignore_merges_) whole_.emplace(*bytes, id);
      continue;
    }
    size_t offset = 0;
    if (piece.empty()) continue;
    const absl::optional<uint32_t> character = NextCodePoint(piece, &offset);
    if (character && offset == piece.size()) {
      characters_.Insert(*character, static_cast<uint64_t>(id));
    }
    if (ignore_merges_) whole_.emplace(piece, id);
  }
}

void Bpe::TakeWordEnds(const PieceIds& ids) {
  last_bytes_.fill(-1);
  for (const auto& [piece, id] : ids) {
    if (!absl::EndsWith(piece, suffix_)) continue;
    const absl::string_view start =
        absl::string_view(piece).substr(0, piece.size() - suffix_.size());
    size_t offset = 0;
    const absl::optional<uint32_t> character =
        start.empty() ? absl::nullopt : NextCodePoint(start, &offset);
    if (!character || offset != start.size()) continue;
    if (!byte_level_) {
      last_characters_.Insert(*character, static_cast<uint64_t>(id));
    } else if (const absl::optional<std::string> byte = FromByteAlphabet(start)) {
      last_bytes_[static_cast<unsigned char>((*byte)[0])] = id;
    }
  }
}

absl::StatusOr<std::unique_ptr<SubwordModel>> Bpe::Read(const Json& json, bool byte_level) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, "model"));
  auto bpe = std::make_unique<Bpe>();
  bpe->byte_level_ = byte_level;
  fields.Ignore("type");
  PLUMB_RETURN_IF_ERROR(fields.Only("dropout", 0.0));
  PLUMB_RETURN_IF_ERROR(fields.Only("continuing_subword_prefix", ""));
  PLUMB_ASSIGN_OR_RETURN(bpe->suffix_, fields.String("end_of_word_suffix", ""));
  PLUMB_ASSIGN_OR_RETURN(bpe->fuse_unknown_, fields.Bool("fuse_unk", false));
  PLUMB_ASSIGN_OR_RETURN(bpe->byte_fallback_, fields.Bool("byte_fallback", false));
  PLUMB_ASSIGN_OR_RETURN(bpe->ignore_merges_, fields.Bool("ignore_merges", false));
  PLUMB_ASSIGN_OR_RETURN(const std::string unknown, fields.String("unk_token", ""));
  const Json* vocab = fields.Take("vocab");
  if (vocab == nullptr) return fields.Error("vocab is missing");
  PLUMB_ASSIGN_OR_RETURN(const PieceIds ids, ReadVocabulary(*vocab, fields.GetPlace("vocab")));
  PLUMB_ASSIGN_OR_RETURN(const Json* merges, fields.NeededArray("merges"));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  PLUMB_RETURN_IF_ERROR(bpe->ReadMerges(*merges, ids, fields.GetPlace("merges")));
  if (const auto found = ids.find(unknown); found != ids.end()) bpe->unknown_ = found->second;
  bpe->TakeSymbols(ids);
  if (!bpe->suffix_.empty()) bpe->TakeWordEnds(ids);
  bpe->pieces_ = PiecesById(ids);
  bpe->entries_ = ids.size();
  return std::unique_ptr<SubwordModel>(std::move(bpe));
}

bool Bpe::NeverCrosses(absl::string_view mark) const {
  if (byte_level_ || ignore_merges_ || !suffix_.empty()) return false;
  bool is_token = false;
  for (const std::string& piece : pieces_) {
    is_token = is_token || piece == mark;
    size_t end_of_marks = 0;
    while (piece.compare(end_of_marks, mark.size(), mark.data(), mark.size()) == 0) {
      end_of_marks += mark.size();
    }
    if (piece.find(mark.data(), end_of_marks, mark.size()) != std::string::npos) return false;
  }
  return is_token;
}

absl::Status Bpe::NoToken(absl::string_view character) const {
  size_t offset = 0;
  const absl::optional<uint32_t> code_point = NextCodePoint(character, &offset);
  if (byte_level_ || !code_point) {
    return absl::InvalidArgumentError(
        absl::StrFormat("byte 0x%02x has no token", static_cast<unsigned char>(character[0])));
  }
  return absl::InvalidArgumentError(absl::StrCat("'", DisplayCharacter(*code_point), "' (",
                                                 CodePointName(*code_point), ") has no token"));
}

absl::Status Bpe::AppendSymbols(absl::string_view piece, std::vector<int32_t>* symbols) const {
  // An unknown token is appended when the next known token follows. Byte-fallback tokens of a
  // character are not known tokens in this sense: they are put before it.
  bool is_pending = false;
  const auto& last_bytes = suffix_.empty() ? bytes_.ids : last_bytes_;
  const FlatTable& last_characters = suffix_.empty() ? characters_ : last_characters_;
  for (size_t at = 0; at < piece.size();) {
    size_t end = at;
    int64_t token = -1;
    if (byte_level_) {
      const auto byte = static_cast<unsigned char>(piece[end++]);
      token = (end == piece.size() ? last_bytes : bytes_.ids)[byte];
    } else if (const absl::optional<uint32_t> c = NextCodePoint(piece, &end)) {
      // FlatTable::kNone becomes -1.
      token = static_cast<int64_t>((end == piece.size() ? last_characters : characters_).Find(*c));
    } else {
      ++end;
    }
    const absl::string_view character = piece.substr(at, end - at);
    at = end;
    if (token >= 0) {
      if (std::exchange(is_pending, false)) symbols->push_back(unknown_);
      symbols->push_back(static_cast<int32_t>(token));
    } else if (byte_fallback_ && bytes_.Has(character) &&
               (at < piece.size() || bytes_.Has(suffix_))) {
      for (const char c : character) symbols->push_back(bytes_.ids[static_cast<unsigned char>(c)]);
      if (at < piece.size()) continue;
      for (const char c : suffix_) symbols->push_back(bytes_.ids[static_cast<unsigned char>(c)]);
    } else if (unknown_ < 0) {
      return NoToken(character);
    } else {
      if (is_pending && !fuse_unknown_) symbols->push_back(unknown_);
      is_pending = true;
    }
  }
  if (is_pending) symbols->push_back(unknown_);
  return absl::OkStatus();
}

void Bpe::MergeShort(std::vector<int32_t>* symbols) const {
  uint64_t merges[kShortPiece];  // merges[i] is of symbols i and i + 1
  size_t n = symbols->size();
  int32_t* token = symbols->data();
  for (size_t i = 0; i + 1 < n; ++i) merges[i] = merges_.Find(PairKey(token[i], token[i + 1]));
  while (n > 1) {
    const size_t i = static_cast<size_t>(std::min_element(merges, merges + n - 1) - merges);
    if (merges[i] == kNoMerge) break;
    token[i] = GetResult(merges[i]);
    std::copy(token + i + 2, token + n, token + i + 1);
    std::copy(merges + i + 1, merges + n - 1, merges + i);
    --n;
    if (i > 0) merges[i - 1] = merges_.Find(PairKey(token[i - 1], token[i]));
    if (i + 1 < n) merges[i] = merges_.Find(PairKey(token[i], token[i + 1]));
  }
  symbols->resize(n);
}

void Bpe::MergeLong(ModelScratch* scratch) const {
  auto& symbols = scratch->symbols;
  auto& heap = scratch->heap;
  const int32_t n = static_cast<int32_t>(scratch->tokens.size());
  symbols.resize(scratch->tokens.size());
  heap.clear();
  const auto later = std::greater<std::pair<uint64_t, int32_t>>();
  // Looks up the merge of symbol i with the next one, and adds it to the heap.
  const auto enter = [&](int32_t i) {
    auto& symbol = symbols[static_cast<size_t>(i)];
    symbol.merge = kNoMerge;
    if (symbol.next == n) return;
    const int32_t next = symbols[static_cast<size_t>(symbol.next)].token;
    symbol.merge = merges_.Find(PairKey(symbol.token, next));
    if (symbol.merge == kNoMerge) return;
    heap.emplace_back(symbol.merge, i);
    std::push_heap(heap.begin(), heap.end(), later);
  };
  for (int32_t i = 0; i < n; ++i) {
    symbols[static_cast<size_t>(i)] = {scratch->tokens[static_cast<size_t>(i)], i - 1, i + 1,
                                       kNoMerge};
  }
  for (int32_t i = 0; i < n; ++i) enter(i);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const auto [merge, i] = heap.back();
    heap.pop_back();
    auto& symbol = symbols[static_cast<size_t>(i)];
    if (symbol.merge != merge) continue;  // outdated: one of the two symbols has been merged since
    auto& next = symbols[static_cast<size_t>(symbol.next)];
    next.merge = kNoMerge;
    symbol.token = GetResult(merge);
    symbol.next = next.next;
    if (symbol.next < n) symbols[static_cast<size_t>(symbol.next)].previous = i;
    enter(i);
    if (symbol.previous >= 0) enter(symbol.previous);
  }
  scratch->tokens.clear();
  for (int32_t i = 0; i < n; i = symbols[static_cast<size_t>(i)].next) {
    scratch->tokens.push_back(symbols[static_cast<size_t>(i)].token);
  }
}

absl::Status Bpe::Append(absl::string_view piece, ModelScratch* scratch,
                         std::vector<int32_t>* tokens) const {
  if (ignore_merges_) {
    const auto found = whole_.find(std::string(piece));
    if (found != whole_.end()) {
      tokens->push_back(found->second);
      return absl::OkStatus();
    }
  }
  scratch->tokens.clear();
  PLUMB_RETURN_IF_ERROR(AppendSymbols(piece, &scratch->tokens));
  if (scratch->tokens.size() > static_cast<size_t>(INT32_MAX)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a piece of ", piece.size(), " bytes that no pattern cuts is longer than 2 GiB"));
  }
  if (scratch->tokens.size() <= kShortPiece) {
    MergeShort(&scratch->tokens);
  } else {
    MergeLong(scratch);
  }
  tokens->insert(tokens->end(), scratch->tokens.begin(), scratch->tokens.end());
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<SubwordModel>> ReadBpe(const Json& model, bool byte_level) {
  return Bpe::Read(model, byte_level);
}

}  // namespace plumb
