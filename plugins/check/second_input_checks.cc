// N18: norms of two inputs: what of the second one no other check sees.
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "plugins/check/guarded.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/numeric_cases.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr int64_t kSecondRows = 6;

// x2 of different rows.
void DrawSecondInput(uint64_t seed, NormRun* run) {
  std::mt19937_64 random(seed + 77);
  run->x2.FillNormal(&random);
}

// One tensor as both inputs gives what two with the same numbers give.
std::string CompareShared(const Instance& instance, uint32_t dtype, uint64_t seed) {
  NormRun apart(instance, dtype, kSecondRows, seed), shared(instance, dtype, kSecondRows, seed);
  for (NormRun* run : {&apart, &shared}) run->x2.Assign(run->x.Values());
  apart.Forward(true);
  apart.Backward();
  plumb_norm_call call = shared.ForwardCall(true);
  call.x2 = call.x;
  call.x2_pitch = call.x_pitch;
  shared.Expect(Forward(instance, call, 0, kSecondRows), "forward", 0, kSecondRows);
  call = shared.BackwardCall(false);
  if (call.x2 != nullptr) {
    call.x2 = shared.x.data();
    call.x2_pitch = shared.x.pitch();
  }
  shared.Expect(Backward(instance, call, 0, kSecondRows), "backward", 0, kSecondRows);
  const std::string text = FirstDifference(shared.Results(), apart.Results(), instance.dim());
  return text.empty() ? text : absl::StrCat(apart.Name(), ", x2 is x: ", text);
}

// dx2 is overwritten, whatever it holds and whatever is asked of dx.
std::string CompareAdded(const Instance& instance, uint32_t dtype, uint64_t seed) {
  std::vector<double> must;
  for (const bool accumulate : {false, true}) {
    for (const double before : {0.0, 0.75, Poison()}) {
      NormRun run(instance, dtype, kSecondRows, seed);
      DrawSecondInput(seed, &run);
      run.Forward(true);
      run.dx.Fill(0);
      run.dx2.Fill(before);
      run.Backward(accumulate);
      if (must.empty()) must = run.dx2.Values();
      const std::string text = FirstDifference("dx2", run.dx2.Values(), must, instance.dim());
      if (text.empty()) continue;
      return absl::StrCat(run.Name(), accumulate ? " with" : " without",
                          " PLUMB_CALL_DX_ACCUMULATE: ", text,
                          ", as when it was 0 before: it is never added to");
    }
  }
  return "";
}

// A second input that changes nothing is none.
bool IsRead(const Instance& instance, uint64_t seed) {
  NormRun run(instance, PLUMB_F32, kSecondRows, seed);
  DrawSecondInput(seed, &run);
  run.Forward(true);
  const std::vector<double> y = run.y.Values();
  DrawSecondInput(seed + 1, &run);
  run.Forward(true);
  return run.y.Values() != y;
}

}  // namespace

void CheckSecondInput(const Subject& subject, Report* report) {
  const plumb_norm_plugin& norm = *subject.norm;
  if ((norm.flags & PLUMB_NORM_TWO_INPUTS) == 0) return report->Skip("it has one input");
  if (norm.flags & (PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL | PLUMB_NORM_IDENTITY)) {
    return report->Fail("TWO_INPUTS together with CROSS_ROW or IDENTITY");
  }
  if (norm.get_extension != nullptr) {
    const void* residual =
        Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(PLUMB_EXT_RESIDUAL); });
    if (residual != nullptr) {
      report->Fail(PLUMB_EXT_RESIDUAL " is offered, which is for norms of one input");
    }
  }
  if (norm.min_host_minor < 1) {
    report->Note("min_host_minor is 0; a host of 1.0 refuses the flag, with its number alone");
  }
  bool any = false;
  for (const auto& instance : UsualInstances(norm)) {
    any = any || IsRead(*instance, subject.seed);
    for (const uint32_t dtype : OfferedTypes(norm)) {
      std::string text = CompareShared(*instance, dtype, subject.seed);
      if (text.empty()) text = CompareAdded(*instance, dtype, subject.seed);
      if (!text.empty()) return report->Fail(text);
    }
  }
  if (!any) report->Warn("y does not change with x2, at the default attributes");
}

}  // namespace plumb::check
