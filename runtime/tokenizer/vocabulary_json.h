// SPDX-License-Identifier: Apache-2.0
// Reads vocabularies in JSON, {"piece": id}. Pure functions.
#ifndef PLUMB_RUNTIME_TOKENIZER_VOCABULARY_JSON_H_
#define PLUMB_RUNTIME_TOKENIZER_VOCABULARY_JSON_H_

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

using PieceIds = absl::flat_hash_map<std::string, int32_t>;

// Returns the maximum id in a vocabulary of `entries` pieces. Files have gaps, but a short file
// must not allocate gigabytes.
int64_t MaxTokenId(size_t entries);

// Reads the object `vocab` at `place`. Errors: kInvalidArgument for an invalid id, an id of two
// pieces, and an empty vocabulary.
absl::StatusOr<PieceIds> ReadVocabulary(const nlohmann::json& vocab, absl::string_view place);
std::vector<std::string> PiecesById(const PieceIds& ids);

// The tokens <0x00> to <0xFF> for the byte fallback of SentencePiece's vocabularies.
struct ByteTokens {
  // Returns true if every byte of `text` has a token.
  bool Has(absl::string_view text) const;
  std::array<int32_t, 256> ids;  // token of each byte; -1: none
  bool all = false;              // true if all 256 bytes have one
};
ByteTokens FindByteTokens(const PieceIds& ids);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_VOCABULARY_JSON_H_
