// N9: every dim that create() accepts and every number of rows, none included. Each result must be
// finite, and f32's must be that of f64 up to rounding, which finds vector code that is wrong for
// the last elements of a row.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr uint32_t kShapeDims[] = {1, 2, 3, 7, 8, 15, 16, 17, 31, 33, 64, 100, 768, 1000, 4096};
constexpr int64_t kRowCounts[] = {0, 1, 2, 3, 5, 64, 257};
// Elements of the largest shape: time on a slow machine.
constexpr int64_t kMostElements = 100'000;

void Run(NormRun* run) {
  run->Forward(false);
  run->Forward(true);
  run->Backward();
  // An empty range anywhere does nothing.
  run->ForwardRange(true, run->rows(), run->rows());
  run->BackwardRange(false, run->rows(), run->rows());
}

std::string NotFinite(const NormRun& run, const Outcome& o) {
  size_t at;
  const size_t dim = static_cast<size_t>(run.dim());
  const std::pair<const char*, const std::vector<double>*> results[] = {{"y", &o.y}, {"dx", &o.dx}};
  for (const auto& [name, values] : results) {
    if (!AllFinite(*values, &at)) {
      return absl::StrCat(name, "[", at / dim, "][", at % dim, "] is ", (*values)[at]);
    }
  }
  for (size_t i = 0; i < o.dparams.size(); ++i) {
    if (!AllFinite(o.dparams[i], &at)) {
      return absl::StrCat("dparams[", i, "][", at, "] is ", o.dparams[i][at]);
    }
  }
  for (size_t i = 0; i < o.buffers.size(); ++i) {
    if (!AllFinite(o.buffers[i], &at)) {
      return absl::StrCat("buffers[", i, "][", at, "] is ", o.buffers[i][at]);
    }
  }
  return "";
}

// f32 from f64. Rounding is magnified where rows are short or alike and a difference of nearly
// equal numbers is divided by itself; what is looked for here is wrong by far more.
std::string FarFrom(const NormRun& run, const Outcome& f32, const Outcome& f64) {
  std::string text = FirstDeviation("y", f32.y, f64.y, run.dim(), 1e-3, 1e-3);
  if (text.empty()) {
    const int64_t all = std::max<int64_t>(1, static_cast<int64_t>(f64.dx.size()));
    text = FirstDeviation("dx", f32.dx, f64.dx, all, 1e-2, run.dim() < 7 ? 0.5 : 0.1);
    if (!text.empty()) text = absl::StrCat("dx as one row of all numbers, ", text);
  }
  for (size_t i = 0; i < f64.dparams.size() && text.empty(); ++i) {
    const std::string name = absl::StrCat("dparams[", i, "]");
    text = FirstDeviation(name.c_str(), f32.dparams[i], f64.dparams[i],
                          static_cast<int64_t>(f64.dparams[i].size()), 1e-2, 1e-2);
  }
  return text;
}

// One shape in all types; "" when all is well.
std::string CheckShape(const Instance& instance, int64_t rows, uint64_t seed) {
  Outcome f32;
  for (const uint32_t dtype : OfferedTypes(instance.norm())) {
    NormRun run(instance, dtype, rows, seed);
    Run(&run);
    const Outcome outcome = run.Results();
    std::string text = NotFinite(run, outcome);
    if (dtype == PLUMB_F32) f32 = outcome;
    if (text.empty() && dtype == PLUMB_F64) {
      text = FarFrom(run, f32, outcome);
      if (!text.empty()) {
        return absl::StrCat("f32 dim=", run.dim(), " rows=", rows, ": ", text, " as in f64");
      }
    }
    if (!text.empty()) return absl::StrCat(run.Name(), ": ", text);
  }
  return "";
}

}  // namespace

void CheckShapes(const Subject& subject, Report* report) {
  std::vector<uint32_t> refused;
  std::string refusal;
  for (const uint32_t dim : kShapeDims) {
    std::string words;
    const auto instance = TryInstance(*subject.norm, dim, &words);
    if (instance == nullptr) {
      if (words.empty()) {
        report->Fail(absl::StrCat("create refuses dim=", dim, " and does not say why"));
      }
      refused.push_back(dim);
      refusal = words;
      continue;
    }
    for (const int64_t rows : kRowCounts) {
      if (rows > 5 && rows * dim > kMostElements) continue;
      const std::string text = CheckShape(*instance, rows, subject.seed);
      if (!text.empty()) return report->Fail(text);
    }
  }
  if (refused.size() == std::size(kShapeDims)) {
    report->Fail(absl::StrCat("create refuses every dim that was tried: ", refusal));
  } else if (!refused.empty()) {
    report->Note(
        absl::StrCat("refuses dim ", absl::StrJoin(refused, ", "), " (\"", refusal, "\")"));
  }
}

}  // namespace plumb::check
