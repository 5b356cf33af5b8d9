// N10 and N11: training and evaluation, and which memory is written in either.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "plugins/check/hot_calls.h"
#include "plugins/check/mode_checks.h"
#include "plugins/check/norm_run.h"
#include "plugins/check/try_instance.h"

namespace plumb::check {
namespace {

constexpr uint32_t kTrainEvalDims[] = {1, 7, 64, 768};
constexpr int64_t kTrainEvalRows = 13;

// Calls visit(instance, dtype) for every element type and each of kTrainEvalDims that the norm
// takes.
template <class Visit>
void ForEach(const plumb_norm_plugin& norm, const Visit& visit) {
  for (const uint32_t dim : kTrainEvalDims) {
    std::string refusal;
    const std::unique_ptr<Instance> instance = TryInstance(norm, dim, &refusal);
    if (instance == nullptr) continue;
    for (const uint32_t dtype : OfferedTypes(norm)) visit(*instance, dtype);
  }
}

using Doubles = std::vector<double>;

std::vector<Doubles> ValuesOf(const std::vector<Rows>& tensors) {
  std::vector<Doubles> values;
  for (const Rows& rows : tensors) values.push_back(rows.Values());
  return values;
}

// The first difference of two lists of tensors, "" when there is none.
std::string ListDifference(const char* name, const std::vector<Doubles>& got,
                           const std::vector<Doubles>& must) {
  for (size_t i = 0; i < must.size(); ++i) {
    const std::string full = std::string(name) + "[" + std::to_string(i) + "]";
    const int64_t width = static_cast<int64_t>(must[i].size());
    std::string text = FirstDifference(full.c_str(), got[i], must[i], width == 0 ? 1 : width);
    if (!text.empty()) return text;
  }
  return "";
}

// Buffers may change in stats_finalize and nowhere else.
class BufferWatcher final : public CallWatcher {
 public:
  BufferWatcher(const NormRun& run, Report* report) : run_(run), report_(report) {}

  void Before() override { before_ = ValuesOf(run_.buffers); }
  void After(const char* function) override {
    if (function == std::string("stats_finalize") || report_->failed()) return;
    const std::string text = ListDifference("buffers", ValuesOf(run_.buffers), before_);
    if (text.empty()) return;
    report_->Fail(run_.Name() + ": " + function + "() changed a buffer: " + text);
  }

 private:
  const NormRun& run_;
  Report* report_;
  std::vector<Doubles> before_;
};

void CheckEvaluation(const Instance& instance, uint32_t dtype, uint64_t seed, Report* report) {
  NormRun run(instance, dtype, kTrainEvalRows, seed);
  const std::vector<Doubles> buffers = ValuesOf(run.buffers);
  run.Forward(/*train=*/false);
  const Doubles first = run.y.Values();
  run.y.Fill(0);
  run.Forward(/*train=*/false);
  std::string text = FirstDifference("y", run.y.Values(), first, run.dim());
  if (!text.empty()) report->Fail(run.Name() + ": evaluated twice, " + text);
  text = ListDifference("buffers", ValuesOf(run.buffers), buffers);
  if (!text.empty()) report->Fail(run.Name() + ": evaluation changed a buffer: " + text);

  const uint32_t differs = PLUMB_NORM_CROSS_ROW | PLUMB_NORM_CROSS_ROW_EVAL | PLUMB_NORM_STOCHASTIC;
  if ((instance.norm().flags & differs) != 0) return;
  run.Forward(/*train=*/true);
  text = FirstDifference("y", first, run.y.Values(), run.dim());
  if (!text.empty()) report->Fail(run.Name() + ": evaluation differs from training: " + text);
}

// -- N11 -----------------------------------------------------------------------------------------

// What a call reads, as it was.
class Inputs {
 public:
  explicit Inputs(const NormRun* run)
      : run_(*run),
        tensors_{{"x", &run->x},
                 {"dy", &run->dy},
                 {"y", &run->y},
                 {"saved", &run->saved},
                 {"call_saved", &run->call_saved}},
        params_(ValuesOf(run->params)) {
    for (const auto& [name, rows] : tensors_) before_.push_back(rows->Values());
  }
  // "forward() wrote into an input: x[2][0] is ..", "" when the first `n` tensors and the
  // parameters are as they were.
  std::string Damage(const char* function, size_t n) const {
    std::string text = ListDifference("params", ValuesOf(run_.params), params_);
    for (size_t i = 0; i < n && text.empty(); ++i) {
      const auto& [name, rows] = tensors_[i];
      const int64_t width = rows->width() > 0 ? rows->width() : 1;
      text = FirstDifference(name, rows->Values(), before_[i], width);
    }
    return text.empty() ? text : std::string(function) + "() wrote into an input: " + text;
  }
  static constexpr size_t kOfForward = 2, kOfBackward = 5;

 private:
  const NormRun& run_;
  std::vector<std::pair<const char*, const Rows*>> tensors_;
  std::vector<Doubles> before_, params_;
};

// A training step out of place, with its inputs watched.
std::string StepOutOfPlace(NormRun* run) {
  {
    const Inputs inputs(run);
    run->Forward(/*train=*/true);
    const std::string damage = inputs.Damage("forward", Inputs::kOfForward);
    if (!damage.empty()) return damage;
  }
  if (run->TakesStatistics(true)) run->Statistics(PLUMB_BWD, true, run->ChunkRows());
  const Inputs inputs(run);
  run->BackwardRange(/*accumulate=*/false, 0, run->rows());
  return inputs.Damage("backward", Inputs::kOfBackward);
}

std::string ForwardInPlace(const NormRun& apart, NormRun* run, bool train) {
  if (run->TakesStatistics(train)) run->Statistics(PLUMB_FWD, train, run->ChunkRows());
  plumb_norm_call call = run->ForwardCall(train);
  call.y = run->x.data();
  call.y_pitch = run->x.pitch();
  run->Expect(Forward(run->instance(), call, 0, run->rows()), "forward in place", 0, run->rows());
  std::string text = FirstDifference("y", run->x.Values(), apart.y.Values(), run->dim());
  if (text.empty() && train && run->saved.width() > 0) {
    text = FirstDifference("saved", run->saved.Values(), apart.saved.Values(), run->saved.width());
  }
  return text;
}

std::string BackwardInPlace(const NormRun& apart, NormRun* run) {
  run->Forward(/*train=*/true);
  if (run->TakesStatistics(true)) run->Statistics(PLUMB_BWD, true, run->ChunkRows());
  plumb_norm_call call = run->BackwardCall(/*accumulate=*/false);
  call.dx = run->dy.data();
  call.dx_pitch = run->dy.pitch();
  run->Expect(Backward(run->instance(), call, 0, run->rows()), "backward with dx = dy", 0,
              run->rows());
  const std::string text = FirstDifference("dx", run->dy.Values(), apart.dx.Values(), run->dim());
  return text.empty() ? ListDifference("dparams", ValuesOf(run->dparams), ValuesOf(apart.dparams))
                      : text;
}

}  // namespace

void CheckTrainAndEval(const Subject& subject, Report* report) {
  ForEach(*subject.norm, [&](const Instance& instance, uint32_t dtype) {
    if (report->failed()) return;
    CheckEvaluation(instance, dtype, subject.seed, report);
    if (instance.layout().n_buffers == 0) return;
    NormRun run(instance, dtype, kTrainEvalRows, subject.seed);
    BufferWatcher watcher(run, report);
    MakeHotCalls(&run, &watcher);
  });
}

void CheckInPlace(const Subject& subject, Report* report) {
  const uint32_t flags = subject.norm->flags;
  ForEach(*subject.norm, [&](const Instance& instance, uint32_t dtype) {
    if (report->failed()) return;
    NormRun apart(instance, dtype, kTrainEvalRows, subject.seed);
    const auto expect = [&](const char* what, const std::string& text) {
      if (!text.empty()) report->Fail(apart.Name() + what + text);
    };
    expect(": ", StepOutOfPlace(&apart));
    if ((flags & PLUMB_NORM_INPLACE) != 0) {
      NormRun train(instance, dtype, kTrainEvalRows, subject.seed);
      expect(" with y = x (PLUMB_NORM_INPLACE), training: ", ForwardInPlace(apart, &train, true));
      NormRun reference(instance, dtype, kTrainEvalRows, subject.seed);
      reference.Forward(/*train=*/false);
      NormRun eval(instance, dtype, kTrainEvalRows, subject.seed);
      expect(" with y = x (PLUMB_NORM_INPLACE), evaluation: ",
             ForwardInPlace(reference, &eval, false));
    }
    if ((flags & PLUMB_NORM_DX_ALIAS_DY) != 0) {
      NormRun run(instance, dtype, kTrainEvalRows, subject.seed);
      expect(" with dx = dy (PLUMB_NORM_DX_ALIAS_DY): ", BackwardInPlace(apart, &run));
    }
  });
}

}  // namespace plumb::check
