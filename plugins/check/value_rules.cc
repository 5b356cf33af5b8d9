// SPDX-License-Identifier: Apache-2.0
// Rules of the numbers of a plain call: N1 compares it with f64, N12 does so in bf16, and N17 looks
// at denormals.
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/rules.h"
#include "plugins/check/run.h"
#include "plugins/check/tolerance.h"

namespace plumb::check {
namespace {

// Returns the first y, gradient or buffer that is not finite although x is ordinary, zero or
// constant, and numeric attributes are the defaults; "" if there is none. A norm that is undefined
// for a dim or a combination must refuse it in create().
std::string NotFinite(const Norm& norm, const Point& point, const Outcome& outcome) {
  const int64_t x = point[kX];
  const bool is_ordinary =
      x == 0 || x == 4 || x == kConstantX || x == kEqualRowsX || x == kOneNumberX;
  if (!is_ordinary || point[kParams] != 0 || IsExtremeDy(point)) return "";
  const AttributeCase& used = GetCases(norm)[static_cast<size_t>(point[kAttributes])];
  for (uint32_t i = 0; i < norm.n_attrs; ++i) {
    const bool is_number = GetAttr(norm, i).type == PLUMB_ATTR_F64;
    if (is_number && used.values[i].f != DefaultValues(norm)[i].f) return "";
  }
  for (const Tensor& tensor : outcome.Tensors()) {
    const size_t at = FirstNotFinite(*tensor.values);
    const bool is_result = tensor.name == "y" || (point[kEvaluation] == 0 && !tensor.is_kept);
    if (!is_result || at == tensor.values->size()) continue;
    return absl::StrFormat("%s is %g, of ordinary x%s%s",
                           PlaceInTensor(tensor.name, at, tensor.values->size(), tensor.width),
                           (*tensor.values)[at], used.name.empty() ? "" : ", with ", used.name);
  }
  return "";
}

Result CompareWithF64(const Norm& norm, const Point& point) {
  const uint32_t type = GetType(point);
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const Operands operands = OperandsAt(*instance, point);
  const Outcome got = RunAt(*instance, point, operands);
  std::string text = type == PLUMB_DTYPE_BF16 ? "" : NotFinite(norm, point, got);
  if (text.empty() && type != WidestType(norm)) {
    text = F64Reference(*instance, point, type, operands, got.y).Compare(got);
    if (!text.empty()) absl::StrAppend(&text, " as in ", TypeName(WidestType(norm)));
  }
  return At(point, text);
}

// Replaces every `step`-th number by zero, or by a denormal number of either sign.
void Spoil(bool with_zeros, size_t step, uint32_t type, Values* values) {
  const double min = std::ldexp(1, type == PLUMB_DTYPE_F64 ? -1022 : -126);
  for (size_t i = step - 1; i < values->size(); i += step) {
    const double size = min / static_cast<double>(2 + i % 61);
    (*values)[i] = with_zeros ? 0 : i % 2 == 0 ? size : -size;
  }
}

}  // namespace

Result AgreesWithF64(const Norm& norm, const Point& given) {
  Point point = given;
  if (point[kType] == 1) point[kType] = 0;  // N12 compares bf16
  return CompareWithF64(norm, point);
}

Result IsRounded(const Norm& norm, const Point& given) {
  Point point = given;
  point[kType] = 1;
  return CompareWithF64(norm, point);
}

// Hosts flush denormals to zero in their steps.
Result DenormalsAreZeros(const Norm& norm, const Point& point) {
  if (point[kFlushed] == 0) return std::nullopt;
  const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
  if (instance == nullptr) return std::nullopt;
  const uint32_t type = GetType(point);
  Outcome outcomes[2];
  for (const bool with_zeros : {false, true}) {
    Operands operands = OperandsAt(*instance, point);
    Spoil(with_zeros, 3, type, &operands.x);
    Spoil(with_zeros, 4, type, &operands.dy);
    for (Values& values : operands.params) {
      if (point[kParams] != 0) Spoil(with_zeros, 5, AccumulateType(type), &values);
    }
    outcomes[with_zeros] = RunAt(*instance, point, operands);
  }
  const std::vector<Tensor> got = outcomes[0].Tensors(), must = outcomes[1].Tensors();
  for (size_t k = 0; k < must.size(); ++k) {
    if (must[k].is_kept) continue;
    const std::string text =
        FirstDeviation(must[k].name, *got[k].values, *must[k].values, must[k].width,
                       std::max(1e-5, 2 * Epsilon(type)), 1e-12);
    if (text.empty()) continue;
    return At(point, "denormals among the operands, flushed to zero: " + text + " as for zeros");
  }
  return "";
}

}  // namespace plumb::check
