// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/vocabulary_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {

int64_t MaxTokenId(size_t entries) { return 16 * static_cast<int64_t>(entries) + 65536; }

absl::StatusOr<PieceIds> ReadVocabulary(const nlohmann::json& vocab, absl::string_view place) {
  if (!vocab.is_object() || vocab.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(place, ": is not an object of pieces and their ids"));
  }
  const int64_t max_id = MaxTokenId(vocab.size());
  PieceIds ids;
  ids.reserve(vocab.size());
  std::vector<bool> taken;
  for (const auto& [piece, value] : vocab.get_ref<const nlohmann::json::object_t&>()) {
    const absl::optional<int64_t> id = AsInt64(value);
    if (!id || *id < 0 || *id > max_id) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": ", QuoteName(piece),
                                                     ": the id is not a number from 0 to ", max_id,
                                                     ": ", Excerpt(value.dump(-1, ' ', true))));
    }
    const size_t index = static_cast<size_t>(*id);
    if (index >= taken.size()) taken.resize(index + 1);
    if (taken[index]) {
      return absl::InvalidArgumentError(absl::StrCat(place, ": ", QuoteName(piece), ": the id ",
                                                     index, " is another piece's, too"));
    }
    taken[index] = true;
    ids.emplace(piece, static_cast<int32_t>(*id));
  }
  return ids;
}

std::vector<std::string> PiecesById(const PieceIds& ids) {
  int32_t last = -1;
  for (const auto& [piece, id] : ids) last = std::max(last, id);
  std::vector<std::string> pieces(static_cast<size_t>(last + 1));
  for (const auto& [piece, id] : ids) pieces[static_cast<size_t>(id)] = piece;
  return pieces;
}

bool ByteTokens::Has(absl::string_view text) const {
  return all || std::all_of(text.begin(), text.end(),
                            [this](char c) { return ids[static_cast<unsigned char>(c)] >= 0; });
}

ByteTokens FindByteTokens(const PieceIds& ids) {
  ByteTokens bytes;
  bytes.all = true;
  for (size_t byte = 0; byte < bytes.ids.size(); ++byte) {
    const auto found = ids.find(absl::StrFormat("<0x%02X>", byte));
    bytes.ids[byte] = found == ids.end() ? -1 : found->second;
    bytes.all = bytes.all && found != ids.end();
  }
  return bytes;
}

}  // namespace plumb
