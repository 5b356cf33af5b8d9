// SPDX-License-Identifier: Apache-2.0
// TokenDecoder: the text of tokens that come one after the other, as from a model that samples.
//
// The pieces that Append gives, followed by that of Finish, are the text that Tokenizer::Decode
// makes of all tokens at once, to the byte; after a prompt, of its tokens and these, without the
// prompt's characters. Decoding each token alone is not: SentencePiece marks a
// word's space in its token and drops that of the first word, WordPiece puts a space before each
// word but the first, and a character may be spread over several tokens of bytes.
//
// Thread-compatible; borrows the tokenizer.
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKEN_DECODER_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKEN_DECODER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

class TokenDecoder {
 public:
  // Begins a text after the tokens of `prompt`. A character that begins at the end of the prompt
  // and is not complete there belongs to what follows. Fails with InvalidArgument for an id outside
  // [0, vocab_size).
  static absl::StatusOr<TokenDecoder> Create(const Tokenizer* tokenizer,
                                             absl::Span<const int32_t> prompt = {});

  // Appends to `text` the characters that are complete with `tokens`. The bytes of a character that
  // is not complete yet are held back, as is all text of a tokenizer whose rules join pieces to a
  // text and then change it: of these Finish gives everything. Fails with InvalidArgument, and
  // changes nothing, for an id outside [0, vocab_size).
  absl::Status Append(absl::Span<const int32_t> tokens, std::string* text);

  // Appends to `text` the text that was held back, and forgets all tokens, the prompt's included:
  // the next one begins a new text.
  absl::Status Finish(std::string* text);

 private:
  explicit TokenDecoder(const Tokenizer* tokenizer);

  const Tokenizer* tokenizer_;
  bool streams_;                 // tokens may be decoded one after the other
  bool continues_ = false;       // there has been text
  std::vector<int32_t> tokens_;  // those whose text is not known yet, special ones left out
  std::string held_;             // bytes of a character that is not complete
  std::string prompt_text_;      // if not streams_: whole characters of the prompt
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKEN_DECODER_H_
