// SPDX-License-Identifier: Apache-2.0
// Graph passes. Each is a pure function from graph to graph that preserves the value of every
// output. CompiledProgram::Of verifies their result. Passes know ops, and never placements or
// norms.
#ifndef PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_
#define PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/graph/graph.h"
#include "runtime/graph/op.h"

namespace plumb {

struct OptimizeOptions {
  std::vector<std::string> disabled;  // names of passes to skip
  bool recompute_blocks = false;      // run recompute-blocks: less memory, more work
  bool gradient_norms = false;        // run gradient-norms: outputs "grad_square.<parameter>"
};

struct Pass {
  std::string name;  // "dead-values"
  std::string doc;
  absl::StatusOr<Graph> (*run)(Graph graph, const OpRegistry& registry);
  // The option that enables the pass; null for a pass that runs unless it is disabled.
  bool OptimizeOptions::*option = nullptr;
  bool before_gradients = false;  // run by OptimizeForward, before differentiation
};

// All passes, in the order in which Optimize runs them. "Bits stay": every output keeps every bit.
// "Rounding": sums are rounded at other points, so results differ by rounding errors.
//
//   form-programs        per-token ops between other nodes (sublayers, norms, products) become one
//                        program (graph/program.h), if at least three of them compute. It runs
//                        before differentiation, so that the gradient is a program too, which
//                        recomputes its operands to save memory. A stream ends a program, so it
//                        and its gradient can be observed. Rounding; in bf16 values are not rounded
//   last-token           nodes whose results only last_token reads, such as those of the last layer
//                        of a prompt after its keys and values, take the last token of their inputs
//                        (OpDef::token_wise). Drops dead nodes. It is first, so that other
//                        passes see only the remaining nodes. Rounding, if GEMV sums in another
//                        order; with int8 weights it rounds x too
//   merge-combines       combine(combine(..)) used once becomes one sum; a combine of one value,
//                        with coefficient 1 and no constant, is replaced by that value, and so is
//                        stop. Rounding
//   common-values        two nodes with equal op, inputs and attributes become one. Bits stay
//   accumulate-embeddings  a plain sum (coefficients 1, no constant) of an embedding's gradient and
//                        another term (for example, if the table is also the head's weight): the
//                        gradient's rows are scattered into the other term in place. Rounding, if a
//                        token occurs more than once
//   fuse-activations     act(x), x = matmul(..) with no other reader than its gradient, becomes
//                        matmul_act, which stores the activation's derivative instead of x;
//                        act_grad(x, dy) becomes matmul_act_grad if dy is a product, else
//                        mul(dy, derivative). The activation is applied while sums are in the
//                        cache, and computed once for both passes. Bits stay in f32; in bf16
//                        rounding, because intermediate values are not rounded
//   sum-products         plain sums of matrix products and at most one other term become
//                        matmul_add and matmul_sum, which accumulate in registers: a residual
//                        sum reads and writes the stream, and the product is not stored. It
//                        precedes fuse-residual-norms, which would fuse the sum. Rounding
//   share-operands       products of one left operand with several parameters (q, k, v; gate, up)
//                        become one matmul_shared, at the position of the first. Bits stay, except
//                        that products of at most 16 rows may be summed in another order next to
//                        smaller ones (gemv.h)
//   recompute-blocks     (on request) values of a layer that are stored only for the backward pass
//                        are recomputed, by the same nodes, right before their use; the layer's
//                        results, outputs, and results of nodes with `updates` are stored. It
//                        follows common-values, which would undo it. Bits stay
//   fuse-residual-norms  combine(a, b) and the first norm that reads it become one add_norm; a
//                        combine of gradients is fused into the norm_grad nodes among its terms, if
//                        the order of additions stays. Bits stay in f32; rounding in bf16
//   dead-values          drops nodes that no output needs and that update no state; a matmul_act
//                        no longer stores a derivative without readers. Bits stay
//   gradient-norms       (on request) for every output "grad.X" an output "grad_square.X" f32[1],
//                        the sum of its squares, right after the producer of grad.X, while it is in
//                        the cache. Bits stay
const std::vector<Pass>& AllPasses();

// Runs the passes that must precede differentiation. Optimize runs the others. Errors: as Optimize.
absl::StatusOr<Graph> OptimizeForward(Graph graph, const OpRegistry& registry,
                                      const OptimizeOptions& options);

// Returns options with which only these passes run.
OptimizeOptions OnlyPasses(const std::vector<std::string>& names);

absl::StatusOr<Graph> Optimize(Graph graph, const OpRegistry& registry,
                               const OptimizeOptions& options = {});

}  // namespace plumb

#endif  // PLUMB_RUNTIME_COMPILE_OPTIMIZE_H_
