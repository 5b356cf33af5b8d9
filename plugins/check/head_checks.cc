// N19: norms in a slot of heads, where a host tells how many each token has.
#include <algorithm>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/slopes.h"
#include "plugins/check/try_instance.h"
#include "plugins/check/wide_run.h"

namespace plumb::check {
namespace {

constexpr uint32_t kHeads[] = {3, 1, 2, 8, 0};
constexpr uint32_t kHeadDims[] = {17, 16, 64, 8, 4, 128, 2, 1};
constexpr int64_t kTokens = 5;

// Rows that begin and end within a token.
Point HeadPoint(const Instance& instance, uint32_t heads, uint32_t dtype, uint64_t seed) {
  Point point = Plain(*ParsePoint("dim=1"));
  point[kDim] = instance.dim();
  point[kRows] = kTokens * heads;
  point[kFrom] = heads + heads / 2;
  point[kTo] = 3 * heads + (heads > 1 ? 1 : 0);
  point[kType] = dtype == PLUMB_F32 ? 0 : dtype == PLUMB_BF16 ? 1 : 2;
  point[kSeed] = static_cast<int64_t>(seed % 1000) * 5;  // the simplest x2
  return point;
}

// What must be the same bits for the same row.
Outcome OfEachRow(Outcome outcome) {
  outcome.dparams.clear();
  outcome.buffers.clear();
  outcome.call_saved.clear();
  return outcome;
}

// Rows in the order of `order`, of a tensor with as many.
std::vector<double> InOrder(const std::vector<double>& values, const std::vector<int64_t>& order,
                            int64_t rows) {
  std::vector<double> ordered;
  const auto width = static_cast<int64_t>(values.size()) / rows;
  for (const int64_t r : order) {
    ordered.insert(ordered.end(), values.begin() + r * width, values.begin() + (r + 1) * width);
  }
  return ordered;
}

// The rows of `order` in a call of their own have the bits that they have among the others.
std::string CompareOrder(const Instance& instance, const Point& point, const Operands& operands,
                         const Outcome& whole, const std::vector<int64_t>& order) {
  const int64_t rows = point[kRows];
  Operands part = operands;
  for (std::vector<double>* values : {&part.x, &part.dy, &part.x2}) {
    *values = InOrder(*values, order, rows);
  }
  Point other = Plain(point);
  other[kRows] = other[kTo] = static_cast<int64_t>(order.size());
  Outcome must;
  must.y = InOrder(whole.y, order, rows);
  must.saved = InOrder(whole.saved, order, rows);
  must.dx = InOrder(whole.dx, order, rows);
  must.dx2 = InOrder(whole.dx2, order, rows);
  return FirstDifference(OfEachRow(RunAt(instance, other, TypeOf(point), part).outcome), must,
                         point[kDim]);
}

// Values and gradients with parameters of each head.
std::string CompareHeads(const Instance& instance, uint32_t heads, const Point& point) {
  const plumb_norm_plugin& norm = instance.norm();
  const Operands operands = OperandsAt(instance, point);
  const PointResult got = RunAt(instance, point, TypeOf(point), operands);
  if (!got.problem.empty()) return got.problem;
  const Outcome whole = RunAt(instance, Plain(point), TypeOf(point), operands).outcome;
  const bool row_wise = (norm.flags & PLUMB_NORM_CROSS_ROW) == 0;
  if (row_wise) {
    std::string text = FirstDifference(OfEachRow(got.outcome), OfEachRow(whole), point[kDim]);
    if (!text.empty()) {
      return absl::StrCat(text, ", as in one range: ranges may begin within a token");
    }
    // Tokens change places, and one is alone.
    for (const int64_t count : {kTokens, int64_t{1}}) {
      std::vector<int64_t> order;
      for (int64_t t = 0; t < count; ++t) {
        for (int64_t h = 0; h < heads; ++h) order.push_back((t + 2) % kTokens * heads + h);
      }
      text = CompareOrder(instance, point, operands, whole, order);
      if (!text.empty()) return absl::StrCat(text, ": row r must be of head r % heads, no more");
    }
  }
  const uint32_t widest = (norm.dtypes & PLUMB_F64) != 0 ? PLUMB_F64 : PLUMB_F32;
  const WideRun wide(instance, point, widest, TypeOf(point), operands, got.outcome.y);
  std::string text = wide.CompareY(got.outcome.y);
  if (text.empty()) text = wide.CompareDx(got.outcome.dx, 0);
  if (text.empty()) text = wide.CompareSums(got.outcome.dparams);
  if (!text.empty()) return absl::StrCat(text, " as in ", TypeName(widest), ", in one range");
  const bool has_slopes =
      widest == PLUMB_F64 && (norm.flags & PLUMB_NORM_APPROXIMATE_GRADIENT) == 0;
  double worst = 0;
  bool is_problem = false;
  const Point at = ForSlopes(point);
  return has_slopes ? SlopeProblem(instance, at, OperandsAt(instance, at), &worst, &is_problem)
                    : "";
}

bool HaveSameSizes(const Instance& a, const Instance& b) {
  if (a.layout().n_params != b.layout().n_params) return false;
  for (uint32_t i = 0; i < a.layout().n_params; ++i) {
    if (ElementsOf(a.param(i)) != ElementsOf(b.param(i))) return false;
  }
  return true;
}

// All rows alike, in another order too: what is as without heads has been seen by N4.
std::string CompareAlike(const Instance& instance, const Instance* without, const Point& point) {
  if ((instance.norm().flags & PLUMB_NORM_CROSS_ROW) != 0) return "";
  const Operands operands = OperandsAt(instance, point);
  const Outcome whole = RunAt(instance, Plain(point), TypeOf(point), operands).outcome;
  if (without != nullptr && without->dim() == instance.dim() && HaveSameSizes(instance, *without)) {
    const Outcome same = RunAt(*without, Plain(point), TypeOf(point), operands).outcome;
    if (FirstDifference(same, whole, point[kDim]).empty()) return "";
  }
  std::vector<int64_t> order;
  for (int64_t r = 0; r < point[kRows]; ++r) order.push_back((r + 1) % point[kRows]);
  const std::string text = CompareOrder(instance, point, operands, whole, order);
  return text.empty() ? text
                      : absl::StrCat(text,
                                     " in another order of rows, and its layout says that "
                                     "heads are all alike");
}

}  // namespace

void CheckHeads(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  bool any = false;
  const std::vector<AttributeCase> cases = AttributeCases(norm);
  for (size_t c = 0; c < cases.size(); ++c) {
    std::vector<std::unique_ptr<Instance>> instances;  // alive together
    std::string refusal;
    for (const uint32_t heads : kHeads) {
      for (size_t i = 0; i < std::size(kHeadDims); ++i) {
        instances.push_back(TryInstance(norm, kHeadDims[i], cases[c].values, &refusal, heads));
        if (instances.back() != nullptr) break;
        if (i + 1 < std::size(kHeadDims)) instances.pop_back();
      }
    }
    for (size_t k = 0; k < instances.size(); ++k) {
      if (instances[k] == nullptr) continue;
      any = true;
      const Instance& instance = *instances[k];
      const uint32_t heads = kHeads[k], told = instance.layout().heads;
      const std::string where = absl::StrCat("dim=", instance.dim(), " heads=", heads,
                                             cases[c].is_default() ? "" : " ", cases[c].name, ": ");
      if (told != 0 && told != heads) {
        return report->Fail(absl::StrCat(where, "the layout is for ", told,
                                         " heads, must be the host's number, or 0"));
      }
      if (heads == 0) continue;
      for (const uint32_t dtype : OfferedTypes(norm)) {
        Point point = HeadPoint(instance, heads, dtype, subject.seed);
        point[kAttributes] = static_cast<int64_t>(c);
        const std::string text = told != 0 ? CompareHeads(instance, heads, point)
                                           : CompareAlike(instance, instances.back().get(), point);
        if (!text.empty()) {
          return report->Fail(absl::StrCat(where, TypeName(dtype), ": ", text));
        }
      }
    }
  }
  if (!any) report->Skip("no dim of a head is accepted");
}

}  // namespace plumb::check
