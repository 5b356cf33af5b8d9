// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/tokenize.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/client/plumb_api.h"
#include "runtime/data/token_file.h"
#include "runtime/tokenizer/tokenizer_file.h"

namespace plumb {
namespace {

// Text that is mapped, or read if it is a pipe.
struct TextFile {
  std::string name, read;
  absl::optional<MappedFile> mapped;
  absl::string_view content() const { return mapped ? mapped->content() : read; }
};

absl::StatusOr<TextFile> OpenText(const std::string& path) {
  TextFile file;
  file.name = path == "-" ? "standard input" : path;
  if (path != "-") {
    absl::StatusOr<MappedFile> mapped = MappedFile::Open(path);
    if (mapped.ok()) {
      file.mapped = *std::move(mapped);
      return file;
    }
  }
  constexpr int64_t kTimesItsSize = 4;
  PLUMB_ASSIGN_OR_RETURN(file.read, ReadData(path == "-" ? "/dev/stdin" : path, kTimesItsSize));
  return file;
}

absl::StatusOr<TokenLayout> ParseLayout(const std::string& name, int64_t vocab_size) {
  constexpr int64_t kNarrow = 65536;
  if (name.empty()) return vocab_size > kNarrow ? TokenLayout::kUint32 : TokenLayout::kUint16;
  for (const TokenLayout layout :
       {TokenLayout::kUint16, TokenLayout::kUint32, TokenLayout::kLlmc}) {
    if (name == LayoutName(layout)) return layout;
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown layout ", QuoteName(name),
                                                 DidYouMean(name, {"uint16", "uint32", "llm.c"}),
                                                 "; there are uint16, uint32 and llm.c"));
}

absl::StatusOr<TokenizeProgress> EncodeText(const Tokenizer& tokenizer, const TextFile& file,
                                            const TokenizeOptions& options, TokenSink sink,
                                            TokenizeObserver observer) {
  const absl::string_view text = file.content();
  TokenizeProgress progress;
  progress.total_bytes = static_cast<int64_t>(text.size());
  std::vector<int32_t> tokens;
  size_t bad_byte = 0;
  const absl::Status status =
      TokenEncoder(&tokenizer)
          .Append(text, options, &tokens, &bad_byte,
                  [&](std::vector<int32_t>* block, size_t bytes) -> absl::Status {
                    PLUMB_RETURN_IF_ERROR(sink(*block));
                    progress.tokens += static_cast<int64_t>(block->size());
                    progress.bytes = static_cast<int64_t>(bytes);
                    block->clear();
                    return observer(progress);
                  });
  if (absl::IsInvalidArgument(status)) {
    const TextPlace place = GetPlace(text, bad_byte);
    return Annotate(status, absl::StrCat(file.name, ":", place.line, ":", place.column, ": "));
  }
  if (!status.ok()) return status;
  return progress;
}

}  // namespace

absl::StatusOr<Tokenizer> OpenTokenizer(const std::string& path) {
  return OrOutOfMemory("the tokenizer", [&] { return ReadTokenizer(path); });
}

absl::StatusOr<TokenizeProgress> EncodeFile(const Tokenizer& tokenizer, const std::string& path,
                                            const TokenizeOptions& options, TokenSink sink,
                                            TokenizeObserver observer) {
  return OrOutOfMemory("the text", [&]() -> absl::StatusOr<TokenizeProgress> {
    PLUMB_ASSIGN_OR_RETURN(const TextFile file, OpenText(path));
    return EncodeText(tokenizer, file, options, sink, observer);
  });
}

absl::StatusOr<TokenizeProgress> WriteTokens(const Tokenizer& tokenizer, const std::string& path,
                                             const TokenizeOptions& options,
                                             const std::string& layout_name, const std::string& out,
                                             TokenizeObserver observer) {
  PLUMB_ASSIGN_OR_RETURN(const TokenLayout layout,
                         ParseLayout(layout_name, tokenizer.vocab_size()));
  PLUMB_RETURN_IF_ERROR(CheckLayout(layout, tokenizer.vocab_size()));
  PLUMB_ASSIGN_OR_RETURN(const TextFile file, OpenText(path));
  TokenizeProgress done;
  if (layout == TokenLayout::kLlmc) {  // the header contains the number of tokens
    PLUMB_ASSIGN_OR_RETURN(
        done, EncodeText(
                  tokenizer, file, options,
                  [](absl::Span<const int32_t>) { return absl::OkStatus(); }, observer));
    if (done.tokens > INT32_MAX) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name, ": has ", done.tokens, " tokens, and llm.c's header counts to ",
                       INT32_MAX, "; cut the text, or use uint16 or uint32"));
    }
  }
  const auto produce = [&](PieceSink piece) -> absl::Status {
    PLUMB_RETURN_IF_ERROR(piece(TokenFileHeader(layout, tokenizer.vocab_size(), done.tokens)));
    std::string bytes;
    PLUMB_ASSIGN_OR_RETURN(done, EncodeText(
                                     tokenizer, file, options,
                                     [&](absl::Span<const int32_t> tokens) {
                                       bytes.clear();
                                       AppendTokenBytes(tokens, layout, tokenizer.vocab_size(),
                                                        &bytes);
                                       return piece(bytes);
                                     },
                                     observer));
    return absl::OkStatus();
  };
  PLUMB_RETURN_IF_ERROR(
      OrOutOfMemory("the tokens", [&] { return WriteFileAtomically(out, produce); }));
  return done;
}

absl::StatusOr<std::string> DecodeTokens(const Tokenizer& tokenizer,
                                         absl::Span<const int32_t> tokens, bool keep_special) {
  if (tokenizer.subwords() == nullptr || !keep_special) return tokenizer.Decode(tokens);
  PLUMB_RETURN_IF_ERROR(tokenizer.CheckTokens(tokens));
  return tokenizer.subwords()->Decode(tokens, {});
}

absl::StatusOr<std::vector<int32_t>> ReadIds(const Tokenizer& tokenizer, const std::string& path,
                                             const std::string& layout_name) {
  PLUMB_ASSIGN_OR_RETURN(const TextFile file, OpenText(path));
  if (!layout_name.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const TokenLayout layout,
                           ParseLayout(layout_name, tokenizer.vocab_size()));
    PLUMB_ASSIGN_OR_RETURN(const TokenFile tokens,
                           TokenFile::FromContent(file.content(), file.name, layout));
    std::vector<int32_t> ids(static_cast<size_t>(tokens.size()));
    PLUMB_RETURN_IF_ERROR(tokens.Read(0, absl::MakeSpan(ids)));
    return ids;
  }
  std::vector<int32_t> ids;
  for (const absl::string_view word :
       absl::StrSplit(file.content(), absl::ByAnyChar(" \t\r\n,[]"), absl::SkipEmpty())) {
    int32_t id = -1;
    if (!absl::SimpleAtoi(word, &id) || id < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.name, ": number ", ids.size() + 1, ", ", Excerpt(word),
                       ", is not a token id; a token file in binary needs --layout"));
    }
    ids.push_back(id);
  }
  return ids;
}

absl::StatusOr<TrainedTokenizer> TrainTokenizerFile(const std::string& path,
                                                    const TokenizerTraining& training,
                                                    const std::string& out,
                                                    TokenizeObserver observer) {
  return OrOutOfMemory("the vocabulary", [&]() -> absl::StatusOr<TrainedTokenizer> {
    PLUMB_ASSIGN_OR_RETURN(const auto trainer, BpeTrainer::Create(training));
    PLUMB_ASSIGN_OR_RETURN(const TextFile file, OpenText(path));
    TokenizeProgress progress;
    progress.total_bytes = static_cast<int64_t>(file.content().size());
    const auto counted = [&](int64_t bytes) {
      progress.bytes = bytes;
      return observer(progress);
    };
    const auto merged = [&](int64_t merges) {
      progress.tokens = merges;
      return observer(progress);
    };
    PLUMB_RETURN_IF_ERROR(
        Annotate(trainer->Count(file.content(), counted), absl::StrCat(file.name, ": ")));
    PLUMB_ASSIGN_OR_RETURN(const std::string json, trainer->Train(merged));
    PLUMB_ASSIGN_OR_RETURN(const Tokenizer tokenizer, Tokenizer::FromJson(json));
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(out, json));
    return TrainedTokenizer{tokenizer.vocab_size(), progress.total_bytes,
                            trainer->distinct_pieces()};
  });
}

}  // namespace plumb
