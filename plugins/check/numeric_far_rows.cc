// N8: rows that lie gigabytes behind the first, where offsets do not fit into 32 bits.
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/guarded.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/point_run.h"
#include "plugins/check/points.h"
#include "plugins/check/residual_sum.h"
#include "plugins/check/rows.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

// The last row begins 18 GiB behind the first: beyond 2^32 bytes, and 2^31 elements of any type.
// The pitch is an odd multiple of 64, so that no two rows are the same modulo 2^32.
constexpr int64_t kFarRows = 17;
constexpr int64_t kFarPitch = (int64_t{9} << 27) + 64;
// Of ranges, so that most begin far away.
constexpr int64_t kFarRange = 5;
// More than one operand takes.
constexpr rlim_t kFarAddresses = rlim_t{64} << 30;

// Lets the process have as many bytes of addresses more, where the system does, until its end.
class MoreAddresses {
 public:
  explicit MoreAddresses(rlim_t bytes) {
    if (getrlimit(RLIMIT_AS, &before_) != 0) return;
    rlimit more = before_;
    more.rlim_cur =
        before_.rlim_max - before_.rlim_cur < bytes ? before_.rlim_max : before_.rlim_cur + bytes;
    is_raised_ = setrlimit(RLIMIT_AS, &more) == 0;
  }
  ~MoreAddresses() {
    if (is_raised_) setrlimit(RLIMIT_AS, &before_);
  }
  MoreAddresses(const MoreAddresses&) = delete;
  MoreAddresses& operator=(const MoreAddresses&) = delete;

 private:
  rlimit before_ = {};
  bool is_raised_ = false;
};

Point PointOfSum() {
  Point point{};
  point[kDim] = 1;
  point[kRows] = point[kTo] = kFarRows;
  point[kResidual] = 1;
  return point;
}

Operands OperandsOfSum(const NormRun& run) {
  Operands operands;
  operands.x = run.x.Values();
  return operands;
}

// Operands of a norm, and of the sum before it where it offers that.
struct FarRun {
  FarRun(const Instance& instance, uint32_t dtype, uint64_t seed)
      : run(instance, dtype, kFarRows, seed), residual(run, PointOfSum(), OperandsOfSum(run)) {}
  NormRun run;
  ResidualSum residual;
};

struct FarOperand {
  const char* name;
  Rows* (*rows)(FarRun* run);
};

constexpr FarOperand kFarOperands[] = {
    {"x", [](FarRun* run) { return &run->run.x; }},
    {"y", [](FarRun* run) { return &run->run.y; }},
    {"saved", [](FarRun* run) { return &run->run.saved; }},
    {"dy", [](FarRun* run) { return &run->run.dy; }},
    {"dx", [](FarRun* run) { return &run->run.dx; }},
    {"x2", [](FarRun* run) { return &run->run.x2; }},
    {"dx2", [](FarRun* run) { return &run->run.dx2; }},
    {"res and dsum", [](FarRun* run) { return run->residual.terms(); }},
    {"sum", [](FarRun* run) { return run->residual.sum(); }},
};

// What calls gave.
struct Given {
  std::vector<Outcome> outcomes;
  std::vector<double> evaluated, sum;
};

// Calls `call` with the ranges of all rows.
template <class F>
void InRanges(F call) {
  for (int64_t r = 0; r < kFarRows; r += kFarRange) call(r, std::min(kFarRows, r + kFarRange));
}

// Evaluation, and training steps in one range and in several.
void CallPlain(NormRun* run, Given* given) {
  if (run->TakesStatistics(false)) run->Statistics(PLUMB_FWD, false, run->ChunkRows());
  InRanges([&](int64_t r0, int64_t r1) { run->ForwardRange(false, r0, r1); });
  given->evaluated = run->y.Values();
  run->Reset();
  run->Forward(true);
  run->Backward();
  given->outcomes.push_back(run->Results());
  // Adds to dx.
  if (run->TakesStatistics(true)) run->Statistics(PLUMB_FWD, true, run->ChunkRows());
  InRanges([&](int64_t r0, int64_t r1) { run->ForwardRange(true, r0, r1); });
  run->Backward(true);
  given->outcomes.push_back(run->Results());
}

// A training step of a norm with the sum before it. Row-wise norms only.
void CallWithSum(FarRun* far, Given* given) {
  NormRun& run = far->run;
  ResidualSum& residual = far->residual;
  run.Reset();
  run.x.Assign(residual.first());
  plumb_residual_call sums{};
  sums.struct_size = sizeof(sums);
  sums.res = residual.terms()->data(), sums.res_pitch = residual.terms()->pitch();
  sums.sum = residual.sum()->data(), sums.sum_pitch = residual.sum()->pitch();
  InRanges([&](int64_t r0, int64_t r1) {
    const plumb_norm_call call = run.ForwardCall(true);
    run.Expect(Guarded(Function::kResidualForward, call, r0, r1,
                       [&] {
                         return residual.extension()->forward(run.instance().handle(), &call, &sums,
                                                              r0, r1);
                       }),
               "forward", r0, r1);
  });
  given->sum = residual.sum()->Values();
  run.x.Assign(given->sum);
  plumb_residual_call gradient{};
  gradient.struct_size = sizeof(gradient);
  gradient.dsum = sums.res, gradient.dsum_pitch = sums.res_pitch;
  InRanges([&](int64_t r0, int64_t r1) {
    const plumb_norm_call call = run.BackwardCall(false);
    run.Expect(Guarded(Function::kResidualBackward, call, r0, r1,
                       [&] {
                         return residual.extension()->backward(run.instance().handle(), &call,
                                                               &gradient, r0, r1);
                       }),
               "backward", r0, r1);
  });
  given->outcomes.push_back(run.Results());
}

Given CallAll(FarRun* far) {
  Given given;
  CallPlain(&far->run, &given);
  if (far->residual.extension() != nullptr) CallWithSum(far, &given);
  return given;
}

std::string Difference(const Given& got, const Given& must, const NormRun& run) {
  std::string text = FirstDifference("y", got.evaluated, must.evaluated, run.dim());
  for (size_t i = 0; i < must.outcomes.size() && text.empty(); ++i) {
    text = FirstRowDifference(got.outcomes[i], must.outcomes[i], run);
  }
  return text.empty() ? FirstDifference("sum", got.sum, must.sum, run.dim()) : text;
}

// One operand far apart after the other. `refused`: why the system gives no memory for it.
std::string CheckFar(const Instance& instance, uint32_t dtype, uint64_t seed,
                     std::string* refused) {
  FarRun near(instance, dtype, seed);
  const Given must = CallAll(&near);
  for (const FarOperand& operand : kFarOperands) {
    FarRun far(instance, dtype, seed);
    Rows* const rows = operand.rows(&far);
    if (rows->rows() == 0 || rows->width() == 0) continue;
    // Where an offset that is too large for a signed index of elements ends.
    const int64_t room = (int64_t{1} << 31) * static_cast<int64_t>(TypeSize(rows->dtype()));
    *refused = rows->MoveApart(kFarPitch, room);
    if (!refused->empty()) return "";
    const std::string text = Difference(CallAll(&far), must, far.run);
    if (text.empty()) continue;
    return absl::StrCat(far.run.Name(), ", rows of ", operand.name, " 1.125 GiB apart: ", text);
  }
  return "";
}

}  // namespace

void CheckFarRows(const Subject& subject, Report* report) {
  const MoreAddresses more(kFarAddresses);
  for (const std::unique_ptr<Instance>& instance : UsualInstances(*subject.norm)) {
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      std::string refused;
      const std::string text = CheckFar(*instance, dtype, subject.seed, &refused);
      if (!text.empty()) return report->Fail(text);
      if (refused.empty()) continue;
      return report->Note(absl::StrCat("rows gigabytes apart were not tried: no ", refused));
    }
  }
}

}  // namespace plumb::check
