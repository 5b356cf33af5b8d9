// SPDX-License-Identifier: Apache-2.0
// Reads tokenizers from files.
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Reads a tokenizer.json (Hugging Face's, or a run's), or a directory with this file or with
// vocab.json and merges.txt. The special tokens come from the other files of the directory.
// Errors: messages name the file; for a file of tiktoken, SentencePiece or WordPiece they name its
// format.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
