// SPDX-License-Identifier: Apache-2.0
// Rules N4 and N5: the bits of a row's y, saved, dx and dx2 depend on nothing but the row and the
// parameters, and are the same every time.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/state.h"

namespace plumb::check {
namespace {

Values GetRows(const Values& values, int64_t rows, int64_t from, int64_t to) {
  const auto width = static_cast<int64_t>(values.size()) / rows;
  return {values.begin() + from * width, values.begin() + to * width};
}

// Repeats a few rows in a call of their own. If heads or tokens are distinguished, these are whole
// tokens.
std::string CompareSmallCall(const Instance& instance, const Point& point, const Operands& operands,
                             const Outcome& whole) {
  const int64_t rows = point[kRows], heads = std::max<int64_t>(point[kHeads], 1);
  const bool tokens = instance.layout().heads != 0 || operands.context != nullptr;
  const int64_t count = std::min(rows, heads > 1 ? heads : 3);
  int64_t from = std::min(point[kFrom], rows - count);
  if (tokens) from -= from % heads;
  const int64_t to = from + count;
  Operands part = operands;
  part.x = GetRows(operands.x, rows, from, to);
  part.dy = GetRows(operands.dy, rows, from, to);
  part.x2 = GetRows(operands.x2, rows, from, to);
  if (operands.context != nullptr) {
    const auto first = operands.context->positions().begin();
    part.context = std::make_shared<Context>(
        heads, std::vector<int32_t>(first + from / heads, first + to / heads), kStepOfContexts);
  }
  Point small = Plain(point);
  small[kRows] = small[kTo] = count;
  Outcome must;
  must.rows = count;
  must.y = GetRows(whole.y, rows, from, to);
  must.dx = GetRows(whole.dx, rows, from, to);
  must.dx2 = GetRows(whole.dx2, rows, from, to);
  must.saved = GetRows(whole.saved, rows, from, to);
  const std::string text = FirstDifference(RunAt(instance, small, part), must);
  return text.empty() ? text
                      : absl::StrCat("rows ", from, "..", to, " in a call of their own: ", text);
}

// Fails unless rows with a NaN or infinity in x leave the results of other rows unchanged.
std::string CompareIsolation(const Instance& instance, const Point& point) {
  const Point odd = WithOddX(Plain(point));
  Operands operands = OperandsAt(instance, odd);
  Outcome got = RowsOutcome(RunAt(instance, odd, operands));
  std::vector<bool> is_clean(operands.x.size() / instance.dim(), true);
  for (size_t i = 0; i < operands.x.size(); ++i) {
    if (std::isfinite(operands.x[i])) continue;
    is_clean[i / instance.dim()] = false;
    operands.x[i] = 1;
  }
  Outcome must = RowsOutcome(RunAt(instance, odd, operands));
  must.saved.clear();
  for (const auto& [values, wanted] :
       {std::pair(&got.y, &must.y), std::pair(&got.dx, &must.dx), std::pair(&got.dx2, &must.dx2)}) {
    for (size_t i = 0; i < wanted->size(); ++i) {
      if (!is_clean[i / instance.dim()]) (*wanted)[i] = (*values)[i];
    }
  }
  const std::string text = FirstDifference(got, must);
  return text.empty() ? text : "NaN or infinity in another row: " + text;
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
    const Outcome got = RowsOutcome(RunAt(instance, Plain(point), operands));
    if (!is_known && wants != 0) return "";  // success is all that is required
    const std::string text = FirstDifference(got, whole);
    if (text.empty()) continue;
    return absl::StrCat(is_known ? "with other positions, step or sequences" : "without a context",
                        ", which its layout does not want: ", text);
  }
  return "";
}

// Fails unless concurrent calls, of one instance and of another, produce the results of separate
// calls.
std::string CompareAtOnce(const Instance& instance, const Instance& other, const Point& point) {
  constexpr size_t kCallers = 3;
  const auto time = std::chrono::milliseconds(point[kSeed] == 0 ? 40 : 0);
  std::vector<Operands> operands;
  std::vector<std::unique_ptr<NormRun>> runs;
  std::vector<Outcome> alone;
  for (size_t i = 0; i < kCallers; ++i) {
    Point own = Plain(point);
    own[kSeed] += static_cast<int64_t>(i);
    operands.push_back(OperandsAt(instance, own));
    runs.push_back(std::make_unique<NormRun>(i < 2 ? instance : other, own, operands[i]));
    runs[i]->Forward(true);
    runs[i]->Backward();
    alone.push_back(runs[i]->Results());
  }
  std::string texts[kCallers];
  std::vector<std::thread> threads;
  const auto end = std::chrono::steady_clock::now() + time;
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
  Operands calls[] = {operands, operands};
  const int64_t dim = point[kDim];
  for (int64_t i = 0; i < point[kRows] * dim; ++i) {
    double& value = calls[1].x[static_cast<size_t>(i)];
    if (dim < 3 || (i % dim > 0 && i % dim + 1 < dim)) value = value / 2 + 1;
  }
  NormRun both(instance, Plain(point), operands);
  Outcome must[2], kept[2];
  for (const size_t k : {0, 1}) {
    must[k] = RunAt(instance, Plain(point), calls[k]);
    both.Reset();
    both.Assign(calls[k]);
    both.Forward(true);
    kept[k] = both.Results();
  }
  for (const size_t k : {0, 1}) {
    both.Reset();
    both.Assign(calls[k]);
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

Result RowsAreIndependent(const Norm& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const bool train = point[kEvaluation] == 0, cross_row = instance->Has(PLUMB_NORM_CROSS_ROW);
  // Statistics over rows make rows depend on each other, and other chunks are other sums.
  const bool row_wise = !instance->Has(train ? PLUMB_NORM_CROSS_ROW : PLUMB_NORM_CROSS_ROW_EVAL);
  if (cross_row) point[kPieces] = 0;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome must = RowsOutcome(RunAt(*instance, Plain(point), operands));
  std::string text = FirstDifference(RowsOutcome(RunAt(*instance, point, operands)), must);
  if (!text.empty()) {
    text = absl::StrCat("in ranges such as rows ", point[kFrom], "..", point[kTo], ": ", text,
                        ", as in one range");
  }
  if (text.empty() && row_wise) text = CompareSmallCall(*instance, point, operands, must);
  if (text.empty() && !cross_row) {
    Point other = Plain(point);
    other[kEvaluation] = train ? 1 : 0;
    text = FirstDifference("y", RunAt(*instance, other, operands).y, must.y, point[kDim]);
    if (!text.empty()) text += ", in training and in evaluation";
  }
  if (text.empty()) text = CompareContexts(*instance, point, operands, must);
  const bool isolates = row_wise || instance->Has(PLUMB_NORM_NAN_ISOLATED);
  if (text.empty() && isolates && point[kSeed] % 3 == 1) text = CompareIsolation(*instance, point);
  return At(point, text);
}

Result Repeats(const Norm& norm, const Point& point) {
  constexpr int64_t kMany = 60000;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome must = RunAt(*instance, point, operands);
  std::string text;
  for (int i = 0; i < 2 && text.empty(); ++i) {
    text = FirstDifference(RunAt(*instance, point, operands), must);
    if (!text.empty()) text = "the same call again: " + text;
  }
  if (text.empty() && point[kRows] * point[kDim] <= kMany && point[kEvaluation] == 0) {
    text = point[kSeed] % 3 == 2 ? CompareReusedMemory(*instance, point, operands)
                                 : CompareAtOnce(*instance, *InstanceAt(norm, point), point);
  }
  return At(point, text);
}

}  // namespace plumb::check
