// A product over tokens, as the gradient of a weight matrix is one, whose terms are summed in two
// halves.
//
// Both operands are activations: the thread that made a token's row of one made it of the other,
// as ops of activations are cut by rows. Cut by columns of the result, each thread would read the
// rows that the other made, through the cache they share, or from another cache where they share
// none. Cut by terms, each reads its own rows, and only one sum of each result is handed over.
#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_cut.h"
#include "runtime/ops/matmul_kernels.h"
#include "runtime/ops/matmul_product.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/ops/matmul_halves.cc"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace plumb {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

// to += from.
void AddTo(const float* HWY_RESTRICT from, int64_t count, float* HWY_RESTRICT to) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Add(hn::LoadU(d, to + i), hn::LoadU(d, from + i)), d, to + i);
  }
  for (; i < count; ++i) to[i] += from[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace plumb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace plumb {
namespace {

HWY_EXPORT(AddTo);

constexpr int64_t kLeastTerms = 256;   // of a product that is worth two sums of each result
constexpr int64_t kMaxSums = 1 << 16;  // of a half: 256 KiB, that cost little to hand over
constexpr int64_t kHalves = 2;

class HalvesProduct : public Kernel {
 public:
  explicit HalvesProduct(const ProductSpec& spec)
      : spec_(spec),
        result_(spec.results[0]),
        term_(result_.terms[0]),
        kernels_(SelectMatmulKernels(spec.operands)),
        add_to_(HWY_DYNAMIC_DISPATCH(AddTo)),
        in_place_(kernels_.a_transposed_in_place && term_.lda <= kMaxColumnStride),
        b_in_place_(kernels_.b_in_place &&
                    term_.k * term_.ldb * SizeOf(spec.operands) / kHalves <= kMaxInPlaceBytes),
        shape_{spec.m, result_.n, term_.k, true, false, kernels_.tile_rows, kernels_.panel} {
    for (const TermBlock& half : CutTermsInHalves(term_.k, kernels_.unit_terms)) {
      blocks_.push_back(CutTerms(half.terms, kernels_.unit_terms));
      for (TermBlock& block : blocks_.back()) block.k0 += half.k0;
    }
    // Slabs that differ by little: 128 rows are better as 64 + 64 than as 126 + 2.
    slabs_ = (spec.m + kSlabRows - 1) / kSlabRows;
    // A task's panels of b are its own, so that nothing of b is packed twice.
    const int64_t panels = (result_.n + kernels_.panel - 1) / kernels_.panel;
    grid_.columns = std::min(panels, (WantedTasks(shape_) + kHalves - 1) / kHalves);
    int64_t units = 0;
    for (const TermBlock& block : blocks_[0]) units += kernels_.Units(block.terms);
    if (!in_place_) a_floats_ = AlignFloats(spec.m * units);
    b_floats_ = AlignFloats(kernels_.panel * std::min(units, kMaxBlockUnits));
    sum_floats_ = AlignFloats(spec.m * result_.n);
  }

  int64_t scratch_bytes() const override {
    return (sum_floats_ + kHalves * (a_floats_ + grid_.columns * b_floats_)) * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    float* const sums = static_cast<float*>(args.scratch);
    float* const packed_a = sums + sum_floats_;
    float* const packed_b = packed_a + kHalves * a_floats_;
    if (!in_place_) {
      ParallelFor(kHalves * slabs_, args.threads, [&](int64_t i) {
        const int64_t half = i / slabs_;
        const Range rows = TaskRange(spec_.m, slabs_, i % slabs_);
        float* to = packed_a + half * a_floats_;
        for (const TermBlock& block : blocks_[static_cast<size_t>(half)]) {
          const int64_t units = kernels_.Units(block.terms);
          kernels_.pack_a_transposed({args.in[term_.a], term_.lda, block.k0, block.terms,
                                      rows.begin, rows.end - rows.begin, to + rows.begin * units,
                                      0});
          to += spec_.m * units;
        }
      });
    }
    ParallelFor(kHalves * grid_.columns, args.threads, [&](int64_t i) {
      const int64_t half = i / grid_.columns;
      RunColumns(args, half, grid_.Columns(shape_, i % grid_.columns), packed_a + half * a_floats_,
                 packed_b + i * b_floats_, sums);
    });
    float* const out = args.out_f32(static_cast<size_t>(result_.out));
    const int64_t results = spec_.m * result_.n;
    const int64_t tasks = TaskCount(results, results);
    ParallelFor(tasks, args.threads, [&](int64_t i) {
      const Range range = TaskRange(results, tasks, i);
      add_to_(sums + range.begin, range.end - range.begin, out + range.begin);
    });
    return absl::OkStatus();
  }

 private:
  // One half of the terms, for some columns: the first to the result, the second to `sums`.
  void RunColumns(const KernelArgs& args, int64_t half, const Range& columns, const float* packed_a,
                  float* packed_b, float* sums) const {
    float* const to = half == 0 ? args.out_f32(static_cast<size_t>(result_.out)) : sums;
    PanelArgs g;
    g.tiled = true;
    g.start = nullptr;
    g.b = packed_b;
    g.ldc = result_.n;
    for (int64_t column = columns.begin; column < columns.end; column += kernels_.panel) {
      g.columns = std::min(kernels_.panel, columns.end - column);
      g.width = kernels_.Width(g.columns);
      if (half == 0) FetchAddend(args, column, g.columns);
      g.accumulate = half == 0 && result_.operand >= 0;
      const float* block_a = packed_a;
      for (const TermBlock& block : blocks_[static_cast<size_t>(half)]) {
        g.units = kernels_.Units(block.terms);
        if (b_in_place_) {
          g.b = args.f32(static_cast<size_t>(term_.b)) + block.k0 * term_.ldb + column;
          g.width = term_.ldb;
        } else {
          kernels_.pack_b({args.in[term_.b], term_.ldb, block.k0, block.terms, column, g.columns,
                           packed_b, g.width});
        }
        for (int64_t slab = 0; slab < slabs_; ++slab) {
          const Range rows = TaskRange(spec_.m, slabs_, slab);
          g.rows = rows.end - rows.begin;
          g.a = in_place_
                    ? args.f32(static_cast<size_t>(term_.a)) + block.k0 * term_.lda + rows.begin
                    : block_a + rows.begin * g.units;
          g.lda = in_place_ ? term_.lda : 0;
          g.c = to + rows.begin * result_.n + column;
          kernels_.multiply(g);
        }
        g.accumulate = true;
        block_a += spec_.m * g.units;
      }
    }
  }

  // What is to be added to comes first, as the beginning of the first half's sums.
  void FetchAddend(const KernelArgs& args, int64_t column, int64_t columns) const {
    if (result_.operand < 0 || args.in[result_.operand] == args.out[result_.out]) return;
    const float* from = args.f32(static_cast<size_t>(result_.operand)) + column;
    float* to = args.out_f32(static_cast<size_t>(result_.out)) + column;
    for (int64_t i = 0; i < spec_.m; ++i) {
      std::memcpy(to + i * result_.n, from + i * result_.n,
                  static_cast<size_t>(columns) * sizeof(float));
    }
  }

  ProductSpec spec_;
  ProductResult result_;
  ProductTerm term_;
  MatmulKernels kernels_;
  decltype(HWY_DYNAMIC_DISPATCH(AddTo)) add_to_;
  bool in_place_, b_in_place_;  // a, b are read where they are
  CutShape shape_;
  std::vector<std::vector<TermBlock>> blocks_;  // of each half
  Grid grid_;                                   // of a half: columns only
  int64_t slabs_ = 0;                           // of rows
  int64_t a_floats_ = 0;                        // scratch of a half,
  int64_t b_floats_ = 0;                        // of a task,
  int64_t sum_floats_ = 0;                      // and of all
};

}  // namespace

std::unique_ptr<Kernel> MakeHalvesProduct(const ProductSpec& spec) {
  if (!spec.transpose_a || spec.transpose_b || spec.out != DType::kF32 ||
      spec.results.size() != 1) {
    return nullptr;
  }
  const ProductResult& result = spec.results[0];
  if (result.terms.size() != 1 || result.bias >= 0) return nullptr;
  if (spec.finish != FinishKind::kStore && spec.finish != FinishKind::kAdd) return nullptr;
  const int64_t k = result.terms[0].k, sums = spec.m * result.n;
  // Handed over are sums instead of half of the operands' rows.
  if (k < kLeastTerms || sums > kMaxSums || 2 * sums > k * (spec.m + result.n)) return nullptr;
  const MatmulKernels kernels = SelectMatmulKernels(spec.operands);
  const CutShape shape{spec.m, result.n, k, true, false, kernels.tile_rows, kernels.panel};
  if (WantedTasks(shape) == 1) return nullptr;
  return std::make_unique<HalvesProduct>(spec);
}

}  // namespace plumb
#endif  // HWY_ONCE
