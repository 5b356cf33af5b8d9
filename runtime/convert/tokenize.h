// SPDX-License-Identifier: Apache-2.0
// TextTokenizer: a tokenizer read from files, the basis of `plumb tokenize`. Texts are mapped and
// processed in blocks. Immutable, thread-safe.
#ifndef PLUMB_RUNTIME_CONVERT_TOKENIZE_H_
#define PLUMB_RUNTIME_CONVERT_TOKENIZE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace plumb {

// Progress within a text.
struct TokenizeProgress {
  int64_t bytes = 0, total_bytes = 0;
  int64_t tokens = 0;
};
using TokenizeObserver = absl::FunctionRef<absl::Status(const TokenizeProgress& progress)>;

struct TokenizeOptions {
  bool finds_added = true;    // "<|endoftext|>" in a text becomes that token
  bool post_process = false;  // adds the tokens that the tokenizer puts before and after a text
};

class TextTokenizer {
 public:
  // Opens a tokenizer.json, or a directory or run with one, or with vocab.json and merges.txt.
  static absl::StatusOr<std::unique_ptr<TextTokenizer>> Open(const std::string& path);
  ~TextTokenizer();

  int32_t vocab_size() const;
  std::string description() const;  // "BPE of 50257 tokens"
  std::string token_text(int32_t token) const;

  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const TokenizeOptions& options) const;

  // Callback that receives the tokens of a file ("-": standard input) in order, block by block.
  using TokenSink = absl::FunctionRef<absl::Status(absl::Span<const int32_t> tokens)>;
  absl::StatusOr<TokenizeProgress> EncodeFile(const std::string& path,
                                              const TokenizeOptions& options, TokenSink sink,
                                              TokenizeObserver observer) const;

  // Writes the tokens of a file as a token file (runtime/data/token_file.h). `layout`: "uint16",
  // "uint32", "llm.c" (which takes two passes), or "" for the smaller of the first two that fits
  // the vocabulary.
  absl::StatusOr<TokenizeProgress> WriteTokens(const std::string& path,
                                               const TokenizeOptions& options,
                                               const std::string& layout, const std::string& out,
                                               TokenizeObserver observer) const;

  // Returns the text of tokens. `keep_special`: including special tokens.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens, bool keep_special) const;
  // Reads ids from a file: a JSON list or numbers separated by spaces; with a `layout`, a token
  // file.
  absl::StatusOr<std::vector<int32_t>> ReadIds(const std::string& path,
                                               const std::string& layout) const;

 private:
  TextTokenizer();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Options for training a byte-level BPE vocabulary on a text (runtime/tokenizer/bpe_trainer.h).
struct TokenizerTraining {
  int64_t vocab_size = 0, min_frequency = 2;
  std::string pattern = "gpt2";
  std::vector<std::string> special = {"<|endoftext|>"};
};
struct TrainedTokenizer {
  int64_t vocab_size = 0, bytes = 0, distinct_pieces = 0;
};
// Trains a tokenizer and writes it to `out`. `observer` receives the progress of counting, and the
// number of merges as tokens.
absl::StatusOr<TrainedTokenizer> TrainTokenizerFile(const std::string& path,
                                                    const TokenizerTraining& training,
                                                    const std::string& out,
                                                    TokenizeObserver observer);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CONVERT_TOKENIZE_H_
