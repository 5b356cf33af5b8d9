// SPDX-License-Identifier: Apache-2.0
#include "runtime/zoo/tensor_pieces.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "runtime/base/bf16.h"

namespace plumb {
namespace {

// Maps an axis of plumb's tensor to the axis of the source from which `part` selects it.
class Axis {
 public:
  Axis(const AxisSlice& part, int64_t size, bool reversed = false)
      : group_(part.all() ? size : size / std::max<int64_t>(1, part.groups)),
        first_(part.all() ? 0 : part.first),
        count_(part.all() ? size : part.count),
        reversed_(reversed) {}

  // Returns the index in the source of plumb's element i.
  int64_t operator()(int64_t i) const {
    if (count_ == 0) return 0;
    const int64_t at = i % count_;
    return i / count_ * group_ + first_ + (reversed_ ? count_ - 1 - at : at);
  }
  // Returns true if the whole axis is taken as it is.
  bool whole() const { return first_ == 0 && count_ == group_ && !reversed_; }

 private:
  int64_t group_, first_, count_;
  bool reversed_;
};

// Returns the number of elements selected from an axis of `size`; -1 if it has too few.
int64_t Taken(const AxisSlice& part, int64_t size) {
  if (part.all()) return size;
  if (part.groups < 1 || size % part.groups != 0) return -1;
  const int64_t group = size / part.groups;
  if (part.count > group || part.first > group - part.count) return -1;
  return part.groups * part.count;
}

// Returns the dimensions of a source, split into the piece's matrices, after transposition.
MatrixDims SourceDims(const TensorPiece& piece, const Shape& source) {
  if (piece.depthwise) return {1, source[0], source[2]};
  MatrixDims dims = GetDims(source);
  const int64_t batch = piece.flat_rows > 0 ? GetDims(piece.shape).batch : 1;
  if (batch > 1 && dims.rows == piece.flat_rows && dims.rows % batch == 0) {
    dims = {batch * dims.batch, dims.rows / batch, dims.columns};
  }
  if (piece.transpose) std::swap(dims.rows, dims.columns);
  return dims;
}

// Dimensions of plumb's tensor, and the offsets of its elements in a source.
struct Geometry {
  MatrixDims source, own;
  Axis row, column;
  bool transpose, stacked;

  Geometry(const TensorPiece& piece, const Shape& shape)
      : source(SourceDims(piece, shape)),
        own{piece.stacked() ? static_cast<int64_t>(piece.sources.size()) : source.batch,
            Taken(piece.rows, source.rows), Taken(piece.columns, source.columns)},
        row(piece.rows, source.rows),
        column(piece.columns, source.columns, piece.depthwise),
        transpose(piece.transpose),
        stacked(piece.stacked()) {}

  // Returns the offset of an element in its source.
  int64_t At(int64_t batch, int64_t r, int64_t c) const {
    const int64_t matrix = (stacked ? 0 : batch) * source.rows * source.columns;
    return matrix +
           (transpose ? column(c) * source.rows + row(r) : row(r) * source.columns + column(c));
  }
};

// Copies rows with a constant element size, which compiles to one instruction per element.
template <int64_t size>
void CopyRows(const Geometry& at, const char* from, int64_t batch, int64_t r0, int64_t rows,
              char* to) {
  const int64_t width = at.own.columns;
  for (int64_t c = 0; c < width; ++c) {  // outer loop: transposed rows are adjacent in the source
    for (int64_t r = 0; r < rows; ++r) {
      std::memcpy(to + (r * width + c) * size, from + at.At(batch, r0 + r, c) * size, size);
    }
  }
}

}  // namespace

MatrixDims GetDims(const Shape& shape) {
  MatrixDims dims;
  const int rank = shape.rank();
  if (rank == 1) dims.rows = shape[0];
  if (rank >= 2) {
    dims.rows = shape[rank - 2];
    dims.columns = shape[rank - 1];
  }
  for (int i = 0; i + 2 < rank; ++i) dims.batch *= shape[i];
  return dims;
}

std::string TensorPiece::WhyNot(const Shape& source) const {
  if (depthwise && (source.rank() != 3 || source[1] != 1)) {
    return "is not the weight of a depthwise convolution, [channels, 1, width]";
  }
  const MatrixDims from = SourceDims(*this, source), own = GetDims(shape);
  const int64_t rows_taken = Taken(rows, from.rows), columns_taken = Taken(columns, from.columns);
  if (rows_taken < 0 || columns_taken < 0) {
    const AxisSlice& part = rows_taken < 0 ? rows : columns;
    return absl::StrCat("has no ", part.first, "..", part.first + part.count, " in each of ",
                        part.groups, " groups of its ", rows_taken < 0 ? "rows" : "columns");
  }
  const int64_t batch = stacked() ? static_cast<int64_t>(sources.size()) * from.batch : from.batch;
  if (batch == own.batch && rows_taken == own.rows && columns_taken == own.columns) return "";
  const bool is_flat = flat_rows > 0 && rows_taken == flat_rows && shape.rank() == 1;
  if (is_flat && batch == 1 && rows_taken * columns_taken == own.rows) return "";
  // A vector may be stored as a matrix with one row.
  if (shape.rank() == 1 && batch == 1 && rows_taken == 1 && columns_taken == own.rows) return "";
  if (source.rank() == 1 && batch == 1 && own.rows == 1 && rows_taken == own.columns) return "";
  if (batch == from.batch && rows_taken == from.rows && columns_taken == from.columns) {
    return "is taken as a whole";
  }
  return absl::StrCat("would be [", batch > 1 ? absl::StrCat(batch, ", ") : "", rows_taken, ", ",
                      columns_taken, "]");
}

int64_t TensorPiece::ContiguousFrom(const Shape& source) const {
  const Geometry at(*this, source);
  if (stacked() || (transpose && at.source.rows > 1 && at.source.columns > 1)) return -1;
  if (!at.column.whole()) return -1;
  if (at.row.whole()) return 0;
  const bool one = rows.groups == 1 && at.own.batch == 1;
  return one ? rows.first * at.source.columns : -1;
}

void CopyPiece(const TensorPiece& piece, const Shape& source,
               absl::Span<const absl::string_view> data, int64_t size, int64_t begin, int64_t n,
               char* to) {
  constexpr int64_t kRowsAtOnce = 64;
  const Geometry at(piece, source);
  const int64_t width = at.own.columns, rows = at.own.rows;
  const bool by_rows = !at.transpose && at.column.whole();
  while (n > 0) {
    const int64_t c = begin % width, r = begin / width % rows, batch = begin / width / rows;
    const char* const from = data[static_cast<size_t>(at.stacked ? batch : 0)].data();
    int64_t copied;
    if (by_rows || c > 0 || n < width) {
      copied = std::min(width - c, n);
      if (by_rows) {
        std::memcpy(to, from + at.At(batch, r, c) * size, static_cast<size_t>(copied * size));
      } else {
        for (int64_t i = 0; i < copied; ++i) {
          std::memcpy(to + i * size, from + at.At(batch, r, c + i) * size,
                      static_cast<size_t>(size));
        }
      }
    } else {
      const int64_t whole = std::min({n / width, rows - r, kRowsAtOnce});
      size == 2 ? CopyRows<2>(at, from, batch, r, whole, to)
                : CopyRows<4>(at, from, batch, r, whole, to);
      copied = whole * width;
    }
    begin += copied;
    n -= copied;
    to += copied * size;
  }
}

void ScatterPiece(const TensorPiece& piece, const Shape& source, int64_t number, const float* from,
                  float* to) {
  const Geometry at(piece, source);
  const int64_t each = at.own.rows * at.own.columns;
  const int64_t first = at.stacked ? number : 0, last = at.stacked ? number + 1 : at.own.batch;
  for (int64_t batch = first; batch < last; ++batch) {
    for (int64_t r = 0; r < at.own.rows; ++r) {
      for (int64_t c = 0; c < at.own.columns; ++c) {
        to[at.At(batch, r, c)] = from[batch * each + r * at.own.columns + c];
      }
    }
  }
}

int64_t CountNonFinite(absl::string_view dtype, absl::string_view data) {
  // NaN and infinity have all bits of the exponent set.
  const bool is_f32 = dtype == "F32";
  const uint16_t exponent = dtype == "F16" ? 0x7c00 : 0x7f80;
  const size_t size = is_f32 ? 4 : 2;
  int64_t count = 0;
  // bf16 is the upper half of f32.
  for (size_t at = is_f32 ? 2 : 0; at + 2 <= data.size(); at += size) {
    uint16_t bits;
    std::memcpy(&bits, data.data() + at, sizeof(bits));
    count += (bits & exponent) == exponent ? 1 : 0;
  }
  return count;
}

double ElementAt(absl::string_view dtype, absl::string_view data, int64_t i) {
  const auto at = static_cast<size_t>(i);
  if (dtype == "F32") {
    float value;
    std::memcpy(&value, data.data() + 4 * at, sizeof(value));
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, data.data() + 2 * at, sizeof(bits));
  if (dtype == "BF16") return FloatFromBf16(bits);
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  if (dtype != "F16" || exponent == 31) return std::numeric_limits<double>::quiet_NaN();
  const double size = std::ldexp((exponent > 0 ? 1024 : 0) + mantissa, std::max(exponent, 1) - 25);
  return (bits & 0x8000) != 0 ? -size : size;
}

}  // namespace plumb
