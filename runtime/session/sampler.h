// SPDX-License-Identifier: Apache-2.0
// Draws the next token from a model's logits.
#ifndef PLUMB_RUNTIME_SESSION_SAMPLER_H_
#define PLUMB_RUNTIME_SESSION_SAMPLER_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/base/rng.h"

namespace plumb {

struct SamplingOptions {
  double temperature = 1.0;  // 0: always the most likely token
  int64_t top_k = 0;         // keep the k most likely tokens; 0: all
  double top_p = 1.0;        // keep the smallest set of likeliest tokens with this total; 1: all
  uint64_t seed = 1;         // seed of the streams that the caller passes to Draw
};

// Fails with kInvalidArgument, with the name and value of the option.
absl::Status CheckSamplingOptions(const SamplingOptions& options);

// Sampler for one vocabulary. Owns scratch of its size, so Draw allocates nothing.
// Thread-compatible.
class TokenSampler {
 public:
  static absl::StatusOr<TokenSampler> Create(const SamplingOptions& options, int32_t vocab_size);

  // Draws one token from `logits` [vocab_size]: applies temperature, then top_k, then top_p
  // (Holtzman et al., "The curious case of neural text degeneration", 2020), then uses draw `index`
  // of `stream`. Of equal logits, the smaller id counts as likelier. A pure function of the
  // arguments and the options; the order of calls does not matter. Errors: kInvalidArgument if a
  // logit is not finite.
  absl::StatusOr<int32_t> Draw(const float* logits, const RngStream& stream, uint64_t index);

  const SamplingOptions& options() const { return options_; }
  int32_t vocab_size() const { return static_cast<int32_t>(order_.size()); }

 private:
  TokenSampler(const SamplingOptions& options, int32_t vocab_size);

  // Puts the tokens that may be drawn into order_, and their weights into weights_. Returns their
  // number.
  size_t KeepCandidates(const float* logits, float largest);

  SamplingOptions options_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_SAMPLER_H_
