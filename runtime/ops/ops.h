// SPDX-License-Identifier: Apache-2.0
// The ops of plumb. Each has a file of its own name (an op and its gradient share one): shape rule,
// VJP with its derivation, kernel, naive reference.
//
// Shapes below: B batch, T tokens, d width, H query heads, KV key/value heads, c = head width, V
// vocabulary, R = rows = everything but the last dimension. Optional operands are in parentheses.
//
// Element types: the tensors of one call are all f32 or all bf16. These are always f32: operands
// marked f32, vectors (biases, norms' parameters, the vector of mul), weights of convolutions, sums
// (of mul_reduce, gradients of tables and parameters), norms' saved values and states, lse, loss.
// Kernels compute in f32.
//
// clang-format off
//   embedding(table[V,d], ids i32[..]) {f32_out, offset=0} -> [..,d]  y[t] = table[offset + ids[t]]; fails if
//       an id is outside [0, V - offset); f32_out: y is f32
//   embedding_grad(ids, dy, (acc f32[V,d])) {rows=V, offset=0} -> f32[V,d]   (acc +) rows of dy added up by id
//   matmul(a, b, (bias[N])) {transpose_a, transpose_b, f32_out} -> [..,N]   a and b are used as matrices
//       [rows, last]; y = op(a) op(b) + bias; leading dimensions of a are kept unless transpose_a. A
//       linear layer with weight [out, in] is matmul(x, w) {transpose_b}. a and b are both f32 or both
//       bf16, and so is y; f32_out: y is f32. The bias is f32; sums are in f32.
//   matmul_act(a, b, (bias)) {transpose_a, transpose_b, kind, keep} -> y (, derivative)
//       y = act(x) and, with keep, derivative = act'(x), like y, of x = matmul(a, b, bias); both share one
//       exponential. It has no gradient, like the fused ops below, because passes create them after
//       differentiation.
//   matmul_act_grad(a, b, derivative) {transpose_a, transpose_b} -> like derivative
//       matmul(a, b) * derivative
//   matmul_add(a, b, (bias), addend) {transpose_a, transpose_b} -> like addend
//       addend + matmul(a, b, bias); the addend of bf16 operands may be f32
//   matmul_shared(x, w_1, .., w_n (, bias_1, .., bias_n)) {transpose_b, count=n} -> y_1, .., y_n
//       y_i = matmul(x, w_i, bias_i); x is read once; each bias may be absent
//   matmul_sum((addend), a_1, b_1, .., a_n, b_n) {transpose_b, count=n} -> like matmul(a_1, b_1)
//       addend + sum_i matmul(a_i, b_i)
//   sum_squares(x f32) -> f32[1]                            summed in double; no gradient
//   combine(x1, .., xn) {coefs=[..], constant} -> like x1    sum_i coefs_i * x_i + constant, equal shapes
//   mul(a, b) -> broadcast          operands are broadcast (broadcast.h): vectors over rows, and each of L
//                                   channels, L a divisor of d, over d / L (1: scalar, H: per head)
//   mul_reduce(a[..,d], (b)) {size=d} -> [size]   sum over rows and groups of a*b; b broadcast to a
//   row_dot(a[..,d], (b)) {size=d} -> [..,size]   sum over groups of a*b; b broadcast to a
//   weighted_sum(a1, (b1), .., an, (bn)) {coefs, constant} -> broadcast   sum_i coefs_i a_i b_i + constant
//   expand(x, like) {(width)} -> like, of `width` channels   x broadcast
//   concat(x1, .., xn) ({dims}) -> [..,d1+..+dn]            along the channels; vectors may become dims
//   split(x) {widths, flat} -> y1, .., yn                   inverse of concat; flat: all elements, to vectors
//   stop(x) -> like x                                       no gradient
//   map(x) {kind, number} -> like x                         map_kind.h
//   map_grad(x, dy) {kind, number} -> like x
//   extremum(a, b) {max} -> like a                          the larger (max) or the smaller
//   extremum_grad(a, b, dy) {max} -> da, db                 halves where a = b
//   drop(x [B,T,..], random i32[6]) {p, path, name} -> like x   0 with probability p, else x / (1 - p); path:
//       the whole x[i] at once. random: seed and step, 64 bits each, low word first; then the row of the step
//       that x[0] is, and the stride in positions by which elements are numbered (at least T is used), so that
//       a draw does not depend on the rows or the T of a pass
//   program(x1, .., xn) {graph} -> y1, .., ym     a graph of the ops combine, mul, mul_reduce, row_dot,
//                                   weighted_sum, expand, concat, split, stop, fill, map, extremum, act
//                                   and their gradients (graph/program.h), tile by tile of rows. The
//                                   kernels of these ops are programs of one node (ProgramKernelFactory)
//   act(x) {kind} -> like x         kind: relu, gelu (exact), gelu_tanh, silu, tanh, sigmoid, erf
//   act_grad(x, dy) {kind} -> like x
//   gated(gate, up) {kind} -> like up                       act(gate) * up
//   gated_grad(gate, up, dy) {kind} -> dgate, dup
//   norm(x, params.. (, x2) (, positions i32[B,T]) (, step f32[1])) {instance, train}
//       -> y (, saved[R, saved_per_row])   rows of instance.dim elements (x's last dimension is a multiple of
//       it); `saved` exists if train and saved_per_row > 0; x2, positions and step are present if the
//       instance needs them, here and below
//   add_norm(x, res, params.., ..) {instance, train} -> sum, y (, saved)     sum = x + res, y = norm(sum)
//   norm_grad((x), (y), dy, (saved), (dsum), params.. (, (x2)) ..) {instance} -> dx, dparams.. (, dx2)
//       dsum: added to dx; the gradient of the norm's input from its other readers
//   cross_norm(x, state, params..) {instance} -> y, state' (, call_saved[saved_per_call]) (, saved)
//       a norm with statistics over all rows, in training; `state` f32[state_elements], its buffers, is
//       updated in place
//   cross_norm_eval(x, state, params..) {instance} -> y                  uses the running statistics, or,
//       if the norm requires it, those of this call; the state does not change. No gradient.
//   cross_norm_grad((x), (y), dy, state, (call_saved), (saved), params..) {instance}
//       -> dx, state', dparams..          `state` is cross_norm's state', and is updated in place
//   rope(x[B,T,n*c], positions i32[B,T]) {head_dim=c, theta, dims=c, interleaved, scaling, magnitude=1, inverse}
//       -> like x
//       rotates (x_i, x_{i+dims/2}) of each head (RoFormer, in the half-split layout of GPT-NeoX and LLaMA) or
//       (x_2i, x_{2i+1}) (interleaved) by position * theta^(-2i/dims), multiplied by the magnitude; copies
//       elements from dims on. scaling: other frequencies (RopeFrequencies in rope.cc). inverse rotates back
//   attention(q[B,T,H*c], k[B,T,KV*c], v[B,T,KV*c] (, sink f32[H]) (, lengths i32[B]) (, key_bias f32[B,T,H]))
//       {n_head, n_kv_head, scale, cap, window, alibi} -> context like q, lse[B,H,T]
//       causal softmax(s) v, s = scale q k^T, or cap tanh(s / cap) if cap > 0. If window > 0, a query sees its
//       own key and the window - 1 before it. If alibi > 0, scores are lowered by alibi times the head's slope
//       times the distance of query and key (ALiBi). A sink is one more score, without a value.
//       lse = log-sum-exp of the scores, including the sink. With lengths it is not causal: every query sees
//       the first lengths[b] keys, 1..T, of its sequence, and with a window those up to window - 1 away; the
//       results of later queries are then 0. key_bias is added to the scores of a key, less that of the query's
//       own key; then there are no sinks, lengths, cap, window and alibi
//   attention_grad(q, k, v, context, lse, dcontext (, lengths) (, key_bias)) {..} -> dq, dk, dv (, dkey_bias)
//   attention_sink_grad(sink f32[H], context, lse, dcontext) -> like sink
//   attention_cached(q[B,Q,H*c], k, v, k_cache[B,KV,C,c], v_cache, positions i32[B,T] (, sink)) {..}
//       -> context, k_cache', v_cache'    writes k, v at `positions` (consecutive within a row of the batch),
//       then attends to cache rows 0..position for the last Q <= T tokens; the caches are updated in place.
//       Fails if a position is outside [0,C). With a window, of at most C tokens, the caches are rings: position
//       p has row p mod C, and may be any number. No gradient.
//   attention_cached_keys(q, k, k_cache, positions (, sink)) {..} -> context, k_cache'
//       attention_cached with values that are the keys, and one cache for both
//   attention_cached_bias(q, k, v, k_cache, v_cache, positions, kNoValue, key_bias f32[B,T,H], cache f32[B,1,C,H])
//       {..} -> context, k_cache', v_cache', cache'     attention_cached with biases of the new and earlier keys
//   causal_conv(x[B,T,d], weight f32[d,W] (, bias f32[d])) -> like x     channel by channel,
//       y_t = bias + sum_{i<W} weight_i x_{t-i}; x is 0 before the first token
//   causal_conv_grad(dy[B,T,d], weight) -> like dy          dx_t = sum_i weight_i dy_{t+i}
//   causal_conv_weight_grad(x, dy) {width=W} -> f32[d,W]    sum over B and t of x_{t-i} dy_t
//   causal_conv_cached(x[B,T,d], weight, cache[B,1,C,d], positions i32[B,T] (, bias)) {ring} -> y, cache'
//       writes x at `positions`, as attention_cached does, and reads earlier ones from the cache, which may be
//       a ring of at least W tokens. No gradient.
//   linear_attention(q[B,T,G*c], k[B,T,G*c], v[B,T,H*d] (, decay[B,T,H or H*c]) (, beta[B,T,H]))
//       {n_head=H, n_key_head=G, train} -> context like v (, starts f32[B,H,chunks,c*d])   each head of keys
//       serves H / G consecutive heads of values, which have a state [c,d] each (linear_attention.h). decay:
//       logarithms, at most 0, of the factors of a state, or of its rows; beta: present for the delta rule.
//       With train: the states before each chunk of tokens, which the gradient reads
//   linear_attention_grad(q, k, v, starts, dcontext (, decay) (, beta)) {..} -> dq, dk, dv (, ddecay) (, dbeta)
//   linear_attention_cached(q, k, v, state f32[B,H,c*d], positions i32[B,T] (, decay) (, beta)) {..}
//       -> context, state'     continues from the state, or from 0 where the first position is 0. No gradient.
//   cross_entropy(logits[..,V], targets i32[..]) -> loss[1], lse[R]   mean over targets >= 0 of
//       lse - logit[target]; ignores targets < 0, fails if others are outside [0,V); 0 if no target is left
//       {label_smoothing, z_loss}: a third output, objective[1], the mean of (1 - label_smoothing)
//       (lse - logit[target]) + label_smoothing (lse - mean of logits) + z_loss lse^2; loss is the same
//       {rows}: a last output, losses[R], lse - logit[target] of each row, 0 without a target; no gradient
//   cross_entropy_grad(logits, targets, lse, dloss[1]) {label_smoothing, z_loss} -> like logits
//   host_loss(logits f32[..,V], loss i32[2]) -> loss[1], dlogits   calls a function of the host, of which `loss`
//       is the address (host_loss.h)
//   fill() {dims=[..], value, (bf16)} -> f32[dims], or bf16[dims]
//   convert(x) {bf16} -> like x, in bf16 or f32             or i32[B,T] -> [B,T,1]; bf16: y is bf16
//   last_token(x[B,T,d]) -> [B,1,d]                         or i32[B,T] -> [B,1]; no gradient
//
// Mixtures of experts: E experts, k of them per token, n = tokens * k assignments. Rows are grouped by expert,
// one row per assignment: token t's j-th expert has row places[t,j]; expert e has rows starts[e] to
// starts[e+1]. The cost is proportional to n, not to E.
//   route(logits[..,E] (, correction f32[E])) {top_k=k, router, scale, (renormalize, n_group, top_group)}
//       -> weights f32[..,k], places i32[..,k], starts i32[E+1]
//       the k largest logits (of equal ones the lower index); weights = scale u; router: softmax_of_top_k (u
//       is the softmax of the chosen), softmax (u of all experts, not renormalized), sigmoid (renormalize: u
//       is divided by its sum + 1e-20); with a correction the k largest of score + correction, the score
//       being the sigmoid, else the softmax of all; among the experts of the top_group best groups only
//   route_grad(logits, dweights (, correction)) {..} -> like logits
//   to_experts(x[..,d], places (, weights f32[..,k])) -> [n,d]     y[places[t,j]] = (weights[t,j]) x[t]
//   from_experts(y[n,d], places (, weights)) -> [..,d]              sum_j (weights[t,j]) y[places[t,j]]
//   expert_dot(y[n,d], x[..,d], places) -> f32[..,k]                y[places[t,j]] x[t]
//   expert_matmul(x[n,K], w[E,K,N], starts (, bias f32[E,N])) {transpose_b} -> [n,N]
//       product of the rows of each expert and its matrix; x and w are both f32 or both bf16
//   expert_outer(a[n,M], b[n,N], starts) -> f32[E,M,N]              sum of a^T b over the rows of each expert
//   expert_sum(x[n,N], starts) -> f32[E,N]                          sum over the rows of each expert
//   expert_load(load f32[E], starts) -> f32[E]                     load + number of rows of each expert; updates load
//   balance_loss(logits[..,E], starts) {coefficient} -> f32[1]      balance_loss.cc
//   balance_loss_grad(logits, starts, dloss[1]) {coefficient} -> like logits
//
// With int8 weights, a matrix is its elements and its scales in tiles (quantize.h); no gradient:
//   embedding_int8(table[V,d], scales, ids i32[..]) {rows=V, width=d, offset=0} -> f32[..,d]
//   matmul_int8(x f32[..,K], w_1[N_1,K], scales_1, .. (, bias_1[N_1], ..)) {rows=[N_1, ..]}
//       -> y_1 f32[..,N_1], ..   y_i = x w_i^T + bias_i; x is rounded to 16 bits (gemv_int8.h)
//   expert_matmul_int8(x f32[n,K], w[E,N,K], starts, scales (, bias f32[E,N])) {rows=N} -> f32[n,N]
// clang-format on
#ifndef PLUMB_RUNTIME_OPS_OPS_H_
#define PLUMB_RUNTIME_OPS_OPS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/gemm/gemm_policy.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

// Adds every op above.
void RegisterOps(OpRegistry* registry, const GemmPolicy& policy = HostGemmPolicy());

// Registers the ops of one file; RegisterOps calls all of these functions.
void RegisterEmbedding(OpRegistry* registry);
void RegisterEmbeddingInt8(OpRegistry* registry);
void RegisterMatmul(OpRegistry* registry, const GemmPolicy& policy);
void RegisterMatmulInt8(OpRegistry* registry);
void RegisterFusedMatmul(OpRegistry* registry, const GemmPolicy& policy);
void RegisterSumSquares(OpRegistry* registry);
void RegisterConcat(OpRegistry* registry);
void RegisterDrop(OpRegistry* registry);
void RegisterWeightedSum(OpRegistry* registry);
void RegisterNorm(OpRegistry* registry);
void RegisterNormGrad(OpRegistry* registry);
void RegisterCrossNorm(OpRegistry* registry);
void RegisterRope(OpRegistry* registry);
void RegisterAttention(OpRegistry* registry);
void RegisterAttentionCached(OpRegistry* registry);
void RegisterCausalConv(OpRegistry* registry);
void RegisterLinearAttention(OpRegistry* registry);
void RegisterCrossEntropy(OpRegistry* registry);
void RegisterHostLoss(OpRegistry* registry);
void RegisterConvert(OpRegistry* registry);
void RegisterFill(OpRegistry* registry);
void RegisterLastToken(OpRegistry* registry);
void RegisterPointwise(OpRegistry* registry);
void RegisterProgram(OpRegistry* registry);
void RegisterReduce(OpRegistry* registry);
void RegisterRoute(OpRegistry* registry);
void RegisterExpertRows(OpRegistry* registry);
void RegisterExpertMatmulInt8(OpRegistry* registry);
void RegisterExpertMatmul(OpRegistry* registry, const GemmPolicy& policy);
void RegisterBalanceLoss(OpRegistry* registry);

// The `instance` attribute of the ops on norms.
class NormAttr : public AttrObject {
 public:
  explicit NormAttr(std::shared_ptr<const NormInstance> instance)
      : instance_(std::move(instance)) {}
  std::string ToString() const override { return instance_->ToString(); }
  const NormInstance& instance() const { return *instance_; }

 private:
  std::shared_ptr<const NormInstance> instance_;
};

// Implements OpDef::make_kernel with the kernel K, which is created from the types.
template <class K>
absl::StatusOr<std::unique_ptr<Kernel>> MakeKernel(const OpTypes& types) {
  return std::make_unique<K>(types);
}
// Does the same with a kernel for elements of the type of input `kInput`, f32 or bf16.
template <template <class> class K, size_t kInput = 0>
absl::StatusOr<std::unique_ptr<Kernel>> MakeTypedKernel(const OpTypes& types) {
  if (types.in(kInput).dtype == DType::kBF16) return std::make_unique<K<uint16_t>>(types);
  return std::make_unique<K<float>>(types);
}

// Returns the kernel factory of the op `name`, one of the ops of programs. The kernel is a program
// with this one node.
std::function<absl::StatusOr<std::unique_ptr<Kernel>>(const OpTypes&)> ProgramKernelFactory(
    std::string name);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_OPS_H_
