// SPDX-License-Identifier: Apache-2.0
// AttentionShape: the sizes and attributes of an attention op, read from its operands. A value.
#ifndef PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_
#define PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/graph/op.h"
#include "runtime/kernels/attention/attention.h"

namespace plumb {

// Returns ALiBi's slope of head 0..heads - 1 (Press, Smith & Lewis, "Train short, test long",
// 2021). For n heads, a power of 2, it is 2^(-8 (head + 1) / n). Otherwise the first heads use the
// slopes of the largest power of 2 below n, and the others every second slope of twice as many
// heads.
double AlibiSlope(int64_t head, int64_t heads);

struct AttentionShape {
  int64_t batch;
  int64_t tokens;   // tokens of k and v
  int64_t queries;  // the last of the tokens
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  double scale;
  double cap;      // max absolute score; 0: no cap
  int64_t window;  // keys visible to a query, its own the last; 0: all before it
  double alibi;    // factor of ALiBi's slopes; 0: no ALiBi

  int64_t group() const { return heads / kv_heads; }  // query heads that share keys
  int64_t q_stride() const { return heads * head_dim; }
  int64_t kv_stride() const { return kv_heads * head_dim; }
  // Returns the first key visible to the query at position i.
  int64_t first_key(int64_t i) const {
    return window == 0 ? 0 : std::max<int64_t>(0, i - window + 1);
  }
  // Returns the end of the keys visible to the query at position i of a sequence that is not
  // causal. With a window, a query behind the end of the sequence sees none.
  int64_t end_key(int64_t i, int64_t length) const {
    if (window == 0) return length;
    return i < length ? std::min(length, i + window) : first_key(i);
  }
  // Returns the score `scale q . k`, capped.
  double Capped(double score) const { return cap == 0 ? score : cap * std::tanh(score / cap); }
  // Returns the decrease of a head's score for each token between query and key.
  double Slope(int64_t head) const { return alibi == 0 ? 0 : alibi * AlibiSlope(head, heads); }
  double DistanceBias(int64_t head, int64_t query, int64_t key) const {
    return -Slope(head) * static_cast<double>(std::abs(query - key));
  }
  // Returns the kernels' variant for a head with that sink and those biases of its keys, a row of
  // `heads` apart; null: without.
  SoftmaxVariant Variant(int64_t head, const float* sink, const float* key_bias) const;
};

// Reads the shape from q[B,T,H*c], k[B,T,KV*c], v[B,T,KV*c] (inputs 0 to 2; all f32 or all bf16)
// and the attributes n_head, n_kv_head, scale, cap, window, alibi. An error names the one that is
// invalid.
absl::StatusOr<AttentionShape> ReadAttentionShape(const OpTypes& types);
// Reads the shape of attention_cached, which takes q[B,Q,H*c] with Q <= T.
absl::StatusOr<AttentionShape> ReadCachedAttentionShape(const OpTypes& types);

// Fails unless input i, the sinks, is absent or f32[H].
absl::Status CheckSinks(const OpTypes& types, size_t i, const AttentionShape& shape);

// Fails unless input i, the biases of keys, is absent, or is f32[B,T,H] and there is nothing else
// that changes the softmax: `others` is true if there are sinks or lengths.
absl::Status CheckKeyBias(const OpTypes& types, size_t i, const AttentionShape& shape, bool others);

// Fails unless input i, the number of tokens of each sequence, is absent, or is i32[B] and there is
// no ALiBi with a window.
absl::Status CheckLengths(const OpTypes& types, size_t i, const AttentionShape& shape);
// Fails unless each length is in 1..T, so that a query sees at least one key.
absl::Status CheckLengthValues(const int32_t* lengths, const AttentionShape& shape);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_
