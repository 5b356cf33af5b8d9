#include "runtime/tokenizer/precompiled_map.h"

#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/utf8.h"

namespace plumb {
namespace {

// A unit of the array: an offset to its children, the byte that leads to it, and whether a key ends
// at it, which then has a child that holds the value.
bool HasLeaf(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t ValueOf(uint32_t unit) { return unit & 0x7FFFFFFF; }
uint32_t LabelOf(uint32_t unit) { return unit & (0x80000000 | 0xFF); }
uint32_t OffsetOf(uint32_t unit) { return (unit >> 10) << ((unit >> 9 & 1) * 8); }

}  // namespace

absl::StatusOr<PrecompiledMap> PrecompiledMap::Read(absl::string_view base64) {
  std::string blob;
  uint32_t bytes = 0;
  if (!absl::Base64Unescape(base64, &blob) || blob.size() < sizeof(bytes)) {
    return absl::InvalidArgumentError("precompiled_charsmap is not base64 of a trie");
  }
  std::memcpy(&bytes, blob.data(), sizeof(bytes));
  if (bytes > blob.size() - sizeof(bytes) || bytes % sizeof(uint32_t) != 0 || bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat("precompiled_charsmap says that its trie has ",
                                                   bytes, " bytes, and has ",
                                                   blob.size() - sizeof(bytes), " in all"));
  }
  PrecompiledMap map;
  map.units_.resize(bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data() + sizeof(bytes), bytes);
  map.texts_ = blob.substr(sizeof(bytes) + bytes);
  return map;
}

size_t PrecompiledMap::Longest(absl::string_view text, uint32_t* offset) const {
  size_t length = 0, node = OffsetOf(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size() || LabelOf(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= OffsetOf(unit);
    if (HasLeaf(unit) && node < units_.size() && ValueOf(units_[node]) < texts_.size()) {
      *offset = ValueOf(units_[node]);
      length = i + 1;
    }
  }
  return length;
}

void PrecompiledMap::Append(absl::string_view text, std::string* out) const {
  for (size_t at = 0; at < text.size();) {
    uint32_t offset = 0;
    const size_t length = Longest(text.substr(at), &offset);
    if (length > 0) {
      out->append(texts_.c_str() + offset);
      at += length;
      continue;
    }
    size_t next = at;
    if (!NextCodePoint(text, &next)) ++next;
    out->append(text.data() + at, next - at);
    at = next;
  }
}

}  // namespace plumb
