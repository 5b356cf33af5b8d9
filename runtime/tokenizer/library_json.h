// SPDX-License-Identifier: Apache-2.0
// A tokenizer as a tokenizer.json and tokenizer_config.json that Hugging Face's libraries read, for
// exported checkpoints. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_
#define PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// The tokenizer.json in which every text has the ids that plumb gives it, after the begin token if
// `begins_texts`. Subwords keep their own file, but for its post-processor. Characters become a
// unigram model in which a character that is not in the vocabulary is an error, as in plumb; bytes
// a byte-level BPE without merges. Their begin/end token is called <|endoftext|>.
absl::StatusOr<std::string> LibraryTokenizerJson(const Tokenizer& tokenizer, bool begins_texts);

// The tokenizer_config.json next to it, with the names of its special tokens. As there can be one
// eos_token only, it is the first end token; generation_config.json has them all.
std::string LibraryTokenizerConfig(const Tokenizer& tokenizer, int64_t context_length);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_LIBRARY_JSON_H_
