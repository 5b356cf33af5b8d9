// SPDX-License-Identifier: Apache-2.0
// WorkBudget: limits the time and the memory of one call of a tokenizer. A tokenizer.json comes
// from other people, and its patterns, replacements and tokens can make a short text run for hours
// or exhaust memory. Everything that may cost more than a few steps per byte of the text is charged
// here: steps of patterns, bytes by which a text grows, bytes that are looked up in tries.
// A value; thread-compatible.
#ifndef PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_
#define PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace plumb {

class WorkBudget {
 public:
  // Allows steps in proportion to the text's size. Published tokenizers take far fewer.
  explicit WorkBudget(size_t bytes)
      : limit_(kSteps + kStepsPerByte * static_cast<uint64_t>(bytes)),
        left_(limit_),
        bytes_(bytes) {}

  // Number of remaining steps.
  uint64_t left() const { return left_; }

  // Takes `steps` away. Errors: kResourceExhausted, with `part`, if fewer remain.
  absl::Status Charge(uint64_t steps, absl::string_view part) {
    if (steps > left_) return Exhausted(part);
    left_ -= steps;
    return absl::OkStatus();
  }
  // Charges for a text that grows by `bytes`, so that memory is bounded, too.
  absl::Status ChargeGrowth(size_t bytes, absl::string_view part) {
    return Charge(kStepsPerGrownByte * static_cast<uint64_t>(bytes), part);
  }
  // Charges for `bytes` of a text that are looked up in a trie of tokens, at a higher rate.
  absl::Status ChargeLookup(size_t bytes, absl::string_view part) {
    return Charge(kStepsPerLookup * static_cast<uint64_t>(bytes), part);
  }
  absl::Status Exhausted(absl::string_view part) const {
    return absl::ResourceExhaustedError(absl::StrCat(part, ": more than the limit of ", limit_,
                                                     " steps for ", bytes_, " bytes of text",
                                                     kAdvice));
  }

  // Maximum number of steps (normalizers, pre-tokenizers, decoders, post-processors) in a list.
  static constexpr size_t kMaxParts = 64;

  static constexpr absl::string_view kAdvice =
      ": plumb bounds the time and memory of a tokenizer; use the tokenizer.json that the model "
      "was "
      "published with";

 private:
  static constexpr uint64_t kSteps = uint64_t{1} << 24, kStepsPerByte = 512;
  static constexpr uint64_t kStepsPerGrownByte = 16, kStepsPerLookup = 8;
  uint64_t limit_, left_;
  size_t bytes_;
};

// Fails in the same way if a list at `place` has too many steps.
inline absl::Status CheckPartCount(size_t parts, absl::string_view place) {
  if (parts <= WorkBudget::kMaxParts) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      place, ": more than the limit of ", WorkBudget::kMaxParts, " steps", WorkBudget::kAdvice));
}

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TOKENIZER_WORK_BUDGET_H_
