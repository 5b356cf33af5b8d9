#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"

namespace plumb::capi {
namespace {

absl::StatusOr<Tokenizer> MakeTokenizer(int32_t kind, absl::string_view text, bool begin_end) {
  if (kind == PLUMB_BYTES) return Tokenizer::Bytes(begin_end);
  if (kind != PLUMB_CHARACTERS) {
    return absl::InvalidArgumentError(
        absl::StrCat("kind must be PLUMB_CHARACTERS or PLUMB_BYTES, is ", kind));
  }
  const absl::string_view texts[] = {text};
  return Tokenizer::Characters(texts, begin_end);
}

}  // namespace
}  // namespace plumb::capi

using plumb::Tokenizer;
using plumb::capi::Guard;
using plumb::capi::NullArgument;

plumb_status plumb_tokenizer_create(int32_t kind, const char* text, size_t size,
                                    int32_t with_begin_end, plumb_tokenizer** tokenizer,
                                    plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (text == nullptr && size > 0) return NullArgument("text");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("size", size));
    absl::StatusOr<Tokenizer> made = plumb::capi::MakeTokenizer(
        kind, text == nullptr ? absl::string_view() : absl::string_view(text, size),
        with_begin_end != 0);
    if (made.ok()) *tokenizer = new plumb_tokenizer{*std::move(made)};
    return made.status();
  });
}

plumb_status plumb_tokenizer_from_json(const char* json, size_t size, plumb_tokenizer** tokenizer,
                                       plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("size", size));
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    absl::StatusOr<Tokenizer> made = Tokenizer::FromJson(absl::string_view(json, size));
    if (made.ok()) *tokenizer = new plumb_tokenizer{*std::move(made)};
    return made.status();
  });
}

plumb_status plumb_tokenizer_json(const plumb_tokenizer* tokenizer, char* buffer, size_t capacity,
                                  size_t* needed, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    plumb::capi::GiveText(tokenizer->tokenizer.ToJson(), buffer, capacity, needed);
    return absl::OkStatus();
  });
}

int32_t plumb_tokenizer_vocab_size(const plumb_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer.vocab_size();
}

int32_t plumb_tokenizer_begin_end(const plumb_tokenizer* tokenizer) {
  return tokenizer == nullptr ? -1 : tokenizer->tokenizer.end_token().value_or(-1);
}

plumb_status plumb_tokenizer_encode(const plumb_tokenizer* tokenizer, const char* text, size_t size,
                                    int32_t* tokens, size_t capacity, size_t* needed,
                                    plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (text == nullptr && size > 0) return NullArgument("text");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("size", size));
    if (tokens == nullptr && capacity > 0) return NullArgument("tokens");
    const absl::StatusOr<std::vector<int32_t>> encoded = tokenizer->tokenizer.Encode(
        text == nullptr ? absl::string_view() : absl::string_view(text, size));
    if (!encoded.ok()) return encoded.status();
    std::copy_n(encoded->begin(), std::min(encoded->size(), capacity), tokens);
    if (needed != nullptr) *needed = encoded->size();
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_decode(const plumb_tokenizer* tokenizer, const int32_t* tokens,
                                    size_t count, char* buffer, size_t capacity, size_t* needed,
                                    plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (tokens == nullptr && count > 0) return NullArgument("tokens");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("count", count));
    const absl::StatusOr<std::string> text =
        tokenizer->tokenizer.Decode(absl::MakeConstSpan(tokens, count));
    if (!text.ok()) return text.status();
    plumb::capi::GiveText(*text, buffer, capacity, needed);
    return absl::OkStatus();
  });
}

void plumb_tokenizer_free(plumb_tokenizer* tokenizer) { delete tokenizer; }
