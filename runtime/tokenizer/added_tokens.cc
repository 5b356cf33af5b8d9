// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/added_tokens.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/json_fields.h"
#include "runtime/tokenizer/unicode.h"
#include "runtime/tokenizer/vocabulary_json.h"

namespace plumb {
namespace {

absl::optional<uint32_t> CharacterAt(absl::string_view text, size_t at) {
  return at < text.size() ? NextCodePoint(text, &at) : absl::nullopt;
}
// Returns the beginning of the character before `at`.
size_t Before(absl::string_view text, size_t at) {
  do {
    --at;
  } while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  return at;
}
bool IsWordAt(absl::string_view text, size_t at) {
  return IsWordCharacter(CharacterAt(text, at).value_or(' '));
}
bool IsSpaceAt(absl::string_view text, size_t at) {
  return IsWhiteSpace(CharacterAt(text, at).value_or('x'));
}

absl::StatusOr<AddedToken> ReadToken(const nlohmann::json& json, const std::string& place,
                                     int64_t max_id) {
  PLUMB_ASSIGN_OR_RETURN(JsonFields fields, JsonFields::Of(json, place));
  AddedToken token;
  PLUMB_ASSIGN_OR_RETURN(const int64_t id, fields.Int("id", -1));
  PLUMB_ASSIGN_OR_RETURN(token.content, fields.NeededString("content"));
  PLUMB_ASSIGN_OR_RETURN(token.special, fields.Bool("special", false));
  PLUMB_ASSIGN_OR_RETURN(token.single_word, fields.Bool("single_word", false));
  PLUMB_ASSIGN_OR_RETURN(token.strips_left, fields.Bool("lstrip", false));
  PLUMB_ASSIGN_OR_RETURN(token.strips_right, fields.Bool("rstrip", false));
  PLUMB_ASSIGN_OR_RETURN(token.normalized, fields.Bool("normalized", !token.special));
  PLUMB_RETURN_IF_ERROR(fields.Finish());
  if (id < 0 || id > max_id) {
    return fields.Error(absl::StrCat("id is not a number from 0 to ", max_id));
  }
  token.id = static_cast<int32_t>(id);
  return token;
}

// Checks the ids of added tokens. The tokenizers library ignores the file's ids: a token that the
// model has keeps the model's id, and the others are numbered after the model's pieces. A file with
// other ids would be read differently there.
absl::Status CheckIds(const std::vector<AddedToken>& tokens, const std::vector<std::string>& places,
                      const SubwordModel& model) {
  absl::flat_hash_map<absl::string_view, int32_t> ids;  // -1: not yet known
  for (const AddedToken& token : tokens) ids.emplace(token.content, -1);
  for (size_t id = 0; id < model.pieces().size(); ++id) {
    const auto entry = ids.find(model.pieces()[id]);
    if (entry != ids.end()) entry->second = static_cast<int32_t>(id);
  }
  auto next = static_cast<int32_t>(model.entries());
  for (size_t i = 0; i < tokens.size(); ++i) {
    int32_t& id = ids[tokens[i].content];
    if (id < 0) id = next++;
    if (id == tokens[i].id) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        places[i], ": the id of ", QuoteName(tokens[i].content), " is ", tokens[i].id,
        ", but the tokenizers library, which numbers the tokens that the model lacks from the size "
        "of its vocabulary, makes it ",
        id, "; give it that id"));
  }
  return absl::OkStatus();
}

absl::Status FindPattern(const Normalizer& normalizer, AddedToken* token) {
  token->pattern = token->content;
  if (!token->normalized || normalizer.Keeps(token->content)) return absl::OkStatus();
  token->pattern.clear();
  WorkBudget budget(token->content.size());
  return normalizer.Append(token->content, /*begins=*/true, &budget, &token->pattern);
}

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json* json,
                                                        const std::string& place,
                                                        const SubwordModel& model,
                                                        const Normalizer& normalizer) {
  std::vector<AddedToken> tokens;
  if (json == nullptr) return tokens;
  if (!json->is_array()) return absl::InvalidArgumentError(absl::StrCat(place, ": is not a list"));
  const int64_t max_id = MaxTokenId(model.pieces().size() + json->size());
  std::vector<std::string> places;
  for (size_t i = 0; i < json->size(); ++i) {
    const std::string at = absl::StrCat(place, "[", i, "]");
    PLUMB_ASSIGN_OR_RETURN(AddedToken token, ReadToken((*json)[i], at, max_id));
    if (token.content.empty()) continue;
    const absl::Status status = FindPattern(normalizer, &token);
    if (!status.ok()) return Annotate(status, absl::StrCat(at, ": "));
    tokens.push_back(std::move(token));
    places.push_back(at);
  }
  PLUMB_RETURN_IF_ERROR(CheckIds(tokens, places, model));
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.pattern.empty()) continue;
    trie_.Insert(token.pattern, static_cast<int32_t>(tokens_.size()));
    begins_[static_cast<unsigned char>(token.pattern[0])] = true;
    tokens_.push_back(token);
  }
}

absl::StatusOr<AddedTokenFinder::Found> AddedTokenFinder::Find(absl::string_view text, size_t from,
                                                               WorkBudget* budget) const {
  if (tokens_.empty()) return Found{};
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    size_t length = 0;
    int32_t index = -1;
    const size_t steps = trie_.LongestPrefix(text.substr(at), &length, &index);
    PLUMB_RETURN_IF_ERROR(budget->ChargeLookup(steps, "added tokens"));
    if (index < 0) continue;
    Found found{at, at + length, &tokens_[static_cast<size_t>(index)]};
    if (found.token->single_word &&
        ((at > 0 && IsWordAt(text, Before(text, at))) || IsWordAt(text, found.end))) {
      at = found.end - 1;
      continue;
    }
    while (found.token->strips_left && found.begin > from &&
           IsSpaceAt(text, Before(text, found.begin))) {
      found.begin = Before(text, found.begin);
    }
    while (found.token->strips_right && IsSpaceAt(text, found.end)) {
      NextCodePoint(text, &found.end);
    }
    return found;
  }
  return Found{};
}

}  // namespace plumb
