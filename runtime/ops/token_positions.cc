#include "runtime/ops/token_positions.h"

#include "absl/strings/str_cat.h"

namespace plumb {

absl::Status CheckPositions(const int32_t* positions, int64_t batch, int64_t tokens,
                            int64_t capacity) {
  for (int64_t row = 0; row < batch; ++row) {
    const int32_t* at = positions + row * tokens;
    for (int64_t t = 0; t < tokens; ++t) {
      if (at[t] < 0 || at[t] >= capacity) {
        return absl::OutOfRangeError(absl::StrCat("position ", at[t], " of row ", row,
                                                  " is outside the cache, which holds ", capacity,
                                                  " tokens"));
      }
      if (at[t] != at[0] + t) {
        return absl::InvalidArgumentError(absl::StrCat("position ", at[t], " of row ", row,
                                                       " does not follow position ", at[t - 1]));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
