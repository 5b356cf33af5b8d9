// SPDX-License-Identifier: Apache-2.0
// A vocabulary in JSON, {"piece": id}, as pieces by id. Pure functions.
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

// The largest id that a vocabulary with so many entries may have: files leave gaps, but a short one
// is not to take gigabytes.
int64_t MaxTokenId(size_t entries);

// Reads the object `vocab`, which stands at `place`. InvalidArgument for an id that is no id, one
// that two pieces have, and for an empty vocabulary.
absl::StatusOr<PieceIds> ReadVocabulary(const nlohmann::json& vocab, absl::string_view place);
std::vector<std::string> PiecesById(const PieceIds& ids);

// The tokens <0x00> to <0xFF> by which SentencePiece's vocabularies fall back to bytes.
struct ByteTokens {
  // True if every byte of `text` has a token.
  bool Has(absl::string_view text) const;
  std::array<int32_t, 256> ids;  // -1: there is none
  bool all = false;              // true if there are 256
};
ByteTokens FindByteTokens(const PieceIds& ids);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_VOCABULARY_JSON_H_
