// Tokenizer: text to token ids and back. A value: copies, compares, prints; immutable.
//
// Two kinds: `characters` (one token for each Unicode character of a given text, in the order of
// their code points) and `bytes` (token b is byte b). Either may have one more token, the last,
// that marks where a document begins and where it ends; one token serves for both.
//
// As JSON (`tokenizer.json` of a run):
//
//   {"format": "plumb-tokenizer", "version": 1, "kind": "characters",
//    "characters": ["a", "b", ...],     // only for kind "characters": strictly ascending code
//    points "begin_end_token": 26,             // or null; always the last id "vocab_size": 27}
#ifndef PLUMB_RUNTIME_DATA_TOKENIZER_H_
#define PLUMB_RUNTIME_DATA_TOKENIZER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"
#include "absl/types/span.h"

namespace plumb {

class Tokenizer {
 public:
  enum class Kind { kCharacters, kBytes };

  // The characters that `texts` hold. InvalidArgument when there are none or a text is not UTF-8
  // (the message gives line and byte within it).
  static absl::StatusOr<Tokenizer> Characters(absl::Span<const absl::string_view> texts,
                                              bool with_begin_end);
  static Tokenizer Bytes(bool with_begin_end);

  Kind kind() const { return kind_; }
  int32_t vocab_size() const { return num_symbols() + (has_begin_end_ ? 1 : 0); }
  absl::optional<int32_t> begin_end_token() const;

  // The tokens of `text`, none added. InvalidArgument for a character outside the vocabulary, with
  // the character, its position in the text, and the vocabulary.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text) const;

  // Encode for callers that know a better place: appends to `tokens`; on failure the message names
  // no place and `*bad_byte` is the offset of the offending character in `text`.
  absl::Status AppendTokens(absl::string_view text, std::vector<int32_t>* tokens,
                            size_t* bad_byte) const;

  // The text of `tokens`; the begin/end token stands for no text. Of kind bytes the result need not
  // be UTF-8. InvalidArgument for an id outside [0, vocab_size).
  absl::StatusOr<std::string> Decode(absl::Span<const int32_t> tokens) const;

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
           a.characters_ == b.characters_;
  }
  friend bool operator!=(const Tokenizer& a, const Tokenizer& b) { return !(a == b); }

 private:
  Tokenizer(Kind kind, std::vector<uint32_t> characters, bool has_begin_end);

  int32_t num_symbols() const {
    return kind_ == Kind::kBytes ? 256 : static_cast<int32_t>(characters_.size());
  }

  Kind kind_;
  bool has_begin_end_;
  std::vector<uint32_t> characters_;  // code points, ascending; of kind bytes empty
  std::vector<int32_t> token_of_;     // code point -> token, or -1; up to the largest in use
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_TOKENIZER_H_
