// SPDX-License-Identifier: Apache-2.0
// Rules of the numbers of a plain call: comparison with f64, rounding of bf16, and denormals.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/cases.h"
#include "plugins/check/float_state.h"
#include "plugins/check/point_run.h"
#include "plugins/check/rules.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

// Returns the first y, gradient or buffer that is not finite although x is ordinary, zero or
// constant, and numeric attributes are the defaults; "" if there is none. A norm that is undefined
// for a dim or a combination must refuse it in create().
std::string NotFinite(const plumb_norm_plugin& norm, const Point& point, const Outcome& outcome) {
  constexpr int64_t kOrdinary[] = {0, 4, kConstantX, kEqualRowsX, kOneNumberX};
  const bool is_ordinary =
      std::find(std::begin(kOrdinary), std::end(kOrdinary), point[kX]) != std::end(kOrdinary);
  if (!is_ordinary || point[kParams] != 0 || IsExtremeDy(point)) return "";
  const std::vector<AttributeCase>& cases = CasesOf(norm);
  const std::vector<plumb_attr_value> defaults = DefaultValues(norm);
  const AttributeCase& used = cases[static_cast<size_t>(point[kAttributes])];
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    if (AttrOf(norm, i).type == PLUMB_ATTR_F64 && used.values[i].f != defaults[i].f) return "";
  }
  for (const Tensor& tensor : outcome.Tensors()) {
    const bool is_result = tensor.name == "y" || (point[kEvaluation] == 0 &&
                                                  tensor.name.find("saved") == std::string::npos);
    size_t at = 0;
    if (!is_result || AllFinite(*tensor.values, &at)) continue;
    return absl::StrFormat("%s is %g, of ordinary x%s%s",
                           PlaceInTensor(tensor.name, at, tensor.values->size(), tensor.width),
                           (*tensor.values)[at], used.name.empty() ? "" : ", with ", used.name);
  }
  return "";
}

// Compares bf16 with f32 results. `of_row`: tolerance of f32 in a row, because another order of
// additions may end on the other side of a tie.
std::string CompareRounding(const char* name, const Values& narrow, const Values& wide,
                            int64_t width, const std::function<double(size_t)>& of_row) {
  bool truncated = true, away = true;
  std::string first;
  for (size_t i = 0; i < wide.size(); ++i) {
    const double ulp = 2 * HalfUlp(PLUMB_DTYPE_BF16, wide[i]);
    const double off = 2 * of_row(i / static_cast<size_t>(width));
    // bf16 has the exponents of f32; numbers below them may be zero.
    const bool is_normal = std::abs(wide[i]) >= 64 * std::ldexp(1, -126);
    if (!std::isfinite(wide[i]) || !is_normal || !std::isfinite(off)) continue;
    const double more = std::abs(narrow[i]) - std::abs(wide[i]);
    const bool is_near = std::abs(narrow[i] - wide[i]) <= ulp + off;
    truncated = truncated && is_near && more <= off;
    away = away && is_near && more >= -off;
    if (!first.empty() || std::abs(narrow[i] - wide[i]) <= ulp / 2 + off) continue;
    first =
        absl::StrFormat("%s is %.9g, %.2f ulp from %.9g as in f32: not the nearest",
                        PlaceInTensor(name, i, wide.size(), width), narrow[i], more / ulp, wide[i]);
  }
  if (first.empty() || truncated == away) return first;
  return absl::StrCat("bf16 results are ", truncated ? "truncated" : "rounded away from zero",
                      ", not rounded to the nearest: ", first);
}

// Returns parameters that reveal how a result is rounded: between two numbers of bf16, beyond its
// largest, or NaN.
Values RoundingProbes(int64_t kind, size_t n) {
  const double between = RoundTo(PLUMB_DTYPE_F32, 1 + std::ldexp(1, -8));
  const double above = RoundTo(PLUMB_DTYPE_F32, 1 + std::ldexp(3, -8));
  const double max = std::numeric_limits<float>::max();
  float nan;
  const uint32_t all_ones = 0x7fffffff;
  std::memcpy(&nan, &all_ones, sizeof(nan));
  const Values kinds[] = {{between, above, -between, -above, 4 * between}, {max, -max}, {nan}};
  const Values& of = kinds[kind];
  Values values(n);
  for (size_t i = 0; i < n; ++i) values[i] = of[i % of.size()];
  return values;
}

// Checks rows of zeros, for which y is 0 or exactly a bias, which bf16 must round exactly: to even
// between two numbers, to infinity beyond the largest; and a NaN must stay NaN, whatever its bits.
std::string RoundsBiases(const Instance& instance, Point point) {
  const plumb_norm_plugin& norm = instance.norm();
  if ((norm.flags & (PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS)) != 0) return "";
  point = Plain(point);
  point[kRows] = point[kTo] = 2 * std::max<int64_t>(point[kHeads], 1);
  Operands operands = OperandsAt(instance, point);
  operands.x.assign(operands.x.size(), 0);
  for (int64_t kind = 0; kind < 3; ++kind) {
    for (Values& param : operands.params) param = RoundingProbes(kind, param.size());
    const Values narrow = PlainY(instance, point, PLUMB_DTYPE_BF16, operands);
    const Values wide = PlainY(instance, point, PLUMB_DTYPE_F32, operands);
    const Values widest = PlainY(instance, point, WidestType(norm), operands);
    for (size_t i = 0; i < wide.size(); ++i) {
      const bool is_nan = std::isnan(wide[i]) && std::isnan(widest[i]);
      if (is_nan ? std::isnan(narrow[i])
                 : wide[i] != widest[i] || narrow[i] == RoundTo(PLUMB_DTYPE_BF16, wide[i])) {
        continue;
      }
      return absl::StrFormat(
          "rows of zeros: %s is %.9g, and %.9g as in f32: not rounded to the nearest, or to even "
          "between two",
          PlaceInTensor("y", i, wide.size(), point[kDim]), narrow[i], wide[i]);
    }
  }
  return "";
}

}  // namespace

std::optional<std::string> IsRounded(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  point[kType] = 1;
  if ((norm.dtypes & PLUMB_DTYPE_BF16) == 0 || IsExtremeX(point) || IsExtremeDy(point)) {
    return std::nullopt;
  }
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome narrow = PlainRun(*instance, point, PLUMB_DTYPE_BF16, operands);
  const Outcome wide = PlainRun(*instance, point, PLUMB_DTYPE_F32, operands);
  const F64Reference widest(*instance, point, PLUMB_DTYPE_BF16, operands, narrow.y);
  std::string text = CompareRounding("y", narrow.y, wide.y, point[kDim],
                                     [&](size_t row) { return widest.OfY(row); });
  const bool needs_y = (instance->layout().backward_needs & PLUMB_BACKWARD_READS_Y) != 0;
  if (text.empty() && !needs_y && point[kEvaluation] == 0) {
    text = CompareRounding("dx", narrow.dx, wide.dx, point[kDim],
                           [&](size_t row) { return widest.OfDx(row); });
  }
  if (text.empty()) text = RoundsBiases(*instance, point);
  // Results of which no f32 number is the rounded one: dx from a rounded y, and sums.
  if (text.empty()) text = widest.Compare(narrow);
  return At(point, text);
}

std::optional<std::string> AgreesWithF64(const plumb_norm_plugin& norm, const Point& given) {
  Point point = given;
  if (point[kType] == 1) point[kType] = 0;  // N12 compares bf16
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  const uint32_t type = TypeOf(point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome got = PlainRun(*instance, point, type, operands);
  std::string text = NotFinite(norm, point, got);
  if (text.empty() && type == PLUMB_DTYPE_F32 && WidestType(norm) != type) {
    text = F64Reference(*instance, point, type, operands, got.y).Compare(got);
    if (!text.empty()) text += " as in f64";
  }
  return At(point, text);
}

// -- Denormals ------------------------------------------------------------------------------------

namespace {

// Replaces every `step`-th number by zero, or by a denormal number of either sign.
void Spoil(bool with_zeros, size_t step, uint32_t type, Values* values) {
  const double min = std::ldexp(1, type == PLUMB_DTYPE_F64 ? -1022 : -126);
  for (size_t i = step - 1; i < values->size(); i += step) {
    const double size = min / static_cast<double>(2 + i % 61);
    (*values)[i] = with_zeros ? 0 : i % 2 == 0 ? size : -size;
  }
}

}  // namespace

// Returns "" if denormals produce the results of zeros, except for rounding. Hosts flush denormals
// to zero in their steps.
std::optional<std::string> DenormalsAreZeros(const plumb_norm_plugin& norm, const Point& point) {
  if (point[kFlushed] == 0) return std::nullopt;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = TypeOf(point);
  Outcome outcomes[2];
  for (const bool with_zeros : {false, true}) {
    Operands operands = OperandsAt(*instance, point);
    Spoil(with_zeros, 3, type, &operands.x);
    Spoil(with_zeros, 4, type, &operands.dy);
    if (point[kParams] != 0) {
      for (Values& values : operands.params) Spoil(with_zeros, 5, type, &values);
    }
    NormRun run(*instance, type, point[kRows], 1, {}, false, false);
    {
      const ScopedFlushing exact(false);  // written as denormals to memory
      AssignTo(operands, &run);
    }
    run.Forward(/*train=*/true);
    run.Backward();
    outcomes[with_zeros] = run.Results();
  }
  const std::vector<Tensor> got = outcomes[0].Tensors(), must = outcomes[1].Tensors();
  const double relative = std::max(1e-5, 2 * Epsilon(type));
  for (size_t k = 0; k < must.size(); ++k) {
    if (must[k].name.find("saved") != std::string::npos) continue;
    const std::string text = FirstDeviation(must[k].name, *got[k].values, *must[k].values,
                                            must[k].width, relative, 1e-12);
    if (text.empty()) continue;
    return At(point,
              absl::StrCat("denormals among x and dy", point[kParams] != 0 ? " and parameters" : "",
                           ", flushed to zero: ", text, " as for zeros"));
  }
  return "";
}

}  // namespace plumb::check
