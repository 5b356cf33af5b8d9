// SPDX-License-Identifier: Apache-2.0
// TokenDecoder: decodes tokens that arrive one after another, for example from sampling.
//
// The outputs of Append, followed by that of Finish, are byte-identical to Tokenizer::Decode of all
// tokens; after a prompt, to Decode of the prompt and these tokens, without the prompt's
// characters. Decoding each token separately would differ: SentencePiece marks a word's space in
// its token and drops that of the first word, WordPiece puts a space before each word but the
// first, and a character may consist of several byte tokens.
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
  // Starts a text after the tokens of `prompt`. An incomplete character at the end of the prompt
  // belongs to the text that follows. Errors: kInvalidArgument for an id outside [0, vocab_size).
  static absl::StatusOr<TokenDecoder> Create(const Tokenizer* tokenizer,
                                             absl::Span<const int32_t> prompt = {});

  // Appends to `text` the characters that are complete with `tokens`. The bytes of an incomplete
  // character are held back. If the tokenizer's rules join all pieces and then change the text, all
  // text is held back until Finish. Errors: kInvalidArgument, without any change, for an id outside
  // [0, vocab_size).
  absl::Status Append(absl::Span<const int32_t> tokens, std::string* text);

  // Appends to `text` the text that was held back, and forgets all tokens, including the prompt:
  // the next token begins a new text.
  absl::Status Finish(std::string* text);

 private:
  explicit TokenDecoder(const Tokenizer* tokenizer);

  const Tokenizer* tokenizer_;
  bool streams_;                 // true if tokens may be decoded one after another
  bool continues_ = false;       // true if there has been text
  std::vector<int32_t> tokens_;  // tokens without text so far; special ones are dropped
  std::string held_;             // bytes of an incomplete character
  std::string prompt_text_;      // complete characters of the prompt, if not streams_
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKEN_DECODER_H_
