// SPDX-License-Identifier: Apache-2.0
// Drawing the next token from a model's logits.
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
  int top_k = 0;             // keep the k most likely tokens; 0: all
  double top_p = 1.0;        // keep the fewest likeliest tokens that hold this share; 1: all
  uint64_t seed = 1;         // of the streams that the caller hands to Draw
};

// InvalidArgument, naming the option and its value.
absl::Status CheckSamplingOptions(const SamplingOptions& options);

// Draws tokens for one vocabulary. Owns scratch of its size: Draw allocates nothing.
// Thread-compatible.
class TokenSampler {
 public:
  static absl::StatusOr<TokenSampler> Create(const SamplingOptions& options, int32_t vocab_size);

  // One token from `logits` [vocab_size]. Temperature, then top_k, then top_p (Holtzman et al.,
  // "The curious case of neural text degeneration", 2020), then draw `index` of `stream`; of equal
  // logits the smaller id counts as the likelier. A pure function of the arguments and the options:
  // the same for any order of calls. InvalidArgument when a logit is not finite.
  absl::StatusOr<int32_t> Draw(const float* logits, const RngStream& stream, uint64_t index);

  const SamplingOptions& options() const { return options_; }
  int32_t vocab_size() const { return static_cast<int32_t>(order_.size()); }

 private:
  TokenSampler(const SamplingOptions& options, int32_t vocab_size);

  // Puts into order_ the tokens that may be drawn and into weights_ what each of them weighs.
  size_t KeepCandidates(const float* logits, float largest);

  SamplingOptions options_;
  std::vector<int32_t> order_;
  std::vector<double> weights_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_SESSION_SAMPLER_H_
