// How a large product is cut: functions of its shape alone, so that results do not depend on the
// number of threads. Pure.
#ifndef PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_CUT_H_
#define PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_CUT_H_

#include <cstdint>
#include <vector>

#include "runtime/base/parallel.h"

namespace plumb {

// The shape of a product; k counts terms, not packed units.
struct CutShape {
  int64_t m, n, k;
  bool transpose_a, transpose_b;
  int64_t tile_rows, panel;  // rows are cut at multiples of the one, columns of the other
};

// Blocks of rows and columns, each a task for one thread.
struct Grid {
  int64_t rows = 1, columns = 1;

  Range Rows(const CutShape& shape, int64_t i) const;     // 0 <= i < rows
  Range Columns(const CutShape& shape, int64_t i) const;  // 0 <= i < columns
};

// How many tasks are worth their start: a few more than threads balance the load, too many pack
// operands too often.
int64_t WantedTasks(const CutShape& shape);

// The grid of about WantedTasks that costs least, each task packing what it needs by itself.
Grid CutToGrid(const CutShape& shape);

// A range of the terms of a sum whose operands are packed at a time.
struct TermBlock {
  int64_t k0, terms;
};
// Equal parts of at most kMaxBlockUnits units of `unit_terms` terms: a panel of b and a tile's rows
// of a stay in the caches.
inline constexpr int64_t kMaxBlockUnits = 768;
std::vector<TermBlock> CutTerms(int64_t k, int64_t unit_terms);
// Two halves, of whole units; the first is the longer one. k is more than a unit.
std::vector<TermBlock> CutTermsInHalves(int64_t k, int64_t unit_terms);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_KERNELS_GEMM_MATMUL_CUT_H_
