// SPDX-License-Identifier: Apache-2.0
// Values of the expressions in the fields of sublayers, at one place of the model. Stateless.
#ifndef PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_
#define PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

struct AttentionNumbers {
  double scale = 1;
  double score_cap = 0;  // 0: none
  int64_t window = 0;    // 0: unlimited, which includes the context length or more

  // Returns the number of tokens whose keys and values decoding caches.
  int64_t CachedTokens(const ModelDims& dims) const {
    return window > 0 ? window : dims.context_length;
  }
};

// Rotary embedding of one layer.
struct RopeNumbers {
  int64_t dims = 0;  // number of rotated elements, the first of a head; even
  double base = 10000;
  const RopeScaling* scaling = nullptr;  // scaling that applies to this layer; null: none
  std::vector<double> linear_factors;    // for a linear scaling, one per pair
};

// Evaluates the fields of an attention in the layer and sublayer of `scope`. Fields that are absent
// have their defaults, and a window of the context length or more is 0, unlimited. Errors:
// kInvalidArgument, with the position in the expression, if it has no value or one outside of the
// field's range. The functions below fail in the same way.
absl::StatusOr<AttentionNumbers> EvaluateAttention(const AttentionSpec& spec,
                                                   const ScalarScope& scope);

// Sets model->own_heads. Requires: all else of the model that expressions read is set.
absl::Status EvaluateHeads(ResolvedModel* model);

// Requires: positions.kind is kRope; `positions` outlives the result.
absl::StatusOr<RopeNumbers> EvaluateRope(const PositionSpec& positions, const ScalarScope& scope);
// Returns the value of a field d_ff.
absl::StatusOr<int64_t> EvaluateHiddenWidth(const Expression& d_ff, const ScalarScope& scope);
// Returns the hidden width of an MLP: its own d_ff, or that of the model.
absl::StatusOr<int64_t> EvaluateMlpWidth(const MlpSpec& spec, const ScalarScope& scope);

struct ExpertsNumbers {
  int64_t n_expert = 1, top_k = 1;
  int64_t d_ff = 0;
  int64_t shared_d_ff = 0;  // 0: no shared expert
  int64_t latent = 0;       // width of the experts; 0: d_model, without projections
  double balance_loss = 0;
  double scale = 1;
  int64_t n_group = 1, top_group = 1;
};
absl::StatusOr<ExpertsNumbers> EvaluateExperts(const ExpertsSpec& spec, const ScalarScope& scope);

struct LinearAttentionNumbers {
  int64_t n_head = 1, n_key_head = 1;  // of values; of queries and keys
  int64_t key_dim = 1, value_dim = 1;

  int64_t keys() const { return n_key_head * key_dim; }  // width of the queries, and of the keys
  int64_t values() const { return n_head * value_dim; }
  int64_t state() const { return key_dim * value_dim; }  // elements of a head's state
};
absl::StatusOr<LinearAttentionNumbers> EvaluateLinearAttention(const LinearAttentionSpec& spec,
                                                               const ScalarScope& scope);

// Returns the number of tokens that decoding stores for a convolution inside linear attention,
// whose state cannot go back to earlier tokens.
int64_t ConvCacheTokens(const ConvSpec& spec, const ModelDims& dims);

// Returns the factor of the ALiBi slopes, or 0 if the model has no ALiBi.
absl::StatusOr<double> EvaluateAlibi(const PositionSpec& positions, const ScalarScope& scope);

// Returns the factor of the tokens' embeddings.
absl::StatusOr<double> EvaluateEmbeddingScale(const ResolvedModel& model);

// Returns the max number of hidden elements per token in one sublayer: d_ff of an MLP, the larger
// of top_k * d_ff and shared_d_ff of experts. Requires: CheckSublayerNumbers returned OK.
absl::StatusOr<int64_t> WidestHidden(const ResolvedModel& model);

// Evaluates the fields at every layer of the model. Returns OK or the first error.
absl::Status CheckSublayerNumbers(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_
