#include "runtime/kernels/gemm/matmul_cut.h"

#include <algorithm>

#include "runtime/base/divide.h"

namespace plumb {
namespace {

Range Part(int64_t size, int64_t unit, int64_t parts, int64_t i) {
  const Range units = TaskRange(CeilDiv(size, unit), parts, i);
  return {units.begin * unit, std::min(size, units.end * unit)};
}

// The largest of `parts` parts, relative to their mean.
double Unevenness(int64_t units, int64_t parts) {
  return static_cast<double>(CeilDiv(units, parts) * parts) / static_cast<double>(units);
}

}  // namespace

Range Grid::Rows(const CutShape& shape, int64_t i) const {
  return Part(shape.m, shape.tile_rows, rows, i);
}

Range Grid::Columns(const CutShape& shape, int64_t i) const {
  return Part(shape.n, shape.panel, columns, i);
}

int64_t WantedTasks(const CutShape& shape) {
  // One for each 2^21 multiply-adds, but two from 2^20 (some 8 us) on; kMaxTasks at most.
  const int64_t work = shape.m * shape.n * shape.k;
  return work < (1 << 20) ? 1 : std::clamp<int64_t>(work >> 21, 2, kMaxTasks);
}

Grid CutToGrid(const CutShape& shape) {
  const int64_t wanted = WantedTasks(shape);
  Grid best;
  if (wanted == 1) return best;
  // Clock cycles, as measured with two f32 vectors of 512 bits a cycle: a multiply-add is 1/32 of
  // one, packing an element a quarter, with a transposition half a one. Rows of a that are read in
  // place are read from further away.
  const double m = static_cast<double>(shape.m), n = static_cast<double>(shape.n);
  const double pack_a = shape.transpose_a ? 0.25 : 0.03, pack_b = shape.transpose_b ? 0.5 : 0.25;
  const int64_t row_units = CeilDiv(shape.m, shape.tile_rows);
  const int64_t column_units = CeilDiv(shape.n, shape.panel);
  double least = 0;
  for (int64_t columns = 1; columns <= std::min(wanted, column_units); ++columns) {
    const int64_t rows = std::min(CeilDiv(wanted, columns), row_units);
    // A task of few rows packs columns for little use.
    const double cost =
        m * n / 32 * Unevenness(row_units, rows) * Unevenness(column_units, columns) +
        n * pack_b * static_cast<double>(rows) + m * pack_a * static_cast<double>(columns);
    if (columns == 1 || cost < least) {
      least = cost;
      best = {rows, columns};
    }
  }
  return best;
}

std::vector<TermBlock> CutTerms(int64_t k, int64_t unit_terms) {
  const int64_t units = CeilDiv(k, unit_terms);
  const int64_t parts = CeilDiv(units, kMaxBlockUnits);
  std::vector<TermBlock> blocks;
  for (int64_t i = 0; i < parts; ++i) {
    const Range range = TaskRange(units, parts, i);
    const int64_t k0 = range.begin * unit_terms;
    blocks.push_back({k0, std::min(k, range.end * unit_terms) - k0});
  }
  return blocks;
}

std::vector<TermBlock> CutTermsInHalves(int64_t k, int64_t unit_terms) {
  const int64_t first = (CeilDiv(k, unit_terms) + 1) / 2 * unit_terms;
  return {{0, first}, {first, k - first}};
}

}  // namespace plumb
