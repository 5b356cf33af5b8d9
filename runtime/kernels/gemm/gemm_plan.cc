// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernels/gemm/gemm_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/divide.h"
#include "runtime/kernels/gemv/gemv.h"

namespace plumb {
namespace {

// KC block for widened operands: both and the block of sums stay in an L2 cache of 1 MiB.
constexpr int64_t kWidenedTerms = 384;

// Register tile of oneDNN's AVX-512 kernel, 8 rows by 48 columns; the tiles of others divide it.
constexpr int64_t kRowUnit = 8, kColumnUnit = 48;
constexpr int64_t kTileUnit = 32;  // rows and columns of the tiles that AMX multiplies together
// Minimum size of a block: in smaller ones, packing dominates.
constexpr int64_t kMinRows = 48, kMinColumns = 48;

// Returns true if packing a transposed b is cheap for the small engine: b is usually in a cache, or
// there are many rows. Otherwise its packing does not overlap with multiplication, and oneDNN is
// faster: on Zen 5, prompts of 512 tokens of GPT-2 took 1.10 of oneDNN's time. Zen 4 multiplies at
// half the rate, so packing costs relatively less; but rows of a of 12 KiB map to few L1 sets,
// which costs the small engine a tenth.
bool PacksForLittle(const GemmShape& s, const GemmProcessor& processor) {
  if (s.n > 1536) return false;
  if (processor.IsZen4()) return s.k <= 1536 && s.n * s.k <= (1 << 20);
  return s.n * s.k <= (1 << 18) || s.m >= 1024;
}

// Below this work, the small engine is faster on every processor.
constexpr int64_t kMinWork = int64_t{1} << 14;
constexpr int64_t kMinTilesWork = int64_t{1} << 15;

// Chooses by a table measured with bench/gemm_benchmark on Zen 4, Zen 5 and an Emerald Rapids. A
// call of oneDNN costs half a microsecond and packs both operands; the small engine packs only a
// transposed b, and faster.
GemmEngine ChooseEngine(const GemmShape& s, const GemmPolicy& policy) {
  const auto onednn = [&policy] {
    return policy.library().usable() ? GemmEngine::kOneDnn : GemmEngine::kSmall;
  };
  if (policy.choice == GemmChoice::kOneDnn) return onednn();
  // Decides small products first, since policy.library() would load oneDNN.
  if (policy.choice == GemmChoice::kSmall || s.work() < kMinWork) return GemmEngine::kSmall;
  // A product that is no GEMV, since the matrix is small, has the same bits for any few rows too.
  const bool few = !s.transpose_a && s.transpose_b && s.m <= kMaxGemvRows;
  if (few && !UseGemv(s.m, s.n, s.k)) return GemmEngine::kSmall;
  int64_t min = 0;  // minimum work for which oneDNN is faster
  if (s.operands == DType::kBF16 && policy.MultipliesBf16()) {
    // Emerald Rapids: oneDNN 2.6 takes 1.0 to 1.8 of the time, but 0.8 for few weights and many
    // rows.
    if (policy.UsesTiles())
      return s.work() < kMinTilesWork ? GemmEngine::kSmall : GemmEngine::kTiles;
    min = int64_t{1} << 17;  // the small engine widens, at half the rate
    // Zen 4: 0.77 to 0.87 of the small engine's time.
    if (policy.processor.IsZen4() && !s.transpose_a) min = kMinWork;
  } else if (!policy.processor.IsAmd()) {
    min = int64_t{1} << 21;  // Intel: 0.95 to 0.99 of the small engine's time at 2^23 and 2^24
  } else if (s.transpose_b && PacksForLittle(s, policy.processor)) {
    min = int64_t{1} << 32;  // Zen 5: 1.00 to 1.14 of the small engine's time up to 2^31
  } else {
    min = int64_t{1} << 24;  // Zen 5: 1.01 to 1.13 at 2^20 to 2^24, 0.8 to 1.0 above
  }
  return s.work() < min ? GemmEngine::kSmall : onednn();
}

// Returns the number of threads that an op is partitioned for, whatever their actual number. There
// are few tasks, since each packs its own operands, and more for larger products.
int64_t WantedTasks(int64_t work) {
  struct Row {
    int64_t work;
    int64_t tasks;
  };
  constexpr Row kRows[] = {{int64_t{1} << 36, 64}, {int64_t{1} << 35, 32}, {int64_t{1} << 33, 16},
                           {int64_t{1} << 31, 8},  {int64_t{1} << 25, 4},  {kMaxSerialWork, 2}};
  for (const Row& row : kRows) {
    if (work >= row.work) return row.tasks;
  }
  return 1;
}

// Returns the size of the largest of `parts` parts, relative to their mean.
double Unevenness(int64_t units, int64_t parts) {
  return static_cast<double>(CeilDiv(units, parts) * parts) / static_cast<double>(units);
}

// Clock cycles of packing an element, which each task does for its block; a multiply-add takes
// 1/32. Fitted to oneDNN's sgemm on Zen 5. Rows whose size is a multiple of 4 KiB map to few L1
// sets.
struct PackingCost {
  double a, b;

  PackingCost(const GemmShape& s, bool tiles) {
    a = b = 4;  // AMX multiplies sixteen times as fast
    if (tiles) return;
    const int64_t row_bytes_of_a = s.k * SizeOf(s.operands);
    a = s.transpose_a ? 0.3 : row_bytes_of_a % 4096 == 0 ? 1.7 : 0.5;
    b = s.transpose_b ? 1.1 : 0.3;
  }
};

// Chooses the grid with the lowest cost for `threads` threads.
void ChooseGrid(const GemmShape& s, int64_t threads, GemmPlan* plan) {
  const double m = static_cast<double>(s.m), n = static_cast<double>(s.n);
  const bool tiles = plan->engine == GemmEngine::kTiles;
  const PackingCost packing(s, tiles);
  plan->row_unit = tiles ? kTileUnit : kRowUnit;
  plan->column_unit = tiles ? kTileUnit : kColumnUnit;
  const int64_t row_units = CeilDiv(s.m, plan->row_unit);
  const int64_t column_units = CeilDiv(s.n, plan->column_unit);
  const int64_t max_rows = std::max<int64_t>(1, s.m / kMinRows);
  const int64_t max_columns = std::max<int64_t>(1, s.n / kMinColumns);
  double min = 0;
  for (int64_t rows = 1; rows <= std::min(max_rows, 2 * threads); ++rows) {
    for (int64_t columns = 1; columns <= max_columns && rows * columns <= 2 * threads; ++columns) {
      const double multiply =
          m * n / 32 * Unevenness(row_units, rows) * Unevenness(column_units, columns);
      const double pack =
          n * packing.b * static_cast<double>(rows) + m * packing.a * static_cast<double>(columns);
      const double cost = (multiply + pack) * Unevenness(rows * columns, threads);
      if (min == 0 || cost < min) {
        min = cost;
        plan->rows = rows;
        plan->columns = columns;
      }
    }
  }
}

Range Part(int64_t size, int64_t unit, int64_t parts, int64_t i) {
  const Range units = TaskRange(CeilDiv(size, unit), parts, i);
  return {std::min(size, units.begin * unit), std::min(size, units.end * unit)};
}

const char* EngineName(GemmEngine engine) {
  return engine == GemmEngine::kOneDnn  ? "oneDNN"
         : engine == GemmEngine::kSmall ? "small"
                                        : "tiles";
}

int64_t Largest(int64_t size, int64_t unit, int64_t parts) {
  int64_t largest = 0;
  for (int64_t i = 0; i < parts; ++i) {
    const Range range = Part(size, unit, parts, i);
    largest = std::max(largest, range.end - range.begin);
  }
  return largest;
}

}  // namespace

Range GemmPlan::GetRows(const GemmShape& shape, int64_t i) const {
  return Part(shape.m, row_unit, rows, i);
}

Range GemmPlan::GetColumns(const GemmShape& shape, int64_t j) const {
  return Part(shape.n, column_unit, columns, j);
}

int64_t GemmPlan::MaxRows(const GemmShape& shape) const { return Largest(shape.m, row_unit, rows); }

int64_t GemmPlan::MaxColumns(const GemmShape& shape) const {
  return Largest(shape.n, column_unit, columns);
}

std::string GemmPlan::ToString(const GemmShape& s) const {
  std::string text = absl::StrCat(EngineName(engine), " ", DTypeName(s.operands),
                                  widens ? " widened to f32" : "", " ", s.m, "x", s.n, "x", s.k);
  if (tasks() > 1) {
    absl::StrAppend(&text, ": ", rows, "x", columns, " blocks of ", MaxRows(s), "x", MaxColumns(s));
  }
  if (widens) absl::StrAppend(&text, ", ", std::min(k_block, s.k), " terms widened at a time");
  if (engine != GemmEngine::kSmall) absl::StrAppend(&text, ", packed by each task");
  return text;
}

GemmPlan PlanGemm(const GemmShape& shape, const GemmPolicy& policy) {
  GemmPlan plan;
  plan.engine = ChooseEngine(shape, policy);
  plan.widens = shape.operands == DType::kBF16 &&
                (plan.engine == GemmEngine::kSmall || !policy.MultipliesBf16());
  if (plan.widens) plan.k_block = kWidenedTerms;
  if (shape.work() >= kMaxSerialWork) ChooseGrid(shape, WantedTasks(shape.work()), &plan);
  return plan;
}

}  // namespace plumb
