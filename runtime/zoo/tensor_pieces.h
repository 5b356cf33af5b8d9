// SPDX-License-Identifier: Apache-2.0
// TensorPiece: mapping between a tensor of plumb and tensors of a checkpoint: a whole tensor,
// possibly transposed, some of its rows or columns, or several tensors, stacked. A value.
#ifndef PLUMB_RUNTIME_ZOO_TENSOR_PIECES_H_
#define PLUMB_RUNTIME_ZOO_TENSOR_PIECES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "runtime/base/tensor_type.h"

namespace plumb {

// Selection of an axis: it is split into `groups` equal groups, and `count` elements from `first`
// are taken from each. A count of -1 takes all.
struct AxisSlice {
  int64_t groups = 1, first = 0, count = -1;

  bool all() const { return count < 0; }
};

// A tensor of rank 1 to 3 as matrices [batch][rows][columns]. A vector is one column.
struct MatrixDims {
  int64_t batch = 1, rows = 1, columns = 1;
};
MatrixDims GetDims(const Shape& shape);

struct TensorPiece {
  std::string name;                  // name in plumb
  Shape shape;                       // shape in plumb
  std::vector<std::string> sources;  // names in the checkpoint, which export writes; one per expert
  std::string older;                 // name of the single source in older files; "": the same
  bool transpose = false;
  bool depthwise = false;      // the source is [rows, 1, columns] with its columns reversed
  int64_t flat_rows = 0;       // not 0: rows of a matrix that becomes a vector, or several matrices
  AxisSlice rows, columns;     // parts of the source after transposition
  std::optional<double> fill;  // value of a tensor without a source

  bool stacked() const { return sources.size() > 1; }
  // Returns "" if a source of this shape yields plumb's shape, otherwise a description of the
  // mismatch.
  std::string WhyNot(const Shape& source) const;
  // Returns the offset in the source if the piece's elements are contiguous there, otherwise -1.
  // Requires: WhyNot(source) is "".
  int64_t ContiguousFrom(const Shape& source) const;
};

// Copies elements [begin, begin + n) of plumb's tensor, `size` (2 or 4) bytes each, from its
// sources, which need not be aligned. Requires: WhyNot(source) is "", where all sources have shape
// `source`.
void CopyPiece(const TensorPiece& piece, const Shape& source,
               absl::Span<const absl::string_view> data, int64_t size, int64_t begin, int64_t n,
               char* to);

// Returns the number of NaN or infinite elements. `dtype`: "F32", "BF16" or "F16".
int64_t CountNonFinite(absl::string_view dtype, absl::string_view data);
// Returns element i of a tensor of F32, F16 or BF16; NaN for another type.
double ElementAt(absl::string_view dtype, absl::string_view data, int64_t i);

// Inverse of CopyPiece for f32: writes the elements of plumb's tensor to their places in source
// `number`. Requires: WhyNot(source) is ""; `to` has the shape of the source.
void ScatterPiece(const TensorPiece& piece, const Shape& source, int64_t number, const float* from,
                  float* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_PIECES_H_
