#include "runtime/tokenizer/added_tokens.h"

#include <nlohmann/json.hpp>
#include <utility>

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
// Where the character before `at` begins.
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

}  // namespace

absl::StatusOr<std::vector<AddedToken>> ReadAddedTokens(const nlohmann::json* json,
                                                        const std::string& place, size_t pieces) {
  std::vector<AddedToken> tokens;
  if (json == nullptr) return tokens;
  if (!json->is_array()) return absl::InvalidArgumentError(absl::StrCat(place, ": is not a list"));
  const int64_t max_id = MaxTokenId(pieces + json->size());
  for (const auto& entry : *json) {
    PLUMB_ASSIGN_OR_RETURN(AddedToken token,
                           ReadToken(entry, absl::StrCat(place, "[", tokens.size(), "]"), max_id));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, bool normalized) {
  for (const AddedToken& token : tokens) {
    if (token.normalized != normalized || token.content.empty()) continue;
    trie_.Insert(token.content, static_cast<int32_t>(tokens_.size()));
    begins_[static_cast<unsigned char>(token.content[0])] = true;
    tokens_.push_back(token);
  }
}

AddedTokenFinder::Found AddedTokenFinder::Find(absl::string_view text, size_t from) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (!begins_[static_cast<unsigned char>(text[at])]) continue;
    size_t length = 0;
    const int32_t index = trie_.LongestPrefix(text.substr(at), &length);
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
  return {};
}

}  // namespace plumb
