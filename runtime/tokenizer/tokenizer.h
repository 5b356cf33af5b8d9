// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back. A value: copies, compares, prints; immutable.
//
// Three kinds: `characters` (one token for each Unicode character of a given text, in the order of
// their code points), `bytes` (token b is byte b) and `subwords` (subword_tokenizer.h). Either of
// the first two may have one more token, the last, that marks where a document begins and where it
// ends; one token serves for both. Subwords have the special tokens that special_tokens.h
// describes.
//
// As JSON (`tokenizer.json` of a run), of subwords what they were read from, else:
//
//   {"format": "plumb-tokenizer", "version": 1, "kind": "characters",
//    "characters": ["a", "b", ...],  // only for kind "characters": strictly ascending code points
//    "begin_end_token": 26,          // or null; always the last id
//    "vocab_size": 27}
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKENIZER_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKENIZER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"
#include "runtime/tokenizer/special_tokens.h"
#include "runtime/tokenizer/subword_tokenizer.h"

namespace plumb {

class Tokenizer {
 public:
  enum class Kind { kCharacters, kBytes, kSubwords };

  // The characters that `texts` hold. InvalidArgument when there are none or a text is not UTF-8
  // (the message gives line and byte within it).
  static absl::StatusOr<Tokenizer> Characters(absl::Span<const absl::string_view> texts,
                                              bool with_begin_end);
  static Tokenizer Bytes(bool with_begin_end);
  // REQUIRES: not null.
  static Tokenizer Subwords(std::shared_ptr<const SubwordTokenizer> subwords);

  Kind kind() const { return kind_; }
  int32_t vocab_size() const { return num_symbols() + (has_begin_end_ ? 1 : 0); }
  // The tokens that begin, end and pad a text. Subwords begin with no more than a guess.
  const SpecialTokens& special_tokens() const { return special_; }
  void set_special_tokens(SpecialTokens tokens) { special_ = std::move(tokens); }
  // The token that ends a document of training data, and the one that begins it: without one of its
  // own, what the post-processor puts there if that is one token, else the end token.
  absl::optional<int32_t> end_token() const;
  absl::optional<int32_t> begin_token() const;
  // True for characters and bytes with a last token that begins and ends a document.
  bool has_begin_end() const { return has_begin_end_; }
  // Of kind subwords, else null.
  const SubwordTokenizer* subwords() const { return subwords_.get(); }
  // The tokens that a prompt begins with: those that a post-processor of subwords puts before a
  // text, such as <s>, or the begin/end token of the other kinds.
  std::vector<int32_t> prompt_prefix() const;

  // The token of this name: a piece as a tokenizer.json has it ("<|im_end|>"), a character, a byte.
  absl::optional<int32_t> Find(absl::string_view name) const;
  // The same; without such a token kInvalidArgument with a suggestion.
  absl::StatusOr<int32_t> FindNamed(absl::string_view name) const;

  // The tokens of `text`, none added. InvalidArgument for a character outside the vocabulary, with
  // the character, its position in the text, and the vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const;

  // Encode for callers that know a better place: appends to `tokens`; on failure the message names
  // no place and `*bad_byte` is the offset of the offending character in `text`.
  absl::Status AppendTokens(absl::string_view text, std::vector<int32_t>* tokens,
                            size_t* bad_byte) const;

  // The text of `tokens`; the begin/end token and special tokens stand for no text. Of kinds bytes
  // and subwords the result need not be UTF-8. InvalidArgument for an id outside [0, vocab_size).
  // For tokens that come one after the other there is TokenDecoder.
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) const;
  // Fails with InvalidArgument, naming the first id outside [0, vocab_size) and its position.
  absl::Status CheckTokens(absl::Span<const int32_t> tokens) const;

  // A token as a person should see it: `a`, `\n`, `\xff`, `<begin/end>`; `<invalid>` outside the
  // vocabulary.
  std::string TokenText(int32_t token) const;

  // `26 characters "abc...", and a begin/end token`.
  std::string Description() const;

  std::string ToJson() const;
  // InvalidArgument, saying which field is wrong and how, unless ToJson could have written it.
  static absl::StatusOr<Tokenizer> FromJson(absl::string_view json);

  friend bool operator==(const Tokenizer& a, const Tokenizer& b) {
    return a.kind_ == b.kind_ && a.has_begin_end_ == b.has_begin_end_ &&
           a.characters_ == b.characters_ && a.special_ == b.special_ &&
           (a.subwords_ == nullptr) == (b.subwords_ == nullptr) &&
           (a.subwords_ == nullptr || a.subwords_->json() == b.subwords_->json());
  }
  friend bool operator!=(const Tokenizer& a, const Tokenizer& b) { return !(a == b); }

 private:
  Tokenizer(Kind kind, std::vector<uint32_t> characters, bool has_begin_end);

  int32_t num_symbols() const {
    if (subwords_ != nullptr) return subwords_->vocab_size();
    return kind_ == Kind::kBytes ? 256 : static_cast<int32_t>(characters_.size());
  }

  Kind kind_;
  bool has_begin_end_;
  std::vector<uint32_t> characters_;  // code points, ascending; of kind bytes empty
  std::vector<int32_t> token_of_;     // code point -> token, or -1; up to the largest in use
  std::shared_ptr<const SubwordTokenizer> subwords_;
  SpecialTokens special_;
};

// What one thread encodes many texts with: AppendTokens, without beginning anew each time.
// Thread-compatible; borrows the tokenizer.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer* tokenizer);
  absl::Status Append(absl::string_view text, std::vector<int32_t>* tokens, size_t* bad_byte);
  // Of subwords as SubwordEncoder::Encode; of the other kinds there are no options.
  absl::Status Append(absl::string_view text, const SubwordEncoder::Options& options,
                      std::vector<int32_t>* tokens, size_t* bad_byte,
                      SubwordEncoder::Progress progress);

 private:
  const Tokenizer* tokenizer_;
  std::unique_ptr<SubwordEncoder> subwords_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_H_
