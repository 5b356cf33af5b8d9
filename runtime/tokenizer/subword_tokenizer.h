// SPDX-License-Identifier: Apache-2.0
// SubwordTokenizer: a tokenizer.json as Hugging Face's tokenizers writes it, or GPT-2's vocab.json
// and merges.txt. Text goes through added tokens, normalizer, pre-tokenizer, model and
// post-processor; tokens come back through the decoder. What plumb does not know of a file is an
// error that names it.
//
// Bytes that are not UTF-8: each run of them is a piece by itself for a model that has tokens for
// bytes, and an error for another. Byte-level vocabularies give every text back, byte for byte.
//
// SubwordTokenizer is immutable and thread-safe. SubwordEncoder is what one thread encodes with: it
// has the tokens of words that it met. Thread-compatible; borrows the tokenizer.
#ifndef PLUMB_RUNTIME_TOKENIZER_SUBWORD_TOKENIZER_H_
#define PLUMB_RUNTIME_TOKENIZER_SUBWORD_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/decoder.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/post_processor.h"
#include "runtime/tokenizer/pre_tokenizer.h"
#include "runtime/tokenizer/subword_model.h"
#include "runtime/tokenizer/word_cache.h"

namespace plumb {

class SubwordTokenizer {
 public:
  // InvalidArgument with the place in the file.
  static absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> FromJson(absl::string_view json);
  // The same of a text that has been parsed, strictly, to `root`.
  static absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> FromParsed(
      absl::string_view json, const nlohmann::json& root);
  // GPT-2's two files, as the tokenizer.json that says the same.
  static absl::StatusOr<std::string> JsonOfVocabAndMerges(absl::string_view vocab_json,
                                                          absl::string_view merges_text);

  const std::string& json() const { return json_; }  // what it was made of
  int32_t vocab_size() const { return static_cast<int32_t>(pieces_.size()); }
  const char* model_name() const { return model_->name(); }
  // What a post-processor puts before a text and after.
  const PostProcessor& post_processor() const { return post_processor_; }
  // Whether every text comes back byte for byte.
  bool is_byte_level() const { return pre_tokenizer_->byte_level(); }
  bool is_special(int32_t token) const { return special_[static_cast<size_t>(token)]; }
  // The piece as the file has it.
  const std::string& piece(int32_t token) const { return pieces_[static_cast<size_t>(token)]; }

  // As a person should see it: ` the`, `\n`, `\xff`.
  std::string TextOf(int32_t token) const;

  struct DecodeOptions {
    bool continues = false;     // what came before has been decoded already
    bool skip_special = false;  // leave special tokens out
  };
  // Returns true if tokens may be decoded one after the other (Decoder::Streams).
  bool streams() const { return decoder_->Streams(/*fused=*/false); }
  // REQUIRES: tokens in [0, vocab_size).
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens,
                                     const DecodeOptions& options) const;

 private:
  friend class SubwordEncoder;
  SubwordTokenizer() = default;
  void AddPieces(const std::vector<AddedToken>& added);

  std::string json_;
  std::unique_ptr<const Normalizer> normalizer_;
  std::unique_ptr<const PreTokenizer> pre_tokenizer_;
  std::unique_ptr<const SubwordModel> model_;
  std::unique_ptr<const Decoder> decoder_;
  std::unique_ptr<const AddedTokenFinder> added_, added_normalized_;
  PostProcessor post_processor_;
  std::vector<std::string> pieces_;
  std::vector<bool> special_;
  bool cuts_at_marks_ = false;  // no token crosses SentencePiece's mark for a space
};

class SubwordEncoder {
 public:
  struct Options {
    bool finds_added = true;  // added tokens in the text are tokens, and not text
    bool post_process = false;
  };
  explicit SubwordEncoder(const SubwordTokenizer* tokenizer);

  // Takes what has been encoded so far, and how many bytes of the text that was.
  using Progress = absl::FunctionRef<absl::Status(std::vector<int32_t>* tokens, size_t bytes)>;

  // Appends the tokens of `text`. `progress` is called now and then, and may take tokens away.
  // InvalidArgument, and the offset of what has no token or of the piece that it is in.
  absl::Status Encode(absl::string_view text, const Options& options, std::vector<int32_t>* tokens,
                      size_t* bad_byte, Progress progress);
  absl::Status Encode(absl::string_view text, const Options& options, std::vector<int32_t>* tokens,
                      size_t* bad_byte);

 private:
  struct Call;
  absl::Status EncodeSegment(absl::string_view segment, Call* call);
  absl::Status EncodeValid(absl::string_view text, const CutContext& context, Call* call);
  absl::Status EncodeNormalized(absl::string_view text, const CutContext& context, Call* call);
  absl::Status EncodePiece(absl::string_view piece, Call* call);
  absl::Status AppendPiece(absl::string_view piece, std::vector<int32_t>* tokens);

  const SubwordTokenizer* tokenizer_;
  Cutter cutter_;
  ModelScratch scratch_;
  WordCache cache_;
  std::string normalized_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SUBWORD_TOKENIZER_H_
