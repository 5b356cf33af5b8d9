// SPDX-License-Identifier: Apache-2.0
// Reads tokenizers from files, and the tokens that begin, end and pad a text (SpecialTokens) from
// the files of a checkpoint. Stateless.
//
// Checkpoints state these tokens in several files, and for each of the three the first file with it
// is used: generation_config.json and config.json have ids, tokenizer_config.json and
// special_tokens_map.json have names. Without any, the end tokens are those of Tokenizer::Subwords.
#ifndef PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
#define PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "runtime/tokenizer/tokenizer.h"

namespace plumb {

// Reads a tokenizer.json (Hugging Face's, or a run's), or a directory with this file or with
// vocab.json and merges.txt. The special tokens come from the other files of the directory.
// Errors: messages name the file; for a file of tiktoken, SentencePiece or WordPiece they name its
// format.
absl::StatusOr<Tokenizer> ReadTokenizer(const std::string& path);

// File of a checkpoint or a run from which generation reads the tokens.
inline constexpr absl::string_view kGenerationConfigFile = "generation_config.json";

// Reads the special tokens from the files in `directory`. A `config` that is not null replaces its
// config.json. If `tokenizer` is null, names are not looked up. Ids outside of [0, vocab_size) are
// dropped, because configurations are often copied from a model with more tokens.
// Errors: kInvalidArgument, with the file, for malformed JSON or a wrong type.
absl::StatusOr<SpecialTokens> ReadSpecialTokens(const std::string& directory,
                                                const nlohmann::json* config,
                                                const Tokenizer* tokenizer, int64_t vocab_size);

// Converts the tokens to the content of a generation_config.json and back. Errors: see
// ReadSpecialTokens; `name` is the file in messages.
std::string GenerationConfigJson(const SpecialTokens& tokens);
absl::StatusOr<SpecialTokens> SpecialTokensOfJson(absl::string_view json, const std::string& name,
                                                  int64_t vocab_size);

// Writes the ids to a config.json or generation_config.json: a number, a list for several end
// tokens, null for none.
void PutSpecialTokenIds(const SpecialTokens& tokens, nlohmann::json* config);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_TOKENIZER_FILE_H_
