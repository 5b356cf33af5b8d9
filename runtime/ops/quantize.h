// Weights in fewer bits: int8 with scales (bf16: float_halves.h). Stateless; what they compute does
// not depend on the number of threads.
#ifndef PLUMB_RUNTIME_OPS_QUANTIZE_H_
#define PLUMB_RUNTIME_OPS_QUANTIZE_H_

#include <cstdint>

namespace plumb {

// Neighbours in a row of an int8 matrix that share a scale: 64 of them, or, in a row that does not
// divide so, all.
inline constexpr int64_t kInt8Group = 64;
inline int64_t Int8GroupSize(int64_t width) { return width % kInt8Group == 0 ? kInt8Group : width; }
inline int64_t Int8Groups(int64_t width) { return width / Int8GroupSize(width); }

// Symmetric: a group's scale is its largest magnitude / 127, and to = round(from / scale), so that
//   |from - to * scale| <= scale / 2.
// A group that holds a NaN or an infinity gets the scale NaN. from, to [rows, width]; scales [rows,
// Int8Groups(width)].
void QuantizeInt8(const float* from, int64_t rows, int64_t width, int threads, int8_t* to,
                  float* scales);

// to = from * scale; on the calling thread.
void DequantizeInt8(const int8_t* from, const float* scales, int64_t rows, int64_t width,
                    float* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_QUANTIZE_H_
