// SPDX-License-Identifier: Apache-2.0
// Rules on the bits of y, saved and dx of a row: the same in one aligned range, at the point, in a
// smaller call, in evaluation, next to concurrent calls, in distant memory, and in memory that held
// another call.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
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

// Keeps only the results that are the same for a row in every call.
Outcome OfRows(Outcome outcome) {
  outcome.dparams.clear();
  outcome.buffers.clear();
  outcome.call_saved.clear();
  return outcome;
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
  const Outcome got =
      OfRows(RunAt(instance, small, TypeOf(point), Slice(operands, point[kDim], from, to)).outcome);
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
    if (!text.empty()) return absl::StrCat("while other calls run: ", text);
  }
  return "";
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
    const Outcome got = OfRows(RunAt(instance, Plain(point), TypeOf(point), operands).outcome);
    if (!is_known && wants != 0) return "";  // success is all that is required
    const std::string text = FirstDifference(got, whole);
    if (text.empty()) continue;
    return absl::StrCat(is_known ? "with other positions, step or sequences" : "without a context",
                        ", which its layout does not want: ", text);
  }
  return "";
}

// Compares statistics by stats_combine with those by the extension that can fail.
std::string CompareCombine(const Instance& instance, const Point& point, const Operands& operands) {
  const bool train = point[kEvaluation] == 0;
  Outcome outcomes[2];
  for (const bool by_extension : {false, true}) {
    NormRun run(instance, TypeOf(point), point[kRows], 1, {}, false, false);
    if (!run.TakesStatistics(train)) return "";
    AssignTo(operands, &run);
    run.Statistics(PLUMB_PHASE_FORWARD, train, run.ChunkRows(), by_extension);
    run.ForwardRange(train, 0, run.rows());
    if (train) {
      run.Statistics(PLUMB_PHASE_BACKWARD, train, run.ChunkRows(), by_extension);
      run.BackwardRange(false, 0, run.rows());
    }
    outcomes[by_extension] = run.Results();
  }
  const std::string text = FirstDifference(outcomes[1], outcomes[0]);
  return text.empty() ? text : absl::StrCat("by ", PLUMB_EXT_COMBINE, ": ", text);
}

// Computes dx as if the gradient were rounded first and then added.
void AddTo(uint32_t type, std::vector<double>* dx) {
  for (double& value : *dx) value = RoundTo(type, kAddedTo + value);
}

}  // namespace

std::optional<std::string> SameBits(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = TypeOf(point);
  // Other chunks of statistics are other sums, and a sum in bf16 may be rounded twice.
  if ((norm.flags & PLUMB_NORM_CROSS_ROW) != 0) point[kPieces] = 0;
  if (type == PLUMB_DTYPE_BF16) point[kResidual] = point[kAdd] = 0;
  const bool row_wise = (norm.flags & (PLUMB_NORM_CROSS_ROW | PLUMB_NORM_STOCHASTIC)) == 0;
  const Operands operands = OperandsAt(*instance, point);
  const PointResult got = RunAt(*instance, point, type, operands);
  if (!got.problem.empty()) return got.problem;
  const Outcome must = OfRows(RunAt(*instance, Plain(point), type, operands).outcome);
  Outcome added = must;
  if (point[kAdd] != 0 && point[kEvaluation] == 0) AddTo(type, &added.dx);
  std::string text = FirstDifference(OfRows(got.outcome), added);
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
  if (text.empty() && point[kContext] != 0) {
    text = CompareContexts(*instance, point, operands, must);
  }
  const bool isolates = row_wise || (norm.flags & PLUMB_NORM_NAN_ISOLATED) != 0;
  if (text.empty() && isolates && point[kSeed] % 3 == 1) {
    Point odd = point;
    odd[kX] = kNanX + point[kSeed] / 3 % 2;
    const Operands of_odd = OperandsAt(*instance, odd);
    text = CompareIsolation(*instance, odd, of_odd,
                            OfRows(RunAt(*instance, Plain(odd), type, of_odd).outcome));
  }
  if (text.empty() && !row_wise) text = CompareCombine(*instance, point, operands);
  if (text.empty() && point[kSeed] % 3 == 0 && point[kRows] * point[kDim] <= 60000) {
    text = CompareAtOnce(*instance, *instance, point, 0);
  }
  if (text.empty() && point[kSeed] % 3 == 2) text = CompareReusedMemory(*instance, point, operands);
  if (text.empty()) return text;
  return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

std::optional<std::string> RunsAtOnce(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  return CompareAtOnce(*instance, *InstanceAt(norm, point), point, 40);
}

std::optional<std::string> SameForEveryHost(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> model = InstanceAt(norm, point);
  if (model == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*model, point);
  const Outcome must = RunAt(*model, point, TypeOf(point), operands).outcome;
  for (const HostVersion host : {HostVersion::kFirst, HostVersion::kNewer}) {
    Point other = point;
    other[kHost] = static_cast<int64_t>(host);
    const std::unique_ptr<Instance> instance = InstanceAt(norm, other);
    if (instance == nullptr) continue;  // that host refuses the norm
    std::string text;
    if (TextOfLayout(*instance) != TextOfLayout(*model)) {
      text = absl::StrCat("the layout is ", TextOfLayout(*instance), ", must be ",
                          TextOfLayout(*model));
    }
    if (text.empty()) {
      text = FirstDifference(RunAt(*instance, other, TypeOf(point), operands).outcome, must);
    }
    if (text.empty()) continue;
    return absl::StrCat(TypeName(TypeOf(point)), " dim=", point[kDim], ", called by ",
                        host == HostVersion::kFirst ? "a host of v1.0" : "a newer host", ": ",
                        text);
  }
  return "";
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

// -- Two inputs -----------------------------------------------------------------------------------

void CheckSecondInput(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if ((norm.flags & PLUMB_NORM_TWO_INPUTS) == 0) return report->Skip("it has one input");
  if (ExtensionOf(norm, PLUMB_EXT_RESIDUAL) != nullptr) {
    report->Fail(PLUMB_EXT_RESIDUAL " is offered, which is for norms of one input");
  }
  Point point = *ParsePoint("dim=1,rows=6,to=6");
  const std::unique_ptr<Instance> instance = FirstInstance(norm, {17, 16, 64, 8, 1});
  point[kDim] = instance->dim();
  Operands operands = OperandsAt(*instance, point);
  const std::vector<double> y = PlainY(*instance, point, PLUMB_DTYPE_F32, operands);
  operands.x2 = operands.x;
  if (PlainY(*instance, point, PLUMB_DTYPE_F32, operands) == y) {
    report->Warn("y does not change with x2, at the default attributes");
  }
  // The same tensor as both inputs must produce the results of two equal tensors.
  for (const uint32_t dtype : OfferedTypes(norm)) {
    const Outcome must = PlainRun(*instance, point, dtype, operands);
    NormRun run(*instance, dtype, point[kRows], 1, {}, false, false);
    AssignTo(operands, &run);
    plumb_norm_call call = run.ForwardCall(true);
    call.x2 = call.x, call.x2_pitch = call.x_pitch;
    run.Expect(Forward(*instance, call, 0, run.rows()), "forward", 0, run.rows());
    call = run.BackwardCall(false);
    if (call.x2 != nullptr) call.x2 = run.x.data(), call.x2_pitch = run.x.pitch();
    run.Expect(Backward(*instance, call, 0, run.rows()), "backward", 0, run.rows());
    std::string text = FirstDifference("y", run.y.Values(), must.y, run.dim());
    if (text.empty()) text = FirstDifference("dx", run.dx.Values(), must.dx, run.dim());
    if (text.empty()) text = FirstDifference("dx2", run.dx2.Values(), must.dx2, run.dim());
    if (!text.empty()) return report->Fail(absl::StrCat(run.Name(), ", x2 is x: ", text));
  }
}

}  // namespace plumb::check
