// SPDX-License-Identifier: Apache-2.0
// Dataset: a text file as tokens, split into training and validation. A value; immutable but for
// read_status().
//
// Three formats. `text`: the file is one long text. `documents`: every line is a document of its
// own (a carriage return at its end is dropped, empty lines are skipped). `tokens`: token files
// (token_file.h), which stay where they are and may be larger than memory. The vocabulary comes
// from the whole file, so that no run depends on what happens to be held out, or from a tokenizer
// that is given (evaluating and resuming). A byte order mark at the start of the file is not part
// of it.
#ifndef PLUMB_RUNTIME_DATA_DATA_H_
#define PLUMB_RUNTIME_DATA_DATA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/data/token_shards.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

struct DatasetOptions {
  enum class Format { kText, kDocuments, kTokens };

  Format format = Format::kText;
  // Of the tokenizer that is made when none is given. For documents it gets a begin/end token.
  // Of kind subwords it is read from tokenizer_path, or where that is empty trained on the data:
  // byte-level BPE of bpe_vocab_size tokens.
  Tokenizer::Kind vocabulary = Tokenizer::Kind::kCharacters;
  std::string tokenizer_path;
  // Names of the tokens that begin and end a document, in place of the tokenizer's; "": its own.
  std::string begin_token, end_token;
  int64_t bpe_vocab_size = 4096;
  // Bits of an id in token files without a header: 16, 32, or 0: as many as the vocabulary needs.
  int64_t token_bits = 0;
  // Share that is held out for validation, 0 to 1: of n tokens or documents floor(n * (1 - share))
  // train, but at least one unless the share is 1. Of a text the end is held out; of documents a
  // random choice that is the same in every run.
  double val_fraction = 0.1;
};

enum class Split { kTrain, kValidation };
const char* SplitName(Split split);  // "training", "validation"

class Dataset {
 public:
  // Reads `path`; of tokens, maps it, a file or a directory of shards. With `tokenizer`, characters
  // outside its vocabulary are errors; documents need one with an end token. Errors carry
  // `path:line:column`: an empty file, one without a document, text that is not UTF-8 under a
  // vocabulary of characters.
  static absl::StatusOr<Dataset> Load(const std::string& path, const DatasetOptions& options,
                                      const Tokenizer* tokenizer = nullptr);
  // The same of text in memory; `name` stands for the path in errors.
  static absl::StatusOr<Dataset> FromContent(absl::string_view content, const std::string& name,
                                             const DatasetOptions& options,
                                             const Tokenizer* tokenizer = nullptr);

  const std::string& name() const { return name_; }
  // "names.txt: 3,700 documents to train on, 0 held out; 26 characters ...".
  std::string Description() const;
  DatasetOptions::Format format() const { return format_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // FNV-1a 64 of the file's bytes, 16 hexadecimal digits: which data a run was trained on.
  const std::string& data_hash() const { return data_hash_; }

  // Whether it is a text or tokens, of which sequences are windows, and not documents.
  bool is_running() const { return format_ != DatasetOptions::Format::kDocuments; }

  // Whether a split has something to predict: two tokens of a text, or a document, however short.
  bool has_targets(Split split) const;

  // Tokens of a split; of documents without begin and end tokens.
  int64_t num_tokens(Split split) const;

  // Running text: copies tokens [begin, begin + out.size()) of a split. Allocates nothing.
  // REQUIRES: they are there. Tokens of a file that was cut meanwhile are 0: see read_status().
  void ReadText(Split split, int64_t begin, absl::Span<int32_t> out) const;
  // First error of reading token files, which names the file. Lasting: what ReadText copied since
  // then is not the data. Thread-safe.
  absl::Status read_status() const;

  // Format documents: how many a split has, and the i-th of them in the order of the file, without
  // begin and end tokens, never empty.
  int64_t num_documents(Split split) const;
  absl::Span<const int32_t> document(Split split, int64_t i) const;
  int64_t longest_document(Split split) const;  // in tokens; 0 for an empty split
  // How many documents do not fit: with a token on either side they have more than
  // context_length targets, and a batch keeps only the first context_length of them.
  int64_t num_cropped(Split split, int64_t context_length) const;

 private:
  Dataset(std::string name, DatasetOptions::Format format, Tokenizer tokenizer)
      : name_(std::move(name)), format_(format), tokenizer_(std::move(tokenizer)) {}

  static absl::StatusOr<Dataset> LoadTokens(const std::string& path, const DatasetOptions& options,
                                            const Tokenizer& tokenizer);
  void SplitText(double val_fraction);
  void SplitDocuments(double val_fraction);
  const std::vector<int64_t>& documents(Split split) const {
    return split == Split::kTrain ? train_documents_ : validation_documents_;
  }

  std::string name_;
  DatasetOptions::Format format_;
  Tokenizer tokenizer_;
  std::string data_hash_;
  std::vector<int32_t> tokens_;                // of the whole file, documents back to back
  std::shared_ptr<const TokenShards> shards_;  // of format tokens, in place of tokens_
  // Running text: the first token that is held out.
  int64_t validation_begin_ = 0;
  // Format documents: where each begins in tokens_, and the end; and the documents of each split.
  std::vector<int64_t> document_begin_;
  std::vector<int64_t> train_documents_;
  std::vector<int64_t> validation_documents_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_DATA_H_
