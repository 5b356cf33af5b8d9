// A product cut into blocks for several threads.
#include <algorithm>
#include <utility>

#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_cut.h"
#include "runtime/ops/matmul_kernels.h"
#include "runtime/ops/matmul_product.h"

namespace plumb {
namespace {

constexpr int64_t kSharedRows = 96;         // of a task, at least, where b is shared
constexpr int64_t kSharedTasks = 32;        // about as many, if they need not pack for it
constexpr int64_t kGroupColumns = 256;      // of b, beside them
constexpr int64_t kMaxSumFloats = 1 << 18;  // of a task that keeps partial sums
constexpr int64_t kSharedFloats = 5 << 19;  // of b, packed for all tasks: 10 MiB, in the last cache
constexpr int64_t kStripRows = 16;          // of b, packed into all panels before the next
constexpr int64_t kPieceBytes = 32 << 10;   // of b, packed by one task

// Whether sums are made in the result's own memory: those that nothing is done to at the end. An
// operand to be added comes first then, as the beginning of every sum.
bool MakesSumsInPlace(const ProductSpec& spec) {
  if (spec.out != DType::kF32) return false;
  return spec.finish == FinishKind::kStore ||
         (spec.finish == FinishKind::kAdd &&
          std::all_of(spec.results.begin(), spec.results.end(),
                      [](const ProductResult& result) { return result.bias < 0; }));
}

class BlockedMatmul : public Kernel {
 public:
  explicit BlockedMatmul(ProductSpec spec)
      : spec_(std::move(spec)),
        kernels_(SelectMatmulKernels(spec_.operands)),
        element_(SizeOf(spec_.operands)),
        out_element_(SizeOf(spec_.out)),
        direct_(MakesSumsInPlace(spec_)),
        finish_(SelectFinish(spec_.finish, spec_.activation, spec_.out)) {
    for (const ProductResult& result : spec_.results) {
      Plan plan;
      for (size_t t = 0; t < result.terms.size(); ++t) {
        for (const TermBlock& block : CutTerms(result.terms[t].k, kernels_.unit_terms)) {
          plan.blocks.push_back({t, block, InPlace(result.terms[t])});
          max_units_ = std::max(max_units_, kernels_.Units(block.terms));
          if (!plan.blocks.back().in_place) a_floats_ = 1;
        }
      }
      plans_.push_back(std::move(plan));
    }
    // Many rows are worth packing b for all tasks, unless a block of it is too large to stay in
    // the last cache; then each task packs its own columns.
    shared_ = plans_.size() == 1 && spec_.m >= (spec_.transpose_a ? 64 : 256) &&
              WantedTasks(Shape(0)) > 1 &&
              kernels_.Width(spec_.results[0].n) * max_units_ <= kSharedFloats;
    b_in_place_ =
        shared_ && kernels_.b_in_place && !spec_.transpose_b && BytesOfB() <= kMaxInPlaceBytes;
    shared_ ? PlanSharing() : PlanTasks();
  }

  int64_t scratch_bytes() const override {
    const int64_t tasks =
        shared_ ? grid_.rows * grid_.columns : static_cast<int64_t>(tasks_.size());
    return (shared_floats_ + tasks * TaskFloats()) * SizeOf(DType::kF32);
  }

  absl::Status Run(const KernelArgs& args) const override {
    if (shared_) {
      RunShared(args);
    } else {
      ParallelFor(static_cast<int64_t>(tasks_.size()), args.threads,
                  [&](int64_t i) { RunTask(args, i); });
    }
    return absl::OkStatus();
  }

 private:
  struct Block {
    size_t term;
    TermBlock range;
    bool in_place;  // a is read where it is
  };
  struct Plan {  // of a result
    std::vector<Block> blocks;
  };
  struct Task {
    size_t result;
    Range rows, columns;
  };

  CutShape Shape(size_t result) const {
    const ProductResult& r = spec_.results[result];
    int64_t k = 0;
    for (const ProductTerm& term : r.terms) k += term.k;
    return {spec_.m,       r.n, k, spec_.transpose_a, spec_.transpose_b, kernels_.tile_rows,
            kernels_.panel};
  }

  // Rows a multiple of a page apart would share one set of the first-level cache, which holds fewer
  // lines than a tile has rows: a copy is quicker.
  bool InPlace(const ProductTerm& term) const {
    if (spec_.transpose_a) {
      return kernels_.a_transposed_in_place && term.lda <= kMaxColumnStride;
    }
    return kernels_.a_in_place && term.k % kernels_.unit_terms == 0 &&
           term.lda * element_ % 4096 != 0;
  }

  int64_t TaskFloats() const { return a_floats_ + b_floats_ + sum_floats_; }

  // Each task packs what it needs.
  void PlanTasks() {
    for (size_t r = 0; r < plans_.size(); ++r) {
      const CutShape shape = Shape(r);
      const Grid grid = CutToGrid(shape);
      for (int64_t j = 0; j < grid.columns; ++j) {
        for (int64_t i = 0; i < grid.rows; ++i) {
          tasks_.push_back({r, grid.Rows(shape, i), grid.Columns(shape, j)});
        }
      }
    }
    // Threads take neighbouring tasks: rows that one of them makes here it finds again in other
    // ops.
    std::stable_sort(tasks_.begin(), tasks_.end(),
                     [](const Task& x, const Task& y) { return x.rows.begin < y.rows.begin; });
    int64_t rows = 0, columns = 0;
    bool keeps_sums = false;
    for (const Task& task : tasks_) {
      rows = std::max(rows, task.rows.end - task.rows.begin);
      columns = std::max(columns, task.columns.end - task.columns.begin);
      if (!direct_ && plans_[task.result].blocks.size() > 1) keeps_sums = true;
    }
    slab_rows_ = std::min(rows, kSlabRows);
    // With one slab, a panel is of no use after it: each is packed just before.
    group_ = rows <= kSlabRows ? kernels_.panel : kGroupColumns;
    if (keeps_sums) group_ = std::min(group_, kMaxSumFloats / rows);
    group_ = std::max(kernels_.panel, std::min(group_, columns) / kernels_.panel * kernels_.panel);
    if (a_floats_ > 0) a_floats_ = AlignFloats(slab_rows_ * max_units_);
    b_floats_ = AlignFloats(group_ * max_units_);
    if (!direct_) {
      sum_floats_ = AlignFloats(keeps_sums ? rows * group_ : slab_rows_ * kernels_.panel);
    }
  }

  // b is packed once for all tasks: no operand is packed twice.
  void PlanSharing() {
    const CutShape shape = Shape(0);
    // A task reads all of its columns of b, which is worth it for a slab of rows.
    grid_.rows = std::min(WantedTasks(shape), std::max<int64_t>(4, shape.m / kSharedRows));
    // 20 tasks are quicker than 21 on 2 threads, or on 4.
    if (grid_.rows > 4) grid_.rows = grid_.rows / 4 * 4;
    if (a_floats_ == 0) {  // columns apart would each pack a
      grid_.columns = std::clamp<int64_t>(shape.n / kGroupColumns, 1,
                                          (kSharedTasks + grid_.rows - 1) / grid_.rows);
    }
    int64_t rows = 0, columns = 0;
    for (int64_t i = 0; i < grid_.rows; ++i) {
      const Range range = grid_.Rows(shape, i);
      rows = std::max(rows, range.end - range.begin);
    }
    for (int64_t i = 0; i < grid_.columns; ++i) {
      const Range range = grid_.Columns(shape, i);
      columns = std::max(columns, range.end - range.begin);
    }
    slab_rows_ = std::min(rows, kSlabRows);
    if (a_floats_ > 0) a_floats_ = AlignFloats(slab_rows_ * max_units_);
    const int64_t width = kernels_.Width(shape.n);
    const int64_t at_once = std::max<int64_t>(1, kSharedFloats / (width * max_units_));
    const int64_t blocks = static_cast<int64_t>(plans_[0].blocks.size());
    if (!direct_) {
      ld_sums_ = blocks > 1 ? columns : kernels_.panel;
      sum_floats_ = AlignFloats((blocks > 1 ? rows : slab_rows_) * ld_sums_);
    }
    if (b_in_place_) {
      rounds_ = 1;
      return;
    }
    rounds_ = (blocks + at_once - 1) / at_once;
    const int64_t block_bytes = max_units_ * kernels_.unit_terms * shape.n * element_;
    pieces_ = spec_.transpose_b
                  ? Panels()
                  : std::clamp<int64_t>(block_bytes / kPieceBytes, 1, (max_units_ + 3) / 4);
    shared_floats_ = AlignFloats((blocks + rounds_ - 1) / rounds_ * width * max_units_);
  }

  int64_t BytesOfB() const {
    int64_t elements = 0;
    for (const ProductTerm& term : spec_.results[0].terms) elements += term.k * term.ldb;
    return elements * element_;
  }

  const void* Element(const KernelArgs& args, int operand, int64_t i) const {
    return static_cast<const char*>(args.in[operand]) + i * element_;
  }

  void PackB(const KernelArgs& args, const ProductTerm& term, const TermBlock& block, int64_t first,
             int64_t count, float* to, bool asks = true) const {
    (spec_.transpose_b ? kernels_.pack_b_transposed
                       : kernels_.pack_b)({args.in[term.b], term.ldb, block.k0, block.terms, first,
                                           count, to, kernels_.Width(count), asks});
  }

  // Sets a, lda and tiled of `g` for a slab of rows.
  void PrepareA(const KernelArgs& args, const ProductTerm& term, const Block& block, int64_t first,
                int64_t count, float* scratch, PanelArgs* g) const {
    g->tiled = spec_.transpose_a;
    if (block.in_place && spec_.transpose_a) {
      g->a = static_cast<const float*>(Element(args, term.a, block.range.k0 * term.lda + first));
      g->lda = term.lda;
      return;
    }
    if (block.in_place) {
      g->a = static_cast<const float*>(Element(args, term.a, first * term.lda + block.range.k0));
      g->lda = term.lda / kernels_.unit_terms;
      return;
    }
    (spec_.transpose_a ? kernels_.pack_a_transposed : kernels_.pack_a)(
        {args.in[term.a], term.lda, block.range.k0, block.range.terms, first, count, scratch, 0});
    g->a = scratch;
    g->lda = spec_.transpose_a ? 0 : g->units;
  }

  // Sets c, ldc and from of `g` for a block of the result's own memory: sums begin from what is to
  // be added, unless they have `begun`.
  void SetResult(const KernelArgs& args, const ProductResult& result, bool begun, int64_t row,
                 int64_t column, PanelArgs* g) const {
    g->c = args.out_f32(static_cast<size_t>(result.out)) + row * result.n + column;
    g->ldc = result.n;
    if (begun) {
      g->from = g->c;
    } else if (result.operand >= 0) {
      g->from = args.f32(static_cast<size_t>(result.operand)) + row * result.n + column;
    } else {
      g->from = nullptr;
    }
  }

  void RunTask(const KernelArgs& args, int64_t i) const {
    const Task& task = tasks_[static_cast<size_t>(i)];
    const ProductResult& result = spec_.results[task.result];
    const std::vector<Block>& blocks = plans_[task.result].blocks;
    float* a_scratch = static_cast<float*>(args.scratch) + i * TaskFloats();
    float* b_scratch = a_scratch + a_floats_;
    float* sums = b_scratch + b_floats_;
    for (int64_t column = task.columns.begin; column < task.columns.end; column += group_) {
      const int64_t columns = std::min(group_, task.columns.end - column);
      for (size_t at = 0; at < blocks.size(); ++at) {
        const ProductTerm& term = result.terms[blocks[at].term];
        PanelArgs g;
        g.units = kernels_.Units(blocks[at].range.terms);
        for (int64_t row = task.rows.begin; row < task.rows.end; row += slab_rows_) {
          g.rows = std::min(slab_rows_, task.rows.end - row);
          PrepareA(args, term, blocks[at], row, g.rows, a_scratch, &g);
          for (int64_t j = 0; j < columns; j += kernels_.panel) {
            g.columns = std::min(kernels_.panel, columns - j);
            g.width = kernels_.Width(g.columns);
            float* b = b_scratch + j * g.units;
            if (row == task.rows.begin) {
              PackB(args, term, blocks[at].range, column + j, g.columns, b);
            }
            g.b = b;
            g.start =
                result.bias < 0 ? nullptr : args.f32(static_cast<size_t>(result.bias)) + column + j;
            if (direct_) {
              SetResult(args, result, at > 0, row, column + j, &g);
            } else if (blocks.size() == 1) {
              g.c = sums;
              g.ldc = kernels_.panel;
              g.from = nullptr;
            } else {
              g.c = sums + (row - task.rows.begin) * group_ + j;
              g.ldc = group_;
              g.from = at > 0 ? g.c : nullptr;
            }
            if (direct_ || at + 1 < blocks.size()) {
              kernels_.multiply(g);
            } else {
              const int64_t next = std::min(kernels_.panel, columns - j - g.columns);
              MultiplyAndFinish(args, result, g, next, row * result.n + column + j);
            }
          }
        }
      }
    }
  }

  // The last block of terms, and what is done with the sums: tile by tile, so that memory that
  // a finish has asked for (the `next` columns) arrives while the next tile is multiplied. The
  // block of `g` begins at `at` of the result.
  void MultiplyAndFinish(const KernelArgs& args, const ProductResult& result, const PanelArgs& g,
                         int64_t next, int64_t at) const {
    if (g.tiled) {  // packed for all tiles together
      kernels_.multiply(g);
      return Finish(args, result, g, next, at);
    }
    const TileRows tiles(g.rows, kernels_.tile_rows);
    PanelArgs tile = g;
    for (int64_t i = 0; i < tiles.tiles; ++i) {
      tile.rows = tiles.HeightOf(i);
      kernels_.multiply(tile);
      Finish(args, result, tile, next, at);
      tile.a += tile.rows * g.lda;
      if (g.from != nullptr) {  // else they take turns with one place
        tile.c += tile.rows * g.ldc;
        tile.from += tile.rows * g.ldc;
      }
      at += tile.rows * result.n;
    }
  }

  void Finish(const KernelArgs& args, const ProductResult& result, const PanelArgs& g, int64_t next,
              int64_t at) const {
    const int64_t offset = at * out_element_;
    FinishArgs f{g.rows, g.columns, next, g.c, g.ldc, nullptr, nullptr, nullptr, result.n};
    if (result.operand >= 0) f.operand = static_cast<const char*>(args.in[result.operand]) + offset;
    if (result.slope >= 0) f.slope = static_cast<char*>(args.out[result.slope]) + offset;
    f.out = static_cast<char*>(args.out[result.out]) + offset;
    finish_(f);
  }

  void RunShared(const KernelArgs& args) const {
    const int64_t blocks = static_cast<int64_t>(plans_[0].blocks.size());
    for (int64_t round = 0; round < rounds_; ++round) {
      const Range part = TaskRange(blocks, rounds_, round);
      if (!b_in_place_) {
        ParallelFor((part.end - part.begin) * pieces_, args.threads, [&](int64_t i) {
          PackPiece(args, part, part.begin + i / pieces_, i % pieces_);
        });
      }
      ParallelFor(grid_.rows * grid_.columns, args.threads,
                  [&](int64_t i) { RunShare(args, part, i); });
    }
  }

  int64_t Panels() const { return (spec_.results[0].n + kernels_.panel - 1) / kernels_.panel; }
  const Block& SharedBlock(int64_t at) const { return plans_[0].blocks[static_cast<size_t>(at)]; }
  const ProductTerm& SharedTerm(int64_t at) const {
    return spec_.results[0].terms[SharedBlock(at).term];
  }
  // Where a panel of the packed b begins: block after block of the round, panel after panel.
  float* SharedPanel(const KernelArgs& args, const Range& part, int64_t at, int64_t panel) const {
    return static_cast<float*>(args.scratch) +
           (at - part.begin) * kernels_.Width(spec_.results[0].n) * max_units_ +
           panel * kernels_.panel * kernels_.Units(SharedBlock(at).range.terms);
  }

  // Packs one piece of block `at` of b. Pieces follow each other as they lie in memory: panels of a
  // transposed b, else rows, of all panels.
  void PackPiece(const KernelArgs& args, const Range& part, int64_t at, int64_t piece) const {
    const int64_t n = spec_.results[0].n;
    const ProductTerm& term = SharedTerm(at);
    const TermBlock& block = SharedBlock(at).range;
    const auto columns_of = [&](int64_t panel) {
      return std::min(kernels_.panel, n - panel * kernels_.panel);
    };
    const auto terms_of = [&](int64_t i) -> TermBlock {
      const Range units = TaskRange(kernels_.Units(block.terms), pieces_, i);
      const int64_t begin = units.begin * kernels_.unit_terms;
      return {block.k0 + begin, std::min(block.terms, units.end * kernels_.unit_terms) - begin};
    };
    if (spec_.transpose_b) {
      PackB(args, term, block, piece * kernels_.panel, columns_of(piece),
            SharedPanel(args, part, at, piece));
      return;
    }
    // A strip of rows through all panels, while the next strip comes: memory is read as it lies.
    const TermBlock terms = terms_of(piece);
    const int64_t row_bytes = n * element_;
    for (int64_t done = 0; done < terms.terms; done += kStripRows) {
      const TermBlock strip{terms.k0 + done, std::min(kStripRows, terms.terms - done)};
      RowsToCome to_come(Element(args, term.b, (strip.k0 + kStripRows) * term.ldb),
                         term.ldb * element_, row_bytes);
      for (int64_t panel = 0; panel < Panels(); ++panel) {
        to_come.Ask(kStripRows * kernels_.panel * element_ / 64);
        PackB(args, term, strip, panel * kernels_.panel, columns_of(panel),
              SharedPanel(args, part, at, panel) +
                  kernels_.Units(strip.k0 - block.k0) * kernels_.Width(columns_of(panel)),
              /*asks=*/false);
      }
    }
  }

  // The i-th task, by the blocks of terms of `part`. Those of the same rows follow each other.
  void RunShare(const KernelArgs& args, const Range& part, int64_t i) const {
    const ProductResult& result = spec_.results[0];
    const int64_t blocks = static_cast<int64_t>(plans_[0].blocks.size());
    float* a_scratch = static_cast<float*>(args.scratch) + shared_floats_ + i * TaskFloats();
    float* sums = a_scratch + a_floats_;
    const Range rows = grid_.Rows(Shape(0), i / grid_.columns);
    const Range columns = grid_.Columns(Shape(0), i % grid_.columns);
    for (int64_t row = rows.begin; row < rows.end; row += slab_rows_) {
      for (int64_t at = part.begin; at < part.end; ++at) {
        PanelArgs g;
        g.rows = std::min(slab_rows_, rows.end - row);
        g.units = kernels_.Units(SharedBlock(at).range.terms);
        PrepareA(args, SharedTerm(at), SharedBlock(at), row, g.rows, a_scratch, &g);
        for (int64_t column = columns.begin; column < columns.end; column += kernels_.panel) {
          g.columns = std::min(kernels_.panel, columns.end - column);
          g.width = kernels_.Width(g.columns);
          if (b_in_place_) {
            const ProductTerm& term = SharedTerm(at);
            g.b = static_cast<const float*>(
                Element(args, term.b, SharedBlock(at).range.k0 * term.ldb + column));
            g.width = term.ldb;
          } else {
            g.b = SharedPanel(args, part, at, column / kernels_.panel);
          }
          g.start = result.bias < 0 ? nullptr : args.f32(static_cast<size_t>(result.bias)) + column;
          if (direct_) {
            SetResult(args, result, at > 0, row, column, &g);
          } else {
            g.c =
                blocks == 1 ? sums : sums + (row - rows.begin) * ld_sums_ + column - columns.begin;
            g.ldc = ld_sums_;
            g.from = at > 0 ? g.c : nullptr;
          }
          if (direct_ || at + 1 < blocks) {
            kernels_.multiply(g);
          } else {
            MultiplyAndFinish(args, result, g,
                              std::min(kernels_.panel, columns.end - column - g.columns),
                              row * result.n + column);
          }
        }
      }
    }
  }

  ProductSpec spec_;
  MatmulKernels kernels_;
  int64_t element_, out_element_;  // bytes
  bool direct_;                    // sums are made in the result's own memory
  FinishFn finish_;
  std::vector<Plan> plans_;  // one a result
  int64_t max_units_ = 0;    // of a block of terms

  std::vector<Task> tasks_;
  bool shared_ = false, b_in_place_ = false;
  Grid grid_;                        // of shared_
  int64_t rounds_ = 0, pieces_ = 0;  // of which a block of b is packed
  int64_t slab_rows_ = 0, group_ = 0, ld_sums_ = 0;
  int64_t shared_floats_ = 0;                             // scratch of all tasks,
  int64_t a_floats_ = 0, b_floats_ = 0, sum_floats_ = 0;  // and of each
};

}  // namespace

std::unique_ptr<Kernel> MakeBlockedMatmul(ProductSpec spec) {
  return std::make_unique<BlockedMatmul>(std::move(spec));
}

}  // namespace plumb
