// X3: y, saved and dx of a row, bit for bit, in one aligned range, at the point, in a call of its
// own, and in evaluation.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"

namespace plumb::check {
namespace {

// Rows [from, to) of a call alone.
Operands Slice(const Operands& all, int64_t dim, int64_t from, int64_t to) {
  Operands part = all;
  part.x.assign(all.x.begin() + from * dim, all.x.begin() + to * dim);
  part.dy.assign(all.dy.begin() + from * dim, all.dy.begin() + to * dim);
  return part;
}

std::vector<double> RowsOf(const std::vector<double>& values, int64_t rows, int64_t from,
                           int64_t to) {
  const auto width = static_cast<int64_t>(values.size()) / rows;
  return {values.begin() + from * width, values.begin() + to * width};
}

// Only what the same row must have.
Outcome OfRows(Outcome outcome) {
  outcome.dparams.clear();
  outcome.buffers.clear();
  outcome.call_saved.clear();
  return outcome;
}

std::string CompareSmallCall(const Instance& instance, const Point& point, const Operands& operands,
                             const Outcome& whole) {
  const int64_t rows = point[kRows], from = point[kFrom], to = std::min(rows, from + 3);
  Point small = Plain(point);
  small[kRows] = small[kTo] = to - from;
  const Outcome got =
      OfRows(RunAt(instance, small, TypeOf(point), Slice(operands, point[kDim], from, to)).outcome);
  Outcome must;
  must.y = RowsOf(whole.y, rows, from, to);
  must.dx = RowsOf(whole.dx, rows, from, to);
  must.saved = RowsOf(whole.saved, rows, from, to);
  const std::string text = FirstDifference(got, must, point[kDim]);
  return text.empty() ? text
                      : absl::StrCat("rows ", from, "..", to, " in a call of their own: ", text);
}

std::optional<std::string> SameBits(const plumb_norm_plugin& norm, Point point) {
  point[kAdd] = 0;  // N3 and X1 add
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = TypeOf(point);
  // Statistics of other pieces are other sums; a residual's sum in bf16 may be rounded twice.
  if ((norm.flags & PLUMB_NORM_CROSS_ROW) != 0) point[kPieces] = 0;
  if (type == PLUMB_BF16) point[kResidual] = 0;
  const bool row_wise = (norm.flags & (PLUMB_NORM_CROSS_ROW | PLUMB_NORM_STOCHASTIC)) == 0;
  const Operands operands = OperandsAt(*instance, point);
  const PointResult got = RunAt(*instance, point, type, operands);
  if (!got.problem.empty()) return got.problem;
  const Outcome must = OfRows(RunAt(*instance, Plain(point), type, operands).outcome);
  std::string text = FirstDifference(OfRows(got.outcome), must, point[kDim]);
  if (!text.empty()) text += ", as in one aligned range";
  if (text.empty() && row_wise) text = CompareSmallCall(*instance, point, operands, must);
  if (text.empty() && row_wise) {
    Point other = Plain(point);
    other[kEvaluation] = 1 - point[kEvaluation];
    const Outcome phase = RunAt(*instance, other, type, operands).outcome;
    text = FirstDifference("y", phase.y, must.y, point[kDim]);
    if (!text.empty()) text += ", in training and in evaluation";
  }
  if (text.empty()) return text;
  return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

}  // namespace

void ExploreBits(const Subject& subject, Report* report) {
  Explore(
      subject, "X3", [&](const Point& point) { return SameBits(*subject.norm, point); }, report);
}

}  // namespace plumb::check
