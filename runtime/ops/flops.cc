// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/flops.h"

#include <algorithm>

namespace plumb {
namespace {

double ProductFlops(const Shape& a, const Shape& b, const Attrs& attrs) {
  const bool transpose_a = attrs.GetBool("transpose_a", false);
  const bool transpose_b = attrs.GetBool("transpose_b", false);
  const int64_t m = transpose_a ? a.last() : a.rows();
  const int64_t k = transpose_a ? a.rows() : a.last();
  const int64_t n = transpose_b ? b.rows() : b.last();
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

// Returns the FLOPs of one product over all pairs of a query and a visible key. Without `is_causal`
// every query sees all keys, as far as types show.
double PairFlops(const OpTypes& types, bool is_causal) {
  const Shape& q = types.in(0).shape;  // [B, Q, H*c], the last Q of the T tokens of k
  const double queries = static_cast<double>(q[1]);
  const double tokens = static_cast<double>(types.in(1).shape[1]);
  const double window =
      types.attrs.Has("window") ? static_cast<double>(types.attrs.GetInt("window")) : 0;
  // Twice the number of pairs. With a window w, queries from position w - 1 on see w keys, or if
  // attention is not causal 2 w - 1.
  double pairs = is_causal ? queries * (2 * tokens - queries + 1) : 2 * queries * tokens;
  if (window > 0 && !is_causal) pairs = 2 * queries * std::min(tokens, 2 * window - 1);
  if (window > 0 && is_causal) {
    const double beyond = std::max(0.0, tokens - window);  // queries that do not see the first key
    const double cut = std::min(beyond, queries);
    pairs -= cut * (2 * beyond - cut + 1);
  }
  return static_cast<double>(q[0]) * pairs * static_cast<double>(q.last());
}

// Returns the FLOPs of the products of queries, keys and values with the states of linear
// attention.
double StateFlops(const OpTypes& types, bool has_beta) {
  const double keys = static_cast<double>(types.in(0).shape.last());
  const double key_dim = keys / static_cast<double>(types.attrs.GetInt("n_key_head"));
  return (has_beta ? 6 : 4) * key_dim * static_cast<double>(types.in(2).num_elements());
}

}  // namespace

double MatmulFlops(const OpTypes& types) {
  return ProductFlops(types.in(0).shape, types.in(1).shape, types.attrs);
}

double MatmulSharedFlops(const OpTypes& types) {
  const size_t count = static_cast<size_t>(types.attrs.GetInt("count"));
  double flops = 0;
  for (size_t i = 1; i <= count; ++i) {
    flops += ProductFlops(types.in(0).shape, types.in(i).shape, types.attrs);
  }
  return flops;
}

double MatmulInt8Flops(const OpTypes& types) {
  double flops = 0;
  for (const double rows : types.attrs.GetDoubles("rows")) {
    flops += 2 * rows * static_cast<double>(types.in(0).num_elements());
  }
  return flops;
}

double MatmulSumFlops(const OpTypes& types) {
  const size_t count = static_cast<size_t>(types.attrs.GetInt("count"));
  double flops = 0;
  for (size_t i = 0; i < count; ++i) {
    flops += ProductFlops(types.in(1 + 2 * i).shape, types.in(2 + 2 * i).shape, types.attrs);
  }
  return flops;
}

double AttentionFlops(const OpTypes& types) { return 2 * PairFlops(types, !types.has(4)); }

double AttentionCachedFlops(const OpTypes& types) { return 2 * PairFlops(types, true); }

double AttentionGradFlops(const OpTypes& types) { return 5 * PairFlops(types, !types.has(6)); }

double LinearAttentionFlops(const OpTypes& types) { return StateFlops(types, types.has(4)); }

double LinearAttentionCachedFlops(const OpTypes& types) { return StateFlops(types, types.has(6)); }

double LinearAttentionGradFlops(const OpTypes& types) {
  return 2.5 * StateFlops(types, types.has(6));
}

}  // namespace plumb
