// N3: dx is overwritten or added to, as PLUMB_CALL_DX_ACCUMULATE says; dparams are always added to;
// and the extension that fuses the residual's sum gives what an addition and the norm give.
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/guarded.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/numeric_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kAccumulationRows = 5;

// Equal bits for f32 and f64; for bf16, where the sum may be rounded once or twice, within two
// units of the last place of its terms.
std::string Compare(const char* name, const NormRun& run, const std::vector<double>& got,
                    const std::vector<double>& must) {
  if (run.dtype() != PLUMB_BF16) return FirstDifference(name, got, must, run.dim());
  return FirstDeviation(name, got, must, run.dim(), 2 * Epsilon(PLUMB_BF16), 0);
}

std::vector<double> Sum(uint32_t dtype, const std::vector<double>& a,
                        const std::vector<double>& b) {
  std::vector<double> sum(a.size());
  for (size_t i = 0; i < a.size(); ++i) sum[i] = RoundTo(dtype, a[i] + b[i]);
  return sum;
}

// One training step from fresh buffers, with dx and dparams as they are.
void StepKeepingGradients(NormRun* run, bool accumulate) {
  run->Forward(true);
  run->Backward(accumulate);
}

std::string CheckDx(const Instance& instance, uint32_t dtype, uint64_t seed) {
  // The gradient itself, onto NaNs: they must all be gone.
  NormRun plain(instance, dtype, kAccumulationRows, seed);
  StepKeepingGradients(&plain, false);
  const std::vector<double> gradient = plain.dx.Values();
  size_t at;
  if (!AllFinite(gradient, &at)) {
    return absl::StrCat(plain.Name(), ": dx[", at / instance.dim(), "][", at % instance.dim(),
                        "] is ", gradient[at], " after overwriting a dx of NaNs");
  }
  // The same onto numbers.
  std::mt19937_64 random(seed + 1);
  NormRun over(instance, dtype, kAccumulationRows, seed);
  over.dx.FillNormal(&random);
  StepKeepingGradients(&over, false);
  std::string text = FirstDifference("dx", over.dx.Values(), gradient, instance.dim());
  if (!text.empty()) return absl::StrCat(over.Name(), " overwriting a dx of numbers: ", text);
  // Added to.
  NormRun added(instance, dtype, kAccumulationRows, seed);
  added.dx.FillNormal(&random);
  const std::vector<double> before = added.dx.Values();
  StepKeepingGradients(&added, true);
  text = Compare("dx", added, added.dx.Values(), Sum(dtype, before, gradient));
  if (!text.empty()) {
    return absl::StrCat(added.Name(), " with PLUMB_CALL_DX_ACCUMULATE: ", text,
                        ", dx before it plus the gradient");
  }
  // dparams: the same numbers, added to what is there.
  NormRun onto(instance, dtype, kAccumulationRows, seed);
  std::vector<std::vector<double>> dparams_before;
  for (Rows& rows : onto.dparams) {
    rows.FillNormal(&random);
    dparams_before.push_back(rows.Values());
  }
  StepKeepingGradients(&onto, true);
  const double tolerance = ReorderTolerance(dtype);
  for (size_t i = 0; i < plain.dparams.size() && text.empty(); ++i) {
    const std::string name = absl::StrCat("dparams[", i, "]");
    const std::vector<double> alone = plain.dparams[i].Values();
    const int64_t width = plain.dparams[i].width();
    text = FirstDeviation(name.c_str(), onto.dparams[i].Values(),
                          Sum(PLUMB_F64, dparams_before[i], alone), width, tolerance, tolerance);
    if (!text.empty()) {
      return absl::StrCat(onto.Name(), ": ", text, ", what was there plus the gradient");
    }
    text =
        FirstDeviation(name.c_str(), added.dparams[i].Values(), alone, width, tolerance, tolerance);
    if (!text.empty()) {
      return absl::StrCat(added.Name(), " with PLUMB_CALL_DX_ACCUMULATE: ", text);
    }
  }
  return "";
}

// -- plumb.norm.residual/1 -----------------------------------------------------------------------

class ResidualRun {
 public:
  enum class SumAt { kApart, kX, kResidual };
  enum class Dsum { kNone, kApart, kDx };

  ResidualRun(const plumb_norm_residual& extension, const Instance& instance, uint32_t dtype,
              uint64_t seed)
      : extension_(extension), instance_(instance), dtype_(dtype), seed_(seed) {}

  std::string Check() {
    std::string text;
    for (const SumAt at : {SumAt::kApart, SumAt::kX, SumAt::kResidual}) {
      for (const bool train : {true, false}) {
        if (text.empty()) text = CheckForward(at, train);
      }
    }
    for (const Dsum dsum : {Dsum::kNone, Dsum::kApart, Dsum::kDx}) {
      if (text.empty()) text = CheckBackward(dsum);
    }
    if (text.empty()) return "";
    return absl::StrCat(PLUMB_EXT_RESIDUAL, " ", TypeName(dtype_), " dim=", instance_.dim(), ": ",
                        text);
  }

 private:
  // Operands, and the norm of their sum in two steps.
  struct Operands {
    Operands(const Instance& instance, uint32_t dtype, uint64_t seed)
        : fused(instance, dtype, kAccumulationRows, seed),
          two_steps(instance, dtype, kAccumulationRows, seed),
          residual(dtype, kAccumulationRows, instance.dim()) {
      std::mt19937_64 random(seed + 7);
      residual.FillNormal(&random);
      two_steps.x.Assign(Sum(dtype, fused.x.Values(), residual.Values()));
    }
    NormRun fused, two_steps;
    Rows residual;
  };

  static plumb_residual_call Residual() {
    plumb_residual_call call{};
    call.struct_size = sizeof(call);
    return call;
  }

  std::string CheckForward(SumAt at, bool train) {
    Operands o(instance_, dtype_, seed_);
    o.two_steps.Forward(train);
    Rows apart(dtype_, kAccumulationRows, instance_.dim());
    Rows* sum = at == SumAt::kApart ? &apart : at == SumAt::kX ? &o.fused.x : &o.residual;
    const plumb_norm_call call = o.fused.ForwardCall(train);
    plumb_residual_call residual = Residual();
    residual.res = o.residual.data();
    residual.res_pitch = o.residual.pitch();
    residual.sum = sum->data();
    residual.sum_pitch = sum->pitch();
    const plumb_status status =
        Guarded(Function::kResidualForward, call, 0, kAccumulationRows, [&] {
          return extension_.forward(instance_.handle(), &call, &residual, 0, kAccumulationRows);
        });
    o.fused.Expect(status, "the residual's forward", 0, kAccumulationRows);
    std::string text =
        FirstDifference("sum", sum->Values(), o.two_steps.x.Values(), instance_.dim());
    if (text.empty()) text = Compare("y", o.fused, o.fused.y.Values(), o.two_steps.y.Values());
    if (text.empty() && dtype_ != PLUMB_BF16) {
      text = FirstDifference("saved", o.fused.saved.Values(), o.two_steps.saved.Values(),
                             std::max<int64_t>(1, o.fused.saved.width()));
    }
    if (text.empty()) return "";
    return absl::StrCat("forward", train ? "" : " in evaluation",
                        at == SumAt::kX          ? ", sum = x"
                        : at == SumAt::kResidual ? ", sum = res"
                                                 : "",
                        ": ", text);
  }

  std::string CheckBackward(Dsum where) {
    Operands o(instance_, dtype_, seed_);
    NormRun& fused = o.fused;
    fused.x.Assign(o.two_steps.x.Values());
    o.two_steps.Forward(true);
    fused.Forward(true);
    o.two_steps.Backward();
    std::vector<double> must = o.two_steps.dx.Values();
    Rows apart(dtype_, kAccumulationRows, instance_.dim());
    Rows* dsum = where == Dsum::kDx ? &fused.dx : &apart;
    if (where != Dsum::kNone) {
      std::mt19937_64 random(seed_ + 8);
      dsum->FillNormal(&random);
      must = Sum(dtype_, dsum->Values(), must);
    }
    const plumb_norm_call call = fused.BackwardCall(false);
    plumb_residual_call residual = Residual();
    if (where != Dsum::kNone) {
      residual.dsum = dsum->data();
      residual.dsum_pitch = dsum->pitch();
    }
    const plumb_status status =
        Guarded(Function::kResidualBackward, call, 0, kAccumulationRows, [&] {
          return extension_.backward(instance_.handle(), &call, &residual, 0, kAccumulationRows);
        });
    fused.Expect(status, "the residual's backward", 0, kAccumulationRows);
    std::string text = Compare("dx", fused, fused.dx.Values(), must);
    for (size_t i = 0; i < fused.dparams.size() && text.empty(); ++i) {
      const std::string name = absl::StrCat("dparams[", i, "]");
      const double tolerance = ReorderTolerance(dtype_);
      text =
          FirstDeviation(name.c_str(), fused.dparams[i].Values(), o.two_steps.dparams[i].Values(),
                         fused.dparams[i].width(), tolerance, tolerance);
    }
    if (text.empty()) return "";
    return absl::StrCat("backward",
                        where == Dsum::kNone ? " without dsum"
                        : where == Dsum::kDx ? " with dsum = dx"
                                             : " with dsum",
                        ": ", text);
  }

  const plumb_norm_residual& extension_;
  const Instance& instance_;
  const uint32_t dtype_;
  const uint64_t seed_;
};

// The extension, null when it is not offered or has nothing to call.
const plumb_norm_residual* ResidualOf(const plumb_norm_plugin& norm) {
  if (norm.get_extension == nullptr || (norm.flags & PLUMB_NORM_CROSS_ROW) != 0) return nullptr;
  const void* found =
      Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(PLUMB_EXT_RESIDUAL); });
  const auto* extension = static_cast<const plumb_norm_residual*>(found);
  if (extension == nullptr) return nullptr;
  if (!PLUMB_HAS(plumb_norm_residual, extension, backward) || extension->forward == nullptr ||
      extension->backward == nullptr) {
    throw CheckEnded{absl::StrCat(PLUMB_EXT_RESIDUAL, " lacks forward or backward")};
  }
  return extension;
}

}  // namespace

void CheckAccumulation(const Subject& subject, Report* report) {
  const plumb_norm_residual* residual = ResidualOf(*subject.norm);
  for (const auto& instance : UsualInstances(*subject.norm)) {
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      std::string text = CheckDx(*instance, dtype, subject.seed);
      if (text.empty() && residual != nullptr) {
        text = ResidualRun(*residual, *instance, dtype, subject.seed).Check();
      }
      if (!text.empty()) return report->Fail(text);
    }
  }
}

}  // namespace plumb::check
