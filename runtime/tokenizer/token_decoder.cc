// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/token_decoder.h"

#include <algorithm>
#include <utility>

#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb {

TokenDecoder::TokenDecoder(const Tokenizer* tokenizer)
    : tokenizer_(tokenizer),
      streams_(tokenizer->subwords() == nullptr || tokenizer->subwords()->streams()) {}

absl::StatusOr<TokenDecoder> TokenDecoder::Create(const Tokenizer* tokenizer,
                                                  absl::Span<const int32_t> prompt) {
  TokenDecoder decoder(tokenizer);
  std::string known;
  PLUMB_RETURN_IF_ERROR(decoder.Append(prompt, &known));
  if (!decoder.streams_) {
    PLUMB_ASSIGN_OR_RETURN(known, tokenizer->Decode(prompt));
    known.resize(known.size() - IncompleteUtf8End(known));
    decoder.prompt_text_ = std::move(known);
  }
  return decoder;
}

absl::Status TokenDecoder::Append(absl::Span<const int32_t> tokens, std::string* text) {
  PLUMB_RETURN_IF_ERROR(tokenizer_->CheckTokens(tokens));
  const SubwordTokenizer* const subwords = tokenizer_->subwords();
  const size_t before = tokens_.size();
  for (const int32_t token : tokens) {
    if (subwords == nullptr || !subwords->is_special(token)) tokens_.push_back(token);
  }
  if (!streams_) return absl::OkStatus();
  const absl::StatusOr<std::string> more =
      subwords == nullptr ? tokenizer_->Decode(tokens_)
                          : subwords->Decode(tokens_, {continues_, /*skip_special=*/true});
  if (!more.ok()) {
    tokens_.resize(before);
    return more.status();
  }
  // Tokens without text are decoded again with the next ones, since the text still begins there.
  continues_ = continues_ || !more->empty();
  if (continues_ || subwords == nullptr) tokens_.clear();
  held_ += *more;
  const size_t whole = held_.size() - IncompleteUtf8End(held_);
  text->append(held_, 0, whole);
  held_.erase(0, whole);
  return absl::OkStatus();
}

absl::Status TokenDecoder::Finish(std::string* text) {
  if (!streams_) {
    PLUMB_ASSIGN_OR_RETURN(held_, tokenizer_->Decode(tokens_));
    // The rules may change even the end of the prompt when more tokens follow it.
    const auto same =
        std::mismatch(held_.begin(), held_.end(), prompt_text_.begin(), prompt_text_.end());
    held_.erase(held_.begin(), same.first);
    prompt_text_.clear();
  }
  text->append(held_);
  held_.clear();
  tokens_.clear();
  continues_ = false;
  return absl::OkStatus();
}

}  // namespace plumb
