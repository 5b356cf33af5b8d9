// SPDX-License-Identifier: Apache-2.0
// MaskTokens: inputs and targets of masked language modelling (BERT; Devlin et al. 2018, section
// 3.1, task 1). Stateless, thread-safe; allocates nothing.
#ifndef PLUMB_RUNTIME_DATA_MASKED_TOKENS_H_
#define PLUMB_RUNTIME_DATA_MASKED_TOKENS_H_

#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"
#include "runtime/data/batches.h"

namespace plumb {

struct TokenMasking {
  uint64_t seed = 1;
  double share = 0.15;                  // fraction of a sequence's tokens that are chosen
  double masked = 0.8, random = 0.1;    // fractions of the chosen; the rest keeps its token
  int32_t mask_token = 0;               // replacement of the masked ones
  int64_t vocab_size = 0;               // random tokens are drawn from [0, vocab_size)
  std::vector<int32_t> special_tokens;  // tokens that are never chosen
};

// Chooses max(1, round(share * n)) of the n tokens in each row that are neither padding (-1) nor
// special, makes them the row's only targets, and replaces them. The choice and the replacements
// are a function of the stream (seed, purpose, number of the sequence); row r has the number
// first_sequence + r.
void MaskTokens(const TokenMasking& masking, absl::string_view purpose, int64_t first_sequence,
                Batch* batch);

// Purposes for training and for validation data, whose masks do not depend on the step.
inline constexpr char kTrainingMasks[] = "masked-tokens";
inline constexpr char kEvaluationMasks[] = "masked-tokens-evaluation";

}  // namespace plumb

#endif  // PLUMB_RUNTIME_DATA_MASKED_TOKENS_H_
