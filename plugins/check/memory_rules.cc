// SPDX-License-Identifier: Apache-2.0
// Rules N3, N7 and N8: what a call does to memory, and where its operands may be.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"

namespace plumb::check {
namespace {

// Compares dx after a gradient was added to kAddedTo. In bf16 the gradient may be rounded before it
// is added, or not; in other types it is.
std::string CompareAdded(uint32_t type, const Values& dx, const Values& gradient, int64_t width) {
  for (size_t i = 0; i < dx.size(); ++i) {
    const double sum = kAddedTo + gradient[i], must = RoundTo(type, sum);
    const double allowed = 1.01 * (HalfUlp(type, gradient[i]) + HalfUlp(type, sum));
    const bool is_right =
        type == PLUMB_DTYPE_BF16 ? std::abs(dx[i] - sum) <= allowed : dx[i] == must;
    if (!std::isfinite(must) || is_right) continue;
    return absl::StrFormat(
        "%s is %.9g, must be %.9g: the gradient %.9g, rounded, is added to the %g that is there",
        PlaceInTensor("dx", i, dx.size(), width), dx[i], must, gradient[i], kAddedTo);
  }
  return "";
}

// Compares dparams after gradients were added to `before`, much larger numbers.
std::string CompareTotals(const Outcome& got, const Outcome& gradients, double before) {
  for (size_t k = 0; k < gradients.dparams.size(); ++k) {
    for (size_t i = 0; i < gradients.dparams[k].size(); ++i) {
      const double gradient = gradients.dparams[k][i], now = got.dparams[k][i];
      if (!std::isfinite(gradient) || std::abs(now - before - gradient) <= 0.01 * before) continue;
      const bool is_overwritten = std::abs(now - gradient) <= 0.01 * before;
      return absl::StrFormat("dparams[%d][%d] is %.9g, must be %.9g: %s", k, i, now,
                             before + gradient,
                             is_overwritten ? "it is overwritten, and must be added to"
                                            : "the gradient must be added to what is there");
    }
  }
  return "";
}

}  // namespace

Result AddsAsAsked(const Norm& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  if (point[kX] == kDenormalX) point[kX] = 0;  // a sum may be flushed
  const bool fused = point[kResidual] != 0, train = point[kEvaluation] == 0;
  if (!fused) point[kAdd] = 1;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome must = RunAt(*instance, WithForms(point, kRangeForms), operands);
  RunOptions options;
  options.inspect = fused;
  options.dparams = 1;
  for (const Values& values : must.dparams) {
    const double largest = LargestMagnitude(values);
    if (std::isfinite(largest)) options.dparams = std::max(options.dparams, 4 * largest);
  }
  options.dparams = std::exp2(std::ceil(std::log2(options.dparams)));
  const Outcome got = RunAt(*instance, point, operands, options);
  std::string text = fused ? got.problem : "";
  if (text.empty() && fused) text = FirstDifference("y", got.y, must.y, point[kDim]);
  if (text.empty() && fused) text = FirstDifference("saved", got.saved, must.saved, 1);
  if (text.empty() && train) {
    text = point[kAdd] != 0 ? CompareAdded(GetType(point), got.dx, must.dx, point[kDim])
                            : FirstDifference("dx", got.dx, must.dx, point[kDim]);
  }
  if (text.empty() && train) text = FirstDifference("dx2", got.dx2, must.dx2, point[kDim]);
  if (text.empty() && train) text = CompareTotals(got, must, options.dparams);
  if (!text.empty() && fused) {
    text = absl::StrCat("with " PLUMB_EXT_RESIDUAL ": ", text, ", as for the sum itself");
  }
  return At(point, text);
}

Result StaysInside(const Norm& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  RunOptions options;
  options.inspect = true;
  return At(point, RunAt(*instance, point, OperandsAt(*instance, point), options).problem);
}

Result WorksAnywhere(const Norm& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  Operands operands = OperandsAt(*instance, point);
  if (point[kAlias] != 0 && point[kSeed] % 2 == 0 && !operands.x2.empty()) operands.x2 = operands.x;
  const Outcome must = RunAt(*instance, Plain(point), operands);
  const std::string text = FirstDifference(RunAt(*instance, point, operands), must);
  if (text.empty()) return text;
  return At(point, absl::StrCat(text, ", as in aligned rows of one pitch",
                                point[kAlias] != 0 ? ", out of place" : ""));
}

}  // namespace plumb::check
