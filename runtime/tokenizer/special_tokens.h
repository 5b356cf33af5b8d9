// SPDX-License-Identifier: Apache-2.0
// SpecialTokens: the tokens that begin, end and pad a text. A value.
//
// Checkpoints state them in several files, and for each of the three the first file with it is
// used: generation_config.json and config.json have ids, tokenizer_config.json and
// special_tokens_map.json have names. Without any, the end tokens are guessed among the special
// tokens.
#ifndef PLUMB_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_
#define PLUMB_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/optional.h"

namespace plumb {

class SubwordTokenizer;
class Tokenizer;

// File of a checkpoint or a run from which generation reads the tokens.
inline constexpr absl::string_view kGenerationConfigFile = "generation_config.json";

struct SpecialTokens {
  absl::optional<int32_t> begin, pad;
  std::vector<int32_t> end;  // each of them ends a text; training data uses the first
  std::string end_source;    // file that states `end`; "" if none does

  bool Ends(int32_t token) const;
  friend bool operator==(const SpecialTokens& a, const SpecialTokens& b) {
    return a.begin == b.begin && a.pad == b.pad && a.end == b.end;
  }
};

// Returns the special tokens of a vocabulary whose names usually end a text ("</s>", "<|im_end|>"),
// the most common name first.
std::vector<int32_t> GuessEndTokens(const SubwordTokenizer& tokenizer);

// Reads the tokens from the files in `directory`. A `config` that is not null replaces its
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

#endif  // PLUMB_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_
