// SPDX-License-Identifier: Apache-2.0
// Quantization: int8 matrices with scales, and int16 for the operands they are multiplied by (bf16:
// split_f32.h). Stateless; results do not depend on the number of threads.
#ifndef PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_
#define PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_

#include <cstdint>

#include "runtime/base/divide.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Neighbours in a row that share a scale; the last group of a row may be shorter, and is filled up
// with zeros.
inline constexpr int64_t kInt8Group = 64;
inline int64_t Int8Groups(int64_t width) { return CeilDiv(width, kInt8Group); }

// An int8 matrix [rows, width] lies in tiles of one group of each of 16 rows, in the order in which
// GEMV reads them: all groups of 16 rows, then those of the next 16. A tile holds
// the 16 rows' elements 0 and 1, then 2 and 3, ...; its 16 scales lie as one. Rows that fill up the
// last tiles are zeros.
//   elements i8[blocks, groups, 1024], each tile [32, 16, 2]; scales f32[blocks, groups, 16]
// Several matrices [n, rows, width], of experts, lie one after the other, each in tiles of its own.
inline constexpr int64_t kInt8TileRows = 16;
inline constexpr int64_t kInt8TileElements = kInt8TileRows * kInt8Group;
inline int64_t Int8Blocks(int64_t rows) { return CeilDiv(rows, kInt8TileRows); }
inline int64_t Int8BlocksOf(const Shape& matrix) {
  return matrix.rank() == 3 ? matrix[0] * Int8Blocks(matrix[1]) : Int8Blocks(matrix.rows());
}
inline TensorType Int8Elements(const Shape& matrix) {
  return I8({Int8BlocksOf(matrix), Int8Groups(matrix.last()), kInt8TileElements});
}
inline TensorType Int8Scales(const Shape& matrix) {
  return F32({Int8BlocksOf(matrix), Int8Groups(matrix.last()), kInt8TileRows});
}
// Where element [row, i] and its scale lie.
inline int64_t Int8ElementAt(int64_t row, int64_t i, int64_t groups) {
  const int64_t tile = row / kInt8TileRows * groups + i / kInt8Group, in_group = i % kInt8Group;
  return tile * kInt8TileElements + in_group / 2 * 2 * kInt8TileRows + row % kInt8TileRows * 2 +
         in_group % 2;
}
inline int64_t Int8ScaleAt(int64_t row, int64_t i, int64_t groups) {
  const int64_t tile = row / kInt8TileRows * groups + i / kInt8Group;
  return tile * kInt8TileRows + row % kInt8TileRows;
}

// Symmetric: a group's scale is its largest magnitude / 127, and to = round(from / scale), so that
//   |from - to * scale| <= scale / 2.
// A group that holds a NaN or an infinity gets the scale NaN. from [rows, width].
void QuantizeInt8(const float* from, int64_t rows, int64_t width, int threads, int8_t* to,
                  float* scales);

// The same with 32767 for 127, on the calling thread. from [rows, width]; to [rows, 64 groups],
// filled up with zeros; scales [rows, groups].
void QuantizeInt16(const float* from, int64_t rows, int64_t width, int16_t* to, float* scales);

// to[width] = row `row` of an int8 matrix, as floats.
void ReadInt8Row(const int8_t* from, const float* scales, int64_t row, int64_t width, float* to);

// Some blocks of rows as floats, transposed: to[64 groups, 16 blocks].
void DequantizeTransposed(const int8_t* from, const float* scales, int64_t blocks, int64_t groups,
                          float* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMV_QUANTIZE_H_
