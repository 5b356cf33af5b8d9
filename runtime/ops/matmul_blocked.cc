// A product cut into blocks for several threads.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_panels.h"
#include "runtime/ops/scratch_workers.h"

namespace plumb {
namespace {

constexpr int64_t kFloat = SizeOf(DType::kF32);
constexpr int64_t kSharedRows = 96;         // of a task where b is shared, if that makes four tasks
constexpr int64_t kSharedTasks = 32;        // about as many, if they need not pack for it
constexpr int64_t kGroupColumns = 256;      // of b, beside them
constexpr int64_t kMaxSumFloats = 1 << 18;  // of a task that keeps partial sums
constexpr int64_t kSharedFloats = 5 << 19;  // of b, packed for all tasks: 10 MiB, in the last cache
constexpr int64_t kOwnFloats = 1 << 17;     // of b, packed by each thread: 512 KiB
constexpr int64_t kStripRows = 16;          // of b, packed into all panels before the next
constexpr int64_t kPieceBytes = 32 << 10;   // of b, packed by one task

class BlockedProduct : public Kernel {
 public:
  explicit BlockedProduct(ProductSpec spec)
      : panels_(std::move(spec)), kernels_(panels_.kernels()) {
    if (panels_.packs_a()) a_floats_ = 1;
    // Many rows are worth packing b for all tasks, unless a block of it is too large to stay in
    // the last cache; then each task packs its own columns.
    const CutShape shape = panels_.Shape(0);
    shared_ = panels_.results() == 1 && shape.m >= (shape.transpose_a ? 64 : 256) &&
              WantedTasks(shape) > 1 &&
              kernels_.Width(shape.n) * panels_.max_units() <= kSharedFloats;
    b_in_place_ =
        shared_ && kernels_.b_in_place && !shape.transpose_b && BytesOfB() <= kMaxInPlaceBytes;
    shared_ ? PlanSharing() : PlanTasks();
  }

  int64_t scratch_bytes() const override {
    if (workers_ != nullptr) return workers_->scratch_bytes();
    const int64_t tasks =
        shared_ ? grid_.rows * grid_.columns : static_cast<int64_t>(tasks_.size());
    return (shared_floats_ + tasks * TaskFloats()) * kFloat;
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
  struct Task {
    size_t result;
    Range rows, columns;
  };

  int64_t TaskFloats() const { return a_floats_ + b_floats_ + sum_floats_; }

  // Each task packs what it needs.
  void PlanTasks() {
    for (size_t r = 0; r < panels_.results(); ++r) {
      const CutShape shape = panels_.Shape(r);
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
    for (const Task& task : tasks_) {
      rows = std::max(rows, task.rows.end - task.rows.begin);
      columns = std::max(columns, task.columns.end - task.columns.begin);
    }
    slab_rows_ = std::min(rows, kSlabRows);
    // With one slab, a panel is of no use after it: each is packed just before.
    group_ = rows <= kSlabRows ? kernels_.panel : kGroupColumns;
    if (panels_.KeepsSums()) group_ = std::min(group_, kMaxSumFloats / rows);
    group_ = std::max(kernels_.panel, std::min(group_, columns) / kernels_.panel * kernels_.panel);
    if (a_floats_ > 0) a_floats_ = AlignFloats(slab_rows_ * panels_.max_units());
    b_floats_ = AlignFloats(group_ * panels_.max_units());
    if (!panels_.direct()) {
      sum_floats_ = AlignFloats(panels_.KeepsSums() ? rows * group_ : slab_rows_ * kernels_.panel);
    }
  }

  // b is packed once for all tasks or, where it is small, once by each thread.
  void PlanSharing() {
    const CutShape shape = panels_.Shape(0);
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
    if (a_floats_ > 0) a_floats_ = AlignFloats(slab_rows_ * panels_.max_units());
    const int64_t width = kernels_.Width(shape.n);
    const int64_t at_once = std::max<int64_t>(1, kSharedFloats / (width * panels_.max_units()));
    const int64_t blocks = static_cast<int64_t>(panels_.blocks(0).size());
    if (!panels_.direct()) {
      ld_sums_ = blocks > 1 ? columns : kernels_.panel;
      sum_floats_ = AlignFloats((blocks > 1 ? rows : slab_rows_) * ld_sums_);
    }
    if (b_in_place_) {
      rounds_ = 1;
      return;
    }
    rounds_ = (blocks + at_once - 1) / at_once;
    const int64_t units = panels_.max_units();
    const int64_t block_bytes = units * kernels_.unit_terms * shape.n * panels_.element();
    pieces_ = shape.transpose_b
                  ? Panels()
                  : std::clamp<int64_t>(block_bytes / kPieceBytes, 1, (units + 3) / 4);
    shared_floats_ = AlignFloats((blocks + rounds_ - 1) / rounds_ * width * units);
    // Handing over the half of a small b takes longer than to pack it all.
    if (rounds_ == 1 && shared_floats_ <= kOwnFloats) {
      workers_ =
          std::make_unique<ScratchWorkers>(grid_.rows * grid_.columns, shape.m * shape.n * shape.k,
                                           (shared_floats_ + TaskFloats()) * kFloat);
    }
  }

  int64_t BytesOfB() const {
    int64_t elements = 0;
    for (const ProductTerm& term : panels_.result(0).terms) elements += term.k * term.ldb;
    return elements * panels_.element();
  }

  void RunTask(const KernelArgs& args, int64_t i) const {
    const Task& task = tasks_[static_cast<size_t>(i)];
    const std::vector<ProductPanels::Block>& blocks = panels_.blocks(task.result);
    float* a_scratch = static_cast<float*>(args.scratch) + i * TaskFloats();
    float* b_scratch = a_scratch + a_floats_;
    float* sums = b_scratch + b_floats_;
    for (int64_t column = task.columns.begin; column < task.columns.end; column += group_) {
      const int64_t columns = std::min(group_, task.columns.end - column);
      for (size_t at = 0; at < blocks.size(); ++at) {
        const ProductTerm& term = panels_.TermOf(task.result, blocks[at]);
        PanelArgs g;
        g.units = kernels_.Units(blocks[at].range.terms);
        for (int64_t row = task.rows.begin; row < task.rows.end; row += slab_rows_) {
          g.rows = std::min(slab_rows_, task.rows.end - row);
          PrepareA(args, term, blocks[at], row, a_scratch, &g);
          RowsToCome to_come;
          panels_.AskForA(args, term, blocks[at], row, &to_come, &g);
          for (int64_t j = 0; j < columns; j += kernels_.panel) {
            g.columns = std::min(kernels_.panel, columns - j);
            g.width = kernels_.Width(g.columns);
            float* b = b_scratch + j * g.units;
            if (row == task.rows.begin) {
              panels_.PackB(args, term, blocks[at].range, column + j, g.columns, b);
            }
            g.b = b;
            const bool kept = blocks.size() > 1;
            panels_.Multiply(args, task.result, at, row, column + j,
                             std::min(kernels_.panel, columns - j - g.columns),
                             kept ? sums + (row - task.rows.begin) * group_ + j : sums,
                             kept ? group_ : kernels_.panel, &g);
            g.to_come = nullptr;
          }
        }
      }
    }
  }

  // Sets the a of `g`, of which the sizes are set; packed at `scratch` where that is needed.
  void PrepareA(const KernelArgs& args, const ProductTerm& term, const ProductPanels::Block& block,
                int64_t first, float* scratch, PanelArgs* g) const {
    if (!block.in_place) panels_.PackA(args, term, block.range, first, g->rows, scratch);
    panels_.SetA(args, term, block, first, scratch, g);
  }

  void RunShared(const KernelArgs& args) const {
    const int64_t blocks = static_cast<int64_t>(panels_.blocks(0).size());
    if (workers_ != nullptr) {
      const Range all{0, blocks};
      workers_->RunPrepared(
          args,
          [&](float* packed) {
            for (int64_t i = 0; i < blocks * pieces_; ++i) PackPiece(args, all, i, packed);
          },
          [&](int64_t i, int64_t, float* packed) {
            RunShare(args, all, i, packed, packed + shared_floats_);
          });
      return;
    }
    float* const packed = static_cast<float*>(args.scratch);
    for (int64_t round = 0; round < rounds_; ++round) {
      const Range part = TaskRange(blocks, rounds_, round);
      if (!b_in_place_) {
        ParallelFor((part.end - part.begin) * pieces_, args.threads,
                    [&](int64_t i) { PackPiece(args, part, i, packed); });
      }
      ParallelFor(grid_.rows * grid_.columns, args.threads, [&](int64_t i) {
        RunShare(args, part, i, packed, packed + shared_floats_ + i * TaskFloats());
      });
    }
  }

  int64_t Panels() const { return (panels_.result(0).n + kernels_.panel - 1) / kernels_.panel; }
  const ProductPanels::Block& SharedBlock(int64_t at) const {
    return panels_.blocks(0)[static_cast<size_t>(at)];
  }
  const ProductTerm& SharedTerm(int64_t at) const { return panels_.TermOf(0, SharedBlock(at)); }
  // Where a panel of the packed b begins: block after block of the round, panel after panel.
  float* SharedPanel(float* packed, const Range& part, int64_t at, int64_t panel) const {
    return packed + (at - part.begin) * kernels_.Width(panels_.result(0).n) * panels_.max_units() +
           panel * kernels_.panel * kernels_.Units(SharedBlock(at).range.terms);
  }

  // Packs the i-th piece of the blocks of `part`. Those of a block follow each other as they lie in
  // memory: panels of a transposed b, else rows, of all panels.
  void PackPiece(const KernelArgs& args, const Range& part, int64_t i, float* packed) const {
    const int64_t at = part.begin + i / pieces_, piece = i % pieces_;
    const int64_t n = panels_.result(0).n;
    const ProductTerm& term = SharedTerm(at);
    const TermBlock& block = SharedBlock(at).range;
    const auto columns_of = [&](int64_t panel) {
      return std::min(kernels_.panel, n - panel * kernels_.panel);
    };
    if (panels_.spec().transpose_b) {
      panels_.PackB(args, term, block, piece * kernels_.panel, columns_of(piece),
                    SharedPanel(packed, part, at, piece));
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
        to_come.Ask(kStripRows * kernels_.panel * element / 64);
        panels_.PackB(args, term, strip, panel * kernels_.panel, columns_of(panel),
                      SharedPanel(packed, part, at, panel) +
                          kernels_.Units(strip.k0 - block.k0) * kernels_.Width(columns_of(panel)),
                      /*asks=*/false);
      }
    }
  }

  // The i-th task, by the blocks of terms of `part`. Those of the same rows follow each other.
  void RunShare(const KernelArgs& args, const Range& part, int64_t i, float* packed,
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
        g.units = kernels_.Units(SharedBlock(at).range.terms);
        PrepareA(args, SharedTerm(at), SharedBlock(at), row, a_scratch, &g);
        RowsToCome to_come;
        panels_.AskForA(args, SharedTerm(at), SharedBlock(at), row, &to_come, &g);
        for (int64_t column = columns.begin; column < columns.end; column += kernels_.panel) {
          g.columns = std::min(kernels_.panel, columns.end - column);
          g.width = kernels_.Width(g.columns);
          if (b_in_place_) {
            const ProductTerm& term = SharedTerm(at);
            g.b = static_cast<const float*>(
                panels_.Element(args, term.b, SharedBlock(at).range.k0 * term.ldb + column));
            g.width = term.ldb;
          } else {
            g.b = SharedPanel(packed, part, at, column / kernels_.panel);
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
  std::vector<Task> tasks_;
  bool shared_ = false, b_in_place_ = false;
  Grid grid_;                        // of shared_
  int64_t rounds_ = 0, pieces_ = 0;  // of which a block of b is packed
  int64_t slab_rows_ = 0, group_ = 0, ld_sums_ = 0;
  std::unique_ptr<ScratchWorkers> workers_;               // where each packs all of b
  int64_t shared_floats_ = 0;                             // scratch of all tasks, or of a worker,
  int64_t a_floats_ = 0, b_floats_ = 0, sum_floats_ = 0;  // and of each
};

}  // namespace

std::unique_ptr<Kernel> MakeBlockedProduct(ProductSpec spec) {
  return std::make_unique<BlockedProduct>(std::move(spec));
}

}  // namespace plumb
