// SPDX-License-Identifier: Apache-2.0
// The tile registers of AMX. Included where the compiler's target has amx-tile.
#ifndef PLUMB_RUNTIME_KERNELS_SIMD_TILE_REGISTERS_INL_H_
#define PLUMB_RUNTIME_KERNELS_SIMD_TILE_REGISTERS_INL_H_

#include <immintrin.h>

#include <cstdint>

namespace plumb {

inline constexpr int64_t kTileRows = 16, kTileBytes = 64;  // largest tile; bytes of a row

// Configures the thread's eight tile registers while it lives: to `rows` rows of `bytes` bytes, but
// number 4 to the largest size.
class TileRegisters {
 public:
  TileRegisters(int64_t rows, int64_t bytes) {
    for (int tile = 0; tile < 8; ++tile) {
      config_.rows[tile] = static_cast<uint8_t>(tile == 4 ? kTileRows : rows);
      config_.bytes[tile] = static_cast<uint16_t>(tile == 4 ? kTileBytes : bytes);
    }
    // gcc 12 assumes that the next instruction reads only the first bytes.
    __asm__ volatile("" : : "r"(&config_) : "memory");
    _tile_loadconfig(&config_);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;

 private:
  struct alignas(64) {
    uint8_t palette = 1, reserved[15] = {};
    uint16_t bytes[16] = {};  // bytes of a row
    uint8_t rows[16] = {};
  } config_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_SIMD_TILE_REGISTERS_INL_H_
