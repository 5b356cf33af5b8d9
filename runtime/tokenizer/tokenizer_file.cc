// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/tokenizer_file.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/tokenizer/special_tokens.h"

namespace plumb {
namespace {

// Formats that do not state how a text is normalized and split, or which tokens are special; only
// the code of the programs that use them does. They are recognized for the error message.
struct OtherFormat {
  absl::string_view name;  // usual name of the file
  absl::string_view what;
};
constexpr OtherFormat kTiktoken = {"tiktoken.model", "tiktoken's list of byte strings and ranks"};
constexpr OtherFormat kSentencePiece = {"tokenizer.model", "a SentencePiece model"};
constexpr OtherFormat kWordPiece = {"vocab.txt", "a WordPiece vocabulary, one piece a line"};
constexpr OtherFormat kFormats[] = {kTiktoken,
                                    kSentencePiece,
                                    kWordPiece,
                                    {"spiece.model", kSentencePiece.what},
                                    {"sentencepiece.bpe.model", kSentencePiece.what},
                                    {"qwen.tiktoken", kTiktoken.what},
                                    {"tekken.json", "Mistral's tekken vocabulary"}};

absl::Status Unsupported(const std::string& path, const OtherFormat& format) {
  return absl::InvalidArgumentError(absl::StrCat(
      path, ": is ", format.what,
      ", which defines neither how texts are cut nor which tokens are special, so that plumb does "
      "not "
      "read it; use the tokenizer.json of the model, which Python's transformers.AutoTokenizer"
      ".from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes"));
}

// Recognizes another format by the beginning of a file; null if it is none of them.
const OtherFormat* FormatOf(absl::string_view text) {
  const absl::string_view begin = text.substr(0, 256);
  // The first field of a SentencePiece model is the piece <unk> or, before it, <pad>.
  if (absl::StartsWith(begin, "\n") &&
      (absl::StrContains(begin, "<unk>") || absl::StrContains(begin, "<pad>")) &&
      begin.find_first_of(absl::string_view("\0\x15", 2)) != absl::string_view::npos) {
    return &kSentencePiece;
  }
  const absl::string_view line = begin.substr(0, begin.find('\n'));
  const size_t space = line.find(' ');
  uint32_t rank = 0;
  std::string bytes;
  if (space != absl::string_view::npos && absl::SimpleAtoi(line.substr(space + 1), &rank) &&
      absl::Base64Unescape(line.substr(0, space), &bytes)) {
    return &kTiktoken;
  }
  const bool is_json = absl::StartsWith(absl::StripLeadingAsciiWhitespace(begin), "{");
  return !is_json && absl::StrContains(text, "[UNK]") ? &kWordPiece : nullptr;
}

absl::StatusOr<Tokenizer> FromText(absl::string_view json, const std::string& path) {
  if (const OtherFormat* other = FormatOf(json)) return Unsupported(path, *other);
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::FromJson(json);
  if (!tokenizer.ok()) return Annotate(tokenizer.status(), absl::StrCat(path, ": "));
  return tokenizer;
}

absl::StatusOr<Tokenizer> FromVocabAndMerges(const std::string& vocab_path,
                                             const std::string& merges_path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string vocab, ReadFile(vocab_path));
  PLUMB_ASSIGN_OR_RETURN(const std::string merges, ReadFile(merges_path));
  const absl::StatusOr<std::string> json = SubwordTokenizer::JsonOfVocabAndMerges(vocab, merges);
  if (!json.ok()) return Annotate(json.status(), absl::StrCat(DirectoryOf(vocab_path), ": "));
  return FromText(*json, DirectoryOf(vocab_path));
}

absl::StatusOr<Tokenizer> ReadWithoutConfigs(const std::string& path) {
  std::string file = path;
  if (IsDirectory(path)) {
    file = JoinPath(path, "tokenizer.json");
    const std::string vocab = JoinPath(path, "vocab.json"), merges = JoinPath(path, "merges.txt");
    if (!FileExists(file)) {
      if (FileExists(vocab) && FileExists(merges)) return FromVocabAndMerges(vocab, merges);
      for (const OtherFormat& format : kFormats) {
        const std::string other = JoinPath(path, format.name);
        if (FileExists(other)) return Unsupported(other, format);
      }
      return absl::NotFoundError(absl::StrCat(
          path, ": holds no tokenizer: neither tokenizer.json nor vocab.json with merges.txt"));
    }
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string json, ReadFile(file));
  return FromText(json, file);
}

}  // namespace

absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(Tokenizer tokenizer, ReadWithoutConfigs(path));
  if (!IsDirectory(path)) return tokenizer;
  PLUMB_ASSIGN_OR_RETURN(SpecialTokens special,
                         ReadSpecialTokens(path, nullptr, &tokenizer, tokenizer.vocab_size()));
  tokenizer.set_special_tokens(std::move(special));
  return tokenizer;
}

}  // namespace plumb
