// R5 and R7: calls that return, and return by the door. A call that throws is named by calls.cc;
// one that does not return is ended by the runner, with the call that it was in.
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "plugins/check/guarded.h"
#include "plugins/check/hot_calls.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/robustness_checks.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

class Unwatched final : public CallWatcher {
 public:
  void Before() override {}
  void After(const char*) override {}
};

// Calls in which no text is wanted.
void MakeCallsWithoutText(NormRun* run) {
  for (const bool train : {true, false}) {
    plumb_norm_call call = run->ForwardCall(train);
    call.err = nullptr;
    call.err_cap = 0;
    Forward(run->instance(), call, 0, run->rows());
    Forward(run->instance(), call, run->rows(), run->rows());
  }
  plumb_norm_call call = run->BackwardCall(/*accumulate=*/false);
  call.err = nullptr;
  call.err_cap = 0;
  Backward(run->instance(), call, run->rows(), run->rows());
}

// Fills x and dy of a run with numbers on which an iteration may not converge.
struct HardNumbers {
  const char* name;
  double even, odd;  // elements of even and of odd index
};

std::vector<HardNumbers> AllHardNumbers() {
  const double inf = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  return {{"zeros", 0, 0},           {"ones", 1, 1},           {"NaN", nan, nan},
          {"+-Inf", inf, -inf},      {"1e-40", 1e-40, -1e-40}, {"1e38", 1e38, -1e38},
          {"1e-300", 1e-300, 1e-300}};
}

void Fill(const HardNumbers& numbers, Rows* rows) {
  for (int64_t r = 0; r < rows->rows(); ++r) {
    for (int64_t i = 0; i < rows->width(); ++i) {
      rows->Set(r, i, i % 2 == 0 ? numbers.even : numbers.odd);
    }
  }
}

}  // namespace

void CheckExceptions(const Subject& subject, Report*) {
  const plumb_norm_plugin& norm = *subject.norm;
  Unwatched unwatched;
  char err[8];
  if (norm.available != nullptr) {
    Guarded(Function::kAvailable, 0, [&] { return norm.available(nullptr, 0); });
    Guarded(Function::kAvailable, 0, [&] { return norm.available(err, sizeof(err)); });
  }
  if (norm.get_extension != nullptr) {
    Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension(""); });
    Guarded(Function::kGetExtension, 0, [&] { return norm.get_extension("org.example.none/1"); });
  }
  for (const uint32_t dim : {1, 2, 5, 64, 768}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(norm)) {
      for (const int64_t rows : {1, 23}) {
        NormRun run(*instance, dtype, rows, subject.seed);
        MakeHotCalls(&run, &unwatched);
        MakeCallsWithoutText(&run);
      }
    }
  }
}

void CheckReturns(const Subject& subject, Report*) {
  Unwatched unwatched;
  for (const uint32_t dim : {1, 4, 100}) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(*subject.norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(*subject.norm)) {
      for (const HardNumbers& numbers : AllHardNumbers()) {
        NormRun run(*instance, dtype, /*rows=*/11, subject.seed);
        Fill(numbers, &run.x);
        MakeHotCalls(&run, &unwatched);
        Fill(numbers, &run.dy);
        MakeHotCalls(&run, &unwatched);
      }
    }
  }
}

}  // namespace plumb::check
