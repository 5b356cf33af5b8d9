#include "plugins/check/rounding_of_biases.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "absl/strings/str_format.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/point_run.h"
#include "plugins/check/points.h"

namespace plumb::check {
namespace {

using Values = std::vector<double>;

// Numbers of parameters that show how a result is rounded.
Values ShowingParams(int64_t kind, size_t n) {
  const double between = RoundTo(PLUMB_F32, 1 + std::ldexp(1, -8));
  const double above = RoundTo(PLUMB_F32, 1 + std::ldexp(3, -8));
  const double most = std::numeric_limits<float>::max();
  float nan;
  const uint32_t all_ones = 0x7fffffff;
  std::memcpy(&nan, &all_ones, sizeof(nan));
  const Values kinds[] = {{between, above, -between, -above, 4 * between}, {most, -most}, {nan}};
  const Values& of = kinds[kind];
  Values values(n);
  for (size_t i = 0; i < n; ++i) values[i] = of[i % of.size()];
  return values;
}

}  // namespace

std::string RoundingOfBiases(const plumb_norm_plugin& norm) {
  constexpr uint32_t kBoth = PLUMB_BF16 | PLUMB_F32;
  constexpr uint32_t kUnknown = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS;
  if ((norm.dtypes & kBoth) != kBoth || (norm.flags & kUnknown) != 0) return "";
  for (const int64_t dim : {1, 2, 8, 17, 33, 256, 768}) {
    Point point{};
    point[kDim] = dim;
    point[kRows] = point[kTo] = 2;
    point[kType] = 1;
    const std::unique_ptr<Instance> instance = InstanceAt(norm, point);
    if (instance == nullptr) continue;
    Operands operands = OperandsAt(*instance, point);
    operands.x.assign(operands.x.size(), 0);
    for (int64_t kind = 0; kind < 3; ++kind) {
      for (Values& param : operands.params) param = ShowingParams(kind, param.size());
      const Values narrow = PlainY(*instance, point, PLUMB_BF16, operands);
      const Values wide = PlainY(*instance, point, PLUMB_F32, operands);
      const Values widest = PlainY(*instance, point, WidestType(norm), operands);
      for (size_t i = 0; i < wide.size(); ++i) {
        const bool is_nan = std::isnan(wide[i]) && std::isnan(widest[i]);
        if (is_nan ? std::isnan(narrow[i])
                   : wide[i] != widest[i] || narrow[i] == RoundTo(PLUMB_BF16, wide[i])) {
          continue;
        }
        return absl::StrFormat(
            "bf16 dim=%d, rows of zeros: %s is %.9g, and %.9g as in f32: not rounded to the "
            "nearest, or to even between two",
            dim, PlaceInTensor("y", i, wide.size(), dim), narrow[i], wide[i]);
      }
    }
  }
  return "";
}

}  // namespace plumb::check
