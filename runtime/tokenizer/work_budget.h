// SPDX-License-Identifier: Apache-2.0
// WorkBudget: limits the time and the memory that one call of a tokenizer takes. A tokenizer.json
// comes from others, and its patterns, replacements and tokens can make a short text run for hours
// or fill the memory. Everything that may cost more than a few steps for a byte of the text is
// charged here: steps of patterns, bytes by which a text grows, bytes of tokens that are tried.
// A value; thread-compatible.
#ifndef PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_
#define PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace plumb {

class WorkBudget {
 public:
  // Steps for a text of `bytes`. Published tokenizers take far fewer.
  explicit WorkBudget(size_t bytes)
      : limit_(kSteps + kStepsPerByte * static_cast<uint64_t>(bytes)),
        left_(limit_),
        bytes_(bytes) {}

  // Steps that remain.
  uint64_t left() const { return left_; }

  // Takes `steps` away. ResourceExhausted if fewer remain; `part` names what wanted them.
  absl::Status Charge(uint64_t steps, absl::string_view part) {
    if (steps > left_) return Exhausted(part);
    left_ -= steps;
    return absl::OkStatus();
  }
  // Charges for a text that becomes longer by `bytes`, so that memory is bounded, too.
  absl::Status ChargeGrowth(size_t bytes, absl::string_view part) {
    return Charge(kStepsPerGrownByte * static_cast<uint64_t>(bytes), part);
  }
  // Charges for `bytes` of a text that are looked up in a trie of tokens, which costs more.
  absl::Status ChargeLookup(size_t bytes, absl::string_view part) {
    return Charge(kStepsPerLookup * static_cast<uint64_t>(bytes), part);
  }
  absl::Status Exhausted(absl::string_view part) const;

  // Steps (normalizers, pre-tokenizers, decoders, post-processors) that a tokenizer.json may have.
  static constexpr size_t kMaxParts = 64;

 private:
  static constexpr uint64_t kSteps = uint64_t{1} << 24, kStepsPerByte = 512;
  static constexpr uint64_t kStepsPerGrownByte = 16, kStepsPerLookup = 8;
  uint64_t limit_, left_;
  size_t bytes_;
};

// The same error for a list of `parts` steps at `place` that is too long.
absl::Status CheckPartCount(size_t parts, absl::string_view place);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_
