// SPDX-License-Identifier: Apache-2.0
#include "runtime/session/sampler.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "runtime/base/float_mode.h"
#include "runtime/base/status.h"

namespace plumb {

absl::Status CheckSamplingOptions(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("temperature must be a finite number >= 0, is ", options.temperature));
  }
  if (options.top_k < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("top_k must be >= 0 (0 keeps all tokens), is ", options.top_k));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "top_p must be above 0 and at most 1 (1 keeps all tokens), is ", options.top_p));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenSampler> TokenSampler::Create(const SamplingOptions& options,
                                                  int32_t vocab_size) {
  PLUMB_RETURN_IF_ERROR(CheckSamplingOptions(options));
  if (vocab_size < 1) {
    return absl::InvalidArgumentError(absl::StrCat("vocab_size must be >= 1, is ", vocab_size));
  }
  return TokenSampler(options, vocab_size);
}

TokenSampler::TokenSampler(const SamplingOptions& options, int32_t vocab_size)
    : options_(options),
      order_(static_cast<size_t>(vocab_size)),
      weights_(static_cast<size_t>(vocab_size)) {}

size_t TokenSampler::KeepCandidates(const float* logits, float largest) {
  std::iota(order_.begin(), order_.end(), 0);
  size_t kept = order_.size();
  const size_t top_k = static_cast<size_t>(options_.top_k);
  const bool cut_k = top_k > 0 && top_k < kept;
  const bool cut_p = options_.top_p < 1;
  if (cut_k || cut_p) {
    if (cut_k) kept = top_k;
    // A total order, so the result does not depend on the sorting algorithm.
    const auto likelier = [logits](int32_t a, int32_t b) {
      return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
    };
    const auto end = order_.begin() + static_cast<std::ptrdiff_t>(kept);
    if (cut_k) std::nth_element(order_.begin(), end - 1, order_.end(), likelier);
    std::sort(order_.begin(), end, likelier);
  }
  double total = 0;
  for (size_t i = 0; i < kept; ++i) {
    // No logit is above the largest: exponents are never positive, and the first weight is 1.
    weights_[i] = std::exp((double{logits[order_[i]]} - double{largest}) / options_.temperature);
    total += weights_[i];
  }
  if (!cut_p) return kept;
  double sum = 0;
  for (size_t i = 0; i < kept; ++i) {
    sum += weights_[i];
    if (sum >= options_.top_p * total) return i + 1;
  }
  return kept;
}

absl::StatusOr<int32_t> TokenSampler::Draw(const float* logits, const RngStream& stream,
                                           uint64_t index) {
  const ScopedNoDenormals no_denormals;  // the same token in any floating-point mode
  int32_t likeliest = 0;
  for (int32_t token = 0; token < vocab_size(); ++token) {
    if (!std::isfinite(logits[token])) {
      return absl::InvalidArgumentError(absl::StrCat("the logit of token ", token, " is ",
                                                     logits[token], "; has the model diverged?"));
    }
    if (logits[token] > logits[likeliest]) likeliest = token;
  }
  if (options_.temperature == 0) return likeliest;

  const size_t kept = KeepCandidates(logits, logits[likeliest]);
  double total = 0;
  for (size_t i = 0; i < kept; ++i) total += weights_[i];
  const double target = stream.Uniform(index) * total;
  double sum = 0;
  int32_t drawn = likeliest;
  for (size_t i = 0; i < kept; ++i) {
    if (weights_[i] == 0) continue;  // rounding must not draw a token of probability 0
    sum += weights_[i];
    drawn = order_[i];
    if (target < sum) break;
  }
  return drawn;
}

}  // namespace plumb
