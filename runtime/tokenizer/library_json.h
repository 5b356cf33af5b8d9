// SPDX-License-Identifier: Apache-2.0
// Exports a tokenizer as a tokenizer.json and a tokenizer_config.json for Hugging Face's libraries.
// Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_
#define PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Returns a tokenizer.json with which every text has the same ids as in plumb, after the begin
// token if `begins_texts`. Subwords keep their original file except for its post-processor.
// Characters become a unigram model in which unknown characters are errors, as in plumb; bytes
// become a byte-level BPE without merges. The begin/end token of both is called <|endoftext|>.
absl::StatusOr<std::string> LibraryTokenizerJson(const Tokenizer& tokenizer, bool begins_texts);

// Returns the tokenizer_config.json next to it, with the names of the special tokens. The eos_token
// is the first end token, because there can be only one; generation_config.json has all of them.
std::string LibraryTokenizerConfig(const Tokenizer& tokenizer, int64_t context_length);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_
