// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/data.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/types/optional.h"
#include "runtime/base/check.h"
#include "runtime/base/file.h"
#include "runtime/base/memory.h"
#include "runtime/base/rng.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/hash.h"
#include "runtime/formats/jsonl.h"
#include "runtime/tokenizer/bpe_trainer.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb {
namespace {

absl::Status Error(const std::string& name, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(name, ": ", what));
}

// Returns the lines that are documents, as views into `content`.
std::vector<absl::string_view> FindDocuments(absl::string_view content) {
  std::vector<absl::string_view> documents;
  while (!content.empty()) {
    const size_t newline = content.find('\n');
    absl::string_view line = content.substr(0, newline);
    content.remove_prefix(newline == absl::string_view::npos ? content.size() : newline + 1);
    if (absl::EndsWith(line, "\r")) line.remove_suffix(1);
    if (!line.empty()) documents.push_back(line);
  }
  return documents;
}

absl::Status CheckEncoding(absl::string_view content, const std::string& name) {
  const absl::Status status = CheckUtf8(content);
  if (status.ok()) return status;
  const bool utf16 = absl::StartsWith(content, "\xff\xfe") || absl::StartsWith(content, "\xfe\xff");
  return Error(name, absl::StrCat(status.message(),
                                  utf16 ? "; it looks like UTF-16: convert it to UTF-8"
                                        : "; convert the file to UTF-8 or use vocabulary: BYTES"));
}

absl::StatusOr<Tokenizer> TrainBpe(const std::vector<absl::string_view>& texts, int64_t vocab_size,
                                   const std::string& name) {
  BpeTrainer::Options options;
  options.vocab_size = vocab_size;
  const auto quiet = [](int64_t) { return absl::OkStatus(); };
  PLUMB_ASSIGN_OR_RETURN(const auto trainer, BpeTrainer::Create(options));
  for (const absl::string_view text : texts) {
    PLUMB_RETURN_IF_ERROR(Annotate(trainer->Count(text, quiet), absl::StrCat(name, ": ")));
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string json, trainer->Train(quiet));
  return Tokenizer::FromJson(json);
}

// Sets the begin and end tokens of the tokenizer to those that the options name.
absl::Status NameSpecialTokens(const DatasetOptions& options, Tokenizer* tokenizer) {
  SpecialTokens special = tokenizer->special_tokens();
  if (!options.begin_token.empty()) {
    const absl::StatusOr<int32_t> token = tokenizer->FindNamed(options.begin_token);
    if (!token.ok()) return Annotate(token.status(), "data.begin_token: ");
    special.begin = *token;
  }
  if (!options.end_token.empty()) {
    const absl::StatusOr<int32_t> token = tokenizer->FindNamed(options.end_token);
    if (!token.ok()) return Annotate(token.status(), "data.end_token: ");
    special.end = {*token};
    special.end_source.clear();
  }
  tokenizer->set_special_tokens(special);
  special.begin = tokenizer->begin_token();
  tokenizer->set_special_tokens(std::move(special));
  return absl::OkStatus();
}

// Returns true if these ids of 16 bits look like halves of ids of 32 bits: every second one is 0.
bool LookLikeHalves(absl::Span<const int32_t> ids) {
  constexpr size_t kMinIds = 16;
  bool has_low = false, has_high = false;
  for (size_t i = 0; i < ids.size(); ++i) {
    bool& has = i % 2 == 0 ? has_low : has_high;
    has = has || ids[i] != 0;
  }
  return ids.size() >= kMinIds && has_low && !has_high;
}

// Returns the number of tokens or documents, out of n >= 1, that train.
int64_t TrainCount(int64_t n, double val_fraction) {
  const int64_t count = static_cast<int64_t>(static_cast<double>(n) * (1.0 - val_fraction));
  return std::clamp<int64_t>(count, val_fraction < 1 ? 1 : 0, n);
}

// Returns Dataset::longest_item() of a text.
int64_t LongestItem(absl::string_view content) {
  constexpr size_t kFewest = 100, kLongest = 32;
  absl::ConsumeSuffix(&content, "\n");
  size_t lines = 0, longest = 0;
  for (absl::string_view line : absl::StrSplit(content, '\n')) {
    if (line.empty() || line.size() > kLongest) return 0;
    longest = std::max(longest, line.size());
    ++lines;
  }
  return lines < kFewest ? 0 : static_cast<int64_t>(longest);
}

}  // namespace

const char* SplitName(Split split) { return split == Split::kTrain ? "training" : "validation"; }

absl::StatusOr<Dataset> Dataset::Load(const std::string& path, const DatasetOptions& options,
                                      const Tokenizer* tokenizer) {
  absl::optional<Tokenizer> read;
  if (tokenizer == nullptr && !options.tokenizer_path.empty()) {
    PLUMB_ASSIGN_OR_RETURN(read, ReadTokenizer(options.tokenizer_path));
    tokenizer = &*read;
  }
  if (options.format == DatasetOptions::Format::kTokens) {
    if (tokenizer == nullptr) {
      return Error(
          path,
          "token files need the tokenizer that made their ids; name its file with data.tokenizer");
    }
    return LoadTokens(path, options, *tokenizer);
  }
  // One byte becomes a token of four bytes, and non-ASCII text is copied once.
  constexpr int64_t kTimesItsSize = 6;
  PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadData(path, kTimesItsSize));
  try {
    return FromContent(content, path, options, tokenizer);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": no memory for the tokens of its ", content.size(), " bytes; ", MemoryLimitText()));
  }
}

absl::StatusOr<Dataset> Dataset::LoadTokens(const std::string& path, const DatasetOptions& options,
                                            const Tokenizer& tokenizer) {
  constexpr int32_t kNarrowTokens = 65536;
  const bool wide = options.token_bits == 32 ||
                    (options.token_bits == 0 && tokenizer.vocab_size() > kNarrowTokens);
  PLUMB_ASSIGN_OR_RETURN(TokenShards shards, TokenShards::Open(path, wide ? TokenLayout::kUint32
                                                                          : TokenLayout::kUint16));
  if (options.token_bits == 0 && !wide) {
    std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(shards.size(), 4096)));
    shards.Read(0, absl::MakeSpan(ids));
    if (LookLikeHalves(ids)) {
      return Error(path,
                   "every second id of 16 bits is 0, so these are ids of 32 bits: set "
                   "data.token_bits to 32, or to 16 if they are not");
    }
  }
  Dataset dataset(path, options.format, tokenizer);
  PLUMB_RETURN_IF_ERROR(NameSpecialTokens(options, &dataset.tokenizer_));
  PLUMB_ASSIGN_OR_RETURN(dataset.data_hash_, shards.Hash());
  dataset.validation_begin_ = shards.validation_begin() < shards.size()
                                  ? shards.validation_begin()
                                  : TrainCount(shards.size(), options.val_fraction);
  const int64_t held_out = dataset.validation_begin_;
  PLUMB_ASSIGN_OR_RETURN(dataset.train_targets_, shards.CountTargets(1, held_out));
  PLUMB_ASSIGN_OR_RETURN(dataset.validation_targets_,
                         shards.CountTargets(held_out + 1, shards.size()));
  dataset.shards_ = std::make_shared<const TokenShards>(std::move(shards));
  return dataset;
}

absl::StatusOr<Dataset> Dataset::FromContent(absl::string_view content, const std::string& name,
                                             const DatasetOptions& options,
                                             const Tokenizer* tokenizer) {
  if (!(options.val_fraction >= 0 && options.val_fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("val_fraction must be between 0 and 1, is ", options.val_fraction));
  }
  const bool jsonl = options.format == DatasetOptions::Format::kJsonl;
  const bool documents = options.format == DatasetOptions::Format::kDocuments || jsonl;
  const std::string data_hash = HexDigits(Fnv1a64(content));
  if (absl::StartsWith(content, "\xef\xbb\xbf")) content.remove_prefix(3);
  if (content.empty()) return Error(name, "the file is empty");
  Jsonl parsed;
  std::vector<absl::string_view> texts = {content};
  if (jsonl) {
    PLUMB_ASSIGN_OR_RETURN(parsed, ParseJsonl(content, name));
    texts.assign(parsed.texts.begin(), parsed.texts.end());
  } else if (documents) {
    texts = FindDocuments(content);
  }
  if (texts.empty()) {
    return Error(name, absl::StrCat("no document: all ", GetPlace(content, content.size() - 1).line,
                                    " lines are empty; a document is a line with text"));
  }

  const Tokenizer::Kind kind = tokenizer != nullptr ? tokenizer->kind() : options.vocabulary;
  if (kind == Tokenizer::Kind::kCharacters) PLUMB_RETURN_IF_ERROR(CheckEncoding(content, name));
  absl::optional<Tokenizer> own;
  if (tokenizer == nullptr && kind == Tokenizer::Kind::kBytes) own = Tokenizer::Bytes(documents);
  if (tokenizer == nullptr && kind == Tokenizer::Kind::kSubwords) {
    PLUMB_ASSIGN_OR_RETURN(own, TrainBpe(texts, options.bpe_vocab_size, name));
  }
  if (tokenizer == nullptr && kind == Tokenizer::Kind::kCharacters) {
    PLUMB_ASSIGN_OR_RETURN(own, Tokenizer::Characters(texts, documents));
  }
  if (tokenizer == nullptr) tokenizer = &*own;
  Dataset dataset(name, options.format, *tokenizer);
  PLUMB_RETURN_IF_ERROR(NameSpecialTokens(options, &dataset.tokenizer_));
  tokenizer = &dataset.tokenizer_;
  if (documents && !tokenizer->end_token()) {
    return Error(name,
                 "documents need a tokenizer with an end token, and no file names that "
                 "token; name it with data.end_token, or read the file with format: TEXT");
  }

  dataset.data_hash_ = data_hash;
  if (tokenizer->subwords() == nullptr) dataset.tokens_.reserve(content.size());
  TokenEncoder encoder(tokenizer);
  for (size_t i = 0; i < texts.size(); ++i) {
    const absl::string_view text = texts[i];
    const bool is_completion = jsonl && i % 2 == 1;
    const auto begin = static_cast<int64_t>(dataset.tokens_.size());
    if (is_completion) {
      dataset.prompt_size_.push_back(begin - dataset.document_begin_.back());
    } else {
      dataset.document_begin_.push_back(begin);
    }
    size_t bad_byte = 0;
    const bool continues = is_completion && !texts[i - 1].empty();
    const absl::Status status = encoder.Append(text, &dataset.tokens_, &bad_byte, continues);
    if (!status.ok()) {
      const size_t offset =
          jsonl ? parsed.places[i] : static_cast<size_t>(text.data() - content.data()) + bad_byte;
      const TextPlace place = GetPlace(content, offset);
      return Annotate(status, absl::StrCat(name, ":", place.line, ":", place.column, ": "));
    }
  }
  dataset.document_begin_.push_back(static_cast<int64_t>(dataset.tokens_.size()));
  dataset.tokens_.shrink_to_fit();
  if (documents) {
    dataset.SplitDocuments(options.val_fraction);
  } else {
    dataset.longest_item_ = LongestItem(content);
    dataset.SplitText(options.val_fraction);
  }
  return dataset;
}

void Dataset::SplitText(double val_fraction) {
  validation_begin_ = TrainCount(static_cast<int64_t>(tokens_.size()), val_fraction);
  document_begin_.clear();
}

void Dataset::SplitDocuments(double val_fraction) {
  const int64_t n = static_cast<int64_t>(document_begin_.size()) - 1;
  const std::vector<int64_t> order = Permutation(RngStream(0, "validation-split"), n);
  const auto first_held_out = order.begin() + TrainCount(n, val_fraction);
  train_documents_.assign(order.begin(), first_held_out);
  validation_documents_.assign(first_held_out, order.end());
  std::sort(train_documents_.begin(), train_documents_.end());
  std::sort(validation_documents_.begin(), validation_documents_.end());
}

int64_t Dataset::num_targets(Split split) const {
  if (shards_ != nullptr) return split == Split::kTrain ? train_targets_ : validation_targets_;
  if (is_running()) return std::max<int64_t>(num_tokens(split) - 1, 0);
  int64_t count = num_tokens(split) + num_documents(split);
  for (int64_t i = 0; i < num_documents(split); ++i) count -= prompt_size(split, i);
  return count;
}

bool Dataset::has_masks() const {
  if (shards_ != nullptr) return shards_->has_masks();
  return std::any_of(prompt_size_.begin(), prompt_size_.end(), [](int64_t n) { return n > 0; });
}

int64_t Dataset::num_tokens(Split split) const {
  if (is_running()) {
    const int64_t all = shards_ != nullptr ? shards_->size() : static_cast<int64_t>(tokens_.size());
    return split == Split::kTrain ? validation_begin_ : all - validation_begin_;
  }
  int64_t count = 0;
  for (int64_t i = 0; i < num_documents(split); ++i) {
    count += static_cast<int64_t>(document(split, i).size());
  }
  return count;
}

void Dataset::ReadText(Split split, int64_t begin, absl::Span<int32_t> out) const {
  PLUMB_CHECK(is_running(), "only a text is one sequence");
  PLUMB_CHECK(begin >= 0 && begin + static_cast<int64_t>(out.size()) <= num_tokens(split),
              "the split has these tokens");
  if (split == Split::kValidation) begin += validation_begin_;
  if (shards_ != nullptr) return shards_->Read(begin, out);
  std::copy_n(tokens_.begin() + begin, out.size(), out.begin());
}

void Dataset::ReadTargets(Split split, int64_t begin, absl::Span<int32_t> out) const {
  if (shards_ == nullptr) return ReadText(split, begin, out);
  shards_->ReadTargets(split == Split::kValidation ? begin + validation_begin_ : begin, out);
}

absl::Status Dataset::read_status() const {
  return shards_ == nullptr ? absl::OkStatus() : shards_->read_status();
}

int64_t Dataset::num_documents(Split split) const {
  return static_cast<int64_t>(documents(split).size());
}

absl::Span<const int32_t> Dataset::document(Split split, int64_t i) const {
  PLUMB_CHECK(i >= 0 && i < num_documents(split), "the split has such a document");
  const size_t index = static_cast<size_t>(documents(split)[static_cast<size_t>(i)]);
  const size_t begin = static_cast<size_t>(document_begin_[index]);
  const size_t end = static_cast<size_t>(document_begin_[index + 1]);
  return absl::MakeConstSpan(tokens_).subspan(begin, end - begin);
}

int64_t Dataset::prompt_size(Split split, int64_t i) const {
  PLUMB_CHECK(i >= 0 && i < num_documents(split), "the split has such a document");
  if (prompt_size_.empty()) return 0;
  return prompt_size_[static_cast<size_t>(documents(split)[static_cast<size_t>(i)])];
}

std::string Dataset::Description() const {
  const auto counts = [](int64_t training, const char* what, int64_t held_out) {
    return absl::StrCat(training, " ", what, " to train on, ", held_out, " held out; ");
  };
  std::string text = absl::StrCat(name_, ": ");
  text += is_running() ? counts(num_tokens(Split::kTrain), "tokens", num_tokens(Split::kValidation))
                       : counts(num_documents(Split::kTrain), "documents",
                                num_documents(Split::kValidation));
  if (has_masks()) {
    text += counts(num_targets(Split::kTrain), "targets", num_targets(Split::kValidation));
  }
  return text + tokenizer_.Description();
}

int64_t Dataset::num_cropped(Split split, int64_t context_length) const {
  int64_t count = 0;
  for (int64_t i = 0; i < num_documents(split); ++i) {
    count += static_cast<int64_t>(document(split, i).size()) + 1 > context_length ? 1 : 0;
  }
  return count;
}

int64_t Dataset::num_without_targets(Split split, int64_t context_length) const {
  int64_t count = 0;
  for (int64_t i = 0; i < num_documents(split); ++i) {
    count += prompt_size(split, i) >= context_length ? 1 : 0;
  }
  return count;
}

}  // namespace plumb
