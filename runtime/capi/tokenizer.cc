// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/tokenizer/stop_texts.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb::capi {
namespace {

absl::StatusOr<Tokenizer> MakeTokenizer(int32_t kind, absl::string_view text, bool begin_end) {
  if (kind == PLUMB_TOKENIZER_BYTES) return Tokenizer::Bytes(begin_end);
  if (kind != PLUMB_TOKENIZER_CHARACTERS) {
    return absl::InvalidArgumentError(absl::StrCat(
        "kind must be PLUMB_TOKENIZER_CHARACTERS or PLUMB_TOKENIZER_BYTES, is ", kind));
  }
  const absl::string_view texts[] = {text};
  return Tokenizer::Characters(texts, begin_end);
}

plumb_tokenizer* NewHandle(Tokenizer tokenizer) {
  return new plumb_tokenizer{std::make_shared<const Tokenizer>(std::move(tokenizer))};
}

void WriteTokens(const std::vector<int32_t>& from, int32_t* tokens, size_t capacity,
                 size_t* needed) {
  std::copy_n(from.begin(), std::min(from.size(), capacity), tokens);
  if (needed != nullptr) *needed = from.size();
}

}  // namespace
}  // namespace plumb::capi

struct plumb_decoder {
  const std::shared_ptr<const plumb::Tokenizer> tokenizer;
  plumb::TokenDecoder decoder;
  std::string text;  // returned by the last call
  plumb::StopTexts stops;
  bool has_finished = false;  // the next token begins a new text

  // Returns a view of the text, which is valid until the next call.
  void WriteView(const char** to, size_t* size) const {
    if (to != nullptr) *to = text.c_str();
    if (size != nullptr) *size = text.size();
  }
};

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
    if (!made.ok()) return made.status();
    *tokenizer = plumb::capi::NewHandle(*std::move(made));
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_from_json(const char* json, size_t size, plumb_tokenizer** tokenizer,
                                       plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("size", size));
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    absl::StatusOr<Tokenizer> made = Tokenizer::FromJson(absl::string_view(json, size));
    if (!made.ok()) return made.status();
    *tokenizer = plumb::capi::NewHandle(*std::move(made));
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_from_directory(const char* path, plumb_tokenizer** tokenizer,
                                            plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (path == nullptr) return NullArgument("path");
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    absl::StatusOr<Tokenizer> made = plumb::ReadTokenizer(path);
    if (!made.ok()) return made.status();
    *tokenizer = plumb::capi::NewHandle(*std::move(made));
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_json(const plumb_tokenizer* tokenizer, char* buffer, size_t capacity,
                                  size_t* needed, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    plumb::capi::WriteText(tokenizer->tokenizer->ToJson(), buffer, capacity, needed);
    return absl::OkStatus();
  });
}

int32_t plumb_tokenizer_vocab_size(const plumb_tokenizer* tokenizer) {
  return tokenizer == nullptr ? 0 : tokenizer->tokenizer->vocab_size();
}

int32_t plumb_tokenizer_begin_end(const plumb_tokenizer* tokenizer) {
  return tokenizer == nullptr ? -1 : tokenizer->tokenizer->end_token().value_or(-1);
}

int32_t plumb_tokenizer_begin(const plumb_tokenizer* tokenizer) {
  return tokenizer == nullptr ? -1 : tokenizer->tokenizer->begin_token().value_or(-1);
}

plumb_status plumb_tokenizer_prefix(const plumb_tokenizer* tokenizer, int32_t* tokens,
                                    size_t capacity, size_t* needed, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (tokens == nullptr && capacity > 0) return NullArgument("tokens");
    plumb::capi::WriteTokens(tokenizer->tokenizer->prompt_prefix(), tokens, capacity, needed);
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_end_tokens(const plumb_tokenizer* tokenizer, int32_t* tokens,
                                        size_t capacity, size_t* needed, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (tokens == nullptr && capacity > 0) return NullArgument("tokens");
    plumb::capi::WriteTokens(tokenizer->tokenizer->special_tokens().end, tokens, capacity, needed);
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_encode(const plumb_tokenizer* tokenizer, const char* text, size_t size,
                                    int32_t* tokens, size_t capacity, size_t* needed,
                                    plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (text == nullptr && size > 0) return NullArgument("text");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("size", size));
    if (tokens == nullptr && capacity > 0) return NullArgument("tokens");
    const absl::StatusOr<std::vector<int32_t>> encoded = tokenizer->tokenizer->Encode(
        text == nullptr ? absl::string_view() : absl::string_view(text, size));
    if (!encoded.ok()) return encoded.status();
    plumb::capi::WriteTokens(*encoded, tokens, capacity, needed);
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_decode(const plumb_tokenizer* tokenizer, const int32_t* tokens,
                                    size_t count, char* buffer, size_t capacity, size_t* needed,
                                    plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (tokens == nullptr && count > 0) return NullArgument("tokens");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("count", count, sizeof(*tokens)));
    const absl::StatusOr<std::string> text =
        tokenizer->tokenizer->Decode(absl::MakeConstSpan(tokens, count));
    if (!text.ok()) return text.status();
    plumb::capi::WriteText(*text, buffer, capacity, needed);
    return absl::OkStatus();
  });
}

void plumb_tokenizer_free(plumb_tokenizer* tokenizer) { delete tokenizer; }

plumb_status plumb_decoder_create(const plumb_tokenizer* tokenizer, const int32_t* prompt,
                                  size_t count, plumb_decoder** decoder, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (decoder == nullptr) return NullArgument("decoder");
    if (prompt == nullptr && count > 0) return NullArgument("prompt");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("count", count, sizeof(*prompt)));
    const std::shared_ptr<const Tokenizer>& shared = tokenizer->tokenizer;
    absl::StatusOr<plumb::TokenDecoder> made =
        plumb::TokenDecoder::Create(shared.get(), absl::MakeConstSpan(prompt, count));
    if (!made.ok()) return made.status();
    *decoder = new plumb_decoder{shared, *std::move(made), "", {}};
    return absl::OkStatus();
  });
}

plumb_status plumb_decoder_next(plumb_decoder* decoder, const int32_t* tokens, size_t count,
                                const char** text, size_t* size, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (decoder == nullptr) return NullArgument("decoder");
    if (tokens == nullptr && count > 0) return NullArgument("tokens");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("count", count, sizeof(*tokens)));
    std::string next;
    PLUMB_RETURN_IF_ERROR(decoder->decoder.Append(absl::MakeConstSpan(tokens, count), &next));
    if (std::exchange(decoder->has_finished, false)) decoder->stops.Restart();
    decoder->text = decoder->stops.stopped() ? "" : decoder->stops.Add(next);
    decoder->WriteView(text, size);
    return absl::OkStatus();
  });
}

plumb_status plumb_decoder_finish(plumb_decoder* decoder, const char** text, size_t* size,
                                  plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (decoder == nullptr) return NullArgument("decoder");
    std::string rest;
    PLUMB_RETURN_IF_ERROR(decoder->decoder.Finish(&rest));
    if (std::exchange(decoder->has_finished, true)) decoder->stops.Restart();
    plumb::StopTexts& stops = decoder->stops;
    decoder->text = stops.stopped() ? "" : stops.Add(rest);
    if (!stops.stopped()) decoder->text += stops.Rest();
    decoder->WriteView(text, size);
    return absl::OkStatus();
  });
}

plumb_status plumb_decoder_stop_at(plumb_decoder* decoder, const char* const* texts, size_t count,
                                   plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (decoder == nullptr) return NullArgument("decoder");
    if (texts == nullptr && count > 0) return NullArgument("texts");
    PLUMB_RETURN_IF_ERROR(plumb::capi::CheckSize("count", count, sizeof(*texts)));
    std::vector<std::string> stops;
    for (size_t i = 0; i < count; ++i) {
      if (texts[i] == nullptr) return NullArgument("texts[i]");
      stops.emplace_back(texts[i]);
    }
    PLUMB_ASSIGN_OR_RETURN(decoder->stops, plumb::StopTexts::Create(stops));
    return absl::OkStatus();
  });
}

int32_t plumb_decoder_stopped(const plumb_decoder* decoder) {
  return decoder != nullptr && decoder->stops.stopped() ? 1 : 0;
}

void plumb_decoder_free(plumb_decoder* decoder) { delete decoder; }
