// SPDX-License-Identifier: Apache-2.0
// Quantization: int8 matrices with scales, and int16 for the operands that they are multiplied with
// (bf16: split_f32.h). Stateless; results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_

#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Number of adjacent elements of a row that share a scale. A shorter last group of a row is padded
// with zeros.
inline constexpr int64_t kInt8Group = 64;
inline int64_t Int8Groups(int64_t width) { return CeilDiv(width, kInt8Group); }

// An int8 matrix [rows, width] is stored in tiles of one group of each of 16 rows, in the order in
// which GEMV reads them: all groups of 16 rows, then those of the next 16. A tile stores elements 0
// to 3 of the 16 rows, then 4 to 7, ...; its 16 scales are contiguous. Rows that pad the last tiles
// are zeros. The four elements of a row are in the order 0, 2, 1, 3, so that its 16-bit halves hold
// 0 and 1 in their low bytes, and 2 and 3 in their high bytes.
//   elements i8[blocks, groups, 1024], each tile [16, 16, 4]; scales f32[blocks, groups, 16]
// Several matrices [n, rows, width], of experts, are stored one after another, each in its own
// tiles.
inline constexpr int64_t kInt8TileRows = 16;
inline constexpr int64_t kInt8TileElements = kInt8TileRows * kInt8Group;
inline int64_t Int8Blocks(int64_t rows) { return CeilDiv(rows, kInt8TileRows); }
inline int64_t CountInt8Blocks(const Shape& matrix) {
  return matrix.rank() == 3 ? matrix[0] * Int8Blocks(matrix[1]) : Int8Blocks(matrix.rows());
}
inline TensorType Int8Elements(const Shape& matrix) {
  return I8({CountInt8Blocks(matrix), Int8Groups(matrix.last()), kInt8TileElements});
}
inline TensorType Int8Scales(const Shape& matrix) {
  return F32({CountInt8Blocks(matrix), Int8Groups(matrix.last()), kInt8TileRows});
}
// Returns the indices of element [row, i] and of its scale.
inline int64_t Int8ElementAt(int64_t row, int64_t i, int64_t groups) {
  constexpr int64_t kOrder[] = {0, 2, 1, 3};
  const int64_t tile = row / kInt8TileRows * groups + i / kInt8Group, in_group = i % kInt8Group;
  return tile * kInt8TileElements + (in_group / 4 * kInt8TileRows + row % kInt8TileRows) * 4 +
         kOrder[in_group % 4];
}
inline int64_t Int8ScaleAt(int64_t row, int64_t i, int64_t groups) {
  const int64_t tile = row / kInt8TileRows * groups + i / kInt8Group;
  return tile * kInt8TileRows + row % kInt8TileRows;
}

// Quantizes from [rows, width] symmetrically: a group's scale is its largest magnitude / 127, and
// to = round(from / scale), so that
//   |from - to * scale| <= scale / 2.
// The scale of a group with a NaN or an infinity is NaN.
void QuantizeInt8(const float* from, int64_t rows, int64_t width, int threads, int8_t* to,
                  float* scales);

// Does the same with 32767 instead of 127, on the calling thread. from [rows, width]; to
// [rows, 64 groups], padded with zeros; scales [groups, rows], of which rows are `pitch` apart.
void QuantizeInt16(const float* from, int64_t rows, int64_t width, int16_t* to, float* scales,
                   int64_t pitch);

// Dequantizes row `row` of an int8 matrix: to[width].
void ReadInt8Row(const int8_t* from, const float* scales, int64_t row, int64_t width, float* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_
