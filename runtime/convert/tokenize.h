// SPDX-License-Identifier: Apache-2.0
// Conversion of files to tokens and back, the basis of `plumb tokenize`. Texts are mapped and
// processed in blocks. Stateless.
#ifndef PLUMB_RUNTIME_CONVERT_TOKENIZE_H_
#define PLUMB_RUNTIME_CONVERT_TOKENIZE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/tokenizer/bpe_trainer.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Progress within a text.
struct TokenizeProgress {
  int64_t bytes = 0, total_bytes = 0;
  int64_t tokens = 0;
};
using TokenizeObserver = absl::FunctionRef<absl::Status(const TokenizeProgress& progress)>;

// Opens a tokenizer.json, or a directory or run with one, or with vocab.json and merges.txt.
absl::StatusOr<Tokenizer> OpenTokenizer(const std::string& path);

// finds_added: "<|endoftext|>" in a text becomes that token. post_process: adds the tokens that the
// tokenizer puts before and after a text.
using TokenizeOptions = SubwordEncoder::Options;

// Callback that receives the tokens of a file ("-": standard input) in order, block by block.
using TokenSink = absl::FunctionRef<absl::Status(absl::Span<const int32_t> tokens)>;
absl::StatusOr<TokenizeProgress> EncodeFile(const Tokenizer& tokenizer, const std::string& path,
                                            const TokenizeOptions& options, TokenSink sink,
                                            TokenizeObserver observer);

// Writes the tokens of a file as a token file (runtime/data/token_file.h). `layout`: "uint16",
// "uint32", "llm.c" (which takes two passes), or "" for the smaller of the first two that fits
// the vocabulary.
absl::StatusOr<TokenizeProgress> WriteTokens(const Tokenizer& tokenizer, const std::string& path,
                                             const TokenizeOptions& options,
                                             const std::string& layout, const std::string& out,
                                             TokenizeObserver observer);

// Returns the text of tokens. `keep_special`: including special tokens.
absl::StatusOr<std::string> DecodeTokens(const Tokenizer& tokenizer,
                                         absl::Span<const int32_t> tokens, bool keep_special);
// Reads ids from a file: a JSON list or numbers separated by spaces; with a `layout`, a token file.
absl::StatusOr<std::vector<int32_t>> ReadIds(const Tokenizer& tokenizer, const std::string& path,
                                             const std::string& layout);

// Options for training a byte-level BPE vocabulary on a text.
using TokenizerTraining = BpeTrainer::Options;
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
