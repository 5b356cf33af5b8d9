// A product whose b, a weight matrix as a rule, is large beside a and the result, which are
// activations: of few tokens by a large matrix.
//
// Such a b comes from memory. Packed before the product, as for many rows (matmul_many_rows.cc), it
// would take a seventh of the time of 256 rows, in which nothing is multiplied. So a thread takes
// columns of b with all rows of a, which stay in the caches: it packs a panel, multiplies all rows
// by it, and asks on the way for the memory of the panel after it. What threads hand each other
// are then activations, made by rows and needed by columns: less than the half of b that each
// would have packed for the other.
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
// Ten tiles of 14 rows: with a block of terms of them, a group's panels stay in the second-level
// cache.
constexpr int64_t kMostSlabRows = 140;
constexpr int64_t kGroupPanels = 2;
constexpr int64_t kItemsAThread = 4;     // at least, so that the last one done is not waited for
constexpr int64_t kMostActivations = 3;  // times as many elements of a and the result as of b

class ColumnsProduct : public Kernel {
 public:
  explicit ColumnsProduct(ProductPanels panels) : panels_(std::move(panels)) {
    const MatmulKernels& kernels = panels_.kernels();
    const int64_t rows = panels_.spec().m;
    int64_t columns = 0, work = 0;
    for (size_t r = 0; r < panels_.results(); ++r) {
      const int64_t n = panels_.result(r).n;
      work += rows * n * panels_.Shape(r).k;
      for (int64_t first = 0; first < n; first += kGroupPanels * kernels.panel) {
        groups_.push_back({r, first, std::min(n - first, kGroupPanels * kernels.panel)});
        columns = std::max(columns, groups_.back().columns);
      }
    }
    slabs_ = std::max<int64_t>(1, CeilDiv(rows, kMostSlabRows));
    PlaceCopies();
    panel_floats_ = AlignFloats(kernels.panel * panels_.max_units());
    int64_t sum_floats = 0;
    if (panels_.KeepsSums()) {
      sum_floats = rows * columns;
    } else if (!panels_.direct()) {
      sum_floats = CeilDiv(rows, slabs_) * kernels.panel;
    }
    workers_ = std::make_unique<ScratchWorkers>(
        slabs_ * static_cast<int64_t>(groups_.size()), work,
        (kGroupPanels * panel_floats_ + AlignFloats(sum_floats)) * kFloat);
  }

  int64_t scratch_bytes() const override {
    return copied_floats_ * kFloat + workers_->scratch_bytes();
  }

  absl::Status Run(const KernelArgs& args) const override {
    if (!copies_.empty()) CopyA(args);
    KernelArgs rest = args;
    rest.scratch = static_cast<float*>(args.scratch) + copied_floats_;
    // More threads than there are columns for share rows too, and each pack the columns anew.
    const int64_t groups = static_cast<int64_t>(groups_.size());
    const int64_t parts =
        std::clamp<int64_t>(CeilDiv(kItemsAThread * args.threads, groups), 1, slabs_);
    workers_->RunItems(rest, groups * parts, [&](int64_t item, int64_t next, float* scratch) {
      RunGroup(args, groups_[static_cast<size_t>(item / parts)],
               TaskRange(slabs_, parts, item % parts),
               next < 0 ? nullptr : &groups_[static_cast<size_t>(next / parts)], scratch);
    });
    return absl::OkStatus();
  }

 private:
  struct Group {  // of panels
    size_t result;
    int64_t first, columns;
  };

  // A block of terms of all rows of an a that is not read in place.
  struct Copy {
    size_t result, at;
  };

  // Results of one a share its copy.
  bool SharesCopies(size_t r) const {
    const auto same = [](const ProductTerm& x, const ProductTerm& y) {
      return x.a == y.a && x.k == y.k && x.lda == y.lda;
    };
    const std::vector<ProductTerm>& first = panels_.result(0).terms;
    const std::vector<ProductTerm>& terms = panels_.result(r).terms;
    return std::equal(terms.begin(), terms.end(), first.begin(), first.end(), same);
  }

  void PlaceCopies() {
    for (size_t r = 0; r < panels_.results(); ++r) {
      copy_at_.emplace_back();
      if (r > 0 && SharesCopies(r)) {
        copy_at_[r] = copy_at_[0];
        continue;
      }
      const std::vector<ProductPanels::Block>& blocks = panels_.blocks(r);
      for (size_t at = 0; at < blocks.size(); ++at) {
        copy_at_[r].push_back(copied_floats_);
        if (blocks[at].in_place) continue;
        copies_.push_back({r, at});
        copied_floats_ +=
            AlignFloats(panels_.spec().m * panels_.kernels().Units(blocks[at].range.terms));
      }
    }
  }

  // Where the copy of a row begins, if there is one.
  float* CopyOf(const KernelArgs& args, size_t r, size_t at, int64_t row) const {
    return static_cast<float*>(args.scratch) + copy_at_[r][at] +
           row * panels_.kernels().Units(panels_.blocks(r)[at].range.terms);
  }

  void CopyA(const KernelArgs& args) const {
    ParallelFor(static_cast<int64_t>(copies_.size()) * slabs_, args.threads, [&](int64_t i) {
      const Copy& copy = copies_[static_cast<size_t>(i) / static_cast<size_t>(slabs_)];
      const Range rows = TaskRange(panels_.spec().m, slabs_, i % slabs_);
      const ProductPanels::Block& block = panels_.blocks(copy.result)[copy.at];
      panels_.PackA(args, panels_.TermOf(copy.result, block), block.range, rows.begin,
                    rows.end - rows.begin, CopyOf(args, copy.result, copy.at, rows.begin));
    });
  }

  // The panel that begins at `column` of the group, for a block of terms.
  RowsToCome ToPack(const KernelArgs& args, const Group& group, size_t at, int64_t column) const {
    const ProductPanels::Block& block = panels_.blocks(group.result)[at];
    return panels_.ToPack(args, panels_.TermOf(group.result, block), block.range,
                          group.first + column,
                          std::min(panels_.kernels().panel, group.columns - column));
  }

  // The panel that is packed after the one that ends at `column` of the group.
  RowsToCome PackedAfter(const KernelArgs& args, const Group& group, size_t at, int64_t column,
                         const Group* next_group) const {
    if (column < group.columns) return ToPack(args, group, at, column);
    if (at + 1 < panels_.blocks(group.result).size()) return ToPack(args, group, at + 1, 0);
    return next_group == nullptr ? RowsToCome() : ToPack(args, *next_group, 0, 0);
  }

  // Rows of `slabs` by a group of panels: all slabs by a block of terms, then by the next block.
  void RunGroup(const KernelArgs& args, const Group& group, const Range& slabs,
                const Group* next_group, float* scratch) const {
    const MatmulKernels& kernels = panels_.kernels();
    const std::vector<ProductPanels::Block>& blocks = panels_.blocks(group.result);
    const int64_t rows = panels_.spec().m;
    const int64_t first_row = TaskRange(rows, slabs_, slabs.begin).begin;
    float* const sums = scratch + kGroupPanels * panel_floats_;
    for (size_t at = 0; at < blocks.size(); ++at) {
      const ProductTerm& term = panels_.TermOf(group.result, blocks[at]);
      RowsToCome to_come;
      PanelArgs g;
      g.units = kernels.Units(blocks[at].range.terms);
      g.to_come = &to_come;
      for (int64_t slab = slabs.begin; slab < slabs.end; ++slab) {
        const Range range = TaskRange(rows, slabs_, slab);
        g.rows = range.end - range.begin;
        panels_.SetA(args, term, blocks[at], range.begin,
                     CopyOf(args, group.result, at, range.begin), &g);
        for (int64_t column = 0; column < group.columns; column += kernels.panel) {
          g.columns = std::min(kernels.panel, group.columns - column);
          g.width = kernels.Width(g.columns);
          const int64_t right = column + g.columns;
          float* const panel = scratch + column / kernels.panel * panel_floats_;
          if (slab == slabs.begin) {
            panels_.PackB(args, term, blocks[at].range, group.first + column, g.columns, panel,
                          /*asks=*/at == 0 && column == 0);
            to_come = PackedAfter(args, group, at, right, next_group);
            g.lines = to_come.lines();
          }
          g.b = panel;
          float* const at_sums = panels_.KeepsSums()
                                     ? sums + (range.begin - first_row) * group.columns + column
                                     : sums;
          panels_.Multiply(args, group.result, at, range.begin, group.first + column,
                           std::min(kernels.panel, group.columns - right), at_sums,
                           panels_.KeepsSums() ? group.columns : kernels.panel, &g);
        }
      }
    }
  }

  const ProductPanels panels_;
  std::vector<Group> groups_;
  int64_t slabs_ = 0;
  std::vector<Copy> copies_;
  std::vector<std::vector<int64_t>> copy_at_;  // of each result's blocks, in floats of the scratch,
  int64_t copied_floats_ = 0;                  // of which they take the first
  int64_t panel_floats_ = 0;                   // of a thread's, that a panel takes
  std::unique_ptr<ScratchWorkers> workers_;
};

}  // namespace

std::unique_ptr<Kernel> MakeColumnsProduct(const ProductSpec& spec) {
  if (spec.transpose_a) return nullptr;
  ProductPanels panels(spec);
  int64_t activations = 0, weights = 0;
  for (size_t r = 0; r < panels.results(); ++r) {
    const CutShape shape = panels.Shape(r);
    activations += shape.m * (shape.n + shape.k);
    weights += shape.n * shape.k;
  }
  if (activations > kMostActivations * weights) return nullptr;
  return std::make_unique<ColumnsProduct>(std::move(panels));
}

}  // namespace plumb
