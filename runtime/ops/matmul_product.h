// Matrix products of f32 or bf16 operands, one or several at a time: one product, products of one
// left operand with several right ones, sums of products, each with an addition or an activation at
// the end. Behind matmul (matmul.cc) and its fused forms (matmul_fused.cc).
//
// Bits: an element is one chain over its terms in ascending order, that starts from the bias: of
// fused multiply-adds in f32, of instructions that take two terms each in bf16. How rows, columns
// and terms are cut does not change it (partial sums are kept in f32), nor does the number of
// threads; the processor's instructions do. Of some products over many tokens (MakeTokensProduct)
// it is the sum of two such chains. What is added (FinishKind::kAdd) is the beginning of the chain
// or its end, by the shape.
#ifndef PLUMB_RUNTIME_OPS_MATMUL_PRODUCT_H_
#define PLUMB_RUNTIME_OPS_MATMUL_PRODUCT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/epilogue.h"

namespace plumb {

// op(a) op(b), by the indices of the kernel's inputs. Leading dimensions in elements.
struct ProductTerm {
  int a, b;
  int64_t k, lda, ldb;
};

// One result [m, n]; indices of the kernel's operands, -1 where there is none.
struct ProductResult {
  int64_t n;
  std::vector<ProductTerm> terms;  // what it is the sum of
  int bias = -1;                   // f32 [n]
  int operand = -1;                // of FinishKind::kAdd and kMul
  int out = 0;
  int slope = -1;  // output that keeps the activation's slopes, of kAct
};

struct ProductSpec {
  DType operands;  // of a and b
  DType out;       // of results, of what they are added to or multiplied by, and of kept slopes
  bool transpose_a, transpose_b;
  int64_t m;
  FinishKind finish = FinishKind::kStore;
  ActivationKind activation = ActivationKind::kRelu;  // where `finish` needs one
  std::vector<ProductResult> results;
};

// The kernel for a product of this shape: the first of those below that does not refuse it.
std::unique_ptr<Kernel> MakeProductKernel(ProductSpec spec);

// A few rows by transposed matrices, as in decoding (gemv.h). Null for others.
std::unique_ptr<Kernel> MakeFewRowsProduct(const ProductSpec& spec);
// One f32 product that one thread does in one go. Null for others.
std::unique_ptr<Kernel> MakeSmallProduct(const ProductSpec& spec);
// A product over many tokens, as the gradient of a weight matrix is one: two activations are packed
// on the way; the terms of a small result are summed in two halves. Null for others.
std::unique_ptr<Kernel> MakeTokensProduct(const ProductSpec& spec);
// A product whose b is large beside a and the result, as a weight matrix is beside a few hundred
// tokens: no part of b is packed without products beside it. Null for others.
std::unique_ptr<Kernel> MakeColumnsProduct(const ProductSpec& spec);
// Many rows by one matrix that is packed once for all tasks. Null for others.
std::unique_ptr<Kernel> MakeManyRowsProduct(const ProductSpec& spec);
// Any product: cut into blocks for several threads, each of which packs what it needs.
std::unique_ptr<Kernel> MakeBlockedProduct(ProductSpec spec);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_MATMUL_PRODUCT_H_
