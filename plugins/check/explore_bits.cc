// X3: y, saved and dx of a row, bit for bit, in one aligned range, at the point, in a call of its
// own, in evaluation, and in memory that has held another call.
#include <algorithm>
#include <cmath>
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
  if (!all.x2.empty()) part.x2.assign(all.x2.begin() + from * dim, all.x2.begin() + to * dim);
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
  must.dx2 = RowsOf(whole.dx2, rows, from, to);
  must.saved = RowsOf(whole.saved, rows, from, to);
  const std::string text = FirstDifference(got, must, point[kDim]);
  return text.empty() ? text
                      : absl::StrCat("rows ", from, "..", to, " in a call of their own: ", text);
}

// The host's chunks on several threads.
std::string CompareThreads(const Instance& instance, const Point& point, const Operands& operands) {
  if (point[kRows] * point[kDim] > 60000 || point[kRows] < 2) return "";
  NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
  Outcome outcomes[2];
  for (const int threads : {1, 3}) {
    run.Reset();
    AssignTo(operands, &run);
    run.Step(threads, threads == 1 ? 0 : static_cast<uint64_t>(point[kSeed]) + 1);
    outcomes[threads == 1 ? 0 : 1] = run.Results();
  }
  const std::string text = FirstDifference(outcomes[1], outcomes[0], point[kDim]);
  return text.empty() ? text : absl::StrCat("on 3 threads: ", text, ", as on one");
}

// Rows one by one, as in decoding, twice each.
std::string CompareSingleRows(const Instance& instance, const Point& point,
                              const Operands& operands, const Outcome& whole) {
  constexpr int64_t kTimes = 40;
  NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
  AssignTo(operands, &run);
  const bool train = point[kEvaluation] == 0;
  std::string text;
  const int64_t dim = point[kDim];
  for (int64_t k = 0; k < kTimes && text.empty(); ++k) {
    const int64_t row = (point[kFrom] + k / 2) % point[kRows];
    run.ForwardRange(train, row, row + 1);
    if (train) run.BackwardRange(false, row, row + 1);
    for (int64_t i = 0; i < dim && text.empty(); ++i) {
      const auto at = static_cast<size_t>(row * dim + i);
      text = FirstDifference("y", {run.y.Get(row, i)}, {whole.y[at]}, dim);
      if (text.empty() && train) {
        text = FirstDifference("dx", {run.dx.Get(row, i)}, {whole.dx[at]}, dim);
      }
      if (!text.empty()) {
        text = absl::StrCat("row ", row, " alone, call ", k + 1, ": element ", i, ": ", text);
      }
    }
  }
  return text;
}

// Rows with a NaN in x leave the others as they are without it.
std::string CompareIsolation(const Instance& instance, const Point& point, const Operands& operands,
                             const Outcome& whole) {
  Operands clean = operands;
  for (double& value : clean.x) value = std::isfinite(value) ? value : 1;
  const Outcome must = OfRows(PlainRun(instance, point, TypeOf(point), clean));
  const size_t dim = static_cast<size_t>(point[kDim]);
  for (size_t start = 0; start < must.y.size(); start += dim) {
    bool is_clean = true;
    for (size_t i = start; i < start + dim; ++i)
      is_clean = is_clean && std::isfinite(operands.x[i]);
    if (!is_clean) continue;
    for (size_t i = start; i < start + dim; ++i) {
      std::string text = FirstDifference("y", {whole.y[i]}, {must.y[i]}, 1);
      if (text.empty() && point[kEvaluation] == 0) {
        text = FirstDifference("dx", {whole.dx[i]}, {must.dx[i]}, 1);
      }
      if (text.empty()) continue;
      return absl::StrCat("NaN or infinity in another row: row ", start / dim, ", element ",
                          i - start, ": ", text);
    }
  }
  return "";
}

// Backward knows a row by what its call brings, not by its address: two calls in the same memory,
// the forward passes first. The second changes what lies between the ends of each row.
std::string CompareReusedMemory(const Instance& instance, const Point& point,
                                const Operands& operands) {
  if (point[kRows] * point[kDim] > 60000) return "";
  Operands calls[] = {operands, operands};
  for (int64_t i = 0; i < point[kRows] * point[kDim]; ++i) {
    const int64_t column = i % point[kDim];
    double& value = calls[1].x[static_cast<size_t>(i)];
    if (point[kDim] < 3 || (column > 0 && column + 1 < point[kDim])) value = value / 2 + 1;
  }
  std::unique_ptr<NormRun> runs[3];  // the last one has both calls
  for (auto& run : runs) {
    run = std::make_unique<NormRun>(instance, TypeOf(point), point[kRows], 1, Place{}, false,
                                    /*draw=*/false);
  }
  NormRun& both = *runs[2];
  Outcome must[2], kept[2];
  for (const size_t k : {0, 1}) {
    AssignTo(calls[k], runs[k].get());
    runs[k]->Forward(true);
    runs[k]->Backward();
    must[k] = runs[k]->Results();
    both.Reset();
    AssignTo(calls[k], &both);
    both.Forward(true);
    kept[k] = both.Results();
  }
  for (const size_t k : {0, 1}) {
    both.Reset();
    AssignTo(calls[k], &both);
    both.y.Assign(kept[k].y);
    both.saved.Assign(kept[k].saved);
    both.call_saved.Assign(kept[k].call_saved);
    for (size_t i = 0; i < both.buffers.size(); ++i) both.buffers[i].Assign(kept[k].buffers[i]);
    both.Backward();
    const std::string text = FirstDifference(both.Results(), must[k], point[kDim]);
    if (text.empty()) continue;
    return absl::StrCat("call ", k + 1, " of two in the same memory, both forward first: ", text,
                        ", as in memory of its own");
  }
  return "";
}

// Statistics by stats_combine and by the extension that can fail.
std::string CompareCombine(const Instance& instance, const Point& point, const Operands& operands) {
  const bool train = point[kEvaluation] == 0;
  Outcome outcomes[2];
  for (const bool by_extension : {false, true}) {
    NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
    if (!run.TakesStatistics(train)) return "";
    AssignTo(operands, &run);
    run.Statistics(PLUMB_FWD, train, run.ChunkRows(), by_extension);
    run.ForwardRange(train, 0, run.rows());
    if (train) {
      run.Statistics(PLUMB_BWD, train, run.ChunkRows(), by_extension);
      run.BackwardRange(false, 0, run.rows());
    }
    outcomes[by_extension] = run.Results();
  }
  const std::string text = FirstDifference(outcomes[1], outcomes[0], point[kDim]);
  return text.empty() ? text : absl::StrCat("by ", PLUMB_EXT_COMBINE, ": ", text);
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
  if (text.empty() && row_wise) text = CompareSingleRows(*instance, point, operands, must);
  const bool isolates = row_wise || (norm.flags & PLUMB_NORM_NAN_ISOLATED) != 0;
  if (text.empty() && isolates && point[kSeed] % 3 == 1) {
    Point odd = point;
    odd[kX] = kNanX + point[kSeed] / 3 % 2;
    const Operands of_odd = OperandsAt(*instance, odd);
    text = CompareIsolation(*instance, odd, of_odd,
                            OfRows(RunAt(*instance, Plain(odd), type, of_odd).outcome));
  }
  if (text.empty() && !row_wise) text = CompareCombine(*instance, point, operands);
  if (text.empty() && point[kSeed] % 3 == 0) text = CompareThreads(*instance, point, operands);
  if (text.empty() && point[kSeed] % 3 == 2) text = CompareReusedMemory(*instance, point, operands);
  if (text.empty()) return text;
  return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

}  // namespace

void ExploreBits(const Subject& subject, Report* report) {
  Explore(
      subject, "X3", [&](const Point& point) { return SameBits(*subject.norm, point); }, report);
}

}  // namespace plumb::check
