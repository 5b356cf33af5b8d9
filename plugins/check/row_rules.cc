// SPDX-License-Identifier: Apache-2.0
// Rules N4 and N5: the bits of a row's y, saved, dx and dx2 depend on nothing but the row and the
// parameters, and are the same every time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"

namespace plumb::check {
namespace {

// Returns the operands of rows [from, to) only. With a context, these must be whole tokens.
Operands Slice(const Operands& all, int64_t dim, int64_t from, int64_t to) {
  Operands part = all;
  part.x.assign(all.x.begin() + from * dim, all.x.begin() + to * dim);
  part.dy.assign(all.dy.begin() + from * dim, all.dy.begin() + to * dim);
  if (!all.x2.empty()) part.x2.assign(all.x2.begin() + from * dim, all.x2.begin() + to * dim);
  if (all.context != nullptr) {
    const int64_t rows = all.context->rows_per_token();
    const std::vector<int32_t> of_all = all.context->positions();
    part.context = std::make_shared<Context>(
        rows, std::vector<int32_t>(of_all.begin() + from / rows, of_all.begin() + to / rows),
        kStepOfContexts);
  }
  return part;
}

std::vector<double> RowsOf(const std::vector<double>& values, int64_t rows, int64_t from,
                           int64_t to) {
  const auto width = static_cast<int64_t>(values.size()) / rows;
  return {values.begin() + from * width, values.begin() + to * width};
}

// Repeats a few rows in a separate call. If heads or tokens are distinguished, these are whole
// tokens.
std::string CompareSmallCall(const Instance& instance, const Point& point, const Operands& operands,
                             const Outcome& whole) {
  const int64_t rows = point[kRows], heads = std::max<int64_t>(point[kHeads], 1);
  const bool tokens = instance.layout().heads != 0 || operands.context != nullptr;
  const int64_t count = std::min(rows, heads > 1 ? heads : 3);
  int64_t from = std::min(point[kFrom], rows - count);
  if (tokens) from -= from % heads;
  const int64_t to = from + count;
  Point small = Plain(point);
  small[kRows] = small[kTo] = to - from;
  const Outcome got = OfRows(OutcomeAt(instance, small, Slice(operands, point[kDim], from, to)));
  Outcome must;
  must.rows = count;
  must.y = RowsOf(whole.y, rows, from, to);
  must.dx = RowsOf(whole.dx, rows, from, to);
  must.dx2 = RowsOf(whole.dx2, rows, from, to);
  must.saved = RowsOf(whole.saved, rows, from, to);
  const std::string text = FirstDifference(got, must);
  return text.empty() ? text
                      : absl::StrCat("rows ", from, "..", to, " in a call of their own: ", text);
}

// Runs single rows, as in decoding, twice each.
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

// Fails unless rows with a NaN in x leave the results of other rows unchanged.
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

// Fails if context that the layout does not want changes the results. Context that it wants may
// also be missing.
std::string CompareContexts(const Instance& instance, const Point& point, Operands operands,
                            const Outcome& whole) {
  if (operands.context == nullptr) return "";
  const uint32_t wants = instance.layout().context_wants;
  const int64_t rows = operands.context->rows_per_token();
  const bool by_position = (wants & PLUMB_CONTEXT_POSITIONS) != 0;
  std::vector<int32_t> positions = operands.context->positions();
  for (int32_t& position : positions) position += by_position ? 0 : 9;
  const int64_t step = (wants & PLUMB_CONTEXT_STEP) != 0 ? kStepOfContexts : int64_t{1} << 40;
  for (const bool is_known : {true, false}) {
    operands.context = is_known ? std::make_shared<Context>(rows, positions, step, true) : nullptr;
    const Outcome got = OfRows(OutcomeAt(instance, Plain(point), operands));
    if (!is_known && wants != 0) return "";  // success is all that is required
    const std::string text = FirstDifference(got, whole);
    if (text.empty()) continue;
    return absl::StrCat(is_known ? "with other positions, step or sequences" : "without a context",
                        ", which its layout does not want: ", text);
  }
  return "";
}

}  // namespace

std::optional<std::string> RowsAreIndependent(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const bool train = point[kEvaluation] == 0;
  // Statistics over rows make rows depend on each other, and other chunks are other sums.
  const bool row_wise =
      (norm.flags & (train ? PLUMB_NORM_CROSS_ROW : PLUMB_NORM_CROSS_ROW_EVAL)) == 0;
  if ((norm.flags & PLUMB_NORM_CROSS_ROW) != 0) point[kPieces] = 0;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome must = OfRows(OutcomeAt(*instance, Plain(point), operands));
  std::string text = FirstDifference(OfRows(OutcomeAt(*instance, point, operands)), must);
  if (!text.empty()) {
    text = absl::StrCat("in ranges that begin with rows ", point[kFrom], "..", point[kTo], ": ",
                        text, ", as in one range");
  }
  if (text.empty() && row_wise) text = CompareSmallCall(*instance, point, operands, must);
  if (text.empty() && (norm.flags & PLUMB_NORM_CROSS_ROW) == 0) {
    Point other = Plain(point);
    other[kEvaluation] = train ? 1 : 0;
    text = FirstDifference("y", OutcomeAt(*instance, other, operands).y, must.y, point[kDim]);
    if (!text.empty()) text += ", in training and in evaluation";
  }
  if (text.empty() && row_wise) text = CompareSingleRows(*instance, point, operands, must);
  if (text.empty() && point[kContext] != 0)
    text = CompareContexts(*instance, point, operands, must);
  const bool isolates = row_wise || (norm.flags & PLUMB_NORM_NAN_ISOLATED) != 0;
  if (text.empty() && isolates && point[kSeed] % 3 == 1) {
    Point odd = point;
    odd[kX] = kNanX + point[kSeed] / 3 % 2;
    const Operands of_odd = OperandsAt(*instance, odd);
    text =
        CompareIsolation(*instance, odd, of_odd, OfRows(OutcomeAt(*instance, Plain(odd), of_odd)));
  }
  return At(point, text);
}

// -- N5 -------------------------------------------------------------------------------------------

namespace {

// Fails unless concurrent calls, of one instance and of another, produce the results of separate
// calls.
std::string CompareAtOnce(const Instance& instance, const Instance& other, const Point& point,
                          int64_t milliseconds) {
  constexpr size_t kCallers = 3;
  std::vector<std::unique_ptr<NormRun>> runs;  // each with its own operands and parameters
  std::vector<Outcome> alone;
  for (size_t i = 0; i < kCallers; ++i) {
    runs.push_back(
        std::make_unique<NormRun>(i < 2 ? instance : other, TypeOf(point), point[kRows], i + 1));
    runs.back()->Forward(true);
    runs.back()->Backward();
    alone.push_back(runs.back()->Results());
  }
  std::string texts[kCallers];
  std::vector<std::thread> threads;
  const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  for (size_t i = 0; i < kCallers; ++i) {
    threads.emplace_back([&, i] {
      const ScopedFlushing flushing(point[kFlushed] != 0);
      try {
        do {
          runs[i]->Reset();
          runs[i]->Forward(true);
          runs[i]->Backward();
          texts[i] = FirstDifference(runs[i]->Results(), alone[i]);
        } while (texts[i].empty() && std::chrono::steady_clock::now() < end);
      } catch (const CheckEnded& ended) {
        texts[i] = ended.text;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& text : texts) {
    if (!text.empty()) return absl::StrCat("while other threads call it: ", text);
  }
  return "";
}

// Fails if backward identifies a row by its address: makes two calls in the same memory, both
// forward passes first. The second call changes everything between the first and the last element
// of each row.
std::string CompareReusedMemory(const Instance& instance, const Point& point,
                                const Operands& operands) {
  if (point[kRows] * point[kDim] > 60000) return "";
  Operands calls[] = {operands, operands};
  for (int64_t i = 0; i < point[kRows] * point[kDim]; ++i) {
    const int64_t column = i % point[kDim];
    double& value = calls[1].x[static_cast<size_t>(i)];
    if (point[kDim] < 3 || (column > 0 && column + 1 < point[kDim])) value = value / 2 + 1;
  }
  std::unique_ptr<NormRun> runs[3];  // the last one makes both calls
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
    const std::string text = FirstDifference(both.Results(), must[k]);
    if (text.empty()) continue;
    return absl::StrCat("call ", k + 1, " of two in the same memory, both forward first: ", text,
                        ", as in memory of its own");
  }
  return "";
}

}  // namespace

std::optional<std::string> Repeats(const plumb_norm_plugin& norm, const Point& point) {
  constexpr int64_t kMany = 60000;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome must = PlainRun(*instance, point, TypeOf(point), operands);
  std::string text;
  for (int i = 0; i < 2 && text.empty(); ++i) {
    text = FirstDifference(PlainRun(*instance, point, TypeOf(point), operands), must);
    if (!text.empty()) text = absl::StrCat("the same call again: ", text);
  }
  if (text.empty() && point[kRows] * point[kDim] <= kMany) {
    const auto other = InstanceAt(norm, point);
    text = point[kSeed] % 3 == 2
               ? CompareReusedMemory(*instance, point, operands)
               : CompareAtOnce(*instance, *other, point, point[kSeed] == 0 ? 40 : 0);
  }
  return At(point, text);
}

}  // namespace plumb::check
