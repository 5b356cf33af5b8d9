// X1 and X4: an element type against a wider one.
#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/explore_checks.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rounding_of_biases.h"
#include "plugins/check/wide_run.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

// Of x without anything special about it, and attributes whose numbers are the defaults, y is
// finite: create() refuses a dim, or a combination, for which a norm is none.
std::string NotFinite(const plumb_norm_plugin& norm, const Point& point, const Values& y) {
  if (point[kX] != 0 || point[kParams] != 0) return "";
  const std::vector<AttributeCase> cases = ExploredCases(norm);
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  const AttributeCase& used = cases[static_cast<size_t>(point[kAttributes])];
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    if (AttrOf(norm, i).type == PLUMB_ATTR_F64 && used.values[i].f != defaults[i].f) return "";
  }
  size_t at = 0;
  if (AllFinite(y, &at)) return "";
  return absl::StrFormat("%s is %g, of ordinary x%s%s",
                         PlaceInTensor("y", at, y.size(), point[kDim]), y[at],
                         used.name.empty() ? "" : ", with ", used.name);
}

std::optional<std::string> AgreesWithWidest(const plumb_norm_plugin& norm, const Point& point) {
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = TypeOf(point), widest = WidestType(norm);
  const Operands operands = OperandsAt(*instance, point);
  const PointResult got = RunAt(*instance, point, type, operands);
  if (!got.problem.empty()) return got.problem;
  if (const std::string lost = NotFinite(norm, point, got.outcome.y); !lost.empty()) {
    return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows], ": ", lost);
  }
  const WideRun wide(*instance, point, widest, type, operands, got.outcome.y);
  std::string text = wide.CompareY(got.outcome.y);
  if (point[kEvaluation] == 0) {
    if (text.empty()) text = wide.CompareDx(got.outcome.dx, point[kAdd] != 0 ? kAddedTo : 0);
    if (text.empty()) text = wide.CompareDx2(got.outcome.dx2);
    if (text.empty()) text = wide.CompareSums(got.outcome.dparams);
    if (text.empty()) text = wide.CompareBuffers(got.outcome.buffers);
  }
  if (text.empty()) return text;
  return absl::StrCat(TypeName(type), " dim=", point[kDim], " rows=", point[kRows],
                      " in ranges: ", text, " as in ", TypeName(widest), ", in one range");
}

// Errors of bf16 values against f32 ones, in units of the last place of bf16: sum and number for
// each bf16 value, so that a value that many elements have, as at saturation, counts once.
using Bias = std::map<double, std::pair<double, int64_t>>;

// Fewer values say nothing of their mean.
constexpr size_t kFewestValues = 300;

double MeanError(const Bias& bias) {
  double sum = 0;
  for (const auto& [value, errors] : bias) sum += errors.first / static_cast<double>(errors.second);
  return sum / static_cast<double>(bias.size());
}

// `of_row`: how far f32 may be off in a row; another order of additions may end on the other side
// of a tie.
std::string CompareRounding(const char* name, const Values& narrow, const Values& wide,
                            int64_t width, const std::function<double(size_t)>& of_row,
                            Bias* bias) {
  for (size_t i = 0; i < wide.size(); ++i) {
    if (!std::isfinite(wide[i])) continue;
    const double ulp = 2 * HalfUlp(PLUMB_BF16, wide[i]);
    const double off = 2 * of_row(i / static_cast<size_t>(width));
    // bf16 has the exponents of f32; numbers below them may be zero.
    if (std::abs(wide[i]) < 64 * SmallestNormal(PLUMB_BF16) || !std::isfinite(off)) continue;
    const double error = (std::abs(narrow[i]) - std::abs(wide[i])) / ulp;
    if (!(std::abs(narrow[i] - wide[i]) <= ulp / 2 + off)) {
      return absl::StrFormat("%s is %.9g, %.2f ulp from %.9g as in f32: not the nearest",
                             PlaceInTensor(name, i, wide.size(), width), narrow[i], error, wide[i]);
    }
    if (RoundTo(PLUMB_BF16, wide[i]) == wide[i] || off > 0.1 * ulp) continue;
    auto& [sum, count] = (*bias)[narrow[i]];
    sum += error;
    ++count;
  }
  if (bias->size() < kFewestValues) return "";
  const double mean = MeanError(*bias);
  // Rows of a length near a power of two round to one side by themselves; truncation is 0.5.
  if (std::abs(mean) < 0.25 + 2 / std::sqrt(static_cast<double>(bias->size()))) return "";
  return absl::StrFormat(
      "%s has a mean error of %.2f ulp of its magnitude: it is not rounded to "
      "the nearest",
      name, mean);
}

std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, Point point) {
  point[kType] = 1;
  point[kAdd] = 0;
  if ((norm.dtypes & PLUMB_F32) == 0 || IsExtremeX(point) || IsExtremeDy(point)) {
    return std::nullopt;
  }
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const PointResult got = RunAt(*instance, point, PLUMB_BF16, operands);
  if (!got.problem.empty()) return got.problem;
  const Outcome& narrow = got.outcome;
  const Outcome wide = RunAt(*instance, Plain(point), PLUMB_F32, operands).outcome;
  const WideRun widest(*instance, point, WidestType(norm), PLUMB_F32, operands, wide.y);
  Bias bias;
  std::string text = CompareRounding(
      "y", narrow.y, wide.y, point[kDim], [&](size_t row) { return widest.OfY(row); }, &bias);
  const bool needs_y = (instance->layout().backward_needs & PLUMB_BWD_Y) != 0;
  if (text.empty() && !needs_y && point[kEvaluation] == 0) {
    Bias of_dx;
    text = CompareRounding(
        "dx", narrow.dx, wide.dx, point[kDim], [&](size_t row) { return widest.OfDx(row); },
        &of_dx);
  }
  if (text.empty()) return text;
  return absl::StrCat("bf16 dim=", point[kDim], " rows=", point[kRows], ": ", text);
}

}  // namespace

void ExploreTypes(const Subject& subject, Report* report) {
  Explore(
      subject, "X1", [&](const Point& point) { return AgreesWithWidest(*subject.norm, point); },
      report);
}

void ExploreRounding(const Subject& subject, Report* report) {
  if ((subject.norm->dtypes & PLUMB_BF16) == 0) return report->Skip("it does not offer bf16");
  const std::string of_biases = subject.point.empty() ? RoundingOfBiases(*subject.norm) : "";
  if (!of_biases.empty()) {
    return report->Fail(
        absl::StrCat(of_biases, "\nrepeat: plumb plugin check ", subject.path, " --check X4"));
  }
  Explore(
      subject, "X4", [&](const Point& point) { return IsRounded(*subject.norm, point); }, report);
}

}  // namespace plumb::check
