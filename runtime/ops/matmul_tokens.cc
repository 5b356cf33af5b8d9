// A product over tokens, as the gradient of a weight matrix is one: out = a^T b with a [k, m] and
// b [k, n], both of them activations.
//
// Both operands have to be packed, and where there are many tokens they are large: read with
// nothing else to do, they cost a tenth of the product. So one is packed for all threads, and the
// other, the wide one, by the products themselves, panel by panel, while its first tile is
// multiplied (PanelArgs::b_rows); large ones are asked for before, while the panels ahead of them
// are multiplied. Where a is the wide one, the sums are those of b^T a, and turned at the end.
//
// The thread that made a token's row of one operand made it of the other, as ops of activations are
// cut by rows. Cut by columns of the result, each thread reads rows that others made, through the
// cache they share, or from another cache where they share none. So the terms of small results are
// summed in two halves: each thread reads its own rows, and only one sum of each result is handed
// over.
#include <algorithm>
#include <memory>
#include <vector>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/kernels/gemm/matmul_cut.h"
#include "runtime/kernels/gemm/matmul_kernels.h"
#include "runtime/ops/matmul_product.h"
#include "runtime/ops/scratch_workers.h"

namespace plumb {
namespace {

constexpr int64_t kLeastTerms = 256;    // of a product whose terms are summed in halves
constexpr int64_t kMaxSums = 1 << 16;   // results of one: 256 KiB, which cost little to hand over
constexpr int64_t kGroupPanels = 2;     // that read a slab while it is in the second-level cache
constexpr int64_t kMaxUnits = 1 << 22;  // packed for all threads: 16 MiB, in the last cache
// Panels of rows further apart than this, as those of a large vocabulary's logits, are read too
// slowly: each row from a page of its own.
constexpr int64_t kMaxWide = 1 << 14;

// How a product over tokens is cut.
struct TokensCut {
  struct Operand {
    int index;  // of the kernel's inputs
    int64_t ld, size;
  };
  CutShape shape;
  bool halves;   // the terms are summed in two halves
  bool swapped;  // a is the wide one
  Operand packed, wide;

  // Of a product of one result with one term.
  TokensCut(const ProductSpec& spec, const MatmulKernels& kernels)
      : shape{spec.m,
              spec.results[0].n,
              spec.results[0].terms[0].k,
              true,
              false,
              kernels.tile_rows,
              kernels.panel},
        halves(SumsInHalves(shape)),
        // Turning sums around costs as much as packing in a bf16 product, which is over in half the
        // time.
        swapped(spec.operands == DType::kF32 && shape.m > shape.n) {
    const ProductTerm& term = spec.results[0].terms[0];
    const Operand a{term.a, term.lda, shape.m}, b{term.b, term.ldb, shape.n};
    packed = swapped ? b : a;
    wide = swapped ? a : b;
  }

  // Two sums a result pay where the m n sums that are handed over are fewer than the half of the
  // operands' k (m + n) elements that would be.
  static bool SumsInHalves(const CutShape& s) {
    return s.k >= kLeastTerms && s.m * s.n <= kMaxSums && 2 * s.m * s.n <= s.k * (s.m + s.n);
  }

  // Whether it is quicker than what MakeProductKernel tries next.
  bool IsWorthIt(const MatmulKernels& kernels) const {
    if (WantedTasks(shape) == 1) return false;
    return halves || (packed.size <= wide.size && wide.size <= kMaxWide &&
                      kernels.Units(shape.k) * packed.size <= kMaxUnits);
  }
};

class TokensProduct : public Kernel {
 public:
  TokensProduct(const ProductSpec& spec, const MatmulKernels& kernels, const TokensCut& cut)
      : cut_(cut),
        result_(spec.results[0]),
        kernels_(kernels),
        turn_(SelectMatmulKernels(DType::kF32).pack_b_transposed),
        store_(SelectFinish(FinishKind::kStore, spec.activation, DType::kF32)),
        add_(SelectFinish(FinishKind::kAdd, spec.activation, DType::kF32)),
        element_(SizeOf(spec.operands)) {
    const CutShape& shape = cut_.shape;
    if (cut_.halves) {
      for (const TermBlock& half : CutTermsInHalves(shape.k, kernels_.unit_terms)) AddPart(half);
    } else {
      AddPart({0, shape.k});
    }
    is_far_ = shape.k * (shape.m + shape.n) * element_ >= kLeastFarBytes;
    // A thread's own rows of a few columns are near.
    in_place_ = parts() > 1 && kernels_.a_transposed_in_place;
    slabs_ = CeilDiv(cut_.packed.size, kSlabRows);
    group_columns_ = std::min(cut_.wide.size, kGroupPanels * kernels_.panel);
    groups_ = CeilDiv(cut_.wide.size, group_columns_);
    if (!in_place_) packed_floats_ = AlignFloats(cut_.packed.size * units_);
    if (parts() > 1) second_floats_ = AlignFloats(spec.m * result_.n);
    panel_floats_ = AlignFloats(kernels_.panel * std::min(units_, kMaxBlockUnits));
    panels_floats_ = kGroupPanels * panel_floats_;
    if (cut_.swapped) {
      turned_width_ = kernels_.Width(cut_.packed.size);
      panels_floats_ = std::max(panels_floats_, AlignFloats(turned_width_ * group_columns_));
    }
    const int64_t sum_floats = cut_.swapped ? AlignFloats(cut_.packed.size * group_columns_) : 0;
    workers_ = std::make_unique<ScratchWorkers>(parts() * groups_, shape.m * shape.n * shape.k,
                                                (panels_floats_ + sum_floats) * kFloat);
  }

  int64_t scratch_bytes() const override {
    return SharedFloats() * kFloat + workers_->scratch_bytes();
  }

  absl::Status Run(const KernelArgs& args) const override {
    float* const packed = static_cast<float*>(args.scratch);
    float* const second = packed + parts() * packed_floats_;
    if (!in_place_) Pack(args, packed);
    KernelArgs rest = args;
    rest.scratch = packed + SharedFloats();
    workers_->Run(rest, [&](int64_t item, int64_t next, float* scratch) {
      const int64_t part = item / groups_;
      float* out = part == 0 ? args.out_f32(static_cast<size_t>(result_.out)) : second;
      MultiplyGroup(args, item, next, packed + part * packed_floats_, out, scratch);
    });
    if (parts() > 1) AddSecond(args, second);
    return absl::OkStatus();
  }

 private:
  static constexpr int64_t kFloat = SizeOf(DType::kF32);
  using Operand = TokensCut::Operand;

  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  int64_t SharedFloats() const { return parts() * packed_floats_ + second_floats_; }
  const void* Element(const KernelArgs& args, const Operand& operand, int64_t row,
                      int64_t column) const {
    return static_cast<const char*>(args.in[operand.index]) +
           (row * operand.ld + column) * element_;
  }

  void AddPart(const TermBlock& part) {
    std::vector<TermBlock> blocks = CutTerms(part.terms, kernels_.unit_terms);
    int64_t units = 0;
    for (TermBlock& block : blocks) {
      block.k0 += part.k0;
      units += kernels_.Units(block.terms);
    }
    units_ = std::max(units_, units);
    most_blocks_ = std::max(most_blocks_, static_cast<int64_t>(blocks.size()));
    parts_.push_back(std::move(blocks));
  }

  // One operand to tiles: slab by slab of each block of terms.
  void Pack(const KernelArgs& args, float* packed) const {
    ParallelFor(parts() * most_blocks_ * slabs_, args.threads, [&](int64_t i) {
      const auto& blocks = parts_[static_cast<size_t>(i / (most_blocks_ * slabs_))];
      const size_t at = static_cast<size_t>(i / slabs_ % most_blocks_);
      if (at >= blocks.size()) return;
      const Range rows = TaskRange(cut_.packed.size, slabs_, i % slabs_);
      float* to = packed + i / (most_blocks_ * slabs_) * packed_floats_;
      for (size_t before = 0; before < at; ++before) {
        to += cut_.packed.size * kernels_.Units(blocks[before].terms);
      }
      to += rows.begin * kernels_.Units(blocks[at].terms);
      kernels_.pack_a_transposed({args.in[cut_.packed.index], cut_.packed.ld, blocks[at].k0,
                                  blocks[at].terms, rows.begin, rows.end - rows.begin, to, 0});
    });
  }

  // The columns of the wide operand that an item reads in a block of terms.
  RowsToCome ToPack(const KernelArgs& args, int64_t item, size_t at) const {
    const TermBlock& block = parts_[static_cast<size_t>(item / groups_)][at];
    const int64_t first = item % groups_ * group_columns_;
    return RowsToCome(Element(args, cut_.wide, block.k0, first), cut_.wide.ld * element_,
                      std::min(group_columns_, cut_.wide.size - first) * element_, block.terms);
  }

  // An item's sums of one part of the terms, for some columns of the wide operand, to their place
  // in `out`. `next`: the item after it, or -1.
  void MultiplyGroup(const KernelArgs& args, int64_t item, int64_t next, const float* packed,
                     float* out, float* panels) const {
    const int64_t part = item / groups_, first = item % groups_ * group_columns_;
    const float* const operand = part == 0 && result_.operand >= 0
                                     ? args.f32(static_cast<size_t>(result_.operand))
                                     : nullptr;
    PanelArgs g;
    g.tiled = true;
    g.start = nullptr;
    float* const sums = cut_.swapped ? panels + panels_floats_ : out + first;
    g.ldc = cut_.swapped ? group_columns_ : result_.n;
    // Sums begin from what they are added to, unless they are yet to be turned.
    const float* from = cut_.swapped || operand == nullptr ? nullptr : operand + first;
    const int64_t columns = std::min(group_columns_, cut_.wide.size - first);
    const std::vector<TermBlock>& blocks = parts_[static_cast<size_t>(part)];
    const int64_t passes = slabs_ * CeilDiv(columns, kernels_.panel);
    for (size_t at = 0; at < blocks.size(); ++at) {
      const TermBlock& block = blocks[at];
      RowsToCome to_come;
      if (is_far_) {
        if (at + 1 < blocks.size()) {
          to_come = ToPack(args, item, at + 1);
        } else if (next >= 0) {
          to_come = ToPack(args, next, 0);
        }
        g.to_come = &to_come;
        g.lines = CeilDiv(to_come.lines(), passes);
      }
      g.units = kernels_.Units(block.terms);
      const bool packs = kernels_.packs_b && block.terms % kernels_.unit_terms == 0;
      for (int64_t slab = 0; slab < slabs_; ++slab) {
        const Range rows = TaskRange(cut_.packed.size, slabs_, slab);
        g.rows = rows.end - rows.begin;
        g.a = in_place_
                  ? static_cast<const float*>(Element(args, cut_.packed, block.k0, rows.begin))
                  : packed + rows.begin * g.units;
        g.lda = in_place_ ? cut_.packed.ld : 0;
        for (int64_t column = 0; column < columns; column += kernels_.panel) {
          g.columns = std::min(kernels_.panel, columns - column);
          g.width = kernels_.Width(g.columns);
          g.packs = panels + column / kernels_.panel * panel_floats_;
          g.b = g.packs;
          g.b_rows = nullptr;
          if (slab == 0 && packs) {
            g.b_rows = Element(args, cut_.wide, block.k0, first + column);
            g.ld_rows = cut_.wide.ld;
          } else if (slab == 0) {
            kernels_.pack_b({args.in[cut_.wide.index], cut_.wide.ld, block.k0, block.terms,
                             first + column, g.columns, g.packs, g.width});
          }
          g.c = sums + rows.begin * g.ldc + column;
          g.from = from == nullptr ? nullptr : from + rows.begin * g.ldc + column;
          kernels_.multiply(g);
        }
      }
      packed += cut_.packed.size * g.units;
      from = sums;
    }
    if (cut_.swapped) Turn(sums, columns, operand, first, panels, out);
  }

  // Sums [packed size, columns] to rows of `out` from the `first` on, `operand` added.
  void Turn(const float* sums, int64_t columns, const float* operand, int64_t first, float* turned,
            float* out) const {
    PackArgs turn;
    turn.from = sums;
    turn.ld = group_columns_;
    turn.k0 = 0;
    turn.terms = columns;
    turn.first = 0;
    turn.count = cut_.packed.size;
    turn.to = turned;
    turn.width = turned_width_;
    turn.asks = false;  // they were just written
    turn_(turn);
    FinishArgs f{};
    f.rows = columns;
    f.columns = cut_.packed.size;
    f.sum = turned;
    f.ld_sum = turned_width_;
    f.ld = result_.n;
    f.out = out + first * result_.n;
    if (operand != nullptr) f.operand = operand + first * result_.n;
    (operand != nullptr ? add_ : store_)(f);
  }

  // The second half's sums to those of the first.
  void AddSecond(const KernelArgs& args, const float* second) const {
    float* const out = args.out_f32(static_cast<size_t>(result_.out));
    const int64_t results = cut_.packed.size * cut_.wide.size;
    const int64_t tasks = TaskCount(results, results);
    ParallelFor(tasks, args.threads, [&](int64_t i) {
      const Range range = TaskRange(results, tasks, i);
      FinishArgs f{};
      f.rows = 1;
      f.columns = range.end - range.begin;
      f.sum = second + range.begin;
      f.operand = f.out = out + range.begin;
      add_(f);
    });
  }

  TokensCut cut_;
  ProductResult result_;
  MatmulKernels kernels_;
  decltype(MatmulKernels::pack_b_transposed) turn_;
  FinishFn store_, add_;
  int64_t element_;                            // bytes
  std::vector<std::vector<TermBlock>> parts_;  // one or two, each in blocks
  int64_t units_ = 0, most_blocks_ = 0;        // of the longer part
  bool is_far_ = false;                        // kLeastFarBytes, of both operands
  bool in_place_ = false;                      // packed_ need not be packed
  int64_t slabs_ = 0;                          // of packed_
  int64_t groups_ = 0, group_columns_ = 0;     // of wide_
  int64_t turned_width_ = 0;                   // of sums that are turned
  int64_t packed_floats_ = 0;                  // of scratch: of cut_.packed, for one part
  int64_t second_floats_ = 0;                  // of scratch: of the second part's sums
  int64_t panel_floats_ = 0;                   // of scratch: of one panel
  int64_t panels_floats_ = 0;  // of scratch: of a group's panels, or of its sums when turned
  std::unique_ptr<ScratchWorkers> workers_;
};

}  // namespace

std::unique_ptr<Kernel> MakeTokensProduct(const ProductSpec& spec) {
  if (!spec.transpose_a || spec.transpose_b || spec.out != DType::kF32 ||
      spec.results.size() != 1) {
    return nullptr;
  }
  const ProductResult& result = spec.results[0];
  if (result.terms.size() != 1 || result.bias >= 0) return nullptr;
  if (spec.finish != FinishKind::kStore && spec.finish != FinishKind::kAdd) return nullptr;
  const MatmulKernels kernels = SelectMatmulKernels(spec.operands);
  const TokensCut cut(spec, kernels);
  if (!cut.IsWorthIt(kernels)) return nullptr;
  return std::make_unique<TokensProduct>(spec, kernels, cut);
}

}  // namespace plumb
