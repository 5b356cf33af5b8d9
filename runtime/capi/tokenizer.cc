// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdlib>
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
  std::vector<int32_t> prefix = tokenizer.prompt_prefix();
  return new plumb_tokenizer{std::make_shared<const Tokenizer>(std::move(tokenizer)),
                             std::move(prefix)};
}

plumb_tokenizer_info GetInfo(const plumb_tokenizer& from) {
  const Tokenizer& tokenizer = *from.tokenizer;
  const std::vector<int32_t>& end = tokenizer.special_tokens().end;
  plumb_tokenizer_info info = {};
  info.begin = tokenizer.begin_token().value_or(-1);
  info.end = tokenizer.end_token().value_or(-1);
  info.vocab_size = tokenizer.vocab_size();
  info.prefix = from.prefix.data();
  info.prefix_count = static_cast<int64_t>(from.prefix.size());
  info.end_tokens = end.data();
  info.end_token_count = static_cast<int64_t>(end.size());
  return info;
}

absl::StatusOr<absl::string_view> ToText(const char* text, size_t size) {
  PLUMB_RETURN_IF_ERROR(CheckArray("text", text, static_cast<int64_t>(size), 1));
  return text == nullptr ? absl::string_view() : absl::string_view(text, size);
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
    PLUMB_ASSIGN_OR_RETURN(const absl::string_view content, plumb::capi::ToText(text, size));
    absl::StatusOr<Tokenizer> made = plumb::capi::MakeTokenizer(kind, content, with_begin_end != 0);
    if (!made.ok()) return made.status();
    *tokenizer = plumb::capi::NewHandle(*std::move(made));
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_from_json(const char* json, plumb_tokenizer** tokenizer,
                                       plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (json == nullptr) return NullArgument("json");
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    absl::StatusOr<Tokenizer> made = Tokenizer::FromJson(json);
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

plumb_status plumb_tokenizer_json(const plumb_tokenizer* tokenizer, char** text,
                                  plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    return plumb::capi::WriteText(tokenizer->tokenizer->ToJson(), text);
  });
}

plumb_status plumb_tokenizer_get_info(const plumb_tokenizer* tokenizer, plumb_tokenizer_info* info,
                                      plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    return plumb::capi::CopyOut(plumb::capi::GetInfo(*tokenizer), "info", info);
  });
}

plumb_status plumb_tokenizer_encode(const plumb_tokenizer* tokenizer, const char* text, size_t size,
                                    int32_t** tokens, int64_t* count, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (tokens == nullptr) return NullArgument("tokens");
    if (count == nullptr) return NullArgument("count");
    PLUMB_ASSIGN_OR_RETURN(const absl::string_view content, plumb::capi::ToText(text, size));
    const absl::StatusOr<std::vector<int32_t>> encoded = tokenizer->tokenizer->Encode(content);
    if (!encoded.ok()) return encoded.status();
    const size_t n = encoded->size();
    auto* const made = static_cast<int32_t*>(std::malloc(sizeof(int32_t) * std::max<size_t>(n, 1)));
    if (made == nullptr) return absl::ResourceExhaustedError("out of memory for the tokens");
    std::copy_n(encoded->begin(), n, made);
    *tokens = made;
    *count = static_cast<int64_t>(n);
    return absl::OkStatus();
  });
}

plumb_status plumb_tokenizer_decode(const plumb_tokenizer* tokenizer, const int32_t* tokens,
                                    int64_t count, char** text, size_t* size, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("tokens", tokens, count));
    const absl::StatusOr<std::string> decoded = tokenizer->tokenizer->Decode(span);
    if (!decoded.ok()) return decoded.status();
    return plumb::capi::WriteText(*decoded, text, size);
  });
}

void plumb_tokenizer_free(plumb_tokenizer* tokenizer) { delete tokenizer; }

plumb_status plumb_decoder_create(const plumb_tokenizer* tokenizer, const int32_t* prompt,
                                  int64_t count, plumb_decoder** decoder, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (tokenizer == nullptr) return NullArgument("tokenizer");
    if (decoder == nullptr) return NullArgument("decoder");
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("prompt", prompt, count));
    const std::shared_ptr<const Tokenizer>& shared = tokenizer->tokenizer;
    absl::StatusOr<plumb::TokenDecoder> made = plumb::TokenDecoder::Create(shared.get(), span);
    if (!made.ok()) return made.status();
    *decoder = new plumb_decoder{shared, *std::move(made), "", {}};
    return absl::OkStatus();
  });
}

plumb_status plumb_decoder_next(plumb_decoder* decoder, const int32_t* tokens, int64_t count,
                                const char** text, size_t* size, plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (decoder == nullptr) return NullArgument("decoder");
    PLUMB_ASSIGN_OR_RETURN(const auto span, plumb::capi::ToSpan("tokens", tokens, count));
    std::string next;
    PLUMB_RETURN_IF_ERROR(decoder->decoder.Append(span, &next));
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

plumb_status plumb_decoder_stop_at(plumb_decoder* decoder, const char* const* texts, int64_t count,
                                   plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (decoder == nullptr) return NullArgument("decoder");
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> stops,
                           plumb::capi::ToList<std::string>("texts", texts, count));
    PLUMB_ASSIGN_OR_RETURN(decoder->stops, plumb::StopTexts::Create(stops));
    return absl::OkStatus();
  });
}

int32_t plumb_decoder_stopped(const plumb_decoder* decoder) {
  return decoder != nullptr && decoder->stops.stopped() ? 1 : 0;
}

void plumb_decoder_free(plumb_decoder* decoder) { delete decoder; }
