// SPDX-License-Identifier: Apache-2.0
// The references of cross_entropy and cross_entropy_grad.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/ops/cross_entropy.h"

namespace plumb {

absl::StatusOr<int64_t> CountTargets(const int32_t* targets, int64_t rows, int64_t vocabulary) {
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    if (targets[r] >= vocabulary) {
      return absl::OutOfRangeError(absl::StrCat("target ", targets[r], " of row ", r,
                                                " is outside the vocabulary of ", vocabulary));
    }
    count += targets[r] >= 0;
  }
  return count;
}

absl::Status ReferenceCrossEntropy(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  const Objective objective(args.attrs);
  double sum = 0, objective_sum = 0;
  for (int64_t r = 0; r < rows; ++r) {
    const double* x = &args.f(0)[static_cast<size_t>(r * n)];
    const double top = *std::max_element(x, x + n);
    double total = 0;
    for (int64_t j = 0; j < n; ++j) total += std::exp(x[j] - top);
    const double lse = top + std::log(total);
    args.out(1)[static_cast<size_t>(r)] = lse;
    if (const int32_t target = args.i(1)[static_cast<size_t>(r)]; target >= 0) {
      sum += lse - x[target];
      double mean = 0;
      for (int64_t j = 0; j < n; ++j) mean += (lse - x[j]) / static_cast<double>(n);
      const double e = objective.label_smoothing;
      objective_sum += (1 - e) * (lse - x[target]) + e * mean + objective.z_loss * lse * lse;
    }
  }
  args.out(0)[0] = count == 0 ? 0 : sum / static_cast<double>(count);
  if (!objective.IsCrossEntropy()) {
    args.out(2)[0] = count == 0 ? 0 : objective_sum / static_cast<double>(count);
  }
  return absl::OkStatus();
}

absl::Status ReferenceCrossEntropyGrad(const ReferenceArgs& args) {
  const int64_t rows = args.shape(0).rows(), n = args.shape(0).last();
  PLUMB_ASSIGN_OR_RETURN(const int64_t count, CountTargets(args.i(1).data(), rows, n));
  const Objective objective(args.attrs);
  const double e = objective.label_smoothing;
  for (int64_t r = 0; r < rows; ++r) {
    const int32_t target = args.i(1)[static_cast<size_t>(r)];
    if (target < 0) continue;
    for (int64_t j = 0; j < n; ++j) {
      const size_t at = static_cast<size_t>(r * n + j);
      const double lse = args.f(2)[static_cast<size_t>(r)], p = std::exp(args.f(0)[at] - lse);
      args.out(0)[at] = args.f(3)[0] / static_cast<double>(count) *
                        (p * (1 + 2 * objective.z_loss * lse) - e / static_cast<double>(n) -
                         (j == target ? 1 - e : 0));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
