// SPDX-License-Identifier: Apache-2.0
// Training of a byte-level BPE vocabulary (Sennrich et al. 2016; bytes: Radford et al. 2019): from
// single bytes, the pair of tokens that is most often beside each other within a piece becomes a
// token, again and again. Of pairs that are equally frequent the one with the lower ids is taken,
// so that a text gives one vocabulary. Counts are kept up to date, and a merge costs as much as
// there are places where it is done. Thread-compatible.
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
    int64_t vocab_size = 0;     // bytes, merges and special tokens; at least 256 and those
    int64_t min_frequency = 2;  // of a pair that is merged
    // How a text is cut: "gpt2", "llama3" (which is GPT-4's), "qwen2", or a regular expression.
    std::string pattern = "gpt2";
    std::vector<std::string> special = {"<|endoftext|>"};  // never cut, and the last ids
  };
  // InvalidArgument for options that cannot be.
  static absl::StatusOr<std::unique_ptr<BpeTrainer>> Create(const Options& options);
  ~BpeTrainer();

  // Called now and then with how much of the text has been counted, and of how many merges made.
  using Progress = absl::FunctionRef<absl::Status(int64_t done)>;

  // Counts the pieces of a text; more than once, of several.
  absl::Status Count(absl::string_view text, Progress progress);
  int64_t distinct_pieces() const { return static_cast<int64_t>(counts_.size()); }

  // The vocabulary as a tokenizer.json. It has fewer tokens than asked for where no pair is left
  // that occurs min_frequency times. Called once.
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
