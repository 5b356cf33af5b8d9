// N17: what denormal operands give. To arithmetic that flushes they are zeros, and to arithmetic
// that does not they are next to it; so among other numbers they give what zeros in their places
// give, but for rounding.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/float_state.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kOperandRows = 9;

double LeastNormal(uint32_t dtype) {
  return dtype == PLUMB_F64 ? std::numeric_limits<double>::min()
                            : static_cast<double>(std::numeric_limits<float>::min());
}

enum class Filling { kZero, kDenormal };

// Every `step`-th element becomes a zero or a denormal number of either sign.
void Fill(Filling filling, int64_t step, Rows* rows) {
  for (int64_t r = 0; r < rows->rows(); ++r) {
    for (int64_t i = 0; i < rows->width(); ++i) {
      if ((r + i) % step != step - 1) continue;
      const double size = LeastNormal(rows->dtype()) / static_cast<double>(2 + i % 61);
      rows->Set(r, i, filling == Filling::kZero ? 0 : i % 2 == 0 ? size : -size);
    }
  }
}

// A step on rows of which some elements, and some parameters where `parameters`, are filled.
Outcome StepOn(const Instance& instance, uint32_t dtype, uint64_t seed, Filling filling,
               bool parameters, bool flush) {
  NormRun run(instance, dtype, kOperandRows, seed);
  Fill(filling, 3, &run.x);
  Fill(filling, 4, &run.dy);
  for (size_t i = 0; parameters && i < run.params.size(); ++i) Fill(filling, 5, &run.params[i]);
  {
    const ScopedFlushing scoped(flush);
    run.Forward(/*train=*/true);
    run.Backward();
  }
  return run.Results();
}

bool IsFinite(const Outcome& outcome) {
  size_t at;
  bool finite = AllFinite(outcome.y, &at) && AllFinite(outcome.dx, &at);
  for (const std::vector<double>& values : outcome.dparams) {
    finite = finite && AllFinite(values, &at);
  }
  return finite;
}

std::string FirstUnlike(const Outcome& got, const Outcome& must, const NormRun& run) {
  const double relative = std::max(1e-5, 2 * Epsilon(run.dtype())), absolute = 1e-12;
  std::string text = FirstDeviation("y", got.y, must.y, run.dim(), relative, absolute);
  if (text.empty()) text = FirstDeviation("dx", got.dx, must.dx, run.dim(), relative, absolute);
  for (size_t i = 0; i < must.dparams.size() && text.empty(); ++i) {
    text = FirstDeviation(absl::StrCat("dparams[", i, "]").c_str(), got.dparams[i], must.dparams[i],
                          static_cast<int64_t>(must.dparams[i].size()), relative, absolute);
  }
  for (size_t i = 0; i < must.buffers.size() && text.empty(); ++i) {
    text = FirstDeviation(absl::StrCat("buffers[", i, "]").c_str(), got.buffers[i], must.buffers[i],
                          static_cast<int64_t>(must.buffers[i].size()), relative, absolute);
  }
  return text;
}

void CheckInstance(const Instance& instance, uint32_t dtype, uint64_t seed, Report* report) {
  const NormRun named(instance, dtype, kOperandRows, seed);
  for (const bool parameters : {false, true}) {
    if (parameters && instance.layout().n_params == 0) continue;
    const Outcome zeros =
        StepOn(instance, dtype, seed, Filling::kZero, parameters, /*flush=*/false);
    // A norm may divide by its parameters; N13 speaks of zeros in rows.
    if (!IsFinite(zeros)) continue;
    for (const bool flush : {true, false}) {
      const std::string text = FirstUnlike(
          StepOn(instance, dtype, seed, Filling::kDenormal, parameters, flush), zeros, named);
      if (text.empty()) continue;
      const std::string finding = absl::StrCat(
          named.Name(), ", denormals among x and dy", parameters ? " and parameters" : "",
          flush ? ", flushed to zero: " : ", not flushed: ", text, " as for zeros");
      return flush ? report->Fail(finding) : report->Warn(finding);
    }
  }
}

}  // namespace

void CheckDenormalOperands(const Subject& subject, Report* report) {
  for (const uint32_t dim : {2, 7, 64, 1000}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      CheckInstance(*instance, dtype, subject.seed, report);
      if (!report->findings().empty()) return;
    }
  }
}

}  // namespace plumb::check
