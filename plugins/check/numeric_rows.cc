// N4: what comes out of a row is the same, bit for bit, whichever rows come with it, in whichever
// order and range. Statistics over rows are excepted, and nothing else.
#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kLongRows = 23;

// Forward, and backward when training.
void Run(NormRun* run, bool train) {
  run->Forward(train);
  if (train) run->Backward();
}

// Row `to` of one run gets the operands of row `from` of another.
void CopyRow(const NormRun& source, int64_t from, NormRun* target, int64_t to) {
  for (int64_t i = 0; i < source.dim(); ++i) {
    target->x.Set(to, i, source.x.Get(from, i));
    target->dy.Set(to, i, source.dy.Get(from, i));
  }
}

// Everything that belongs to one row.
std::string RowDifference(const NormRun& got, int64_t row_got, const NormRun& must, int64_t row,
                          bool train) {
  const auto part = [](const Rows& rows, int64_t r) {
    std::vector<double> values;
    for (int64_t i = 0; i < rows.width(); ++i) values.push_back(rows.Get(r, i));
    return values;
  };
  const auto compare = [&](const char* name, const Rows& a, const Rows& b) {
    return FirstDifference(name, part(a, row_got), part(b, row), std::max<int64_t>(1, b.width()));
  };
  std::string text = compare("y", got.y, must.y);
  if (train && text.empty()) text = compare("saved", got.saved, must.saved);
  if (train && text.empty()) text = compare("dx", got.dx, must.dx);
  if (train && text.empty() && must.dx2.rows() > 0) text = compare("dx2", got.dx2, must.dx2);
  return text;
}

// In permuted order.
std::string CheckOrder(const NormRun& together, bool train, uint64_t seed) {
  std::vector<int64_t> order(kLongRows);
  std::iota(order.begin(), order.end(), 0);
  std::mt19937_64 random(seed);
  std::shuffle(order.begin(), order.end(), random);
  NormRun permuted(together.instance(), together.dtype(), kLongRows, seed);
  for (int64_t r = 0; r < kLongRows; ++r) {
    CopyRow(together, order[static_cast<size_t>(r)], &permuted, r);
  }
  Run(&permuted, train);
  for (int64_t r = 0; r < kLongRows; ++r) {
    const int64_t was = order[static_cast<size_t>(r)];
    const std::string text = RowDifference(permuted, r, together, was, train);
    if (!text.empty()) {
      return absl::StrCat("row ", was, " as row ", r, " of the same rows in another order: ", text);
    }
  }
  return "";
}

// In a call of its own.
std::string CheckAlone(const NormRun& together, bool train, uint64_t seed) {
  for (int64_t r = 0; r < kLongRows; ++r) {
    NormRun alone(together.instance(), together.dtype(), 1, seed);
    CopyRow(together, r, &alone, 0);
    for (size_t b = 0; b < alone.buffers.size(); ++b) {
      alone.buffers[b].Assign(together.buffers[b].Values());
    }
    Run(&alone, train);
    const std::string text = RowDifference(alone, 0, together, r, train);
    if (!text.empty()) return absl::StrCat("row ", r, " in a call of its own: ", text);
  }
  return "";
}

// In ranges of any length, taken in any order.
std::string CheckRanges(const NormRun& together, bool train, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (int trial = 0; trial < 4; ++trial) {
    NormRun ranged(together.instance(), together.dtype(), kLongRows, seed);
    for (int64_t r = 0; r < kLongRows; ++r) CopyRow(together, r, &ranged, r);
    std::vector<std::pair<int64_t, int64_t>> ranges;
    for (int64_t r = 0; r < kLongRows;) {
      const int64_t end = std::min<int64_t>(kLongRows, r + static_cast<int64_t>(random() % 6));
      ranges.emplace_back(r, end);  // some are empty
      r = end;
    }
    std::shuffle(ranges.begin(), ranges.end(), random);
    for (const auto& [r0, r1] : ranges) ranged.ForwardRange(train, r0, r1);
    if (train) {
      for (const auto& [r0, r1] : ranges) ranged.BackwardRange(false, r0, r1);
    }
    for (const auto& [r0, r1] : ranges) {
      for (int64_t r = r0; r < r1; ++r) {
        const std::string text = RowDifference(ranged, r, together, r, train);
        if (!text.empty()) {
          return absl::StrCat("row ", r, " in the range ", r0, "..", r1, ": ", text);
        }
      }
    }
  }
  return "";
}

}  // namespace

void CheckRowsAlone(const Subject& subject, Report* report) {
  const uint32_t flags = subject.norm->flags;
  if (flags & PLUMB_NORM_CROSS_ROW_EVAL) {
    return report->Skip("statistics over rows, in evaluation too");
  }
  for (const auto& instance : UsualInstances(*subject.norm)) {
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      for (const bool train : {true, false}) {
        if (train && (flags & PLUMB_NORM_CROSS_ROW) != 0) continue;
        NormRun together(*instance, dtype, kLongRows, subject.seed);
        Run(&together, train);
        // Numbers drawn from the row's index move with it.
        const bool may_move = (flags & PLUMB_NORM_STOCHASTIC) == 0 || !train;
        std::string text;
        if (may_move) text = CheckOrder(together, train, subject.seed);
        if (may_move && text.empty()) text = CheckAlone(together, train, subject.seed);
        if (text.empty()) text = CheckRanges(together, train, subject.seed);
        if (!text.empty()) {
          return report->Fail(
              absl::StrCat(together.Name(), train ? ", " : " in evaluation, ", text));
        }
      }
    }
  }
}

}  // namespace plumb::check
