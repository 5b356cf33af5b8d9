// SPDX-License-Identifier: Apache-2.0
// SubwordEncoder: encodes a text segment by segment and piece by piece.
#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/subword_tokenizer.h"

namespace plumb {
namespace {

constexpr size_t kTokensBetweenProgress = size_t{1} << 16;

// Returns the end of the run of bytes that are not UTF-8 and begins at `at`.
size_t EndOfInvalid(absl::string_view text, size_t at) {
  while (at < text.size()) {
    size_t next = at;
    if (NextCodePoint(text, &next)) break;
    ++at;
  }
  return at;
}

}  // namespace

// State of one call of Encode.
struct SubwordEncoder::Call {
  absl::string_view text;
  Options options;
  std::vector<int32_t>* tokens;
  Progress progress;
  WorkBudget budget;
  size_t at = 0;  // offset of the current segment or piece
  size_t next_progress = kTokensBetweenProgress;

  // Updates `at`, unless normalization has changed the piece, which then is not part of the text.
  void NotePlace(absl::string_view piece) {
    const std::less_equal<const char*> not_after;
    if (not_after(text.data(), piece.data()) &&
        not_after(piece.data() + piece.size(), text.data() + text.size())) {
      at = static_cast<size_t>(piece.data() - text.data());
    }
  }
  absl::Status MayProgress() {
    if (tokens->size() < next_progress) return absl::OkStatus();
    PLUMB_RETURN_IF_ERROR(progress(tokens, at));
    next_progress = tokens->size() + kTokensBetweenProgress;
    return absl::OkStatus();
  }
};

SubwordEncoder::SubwordEncoder(const SubwordTokenizer* tokenizer)
    : tokenizer_(tokenizer), runner_(tokenizer->pre_tokenizer_.get()) {}

absl::Status SubwordEncoder::Encode(absl::string_view text, const Options& options,
                                    std::vector<int32_t>* tokens, size_t* bad_byte) {
  return Encode(text, options, tokens, bad_byte,
                [](std::vector<int32_t>*, size_t) { return absl::OkStatus(); });
}

absl::Status SubwordEncoder::Encode(absl::string_view text, const Options& options,
                                    std::vector<int32_t>* tokens, size_t* bad_byte,
                                    Progress progress) {
  Call call{text, options, tokens, progress, WorkBudget(text.size())};
  scratch_.budget = &call.budget;
  call.next_progress += tokens->size();
  const PostProcessor& around = tokenizer_->post_processor_;
  if (options.post_process) {
    tokens->insert(tokens->end(), around.before.begin(), around.before.end());
  }
  const auto encode_all = [&]() -> absl::Status {
    for (size_t at = 0; at < text.size();) {
      AddedTokenFinder::Found found;
      if (options.finds_added) {
        PLUMB_ASSIGN_OR_RETURN(found, tokenizer_->added_->Find(text, at, &call.budget));
      }
      const size_t end = found.token == nullptr ? text.size() : found.begin;
      if (end > at) PLUMB_RETURN_IF_ERROR(EncodeSegment(text.substr(at, end - at), &call));
      if (found.token != nullptr) tokens->push_back(found.token->id);
      at = found.token == nullptr ? text.size() : found.end;
    }
    return absl::OkStatus();
  };
  const absl::Status status = encode_all();
  scratch_.budget = nullptr;
  if (!status.ok()) {
    *bad_byte = call.at;
    return status;
  }
  if (options.post_process) {
    tokens->insert(tokens->end(), around.after.begin(), around.after.end());
  }
  return progress(tokens, text.size());
}

// Encodes the text between added tokens: stretches of UTF-8, and of bytes that are not.
absl::Status SubwordEncoder::EncodeSegment(absl::string_view segment, Call* call) {
  SplitContext context{&call->budget};
  context.begins_text = segment.data() == call->text.data();
  if (context.begins_text && call->options.continues) {
    const std::vector<int32_t>& before = *call->tokens;
    context.begins_text = false;
    context.begins_segment = !before.empty() && tokenizer_->is_special(before.back());
  }
  for (size_t at = 0; at < segment.size();) {
    const absl::string_view rest = segment.substr(at);
    call->NotePlace(rest);
    const size_t valid = FindInvalidUtf8(rest).value_or(rest.size());
    if (valid > 0) PLUMB_RETURN_IF_ERROR(EncodeValid(rest.substr(0, valid), context, call));
    context = {&call->budget, false, false};
    at += valid;
    if (valid == rest.size()) break;
    const size_t end = EndOfInvalid(rest, valid);
    const absl::string_view bytes = rest.substr(valid, end - valid);
    call->NotePlace(bytes);
    if (!tokenizer_->model_->takes_bytes()) {
      return absl::InvalidArgumentError(CheckUtf8(bytes).message());
    }
    PLUMB_RETURN_IF_ERROR(AppendPiece(bytes, call->tokens));
    at += bytes.size();
  }
  return absl::OkStatus();
}

absl::Status SubwordEncoder::EncodeValid(absl::string_view text, const SplitContext& context,
                                         Call* call) {
  if (!tokenizer_->normalizer_->Keeps(text)) {
    normalized_.clear();
    PLUMB_RETURN_IF_ERROR(
        tokenizer_->normalizer_->Append(text, context.begins_segment, &call->budget, &normalized_));
    text = normalized_;
  }
  const AddedTokenFinder& added = *tokenizer_->added_normalized_;
  SplitContext inner = context;
  for (size_t at = 0; at < text.size();) {
    AddedTokenFinder::Found found;
    if (call->options.finds_added) {
      PLUMB_ASSIGN_OR_RETURN(found, added.Find(text, at, &call->budget));
    }
    const size_t end = found.token == nullptr ? text.size() : found.begin;
    if (end > at) {
      PLUMB_RETURN_IF_ERROR(EncodeNormalized(text.substr(at, end - at), inner, call));
    }
    if (found.token == nullptr) break;
    call->tokens->push_back(found.token->id);
    at = found.end;
    inner = {&call->budget, false, true};
  }
  return absl::OkStatus();
}

absl::Status SubwordEncoder::EncodeNormalized(absl::string_view text, const SplitContext& context,
                                              Call* call) {
  const auto encode = [&](absl::string_view piece) { return EncodePiece(piece, call); };
  if (!tokenizer_->cuts_at_marks_) return runner_.Split(text, context, encode);
  // There is no pre-tokenizer, but splitting before marks changes no token: a piece begins at each
  // mark that does not follow another.
  size_t begin = 0;
  for (size_t at = text.find(kSpaceMark); at != absl::string_view::npos;) {
    if (at > begin) PLUMB_RETURN_IF_ERROR(encode(text.substr(begin, at - begin)));
    begin = at;
    while (absl::StartsWith(text.substr(at), kSpaceMark)) at += kSpaceMark.size();
    at = text.find(kSpaceMark, at);
  }
  return encode(text.substr(begin));
}

absl::Status SubwordEncoder::EncodePiece(absl::string_view piece, Call* call) {
  if (piece.empty()) return absl::OkStatus();
  call->NotePlace(piece);
  if (tokenizer_->pre_tokenizer_->maps_bytes()) {
    PLUMB_RETURN_IF_ERROR(AppendPiece(FromByteAlphabet(piece).value_or(""), call->tokens));
  } else {
    PLUMB_RETURN_IF_ERROR(AppendPiece(piece, call->tokens));
  }
  return call->MayProgress();
}

absl::Status SubwordEncoder::AppendPiece(absl::string_view piece, std::vector<int32_t>* tokens) {
  const SubwordModel& model = *tokenizer_->model_;
  if (piece.empty() || piece.size() > WordCache::kMaxBytes) {
    return model.Append(piece, &scratch_, tokens);
  }
  std::array<uint64_t, 4> key;
  WordCache::Slot* slot = cache_.Find(piece, &key);
  if (slot->count > 0 && slot->key == key) {
    tokens->insert(tokens->end(), slot->tokens, slot->tokens + slot->count);
    return absl::OkStatus();
  }
  const size_t begin = tokens->size();
  PLUMB_RETURN_IF_ERROR(model.Append(piece, &scratch_, tokens));
  WordCache::Put(key, absl::MakeConstSpan(*tokens).subspan(begin), slot);
  return absl::OkStatus();
}

}  // namespace plumb
