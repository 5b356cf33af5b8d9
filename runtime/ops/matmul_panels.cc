#include "runtime/ops/matmul_panels.h"

#include <algorithm>

#include "runtime/base/divide.h"

namespace plumb {
namespace {

bool MakesSumsInPlace(const ProductSpec& spec) {
  if (spec.out != DType::kF32) return false;
  return spec.finish == FinishKind::kStore ||
         (spec.finish == FinishKind::kAdd &&
          std::all_of(spec.results.begin(), spec.results.end(),
                      [](const ProductResult& result) { return result.bias < 0; }));
}

}  // namespace

ProductPanels::ProductPanels(ProductSpec spec)
    : spec_(std::move(spec)),
      kernels_(SelectMatmulKernels(spec_.operands)),
      element_(SizeOf(spec_.operands)),
      out_element_(SizeOf(spec_.out)),
      direct_(MakesSumsInPlace(spec_)),
      finish_(SelectFinish(spec_.finish, spec_.activation, spec_.out)) {
  for (const ProductResult& result : spec_.results) {
    std::vector<Block> blocks;
    for (size_t t = 0; t < result.terms.size(); ++t) {
      for (const TermBlock& range : CutTerms(result.terms[t].k, kernels_.unit_terms)) {
        blocks.push_back({t, range, InPlace(result.terms[t])});
        max_units_ = std::max(max_units_, kernels_.Units(range.terms));
        packs_a_ = packs_a_ || !blocks.back().in_place;
      }
    }
    keeps_sums_ = keeps_sums_ || (!direct_ && blocks.size() > 1);
    blocks_.push_back(std::move(blocks));
  }
  for (size_t r = 0; r < results(); ++r) {
    const CutShape shape = Shape(r);
    const int64_t activations = shape.m * (shape.n + shape.k);
    if (!shape.transpose_a && activations * element_ >= kLeastFarBytes) a_is_far_ = true;
  }
}

CutShape ProductPanels::Shape(size_t r) const {
  const ProductResult& of = spec_.results[r];
  int64_t k = 0;
  for (const ProductTerm& term : of.terms) k += term.k;
  return {spec_.m,       of.n, k, spec_.transpose_a, spec_.transpose_b, kernels_.tile_rows,
          kernels_.panel};
}

// Rows a multiple of a page apart would share one set of the first-level cache, which holds fewer
// lines than a tile has rows: a copy is quicker.
bool ProductPanels::InPlace(const ProductTerm& term) const {
  if (spec_.transpose_a) {
    return kernels_.a_transposed_in_place && term.lda <= kMaxColumnStride;
  }
  return kernels_.a_in_place && term.k % kernels_.unit_terms == 0 &&
         term.lda * element_ % 4096 != 0;
}

void ProductPanels::PackB(const KernelArgs& args, const ProductTerm& term, const TermBlock& block,
                          int64_t first, int64_t count, float* to, bool asks) const {
  (spec_.transpose_b ? kernels_.pack_b_transposed
                     : kernels_.pack_b)({args.in[term.b], term.ldb, block.k0, block.terms, first,
                                         count, to, kernels_.Width(count), asks});
}

RowsToCome ProductPanels::ToPack(const KernelArgs& args, const ProductTerm& term,
                                 const TermBlock& block, int64_t first, int64_t count) const {
  const int64_t ld = term.ldb * element_;
  return spec_.transpose_b ? RowsToCome(Element(args, term.b, first * term.ldb + block.k0), ld,
                                        block.terms * element_, count)
                           : RowsToCome(Element(args, term.b, block.k0 * term.ldb + first), ld,
                                        count * element_, block.terms);
}

void ProductPanels::PackA(const KernelArgs& args, const ProductTerm& term, const TermBlock& block,
                          int64_t first, int64_t count, float* to) const {
  (spec_.transpose_a ? kernels_.pack_a_transposed : kernels_.pack_a)(
      {args.in[term.a], term.lda, block.k0, block.terms, first, count, to, 0});
}

void ProductPanels::SetA(const KernelArgs& args, const ProductTerm& term, const Block& block,
                         int64_t first, const float* packed, PanelArgs* g) const {
  g->tiled = spec_.transpose_a;
  if (!block.in_place) {
    g->a = packed;
    g->lda = spec_.transpose_a ? 0 : g->units;
  } else if (spec_.transpose_a) {
    g->a = static_cast<const float*>(Element(args, term.a, block.range.k0 * term.lda + first));
    g->lda = term.lda;
  } else {
    g->a = static_cast<const float*>(Element(args, term.a, first * term.lda + block.range.k0));
    g->lda = term.lda / kernels_.unit_terms;
  }
}

void ProductPanels::PrepareA(const KernelArgs& args, const ProductTerm& term, const Block& block,
                             int64_t first, float* scratch, PanelArgs* g) const {
  if (!block.in_place) PackA(args, term, block.range, first, g->rows, scratch);
  SetA(args, term, block, first, scratch, g);
}

void ProductPanels::AskForA(const KernelArgs& args, const ProductTerm& term, const Block& block,
                            int64_t first, RowsToCome* to_come, PanelArgs* g) const {
  if (!a_is_far_ || !block.in_place) return;
  const int64_t second_tile = first + kernels_.tile_rows;
  *to_come = RowsToCome(Element(args, term.a, second_tile * term.lda + block.range.k0),
                        term.lda * element_, block.range.terms * element_, g->rows);
  g->to_come = to_come;
  g->lines = to_come->lines();
}

void ProductPanels::Multiply(const KernelArgs& args, size_t r, size_t at, int64_t row,
                             int64_t column, int64_t next, float* sums, int64_t ld_sums,
                             PanelArgs* g) const {
  const ProductResult& of = spec_.results[r];
  const int64_t begin = row * of.n + column;
  g->sums_near = !direct_;
  g->start = of.bias < 0 ? nullptr : args.f32(static_cast<size_t>(of.bias)) + column;
  if (direct_) {
    g->c = args.out_f32(static_cast<size_t>(of.out)) + begin;
    g->ldc = of.n;
    if (at > 0) {
      g->from = g->c;
    } else {
      g->from = of.operand < 0 ? nullptr : args.f32(static_cast<size_t>(of.operand)) + begin;
    }
  } else {
    g->c = sums;
    g->ldc = ld_sums;
    g->from = at > 0 ? sums : nullptr;
  }
  if (direct_ || at + 1 < blocks_[r].size()) {
    kernels_.multiply(*g);
  } else {
    MultiplyAndFinish(args, of, *g, next, begin);
  }
}

// The last block of terms, and what is done with the sums: tile by tile, so that memory that a
// finish has asked for (the `next` columns) arrives while the next tile is multiplied. The block of
// `g` begins at `at` of the result.
void ProductPanels::MultiplyAndFinish(const KernelArgs& args, const ProductResult& result,
                                      const PanelArgs& g, int64_t next, int64_t at) const {
  if (g.tiled) {  // packed for all tiles together
    kernels_.multiply(g);
    return Finish(args, result, g, next, at);
  }
  const TileRows tiles(g.rows, kernels_.tile_rows);
  PanelArgs tile = g;
  tile.lines = CeilDiv(g.lines, tiles.tiles);
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

void ProductPanels::Finish(const KernelArgs& args, const ProductResult& result, const PanelArgs& g,
                           int64_t next, int64_t at) const {
  const int64_t offset = at * out_element_;
  FinishArgs f{g.rows, g.columns, next, g.c, g.ldc, nullptr, nullptr, nullptr, result.n};
  if (result.operand >= 0) f.operand = static_cast<const char*>(args.in[result.operand]) + offset;
  if (result.slope >= 0) f.slope = static_cast<char*>(args.out[result.slope]) + offset;
  f.out = static_cast<char*>(args.out[result.out]) + offset;
  finish_(f);
}

}  // namespace plumb
