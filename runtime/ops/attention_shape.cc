// SPDX-License-Identifier: Apache-2.0
#include "runtime/ops/attention_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"

namespace plumb {

absl::StatusOr<AttentionShape> ReadCachedAttentionShape(const OpTypes& types) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 0, "q"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 1, "k"));
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, 2, "v"));
  const TensorType &q = types.in(0), &k = types.in(1), &v = types.in(2);
  AttentionShape shape;
  shape.heads = types.attrs.GetInt("n_head");
  shape.kv_heads = types.attrs.GetInt("n_kv_head");
  shape.scale = types.attrs.GetDouble("scale");
  shape.cap = types.attrs.GetDouble("cap", 0);
  shape.window = types.attrs.Has("window") ? types.attrs.GetInt("window") : 0;
  shape.alibi = types.attrs.GetDouble("alibi", 0);
  if (!(shape.cap >= 0) || shape.window < 0 || !(shape.alibi >= 0)) {
    return absl::InvalidArgumentError(absl::StrCat("cap = ", shape.cap, ", window = ", shape.window,
                                                   " and alibi = ", shape.alibi,
                                                   " must not be negative"));
  }
  if (shape.heads < 1 || shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "n_head = ", shape.heads, " is not a multiple of n_kv_head = ", shape.kv_heads));
  }
  if (q.shape.rank() != 3 || q.shape.last() % shape.heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("q is ", q.ToString(),
                     ", needs [batch, tokens, n_head * width] with n_head = ", shape.heads));
  }
  shape.batch = q.shape[0];
  shape.queries = q.shape[1];
  shape.tokens = k.shape.rank() == 3 ? std::max(k.shape[1], shape.queries) : shape.queries;
  shape.head_dim = q.shape.last() / shape.heads;
  const TensorType want = {q.dtype, {shape.batch, shape.tokens, shape.kv_stride()}};
  if (k != want || v != want) {
    return absl::InvalidArgumentError(absl::StrCat(
        "k is ", k.ToString(), " and v ", v.ToString(), ", both must be ", want.ToString(),
        " for q ", q.ToString(), " with n_kv_head = ", shape.kv_heads));
  }
  return shape;
}

absl::StatusOr<AttentionShape> ReadAttentionShape(const OpTypes& types) {
  PLUMB_ASSIGN_OR_RETURN(const AttentionShape shape, ReadCachedAttentionShape(types));
  if (shape.queries != shape.tokens) {
    return absl::InvalidArgumentError(absl::StrCat("q has ", shape.queries, " tokens and k ",
                                                   shape.tokens, ": they must have as many"));
  }
  return shape;
}

absl::Status CheckSinks(const OpTypes& types, size_t i, const AttentionShape& shape) {
  if (!types.has(i) || types.in(i) == F32({shape.heads})) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the sinks are ", types.in(i).ToString(), ", must be f32[", shape.heads, "]"));
}

absl::Status CheckKeyBias(const OpTypes& types, size_t i, const AttentionShape& shape,
                          bool others) {
  const TensorType want = F32({shape.batch, shape.tokens, shape.heads});
  const bool alone = !others && shape.cap == 0 && shape.window == 0 && shape.alibi == 0;
  if (!types.has(i) || (types.in(i) == want && alone)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("the biases of keys are ", types.in(i).ToString(), ", must be ", want.ToString(),
                   ", without sinks, lengths, cap, window and alibi"));
}

double AlibiSlope(int64_t head, int64_t heads) {
  int64_t power = 1;
  while (2 * power <= heads) power *= 2;
  const int64_t step = head < power ? 2 * (head + 1) : 2 * (head - power) + 1;
  return std::exp2(-4.0 * static_cast<double>(step) / static_cast<double>(power));
}

absl::Status CheckLengths(const OpTypes& types, size_t i, const AttentionShape& shape) {
  if (!types.has(i)) return absl::OkStatus();
  if (types.in(i) != I32({shape.batch})) {
    return absl::InvalidArgumentError(absl::StrCat("the lengths are ", types.in(i).ToString(),
                                                   ", must be i32[", shape.batch, "]"));
  }
  if (shape.window == 0 || shape.alibi == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("window = ", shape.window,
                                                 " and alibi = ", shape.alibi,
                                                 ": one must be 0 if attention is not causal"));
}

absl::Status CheckLengthValues(const int32_t* lengths, const AttentionShape& shape) {
  for (int64_t row = 0; row < shape.batch; ++row) {
    if (lengths[row] >= 1 && lengths[row] <= shape.tokens) continue;
    return absl::InvalidArgumentError(absl::StrCat("length ", lengths[row], " of sequence ", row,
                                                   " is not in 1..", shape.tokens));
  }
  return absl::OkStatus();
}

SoftmaxVariant AttentionShape::Variant(int64_t head, const float* sink,
                                       const float* key_bias) const {
  SoftmaxVariant variant;
  variant.cap = static_cast<float>(cap);
  variant.window = window;
  variant.slope = static_cast<float>(Slope(head));
  if (sink != nullptr) variant.sink = *sink;
  variant.key_bias = key_bias;
  variant.key_bias_stride = heads;
  return variant;
}

}  // namespace plumb
