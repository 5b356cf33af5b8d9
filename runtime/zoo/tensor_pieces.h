// SPDX-License-Identifier: Apache-2.0
// TensorPiece: how the elements of one of plumb's tensors lie in tensors of a checkpoint: the whole
// of one, transposed or not; some of its rows or columns; or those of several, stacked. A value.
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

// Of an axis that is cut into `groups` of equal size, the `count` elements from `first` of each. A
// count of -1: all.
struct AxisPart {
  int64_t groups = 1, first = 0, count = -1;

  bool all() const { return count < 0; }
};

// The matrices that a tensor of rank 1 to 3 is: [batch][rows][columns]; a vector is one column.
struct MatrixDims {
  int64_t batch = 1, rows = 1, columns = 1;
};
MatrixDims DimsOf(const Shape& shape);

struct TensorPiece {
  std::string name;                  // plumb's
  Shape shape;                       // plumb's
  std::vector<std::string> sources;  // the checkpoint's, as export writes them; one an expert
  std::string older;                 // the one source's name in older files; "": the same
  bool transpose = false;
  int64_t flat_rows = 0;       // not 0: the source is a matrix of so many rows, plumb's a vector
  AxisPart rows, columns;      // of the source, after it was transposed
  std::optional<double> fill;  // of a tensor without a source

  bool stacked() const { return sources.size() > 1; }
  // Whether a source of this shape gives plumb's: "" or what it would give.
  std::string WhyNot(const Shape& source) const;
  // Where the piece's elements lie one after the other in its source, from this element; -1: they
  // do not. REQUIRES: WhyNot(source) is "".
  int64_t ContiguousFrom(const Shape& source) const;
};

// Copies elements [begin, begin + n) of plumb's tensor, `size` bytes each, from its sources, which
// may lie at any address. REQUIRES: WhyNot(source) is "", and so for all of them.
void CopyPiece(const TensorPiece& piece, const Shape& source,
               absl::Span<const absl::string_view> data, int64_t size, int64_t begin, int64_t n,
               char* to);

// Counts the elements that are NaN or infinite; dtype: "F32", "BF16", "F16".
int64_t CountNonFinite(absl::string_view dtype, absl::string_view data);

// The inverse for f32: writes plumb's tensor where its elements lie in the source `number`.
// REQUIRES: as CopyPiece; `to` has the source's shape.
void ScatterPiece(const TensorPiece& piece, const Shape& source, int64_t number, const float* from,
                  float* to);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_ZOO_TENSOR_PIECES_H_
