// SPDX-License-Identifier: Apache-2.0
#include "runtime/tokenizer/work_budget.h"

#include "absl/strings/str_cat.h"

namespace plumb {
namespace {

constexpr absl::string_view kAdvice =
    ": plumb bounds the time and memory of a tokenizer; use the tokenizer.json that the model was "
    "published with";

}  // namespace

absl::Status WorkBudget::Exhausted(absl::string_view part) const {
  return absl::ResourceExhaustedError(absl::StrCat(
      part, ": more than the limit of ", limit_, " steps for ", bytes_, " bytes of text", kAdvice));
}

absl::Status CheckPartCount(size_t parts, absl::string_view place) {
  if (parts <= WorkBudget::kMaxParts) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat(place, ": more than the limit of ", WorkBudget::kMaxParts, " steps", kAdvice));
}

}  // namespace plumb
