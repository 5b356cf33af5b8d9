// SPDX-License-Identifier: Apache-2.0
#include "runtime/formats/crc32c.h"

#include <array>
#include <cstddef>
#include <cstring>

namespace plumb {
namespace {

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "words are read without conversion");

using Tables = std::array<std::array<uint32_t, 256>, 8>;

// tables[k][b]: effect of the byte b on the checksum if k bytes follow it in the same word.
constexpr Tables MakeTables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78u : 0u);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = MakeTables();

}  // namespace

uint32_t Crc32c(absl::string_view bytes) {
  uint32_t crc = ~uint32_t{0};
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof(word));
    word ^= crc;
    crc = 0;
    for (size_t k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ static_cast<unsigned char>(c)) & 0xff];
  }
  return ~crc;
}

uint32_t MaskedCrc32c(absl::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

}  // namespace plumb
