// SPDX-License-Identifier: Apache-2.0
// Tokenizers from files.
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Reads a tokenizer.json (Hugging Face's, or a run's), or from a directory that file, or a
// vocab.json with a merges.txt. The special tokens are those that the other files of the directory
// name. Errors: they name the file, and the format of one that is tiktoken's, SentencePiece's or a
// WordPiece vocabulary.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
