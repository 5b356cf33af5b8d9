// SPDX-License-Identifier: Apache-2.0
// Rules N3, N7 and N8: what a call does to memory, and where its operands may be.
#include <sys/resource.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

// Compares dx after a gradient was added to kAddedTo. In bf16 the gradient may be rounded before it
// is added, or not; in other types it is.
std::string CompareAdded(uint32_t type, const std::vector<double>& dx,
                         const std::vector<double>& gradient, int64_t width) {
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
      return absl::StrFormat("dparams[%d][%d] is %.9g, must be %.9g: %s", k, i, now,
                             before + gradient,
                             std::abs(now - gradient) <= 0.01 * before
                                 ? "it is overwritten, and must be added to"
                                 : "the gradient must be added to what is there");
    }
  }
  return "";
}

}  // namespace

std::optional<std::string> AddsAsAsked(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  if (point[kX] == kDenormalX) point[kX] = 0;  // a sum may be flushed
  if (point[kResidual] == 0) point[kAdd] = 1;
  const bool train = point[kEvaluation] == 0;
  const uint32_t type = TypeOf(point);
  const Operands operands = OperandsAt(*instance, point);
  Point plain = Plain(point);
  plain[kFrom] = point[kFrom], plain[kTo] = point[kTo];
  const Outcome must = OutcomeAt(*instance, plain, operands);
  double before = 1;
  for (const auto& values : must.dparams) {
    const double largest = LargestMagnitude(values);
    if (std::isfinite(largest)) before = std::max(before, 4 * largest);
  }
  before = std::exp2(std::ceil(std::log2(before)));
  const PointResult result = RunAt(*instance, point, type, operands, before);
  const Outcome& got = result.outcome;
  std::string text;
  if (point[kResidual] != 0) {
    text = result.problem;
    if (text.empty()) text = FirstDifference("y", got.y, must.y, point[kDim]);
    if (text.empty()) text = FirstDifference("saved", got.saved, must.saved, 1);
  }
  if (text.empty() && train && point[kAdd] != 0) {
    text = CompareAdded(type, got.dx, must.dx, point[kDim]);
  } else if (text.empty() && train) {
    text = FirstDifference("dx", got.dx, must.dx, point[kDim]);
  }
  if (text.empty() && train) text = FirstDifference("dx2", got.dx2, must.dx2, point[kDim]);
  if (text.empty() && train) text = CompareTotals(got, must, before);
  if (!text.empty() && point[kResidual] != 0) {
    text = absl::StrCat("with " PLUMB_EXT_RESIDUAL ": ", text, ", as for the sum itself");
  }
  return At(point, text);
}

std::optional<std::string> StaysInside(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const std::string text =
      RunAt(*instance, point, TypeOf(point), OperandsAt(*instance, point)).problem;
  return text;
}

std::optional<std::string> WorksAnywhere(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  Operands operands = OperandsAt(*instance, point);
  if (point[kAlias] != 0 && point[kSeed] % 2 == 0 && !operands.x2.empty()) operands.x2 = operands.x;
  const Outcome got = OutcomeAt(*instance, point, operands);
  std::string text = FirstDifference(got, OutcomeAt(*instance, Plain(point), operands));
  if (!text.empty()) {
    absl::StrAppend(&text, ", as in aligned rows of one pitch",
                    point[kAlias] != 0 ? ", out of place" : "");
  }
  return At(point, text);
}

// -- Rows gigabytes apart -------------------------------------------------------------------------

namespace {

// Raises the address space limit of the process by `bytes`, as far as the system allows.
void AllowMoreAddresses(rlim_t bytes) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_AS, &limit) != 0) return;
  const rlim_t max = limit.rlim_max;
  limit.rlim_cur = max - limit.rlim_cur < bytes ? max : limit.rlim_cur + bytes;
  setrlimit(RLIMIT_AS, &limit);
}

// Runs evaluation and a training step, in ranges of which most begin far away.
Outcome CallFarRows(NormRun* run, std::vector<double>* evaluated) {
  constexpr int64_t kRange = 5;
  const int64_t rows = run->rows();
  for (const bool train : {false, true}) {
    if (run->TakesStatistics(train)) run->Statistics(PLUMB_PHASE_FORWARD, train, run->ChunkRows());
    for (int64_t r = 0; r < rows; r += kRange) {
      run->ForwardRange(train, r, std::min(rows, r + kRange));
    }
    if (!train) *evaluated = run->y.Values();
  }
  run->Backward();
  return run->Results();
}

}  // namespace

void CheckFarRows(const Subject& subject, Report* report) {
  // The last row begins 18 GiB after the first: beyond 2^32 bytes, and beyond 2^31 elements of any
  // type. The pitch is an odd multiple of 64, so that no two rows are equal modulo 2^32.
  constexpr int64_t kFarRows = 17, kFarPitch = (int64_t{9} << 27) + 64;
  if (!subject.point.empty()) return;
  AllowMoreAddresses(rlim_t{64} << 30);
  const std::unique_ptr<Instance> instance = FirstInstance(*subject.norm, {17, 16, 12, 64, 8, 1});
  for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
    NormRun near(*instance, dtype, kFarRows, subject.seed);
    std::vector<double> y, y_far;
    const Outcome must = OfRows(CallFarRows(&near, &y));
    constexpr std::pair<const char*, Rows NormRun::*> kOperands[] = {
        {"x", &NormRun::x},    {"y", &NormRun::y},   {"saved", &NormRun::saved},
        {"dy", &NormRun::dy},  {"dx", &NormRun::dx}, {"x2", &NormRun::x2},
        {"dx2", &NormRun::dx2}};
    for (const auto& [name, operand] : kOperands) {
      NormRun far(*instance, dtype, kFarRows, subject.seed);
      Rows& rows = far.*operand;
      if (rows.rows() == 0 || rows.width() == 0) continue;
      // Memory that a negative offset reaches if a signed index of elements overflows.
      const int64_t room = (int64_t{1} << 31) * static_cast<int64_t>(TypeSize(rows.dtype()));
      const std::string refused = rows.MoveApart(kFarPitch, room);
      if (!refused.empty()) {
        return report->Note("rows gigabytes apart were not tried: no " + refused);
      }
      std::string text = FirstDifference(OfRows(CallFarRows(&far, &y_far)), must);
      if (text.empty()) text = FirstDifference("y", y_far, y, far.dim());
      if (text.empty()) continue;
      return report->Fail(absl::StrCat(far.Name(), ", rows of ", name, " 1.125 GiB apart: ", text));
    }
  }
}

}  // namespace plumb::check
