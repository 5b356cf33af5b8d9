#include "plugins/check/residual_sum.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "plugins/check/error_bounds.h"
#include "plugins/check/guarded.h"

namespace plumb::check {
namespace {

const plumb_norm_residual* Find(const plumb_norm_plugin& norm, const char* id,
                                const Instance& instance) {
  if (norm.get_extension == nullptr) return nullptr;
  return Guarded(Function::kGetExtension, 0, [&]() -> const plumb_norm_residual* {
    // What has an answer to everything may answer anything: M5 tells.
    if (norm.get_extension("org.example.no_such_extension/1") != nullptr) return nullptr;
    const auto* of_instance =
        static_cast<const plumb_norm_instance_extensions*>(norm.get_extension(PLUMB_EXT_INSTANCE));
    const void* found = of_instance != nullptr && of_instance->get != nullptr
                            ? of_instance->get(instance.handle(), id)
                            : norm.get_extension(id);
    const auto* residual = static_cast<const plumb_norm_residual*>(found);
    const bool whole =
        residual != nullptr && residual->forward != nullptr && residual->backward != nullptr;
    return whole ? residual : nullptr;
  });
}

}  // namespace

ResidualSum::ResidualSum(const NormRun& run, const Point& point, const Operands& operands)
    : terms_(run.dtype(), point[kResidual] != 0 ? run.rows() : 0, run.dim(), PlaceOf(point, 6)),
      sum_(run.dtype(), terms_.rows(), run.dim(), PlaceOf(point, 7)) {
  const plumb_norm_plugin& norm = run.instance().norm();
  constexpr uint32_t kWithoutSums = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_TWO_INPUTS;
  if (point[kResidual] == 0 || (norm.flags & kWithoutSums) != 0) return;
  extension_ = Find(norm, PLUMB_EXT_RESIDUAL, run.instance());
  if (extension_ == nullptr) return;
  // x is the sum as it is stored: exactly first + second, or what that is rounded to, all sums to
  // the same side, so that a norm of sums that were not rounded is off by nearly half an ulp.
  first_ = operands.x;
  std::vector<double> second = operands.x;
  const bool rounded = point[kSeed] % 3 == 2 && !IsExtremeX(point);
  for (size_t i = 0; i < first_.size(); ++i) {
    if (rounded) {
      second[i] = std::copysign(0.85 * HalfUlp(run.dtype(), operands.x[i]), operands.x[i]);
      continue;
    }
    const bool small = std::abs(first_[i]) < 1e-30;
    const size_t way = (i * 7 + i / 5) % 5;
    const double part = way == 0   ? 0
                        : way == 1 ? 1
                        : small    ? 0
                        : way == 2 ? 0.5
                        : way == 3 ? 2
                                   : -1;
    first_[i] = part * operands.x[i];
    second[i] = (1 - part) * operands.x[i];
  }
  terms_.Assign(second);
  sum_.Fill(Poison());
}

}  // namespace plumb::check
