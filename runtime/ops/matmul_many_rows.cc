// Many rows by one matrix b, which is packed once for all tasks; where it is small, once by each
// thread or, if kernels can read it as it lies, not at all.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/divide.h"
#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_panels.h"
#include "runtime/ops/scratch_workers.h"

namespace plumb {
namespace {

constexpr int64_t kFloat = SizeOf(DType::kF32);
constexpr int64_t kLeastRows = 256;            // that are worth packing b for all tasks,
constexpr int64_t kLeastTransposedRows = 64;   // or where a has to be packed as well
constexpr int64_t kTaskRows = 96;              // of a task, if that makes four tasks
constexpr int64_t kTasks = 32;                 // about as many, if they need not pack for it
constexpr int64_t kGroupColumns = 256;         // of a task, at least
constexpr int64_t kMaxPackedFloats = 5 << 19;  // of b: 10 MiB, in the last cache
constexpr int64_t kOwnFloats = 1 << 17;        // of b, packed by each thread: 512 KiB
constexpr int64_t kStripRows = 16;             // of b, packed into all panels before the next
constexpr int64_t kPieceBytes = 32 << 10;      // of b, packed by one task

class ManyRowsProduct : public Kernel {
 public:
  explicit ManyRowsProduct(ProductPanels panels)
      : panels_(std::move(panels)), kernels_(panels_.kernels()) {
    b_in_place_ =
        kernels_.b_in_place && !panels_.spec().transpose_b && BytesOfB() <= kMaxInPlaceBytes;
    Plan();
  }

  // Whether a block of b, packed, stays in the last cache; else each task packs its own columns.
  static bool Fits(const ProductPanels& panels) {
    const CutShape shape = panels.Shape(0);
    return panels.results() == 1 &&
           shape.m >= (shape.transpose_a ? kLeastTransposedRows : kLeastRows) &&
           WantedTasks(shape) > 1 &&
           panels.kernels().Width(shape.n) * panels.max_units() <= kMaxPackedFloats;
  }

  int64_t scratch_bytes() const override {
    if (workers_ != nullptr) return workers_->scratch_bytes();
    return (packed_floats_ + grid_.rows * grid_.columns * TaskFloats()) * kFloat;
  }

  absl::Status Run(const KernelArgs& args) const override {
    const int64_t blocks = static_cast<int64_t>(panels_.blocks(0).size());
    if (workers_ != nullptr) {
      const Range all{0, blocks};
      workers_->RunPrepared(
          args,
          [&](float* packed) {
            for (int64_t i = 0; i < blocks * pieces_; ++i) PackPiece(args, all, i, packed);
          },
          [&](int64_t i, int64_t, float* packed) {
            RunTask(args, all, i, packed, packed + packed_floats_);
          });
      return absl::OkStatus();
    }
    float* const packed = static_cast<float*>(args.scratch);
    for (int64_t round = 0; round < rounds_; ++round) {
      const Range part = TaskRange(blocks, rounds_, round);
      if (!b_in_place_) {
        ParallelFor((part.end - part.begin) * pieces_, args.threads,
                    [&](int64_t i) { PackPiece(args, part, i, packed); });
      }
      ParallelFor(grid_.rows * grid_.columns, args.threads, [&](int64_t i) {
        RunTask(args, part, i, packed, packed + packed_floats_ + i * TaskFloats());
      });
    }
    return absl::OkStatus();
  }

 private:
  int64_t TaskFloats() const { return a_floats_ + sum_floats_; }

  void Plan() {
    const CutShape shape = panels_.Shape(0);
    // A task reads all of its columns of b, which is worth it for a slab of rows.
    grid_.rows = std::min(WantedTasks(shape), std::max<int64_t>(4, shape.m / kTaskRows));
    // 20 tasks are quicker than 21 on 2 threads, or on 4.
    if (grid_.rows > 4) grid_.rows = grid_.rows / 4 * 4;
    if (!panels_.packs_a()) {  // columns apart would each pack a
      grid_.columns = std::clamp<int64_t>(shape.n / kGroupColumns, 1, CeilDiv(kTasks, grid_.rows));
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
    if (panels_.packs_a()) a_floats_ = AlignFloats(slab_rows_ * panels_.max_units());
    const int64_t width = kernels_.Width(shape.n);
    const int64_t at_once = std::max<int64_t>(1, kMaxPackedFloats / (width * panels_.max_units()));
    const int64_t blocks = static_cast<int64_t>(panels_.blocks(0).size());
    if (!panels_.direct()) {
      ld_sums_ = blocks > 1 ? columns : kernels_.panel;
      sum_floats_ = AlignFloats((blocks > 1 ? rows : slab_rows_) * ld_sums_);
    }
    if (b_in_place_) {
      rounds_ = 1;
      return;
    }
    rounds_ = CeilDiv(blocks, at_once);
    const int64_t units = panels_.max_units();
    const int64_t block_bytes = units * kernels_.unit_terms * shape.n * panels_.element();
    pieces_ = shape.transpose_b
                  ? Panels()
                  : std::clamp<int64_t>(block_bytes / kPieceBytes, 1, CeilDiv(units, 4));
    packed_floats_ = AlignFloats(CeilDiv(blocks, rounds_) * width * units);
    // Handing over the half of a small b takes longer than to pack it all.
    if (rounds_ == 1 && packed_floats_ <= kOwnFloats) {
      workers_ =
          std::make_unique<ScratchWorkers>(grid_.rows * grid_.columns, shape.m * shape.n * shape.k,
                                           (packed_floats_ + TaskFloats()) * kFloat);
    }
  }

  int64_t BytesOfB() const {
    int64_t elements = 0;
    for (const ProductTerm& term : panels_.result(0).terms) elements += term.k * term.ldb;
    return elements * panels_.element();
  }

  int64_t Panels() const { return CeilDiv(panels_.result(0).n, kernels_.panel); }
  const ProductPanels::Block& BlockAt(int64_t at) const {
    return panels_.blocks(0)[static_cast<size_t>(at)];
  }
  const ProductTerm& TermAt(int64_t at) const { return panels_.TermOf(0, BlockAt(at)); }
  // Where a panel of the packed b begins: block after block of the round, panel after panel.
  float* PanelAt(float* packed, const Range& part, int64_t at, int64_t panel) const {
    return packed + (at - part.begin) * kernels_.Width(panels_.result(0).n) * panels_.max_units() +
           panel * kernels_.panel * kernels_.Units(BlockAt(at).range.terms);
  }

  // Packs the i-th piece of the blocks of `part`. Those of a block follow each other as they lie in
  // memory: panels of a transposed b, else rows, of all panels.
  void PackPiece(const KernelArgs& args, const Range& part, int64_t i, float* packed) const {
    const int64_t at = part.begin + i / pieces_, piece = i % pieces_;
    const int64_t n = panels_.result(0).n;
    const ProductTerm& term = TermAt(at);
    const TermBlock& block = BlockAt(at).range;
    const auto columns_of = [&](int64_t panel) {
      return std::min(kernels_.panel, n - panel * kernels_.panel);
    };
    if (panels_.spec().transpose_b) {
      panels_.PackB(args, term, block, piece * kernels_.panel, columns_of(piece),
                    PanelAt(packed, part, at, piece));
      return;
    }
    // A strip of rows through all panels, while the next strip comes: memory is read as it lies.
    const Range units = TaskRange(kernels_.Units(block.terms), pieces_, piece);
    const int64_t begin = units.begin * kernels_.unit_terms;
    const int64_t terms = std::min(block.terms, units.end * kernels_.unit_terms) - begin;
    const int64_t element = panels_.element();
    for (int64_t done = 0; done < terms; done += kStripRows) {
      const TermBlock strip{block.k0 + begin + done, std::min(kStripRows, terms - done)};
      RowsToCome to_come(panels_.Element(args, term.b, (strip.k0 + kStripRows) * term.ldb),
                         term.ldb * element, n * element);
      for (int64_t panel = 0; panel < Panels(); ++panel) {
        to_come.Ask(kStripRows * kernels_.panel * element / kCacheLine);
        panels_.PackB(args, term, strip, panel * kernels_.panel, columns_of(panel),
                      PanelAt(packed, part, at, panel) +
                          kernels_.Units(strip.k0 - block.k0) * kernels_.Width(columns_of(panel)),
                      /*asks=*/false);
      }
    }
  }

  // The i-th task, by the blocks of terms of `part`. Those of the same rows follow each other.
  void RunTask(const KernelArgs& args, const Range& part, int64_t i, float* packed,
               float* a_scratch) const {
    const CutShape shape = panels_.Shape(0);
    float* sums = a_scratch + a_floats_;
    const Range rows = grid_.Rows(shape, i / grid_.columns);
    const Range columns = grid_.Columns(shape, i % grid_.columns);
    const bool kept = panels_.blocks(0).size() > 1;
    for (int64_t row = rows.begin; row < rows.end; row += slab_rows_) {
      for (int64_t at = part.begin; at < part.end; ++at) {
        PanelArgs g;
        g.rows = std::min(slab_rows_, rows.end - row);
        g.units = kernels_.Units(BlockAt(at).range.terms);
        panels_.PrepareA(args, TermAt(at), BlockAt(at), row, a_scratch, &g);
        RowsToCome to_come;
        panels_.AskForA(args, TermAt(at), BlockAt(at), row, &to_come, &g);
        for (int64_t column = columns.begin; column < columns.end; column += kernels_.panel) {
          g.columns = std::min(kernels_.panel, columns.end - column);
          g.width = kernels_.Width(g.columns);
          if (b_in_place_) {
            const ProductTerm& term = TermAt(at);
            g.b = static_cast<const float*>(
                panels_.Element(args, term.b, BlockAt(at).range.k0 * term.ldb + column));
            g.width = term.ldb;
          } else {
            g.b = PanelAt(packed, part, at, column / kernels_.panel);
          }
          panels_.Multiply(
              args, 0, static_cast<size_t>(at), row, column,
              std::min(kernels_.panel, columns.end - column - g.columns),
              kept ? sums + (row - rows.begin) * ld_sums_ + column - columns.begin : sums, ld_sums_,
              &g);
          g.to_come = nullptr;
        }
      }
    }
  }

  const ProductPanels panels_;
  const MatmulKernels& kernels_;
  bool b_in_place_ = false;
  Grid grid_;
  int64_t rounds_ = 0, pieces_ = 0;  // in which b is packed: blocks at a time, tasks of a block
  int64_t slab_rows_ = 0, ld_sums_ = 0;
  std::unique_ptr<ScratchWorkers> workers_;  // where each packs all of b
  int64_t packed_floats_ = 0;                // scratch of all tasks, or of a worker
  int64_t a_floats_ = 0, sum_floats_ = 0;    // scratch of a task
};

}  // namespace

std::unique_ptr<Kernel> MakeManyRowsProduct(const ProductSpec& spec) {
  ProductPanels panels(spec);
  if (!ManyRowsProduct::Fits(panels)) return nullptr;
  return std::make_unique<ManyRowsProduct>(std::move(panels));
}

}  // namespace plumb
