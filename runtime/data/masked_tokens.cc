// SPDX-License-Identifier: Apache-2.0
#include "runtime/data/masked_tokens.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/rng.h"

namespace plumb {
namespace {

bool IsChoosable(const TokenMasking& masking, int32_t token) {
  return token >= 0 && std::find(masking.special_tokens.begin(), masking.special_tokens.end(),
                                 token) == masking.special_tokens.end();
}

// Number of draws per token: if it is chosen, how it is replaced, and the random token.
constexpr uint64_t kDraws = 3;

int32_t Replacement(const TokenMasking& masking, const RngStream& stream, uint64_t t,
                    int32_t token) {
  const double what = stream.Uniform(kDraws * t + 1);
  if (what < masking.masked) return masking.mask_token;
  if (what >= masking.masked + masking.random) return token;
  return static_cast<int32_t>(
      stream.Below(kDraws * t + 2, static_cast<uint64_t>(masking.vocab_size)));
}

}  // namespace

void MaskTokens(const TokenMasking& masking, absl::string_view purpose, int64_t first_sequence,
                Batch* batch) {
  batch->valid_targets = 0;
  for (int64_t row = 0; row < batch->batch; ++row) {
    const RngStream stream(masking.seed, purpose, static_cast<uint64_t>(first_sequence + row));
    int32_t* const tokens = batch->tokens.data() + row * batch->seq;
    int32_t* const targets = batch->targets.data() + row * batch->seq;
    int64_t left = std::count_if(tokens, tokens + batch->seq,
                                 [&](int32_t token) { return IsChoosable(masking, token); });
    const double share = masking.share * static_cast<double>(left);
    int64_t wanted = std::min(left, std::max<int64_t>(1, std::llround(share)));
    batch->valid_targets += wanted;
    // Selection sampling (Knuth, volume 2, 3.4.2, algorithm S): all sets of `wanted` tokens are
    // equally likely.
    for (int64_t t = 0; t < batch->seq; ++t) {
      targets[t] = -1;
      if (!IsChoosable(masking, tokens[t])) continue;
      const auto draw = static_cast<uint64_t>(t);
      if (stream.Uniform(kDraws * draw) * static_cast<double>(left--) >=
          static_cast<double>(wanted)) {
        continue;
      }
      --wanted;
      targets[t] = tokens[t];
      tokens[t] = Replacement(masking, stream, draw, tokens[t]);
    }
  }
}

}  // namespace plumb
