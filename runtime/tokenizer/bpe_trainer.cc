// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/bpe_trainer.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/byte_alphabet.h"
#include "runtime/tokenizer/pair_counts.h"
#include "runtime/tokenizer/pre_tokenizer.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr int64_t kBytes = 256, kMaxVocabSize = 1 << 22;
constexpr size_t kMaxSymbols = (size_t{1} << 32) - 2;
constexpr size_t kPiecesBetweenProgress = 1 << 16;
constexpr int64_t kMergesBetweenProgress = 64;

constexpr absl::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr absl::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

Json ByteLevel(bool cuts) {
  return {{"type", "ByteLevel"},
          {"add_prefix_space", false},
          {"trim_offsets", true},
          {"use_regex", cuts}};
}

Json MakePreTokenizer(const std::string& pattern) {
  if (pattern == "gpt2") return ByteLevel(/*cuts=*/true);
  const std::string regex = pattern == "llama3"  ? std::string(kLlama3)
                            : pattern == "qwen2" ? std::string(kQwen2)
                                                 : pattern;
  return {{"type", "Sequence"},
          {"pretokenizers",
           {{{"type", "Split"},
             {"pattern", {{"Regex", regex}}},
             {"behavior", "Isolated"},
             {"invert", false}},
            ByteLevel(/*cuts=*/false)}}};
}

}  // namespace

// Pre-tokenization of a text into pieces.
struct BpeTrainer::Cutting {
  std::unique_ptr<const PreTokenizer> pre_tokenizer;
  std::unique_ptr<PreTokenizerRunner> runner;
  std::unique_ptr<AddedTokenFinder> special;
};

BpeTrainer::BpeTrainer(Options options) : options_(std::move(options)) {}
BpeTrainer::~BpeTrainer() = default;

absl::StatusOr<std::unique_ptr<BpeTrainer>> BpeTrainer::Create(const Options& options) {
  const int64_t min = kBytes + static_cast<int64_t>(options.special.size());
  if (options.vocab_size < min || options.vocab_size > kMaxVocabSize) {
    return absl::InvalidArgumentError(
        absl::StrCat("a vocabulary of ", options.vocab_size, " tokens cannot be: from ", min,
                     ", the bytes and special tokens, to ", kMaxVocabSize));
  }
  if (options.min_frequency < 1) {
    return absl::InvalidArgumentError("min_frequency must be at least 1");
  }
  if (FindInvalidUtf8(options.pattern)) {
    return absl::InvalidArgumentError("the pattern is not UTF-8");
  }
  auto trainer = std::unique_ptr<BpeTrainer>(new BpeTrainer(options));
  trainer->cutting_ = std::make_unique<Cutting>();
  const nlohmann::json json = MakePreTokenizer(options.pattern);
  PLUMB_ASSIGN_OR_RETURN(trainer->cutting_->pre_tokenizer, PreTokenizer::Read(&json, "pattern"));
  trainer->cutting_->runner =
      std::make_unique<PreTokenizerRunner>(trainer->cutting_->pre_tokenizer.get());
  std::vector<AddedToken> special(options.special.size());
  for (size_t i = 0; i < special.size(); ++i) {
    if (options.special[i].empty() || FindInvalidUtf8(options.special[i])) {
      return absl::InvalidArgumentError("a special token is empty or not UTF-8");
    }
    if (i > 0 && std::find(options.special.begin(), options.special.begin() + static_cast<long>(i),
                           options.special[i]) != options.special.begin() + static_cast<long>(i)) {
      return absl::InvalidArgumentError(
          absl::StrCat("the special token ", QuoteName(options.special[i]), " is there twice"));
    }
    special[i].content = options.special[i];
    special[i].pattern = special[i].content;
    special[i].normalized = false;
  }
  trainer->cutting_->special = std::make_unique<AddedTokenFinder>(special, /*normalized=*/false);
  return trainer;
}

absl::Status BpeTrainer::Count(absl::string_view text, Progress progress) {
  size_t pieces = 0;
  WorkBudget budget(text.size());
  const auto count = [&](absl::string_view piece) -> absl::Status {
    ++counts_[std::string(piece)];
    if (++pieces % kPiecesBetweenProgress != 0) return absl::OkStatus();
    return progress(piece.data() - text.data());
  };
  for (size_t at = 0; at < text.size();) {
    PLUMB_ASSIGN_OR_RETURN(const AddedTokenFinder::Found found,
                           cutting_->special->Find(text, at, &budget));
    const size_t end = found.token == nullptr ? text.size() : found.begin;
    while (at < end) {
      const absl::string_view rest = text.substr(at, end - at);
      const size_t valid = FindInvalidUtf8(rest).value_or(rest.size());
      PLUMB_RETURN_IF_ERROR(
          cutting_->runner->Split(rest.substr(0, valid), SplitContext{&budget}, count));
      at += valid;
      // Bytes that are not UTF-8 are not counted.
      for (size_t next = at; at < end && !NextCodePoint(text, &next); next = at) ++at;
    }
    if (found.token != nullptr) at = found.end;
  }
  return progress(static_cast<int64_t>(text.size()));
}

absl::StatusOr<std::string> BpeTrainer::Train(Progress progress) {
  std::vector<std::pair<absl::string_view, int64_t>> pieces(counts_.begin(), counts_.end());
  std::sort(pieces.begin(), pieces.end());
  size_t symbols = 0;
  for (const auto& [piece, count] : pieces) symbols += piece.size();
  if (symbols > kMaxSymbols) {
    return absl::ResourceExhaustedError(absl::StrCat("the distinct pieces have ", symbols,
                                                     " bytes, more than ", kMaxSymbols,
                                                     "; train on a part of the text"));
  }
  PairCounts pairs;
  for (const auto& [piece, count] : pieces) pairs.Add(piece, count);
  pairs.CountPairs();
  const int64_t wanted =
      options_.vocab_size - kBytes - static_cast<int64_t>(options_.special.size());
  std::vector<std::pair<int32_t, int32_t>> merges;
  // A pair whose text is a token already gets no second id for it.
  std::vector<std::string> texts;
  for (int byte = 0; byte < kBytes; ++byte) texts.emplace_back(1, static_cast<char>(byte));
  absl::flat_hash_map<std::string, int32_t> ids;
  while (static_cast<int64_t>(texts.size()) - kBytes < wanted) {
    const auto top = pairs.Top();
    if (!top || top->second < options_.min_frequency) break;
    const auto [a, b] = top->first;
    const std::string text = texts[static_cast<size_t>(a)] + texts[static_cast<size_t>(b)];
    const auto [entry, is_new] = ids.emplace(text, static_cast<int32_t>(texts.size()));
    if (is_new) texts.push_back(text);
    merges.push_back(top->first);
    pairs.Merge(top->first, entry->second);
    if (merges.size() % kMergesBetweenProgress == 0) {
      PLUMB_RETURN_IF_ERROR(progress(static_cast<int64_t>(merges.size())));
    }
  }
  PLUMB_RETURN_IF_ERROR(progress(static_cast<int64_t>(merges.size())));
  return ToJson(merges);
}

std::string BpeTrainer::ToJson(const std::vector<std::pair<int32_t, int32_t>>& merges) const {
  Json vocab = Json::object(), rules = Json::array(), added = Json::array();
  std::vector<std::string> pieces;
  absl::flat_hash_set<std::string> seen;
  const auto add = [&](std::string piece) {
    if (!seen.insert(piece).second) return;
    vocab.emplace(piece, pieces.size());
    pieces.push_back(std::move(piece));
  };
  for (int byte = 0; byte < kBytes; ++byte) {
    add(ToByteAlphabet(std::string(1, static_cast<char>(byte))));
  }
  for (const auto& [a, b] : merges) {
    const std::string first = pieces[static_cast<size_t>(a)];
    const std::string second = pieces[static_cast<size_t>(b)];
    rules.push_back({first, second});
    add(first + second);
  }
  for (const std::string& special : options_.special) {
    added.push_back({{"id", pieces.size() + added.size()},
                     {"content", special},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", true}});
  }
  const Json root = {{"version", "1.0"},
                     {"truncation", nullptr},
                     {"padding", nullptr},
                     {"added_tokens", std::move(added)},
                     {"normalizer", nullptr},
                     {"pre_tokenizer", MakePreTokenizer(options_.pattern)},
                     {"post_processor", nullptr},
                     {"decoder", ByteLevel(/*cuts=*/true)},
                     {"model",
                      {{"type", "BPE"},
                       {"unk_token", nullptr},
                       {"continuing_subword_prefix", nullptr},
                       {"end_of_word_suffix", nullptr},
                       {"fuse_unk", false},
                       {"byte_fallback", false},
                       {"ignore_merges", false},
                       {"vocab", std::move(vocab)},
                       {"merges", std::move(rules)}}}};
  return absl::StrCat(root.dump(), "\n");
}

}  // namespace plumb
