// SPDX-License-Identifier: Apache-2.0
// Tokenizer: text to token ids and back. A value: copies, compares, prints; immutable except for
// set_special_tokens().
//
// There are three kinds: `characters` (one token for each Unicode character of a given text,
// ordered by code point), `bytes` (token b is byte b) and `subwords` (subword_tokenizer.h). The
// first two may have one more token, the last one, that marks both the beginning and the end of a
// document. Subwords have the special tokens that tokenizer_file.h reads.
//
// The JSON form (`tokenizer.json` of a run) of subwords is the file that they were read from, else:
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
#include "runtime/tokenizer/subword_tokenizer.h"

namespace plumb {

// Tokens that begin, end and pad a text.
struct SpecialTokens {
  absl::optional<int32_t> begin, pad;
  std::vector<int32_t> end;  // each of them ends a text; training data uses the first
  std::string end_source;    // file that states `end`; "" if none does

  bool Ends(int32_t token) const;
  friend bool operator==(const SpecialTokens& a, const SpecialTokens& b) {
    return a.begin == b.begin && a.pad == b.pad && a.end == b.end;
  }
};

class Tokenizer {
 public:
  enum class Kind { kCharacters, kBytes, kSubwords };

  // Makes a token of each character in `texts`. Errors: kInvalidArgument if there are none or a
  // text is not UTF-8 (the message has line and byte).
  static absl::StatusOr<Tokenizer> Characters(absl::Span<const absl::string_view> texts,
                                              bool with_begin_end);
  static Tokenizer Bytes(bool with_begin_end);
  // Requires: `subwords` is not null.
  static Tokenizer Subwords(std::shared_ptr<const SubwordTokenizer> subwords);

  Kind kind() const { return kind_; }
  int32_t vocab_size() const { return num_symbols() + (has_begin_end_ ? 1 : 0); }
  // Tokens that begin, end and pad a text. For subwords they are initially only a guess.
  const SpecialTokens& special_tokens() const { return special_; }
  void set_special_tokens(SpecialTokens tokens) { special_ = std::move(tokens); }
  // Tokens that end and begin a document of training data. Without special_tokens().begin, the
  // begin token is the one that the post-processor puts there, if it is one token, else the end
  // token.
  absl::optional<int32_t> end_token() const;
  absl::optional<int32_t> begin_token() const;
  // Returns true for characters and bytes with a last token that begins and ends a document.
  bool has_begin_end() const { return has_begin_end_; }
  // Returns the tokenizer of kind subwords, else null.
  const SubwordTokenizer* subwords() const { return subwords_.get(); }
  // Returns the tokens that begin a prompt: those that the post-processor of subwords puts before a
  // text, such as <s>, or the begin/end token of the other kinds.
  std::vector<int32_t> prompt_prefix() const;

  // Returns the token with this name: a piece of a tokenizer.json ("<|im_end|>"), a character, or a
  // byte. nullopt if there is none.
  absl::optional<int32_t> Find(absl::string_view name) const;
  // Does the same. Errors: kInvalidArgument with a suggestion if there is none.
  absl::StatusOr<int32_t> FindNamed(absl::string_view name) const;

  // Returns the tokens of `text`, without adding any. Errors: kInvalidArgument for a character
  // outside the vocabulary, with the character, its position in the text, and the vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const;

  // Appends the tokens to `tokens`, for callers that know a better location: on failure the message
  // has no location, and `*bad_byte` is the offset of the offending character in `text`.
  absl::Status AppendTokens(absl::string_view text, std::vector<int32_t>* tokens,
                            size_t* bad_byte) const;

  // Returns the text of `tokens`; the begin/end token and special tokens have no text. For bytes
  // and subwords the result need not be UTF-8. Use TokenDecoder for tokens that arrive one after
  // another. Errors: kInvalidArgument for an id outside [0, vocab_size).
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) const;
  // Fails with kInvalidArgument, which has the first id outside [0, vocab_size) and its position.
  absl::Status CheckTokens(absl::Span<const int32_t> tokens) const;

  // Returns a token in readable form: `a`, `\n`, `\xff`, `<begin/end>`; `<invalid>` outside the
  // vocabulary.
  std::string TokenText(int32_t token) const;

  // Returns `26 characters "abc...", and a begin/end token`.
  std::string Description() const;

  std::string ToJson() const;
  // Reads the JSON form. Errors: kInvalidArgument with the wrong field.
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
  std::vector<uint32_t> characters_;  // code points, ascending; empty for bytes and subwords
  std::vector<int32_t> token_of_;     // token of each code point up to the largest, or -1
  std::shared_ptr<const SubwordTokenizer> subwords_;
  SpecialTokens special_;
};

// Encodes many texts in one thread, like AppendTokens but with reused memory and a cache of words.
// Thread-compatible; borrows the tokenizer.
class TokenEncoder {
 public:
  explicit TokenEncoder(const Tokenizer* tokenizer);
  // `continues`: see SubwordEncoder::Options.
  absl::Status Append(absl::string_view text, std::vector<int32_t>* tokens, size_t* bad_byte,
                      bool continues = false);
  // Works like SubwordEncoder::Encode. Kinds other than subwords ignore the options.
  absl::Status Append(absl::string_view text, const SubwordEncoder::Options& options,
                      std::vector<int32_t>* tokens, size_t* bad_byte,
                      SubwordEncoder::Progress progress);

 private:
  const Tokenizer* tokenizer_;
  std::unique_ptr<SubwordEncoder> subwords_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_H_
