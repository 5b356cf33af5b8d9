// What the ways of cutting a large product (matmul_blocked.cc, matmul_columns.cc,
// matmul_many_rows.cc) have in common: terms in blocks, operands packed, a slab of rows multiplied
// by a panel of b, and what is done with the finished sums. Immutable. Private to the room.
#ifndef PLUMB_RUNTIME_OPS_MATMUL_PANELS_H_
#define PLUMB_RUNTIME_OPS_MATMUL_PANELS_H_

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/matmul_cut.h"
#include "runtime/kernels/gemm/epilogue.h"
#include "runtime/kernels/gemm/matmul_kernels.h"
#include "runtime/ops/matmul_product.h"

namespace plumb {

class ProductPanels {
 public:
  // A block of the terms of a result's sums.
  struct Block {
    size_t term;  // of the result's
    TermBlock range;
    bool in_place;  // a is read where it is
  };

  explicit ProductPanels(ProductSpec spec);

  const ProductSpec& spec() const { return spec_; }
  const MatmulKernels& kernels() const { return kernels_; }
  size_t results() const { return spec_.results.size(); }
  const ProductResult& result(size_t r) const { return spec_.results[r]; }
  const std::vector<Block>& blocks(size_t r) const { return blocks_[r]; }
  const ProductTerm& TermOf(size_t r, const Block& block) const {
    return spec_.results[r].terms[block.term];
  }
  // The shape of a result; k of all terms.
  CutShape Shape(size_t r) const;
  int64_t element() const { return element_; }      // bytes of one of a and b
  int64_t max_units() const { return max_units_; }  // of a block
  bool packs_a() const { return packs_a_; }         // some block is not in place
  // Sums are made in the result's own memory: those that nothing is done to at the end. An operand
  // to be added comes first then, as the beginning of every sum.
  bool direct() const { return direct_; }
  // Those of some result are made elsewhere and in several blocks of terms, which all of a task's
  // columns keep until the last. (Others that are made elsewhere need room for one panel.)
  bool KeepsSums() const { return keeps_sums_; }

  const void* Element(const KernelArgs& args, int operand, int64_t i) const {
    return static_cast<const char*>(args.in[operand]) + i * element_;
  }

  // Columns of a block of b to a panel at `to`.
  void PackB(const KernelArgs& args, const ProductTerm& term, const TermBlock& block, int64_t first,
             int64_t count, float* to, bool asks = true) const;
  // The memory that PackB will read.
  RowsToCome ToPack(const KernelArgs& args, const ProductTerm& term, const TermBlock& block,
                    int64_t first, int64_t count) const;
  // A slab of rows to `to`, of a block that is not read in place.
  void PackA(const KernelArgs& args, const ProductTerm& term, const TermBlock& block, int64_t first,
             int64_t count, float* to) const;
  // Sets a, lda and tiled of `g`, of which the units are set, for a slab of rows from the `first`
  // on; `packed` where the block is not read in place.
  void SetA(const KernelArgs& args, const ProductTerm& term, const Block& block, int64_t first,
            const float* packed, PanelArgs* g) const;
  // SetA, with the rows packed at `scratch` where the block is not read in place.
  void PrepareA(const KernelArgs& args, const ProductTerm& term, const Block& block, int64_t first,
                float* scratch, PanelArgs* g) const;
  // Has the first panel of a slab of g->rows rows, from the `first` on, ask for the rows of a: in
  // each tile for those of the next. They are then near for all panels. Not where they are anyway.
  void AskForA(const KernelArgs& args, const ProductTerm& term, const Block& block, int64_t first,
               RowsToCome* to_come, PanelArgs* g) const;
  // Multiplies a slab of rows by a panel, which begin at `row` and `column` of result `r`, for the
  // `at`-th block of terms; with the last one, finishes. `next`: columns of the panel after it.
  // Set in `g` are the sizes, a, b and what is to come. Unless sums are direct, they are kept at
  // `sums`, rows ld_sums apart, from the first block to the last.
  void Multiply(const KernelArgs& args, size_t r, size_t at, int64_t row, int64_t column,
                int64_t next, float* sums, int64_t ld_sums, PanelArgs* g) const;

 private:
  bool InPlace(const ProductTerm& term) const;
  void MultiplyAndFinish(const KernelArgs& args, const ProductResult& result, const PanelArgs& g,
                         int64_t next, int64_t at) const;
  void Finish(const KernelArgs& args, const ProductResult& result, const PanelArgs& g, int64_t next,
              int64_t at) const;

  ProductSpec spec_;
  MatmulKernels kernels_;
  int64_t element_, out_element_;  // bytes
  bool direct_, keeps_sums_ = false, packs_a_ = false;
  FinishFn finish_;
  bool a_is_far_ = false;                   // kLeastFarBytes
  std::vector<std::vector<Block>> blocks_;  // of each result
  int64_t max_units_ = 0;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATMUL_PANELS_H_
