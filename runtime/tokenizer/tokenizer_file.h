// Tokenizers from files.
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_

#include <string>

#include "absl/status/statusor.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Reads a tokenizer.json (Hugging Face's, or a run's), or what a directory has: that, or a
// vocab.json with a merges.txt. The special tokens are those that the other files of the directory
// say. Errors name the file.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
