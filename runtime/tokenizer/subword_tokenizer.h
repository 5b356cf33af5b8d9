// SPDX-License-Identifier: Apache-2.0
// SubwordTokenizer: a tokenizer.json as Hugging Face's tokenizers writes it, or GPT-2's vocab.json
// and merges.txt. Encoding applies added tokens, normalizer, pre-tokenizer, model and
// post-processor; decoding applies the decoder. Unsupported parts of a file are errors that name
// them.
//
// Each run of bytes that are not UTF-8 is a separate piece for a model that has tokens for bytes,
// and an error for other models. Byte-level vocabularies reproduce every text byte for byte.
//
// SubwordTokenizer is immutable and thread-safe. SubwordEncoder encodes in one thread and caches
// the tokens of words; it is thread-compatible and borrows the tokenizer.
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
  // Errors: kInvalidArgument with the location in the file.
  static absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> FromJson(absl::string_view json);
  // Does the same for a text that was parsed to `root` by ParseStrictJson.
  static absl::StatusOr<std::shared_ptr<const SubwordTokenizer>> FromParsed(
      absl::string_view json, const nlohmann::json& root);
  // Converts GPT-2's two files to an equivalent tokenizer.json.
  static absl::StatusOr<std::string> JsonOfVocabAndMerges(absl::string_view vocab_json,
                                                          absl::string_view merges_text);

  const std::string& json() const { return json_; }  // the text that it was made from
  int32_t vocab_size() const { return static_cast<int32_t>(pieces_.size()); }
  const char* model_name() const { return model_->name(); }
  // Tokens that the post-processor puts before and after a text.
  const PostProcessor& post_processor() const { return post_processor_; }
  // Returns true if decoding reproduces every text byte for byte.
  bool is_byte_level() const { return pre_tokenizer_->byte_level(); }
  bool is_special(int32_t token) const { return special_[static_cast<size_t>(token)]; }
  // Piece of a token, as in the file.
  const std::string& piece(int32_t token) const { return pieces_[static_cast<size_t>(token)]; }

  // Returns a token in readable form: ` the`, `\n`, `\xff`.
  std::string GetText(int32_t token) const;

  struct DecodeOptions {
    bool continues = false;     // the tokens follow others that were decoded already
    bool skip_special = false;  // drop special tokens
  };
  // Returns true if tokens may be decoded one after another (Decoder::Streams).
  bool streams() const { return decoder_->Streams(/*fused=*/false); }
  // Requires: tokens in [0, vocab_size). Errors: see Decoder::Apply.
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
  bool cuts_at_marks_ = false;  // true if no token crosses SentencePiece's mark for a space
};

class SubwordEncoder {
 public:
  struct Options {
    bool finds_added = true;  // recognize added tokens in the text
    bool post_process = false;
    // The text follows the one whose tokens `tokens` holds, so no space or mark is put before it,
    // except where one follows a special token.
    bool continues = false;
  };
  explicit SubwordEncoder(const SubwordTokenizer* tokenizer);

  // Called with the tokens so far and the number of bytes of the text that they encode.
  using Progress = absl::FunctionRef<absl::Status(std::vector<int32_t>* tokens, size_t bytes)>;

  // Appends the tokens of `text`. `progress` is called regularly and may remove tokens.
  // Errors: kInvalidArgument; then `*bad_byte` is the offset of the text that has no token, or of
  // its piece.
  absl::Status Encode(absl::string_view text, const Options& options, std::vector<int32_t>* tokens,
                      size_t* bad_byte, Progress progress);
  absl::Status Encode(absl::string_view text, const Options& options, std::vector<int32_t>* tokens,
                      size_t* bad_byte);

 private:
  struct Call;
  absl::Status EncodeSegment(absl::string_view segment, Call* call);
  absl::Status EncodeValid(absl::string_view text, const SplitContext& context, Call* call);
  absl::Status EncodeNormalized(absl::string_view text, const SplitContext& context, Call* call);
  absl::Status EncodePiece(absl::string_view piece, Call* call);
  absl::Status AppendPiece(absl::string_view piece, std::vector<int32_t>* tokens);

  const SubwordTokenizer* tokenizer_;
  PreTokenizerRunner runner_;
  ModelScratch scratch_;
  WordCache cache_;
  std::string normalized_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SUBWORD_TOKENIZER_H_
