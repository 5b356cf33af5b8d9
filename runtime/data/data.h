// SPDX-License-Identifier: Apache-2.0
// Dataset: a text file as tokens, split into training and validation. A value; immutable except for
// read_status().
//
// There are four formats. `text`: the file is one long text. `documents`: every line is a document
// (a carriage return at its end is dropped, empty lines are skipped). `jsonl`: every line is a
// document, or a prompt and its completion, in JSON (runtime/formats/jsonl.h); these two are
// tokenized separately, and form a document whose first tokens, the prompt, are no targets.
// `tokens`: token files (token_file.h), which are not loaded and may be larger than memory. The
// vocabulary comes from the whole file, so that a run does not depend on the held-out part, or from
// a given tokenizer (for evaluating and resuming). A byte order mark at the start of the file is
// dropped.
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
  enum class Format { kText, kDocuments, kTokens, kJsonl };

  Format format = Format::kText;
  // Kind of the tokenizer that is made if none is given. For documents it gets a begin/end token.
  // Kind subwords is read from tokenizer_path or, if that is empty, trained on the data: byte-level
  // BPE of bpe_vocab_size tokens.
  Tokenizer::Kind vocabulary = Tokenizer::Kind::kCharacters;
  std::string tokenizer_path;
  // Names of the tokens that begin and end a document; "": the tokenizer's own.
  std::string begin_token, end_token;
  int64_t bpe_vocab_size = 4096;
  // Bits of an id in token files without a header: 16 or 32; 0: as the vocabulary's size requires.
  int64_t token_bits = 0;
  // Fraction that is held out for validation, 0 to 1: floor(n * (1 - fraction)) of n tokens or
  // documents train, but at least one unless the fraction is 1. The held-out part is the end of a
  // text, or a random choice of documents that is the same in every run.
  double val_fraction = 0.1;
};

enum class Split { kTrain, kValidation };
const char* SplitName(Split split);  // "training", "validation"

class Dataset {
 public:
  // Reads `path`; for token files, opens a file or a directory of shards.
  // Errors: kInvalidArgument for an empty file, a file without a document, text that is not UTF-8
  // if the vocabulary is characters, a line that is no JSONL document, a wrong mask, documents if
  // `tokenizer` has no end token, and, with `path:line:column`, characters outside the vocabulary;
  // kResourceExhausted.
  static absl::StatusOr<Dataset> Load(const std::string& path, const DatasetOptions& options,
                                      const Tokenizer* tokenizer = nullptr);
  // Does the same with text in memory; `name` replaces the path in errors.
  static absl::StatusOr<Dataset> FromContent(absl::string_view content, const std::string& name,
                                             const DatasetOptions& options,
                                             const Tokenizer* tokenizer = nullptr);

  const std::string& name() const { return name_; }
  // Returns "names.txt: 3,700 documents to train on, 0 held out; 26 characters ...".
  std::string Description() const;
  DatasetOptions::Format format() const { return format_; }
  // Returns the length in bytes of the longest line of a running text that looks like a list of
  // documents: a hundred lines or more, none of them empty or longer than 32 bytes. Otherwise 0.
  int64_t longest_item() const { return longest_item_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  // Identity of the training data, 16 hexadecimal digits: FNV-1a 64 of the file's bytes, or, for
  // token files, TokenShards::Hash().
  const std::string& data_hash() const { return data_hash_; }

  // Returns true for text and tokens, whose sequences are windows; false for documents.
  bool is_running() const {
    return format_ == DatasetOptions::Format::kText || format_ == DatasetOptions::Format::kTokens;
  }

  // Returns true if a split has something to predict.
  bool has_targets(Split split) const { return num_targets(split) > 0; }
  // Number of tokens that are predicted and count for the loss, for a context of any length: all of
  // a text but the first, all of a document and its end token, except for those that a mask or a
  // prompt excludes.
  int64_t num_targets(Split split) const;
  // Returns true if there is a mask or a prompt.
  bool has_masks() const;

  // Number of tokens of a split; for documents, without begin and end tokens.
  int64_t num_tokens(Split split) const;

  // Copies tokens [begin, begin + out.size()) of a split of running text. Allocates nothing. Tokens
  // that cannot be read, for example because the file was truncated, are 0: see read_status().
  // Requires: is_running(), and the split has these tokens.
  void ReadText(Split split, int64_t begin, absl::Span<int32_t> out) const;
  // Does the same, but tokens that are no targets become -1.
  void ReadTargets(Split split, int64_t begin, absl::Span<int32_t> out) const;
  // First error of reading token files, with the file's name. It stays: everything that ReadText
  // copied since then may be wrong. Thread-safe.
  absl::Status read_status() const;

  // Number of documents of a split, and the i-th one in the order of the file, without begin and
  // end tokens; never empty. For format documents only.
  int64_t num_documents(Split split) const;
  absl::Span<const int32_t> document(Split split, int64_t i) const;
  // Number of tokens at the beginning of the i-th document that are no targets: its prompt.
  int64_t prompt_size(Split split, int64_t i) const;
  // Number of documents that do not fit: those with more than context_length tokens, the end token
  // included. A batch keeps only the first context_length of them.
  int64_t num_cropped(Split split, int64_t context_length) const;
  // Number of documents whose prompt fills the context, so that no target is left.
  int64_t num_without_targets(Split split, int64_t context_length) const;

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
  std::vector<int32_t> tokens_;                // tokens of the whole file, documents back to back
  std::shared_ptr<const TokenShards> shards_;  // replaces tokens_ for format tokens
  int64_t longest_item_ = 0;
  // Running text: index of the first token that is held out.
  int64_t validation_begin_ = 0;
  // Format tokens: number of targets of either split.
  int64_t train_targets_ = 0, validation_targets_ = 0;
  // Documents: offsets of all in tokens_, followed by the end; and the documents of each split.
  std::vector<int64_t> document_begin_;
  std::vector<int64_t> prompt_size_;  // of all documents, for format jsonl; otherwise empty
  std::vector<int64_t> train_documents_;
  std::vector<int64_t> validation_documents_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_DATA_H_
