// What the operands of the attention ops say about heads. A value.
#ifndef PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_
#define PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "runtime/graph/op.h"

namespace plumb {

struct AttentionShape {
  int64_t batch;
  int64_t tokens;   // of k and v
  int64_t queries;  // the last of the tokens
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  double scale;

  int64_t group() const { return heads / kv_heads; }  // query heads that share keys
  int64_t q_stride() const { return heads * head_dim; }
  int64_t kv_stride() const { return kv_heads * head_dim; }
};

// All f32 or all bf16. From q[B,T,H*c], k[B,T,KV*c], v[B,T,KV*c] (inputs 0 to 2) and the attributes
// n_head, n_kv_head, scale. An error says which of them does not fit.
absl::StatusOr<AttentionShape> ReadAttentionShape(const OpTypes& types);
// The same of attention_cached, which takes q[B,Q,H*c] with Q <= T too.
absl::StatusOr<AttentionShape> ReadCachedAttentionShape(const OpTypes& types);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_OPS_ATTENTION_SHAPE_H_
