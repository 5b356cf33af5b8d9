// SPDX-License-Identifier: Apache-2.0
// The expressions in the fields of sublayers, as numbers at one place of the model. Pure.
#ifndef PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_
#define PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/spec/resolved_model.h"
#include "runtime/spec/scalar.h"

namespace plumb {

struct AttentionNumbers {
  double scale = 1;
  double score_cap = 0;  // 0: none
  int64_t window = 0;    // 0: none, or one as long as the context

  // Tokens of which decoding keeps keys and values.
  int64_t CachedTokens(const ModelDims& dims) const {
    return window > 0 ? window : dims.context_length;
  }
};

// Of the rotary embedding in a layer.
struct RopeNumbers {
  int64_t dims = 0;  // elements of a head that turn, the first; even
  double base = 10000;
  const RopeScaling* scaling = nullptr;  // the one of this layer; null: none
  double linear_factor = 1;              // of a linear scaling
};

// Errors point into the expression: it has no value, or one that the field cannot take.
absl::StatusOr<AttentionNumbers> EvaluateAttention(const AttentionSpec& spec,
                                                   const ScalarScope& scope);

// Requires: the positions are those of a rotary embedding, and outlive the result.
absl::StatusOr<RopeNumbers> EvaluateRope(const PositionSpec& positions, const ScalarScope& scope);
// The hidden width of an MLP.
absl::StatusOr<int64_t> EvaluateMlpWidth(const MlpSpec& spec, const ScalarScope& scope);

struct ExpertsNumbers {
  int64_t n_expert = 1, top_k = 1;
  int64_t d_ff = 0;
  int64_t shared_d_ff = 0;  // 0: no shared expert
  double balance_loss = 0;
  double scale = 1;
};
absl::StatusOr<ExpertsNumbers> EvaluateExperts(const ExpertsSpec& spec, const ScalarScope& scope);

// By how much the slopes of the model's positions are multiplied: 0 where they have none.
absl::StatusOr<double> EvaluateAlibi(const PositionSpec& positions, const ScalarScope& scope);

// The most hidden elements that a token has in one sublayer: d_ff of an MLP, top_k * d_ff of
// experts. REQUIRES: the numbers are checked.
absl::StatusOr<int64_t> WidestHidden(const ResolvedModel& model);

// Evaluates them at every place of the model: OK, or the first mistake.
absl::Status CheckSublayerNumbers(const ResolvedModel& model);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SPEC_SUBLAYER_NUMBERS_H_
