#include "runtime/ops/expert_matmul_shape.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ops/op_checks.h"

namespace plumb {

absl::Status CheckExpertRows(const OpTypes& types, size_t i, absl::string_view name) {
  PLUMB_RETURN_IF_ERROR(CheckFloat(types, i, name));
  if (types.in(i).shape.rank() == 2) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(name, " must be [rows, width]"));
}

absl::Status CheckExpertStarts(const OpTypes& types, size_t i, int64_t groups) {
  PLUMB_RETURN_IF_ERROR(CheckI32(types, i, "starts"));
  if (groups >= 1 && types.in(i).shape == Shape({groups + 1})) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("starts must be [", groups + 1, "], one more than there are experts"));
}

absl::Status CheckExpertBias(const OpTypes& types, size_t i, int64_t groups, int64_t n) {
  if (!types.has(i)) return absl::OkStatus();
  if (types.in(i) == F32({groups, n})) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("bias must be f32[", groups, ", ", n, "]"));
}

int64_t ExpertOfRow(const std::vector<int32_t>& starts, int64_t row) {
  return std::upper_bound(starts.begin(), starts.end(), row) - starts.begin() - 1;
}

}  // namespace plumb
