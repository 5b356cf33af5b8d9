// SPDX-License-Identifier: Apache-2.0
// BpeTrainer: trains a byte-level BPE vocabulary (Sennrich et al. 2016; bytes: Radford et al.
// 2019). Starting from single bytes, the most frequent pair of adjacent tokens within the pieces
// repeatedly becomes a token. Of equally frequent pairs the one with the lower ids is taken, so
// that a text determines its vocabulary. Counts are updated incrementally: a merge costs as much as
// there are places where it applies. Thread-compatible.
#ifndef PLUMB_RUNTIME_TOKENIZER_BPE_TRAINER_H_
#define PLUMB_RUNTIME_TOKENIZER_BPE_TRAINER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

class BpeTrainer {
 public:
  struct Options {
    int64_t vocab_size = 0;     // bytes, merges and special tokens; at least 256 + special.size()
    int64_t min_frequency = 2;  // minimum count of a pair that is merged
    // Pre-tokenization: "gpt2", "llama3" (the same as GPT-4's), "qwen2", or a regular expression.
    std::string pattern = "gpt2";
    std::vector<std::string> special = {"<|endoftext|>"};  // never split; they get the last ids
  };
  // Creates a trainer. Errors: kInvalidArgument for invalid options.
  static absl::StatusOr<std::unique_ptr<BpeTrainer>> Create(const Options& options);
  ~BpeTrainer();

  // Receives, regularly and at the end, the number of bytes counted (Count) or of merges made
  // (Train). An error that it returns ends Count or Train, which return it.
  using Progress = absl::FunctionRef<absl::Status(int64_t done)>;

  // Splits `text` into pieces by the pattern, and adds them to the counts of earlier texts. Special
  // tokens and bytes that are not UTF-8 separate pieces and are not counted; neither is an error.
  // Requires: Train was not called. Errors: kResourceExhausted if the pattern takes too many steps.
  absl::Status Count(absl::string_view text, Progress progress);
  int64_t distinct_pieces() const { return static_cast<int64_t>(counts_.size()); }

  // Trains and returns the vocabulary as a tokenizer.json. It has fewer tokens than vocab_size if
  // no pair occurs min_frequency times any more. Requires: called at most once.
  absl::StatusOr<std::string> Train(Progress progress);

 private:
  struct Cutting;
  explicit BpeTrainer(Options options);
  std::string ToJson(const std::vector<std::pair<int32_t, int32_t>>& merges) const;

  Options options_;
  std::unique_ptr<Cutting> cutting_;
  absl::flat_hash_map<std::string, int64_t> counts_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_BPE_TRAINER_H_
