// Any large product: cut into blocks of rows and columns, each a task that packs what it needs.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/base/parallel.h"
#include "runtime/ops/matmul_panels.h"

namespace plumb {
namespace {

constexpr int64_t kFloat = SizeOf(DType::kF32);
constexpr int64_t kGroupColumns = 256;      // of b, packed at a time
constexpr int64_t kMaxSumFloats = 1 << 18;  // of a task that keeps partial sums

class BlockedProduct : public Kernel {
 public:
  explicit BlockedProduct(ProductSpec spec)
      : panels_(std::move(spec)), kernels_(panels_.kernels()) {
    CutIntoTasks();
  }

  int64_t scratch_bytes() const override {
    return static_cast<int64_t>(tasks_.size()) * TaskFloats() * kFloat;
  }

  absl::Status Run(const KernelArgs& args) const override {
    ParallelFor(static_cast<int64_t>(tasks_.size()), args.threads,
                [&](int64_t i) { RunTask(args, i); });
    return absl::OkStatus();
  }

 private:
  struct Task {
    size_t result;
    Range rows, columns;
  };

  int64_t TaskFloats() const { return a_floats_ + b_floats_ + sum_floats_; }

  void CutIntoTasks() {
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
    if (panels_.packs_a()) a_floats_ = AlignFloats(slab_rows_ * panels_.max_units());
    b_floats_ = AlignFloats(group_ * panels_.max_units());
    if (!panels_.direct()) {
      sum_floats_ = AlignFloats(panels_.KeepsSums() ? rows * group_ : slab_rows_ * kernels_.panel);
    }
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
          panels_.PrepareA(args, term, blocks[at], row, a_scratch, &g);
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

  const ProductPanels panels_;
  const MatmulKernels& kernels_;
  std::vector<Task> tasks_;
  int64_t slab_rows_ = 0, group_ = 0;
  int64_t a_floats_ = 0, b_floats_ = 0, sum_floats_ = 0;  // scratch of a task
};

}  // namespace

std::unique_ptr<Kernel> MakeBlockedProduct(ProductSpec spec) {
  return std::make_unique<BlockedProduct>(std::move(spec));
}

}  // namespace plumb
