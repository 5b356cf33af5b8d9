// SPDX-License-Identifier: Apache-2.0
// SpecialTokens: the tokens that begin, end and pad a text. A value.
//
// Checkpoints say them in several files. For each of the three the first file that says it counts:
// generation_config.json and config.json by ids, tokenizer_config.json and special_tokens_map.json
// by names. Without any, the tokens that end a text are guessed among the special ones.
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

// The file that generation reads its tokens from, of a checkpoint and of a run.
inline constexpr char kGenerationConfigFile[] = "generation_config.json";

struct SpecialTokens {
  absl::optional<int32_t> begin, pad;
  std::vector<int32_t> end;  // each of them ends a text; training data use the first
  std::string end_source;    // file that says `end`; "": none does

  bool Ends(int32_t token) const;
  friend bool operator==(const SpecialTokens& a, const SpecialTokens& b) {
    return a.begin == b.begin && a.pad == b.pad && a.end == b.end;
  }
};

// The special tokens of a vocabulary whose names usually end a text ("</s>", "<|im_end|>"), the
// most usual name first.
std::vector<int32_t> GuessEndTokens(const SubwordTokenizer& tokenizer);

// Reads what the files of `directory` say. `config` is used in place of its config.json if it is
// not null. Without a tokenizer (null) names are not looked up. Ids outside of [0, vocab_size) are
// dropped: configurations are often copied from a model with more tokens.
// Errors: kInvalidArgument, with the file, for JSON that is damaged or has another type there.
absl::StatusOr<SpecialTokens> ReadSpecialTokens(const std::string& directory,
                                                const nlohmann::json* config,
                                                const Tokenizer* tokenizer, int64_t vocab_size);

// The content of a generation_config.json that says these tokens, and the tokens of one. Errors: as
// ReadSpecialTokens, for the file `name`.
std::string GenerationConfigJson(const SpecialTokens& tokens);
absl::StatusOr<SpecialTokens> SpecialTokensOfJson(absl::string_view json, const std::string& name,
                                                  int64_t vocab_size);

// Puts the ids into a config.json or generation_config.json: a number, for several end tokens a
// list, for none null.
void PutSpecialTokenIds(const SpecialTokens& tokens, nlohmann::json* config);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_SPECIAL_TOKENS_H_
