// SPDX-License-Identifier: Apache-2.0
// plumb_run_open and plumb_run_train.
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/capi/error.h"
#include "runtime/capi/handles.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/recipe.h"
#include "runtime/train/run_model.h"
#include "runtime/train/train_run.h"

namespace plumb::runs {
namespace {

// Runtime of the host, shared with the host's handle, for code that takes a HostRuntime.
class SharedRuntime {
 public:
  explicit SharedRuntime(const plumb_runtime& runtime)
      : state_(runtime.state),
        host_(HostRuntime::Adopt(api::Runtime::Adopt(new plumb_runtime{runtime.state, {}}))) {}

  HostRuntime* host() { return host_.get(); }

  // Passes the warnings of the application to the log of the host's runtime.
  void LogWarnings() {
    for (const std::string& warning : host_->TakeWarnings()) state_->Warn(warning);
  }

 private:
  const std::shared_ptr<capi::RuntimeState> state_;
  const std::unique_ptr<HostRuntime> host_;
};

absl::StatusOr<TrainRequest> ToRequest(const plumb_run_training& training) {
  if (training.out == nullptr) return capi::NullArgument("out");
  PLUMB_ASSIGN_OR_RETURN(
      const std::vector<std::string> words,
      capi::ToList<std::string>("settings", training.settings, training.settings_count));
  PLUMB_ASSIGN_OR_RETURN(Assignments settings, ParseSettings(words));
  TrainRequest request;
  request.model_path = std::string(capi::GetText(training.model));
  request.data_path = std::string(capi::GetText(training.data));
  request.train_path = std::string(capi::GetText(training.recipe));
  request.model_overrides = std::move(settings.model);
  request.train_overrides = std::move(settings.train);
  request.init = std::string(capi::GetText(training.init));
  request.out = std::string(capi::GetText(training.out));
  request.resume = training.resume != 0;
  request.probe.every = training.probe_every;
  PLUMB_ASSIGN_OR_RETURN(request.probe.points,
                         capi::ToList<std::string>("probe_points", training.probe_points,
                                                   training.probe_points_count));
  if (request.probe.every == 0 && !request.probe.points.empty()) {
    request.probe.every = kDefaultProbeInterval;
  }
  return request;
}

// Returns true if the host asks to stop.
bool Stops(const plumb_run_training& training, const TrainRun& run, const StepReport& report) {
  if (training.on_step == nullptr) return false;
  plumb_run_step step = PLUMB_RUN_STEP_INIT;
  step.step = report.step;
  step.max_steps = run.info().max_steps;
  step.loss = report.loss;
  step.learning_rate = report.learning_rate;
  step.grad_norm = report.gradient_norm;
  step.tokens = report.tokens;
  step.seconds = report.seconds;
  step.val_loss = report.val_loss.value_or(std::numeric_limits<double>::quiet_NaN());
  step.checkpoint = report.checkpoint.c_str();
  const std::string incidents =
      absl::StrJoin(report.incidents, "\n", [](std::string* text, const TrainIncident& incident) {
        absl::StrAppend(text, incident.message);
      });
  step.incidents = incidents.c_str();
  return training.on_step(training.user, &step) != 0;
}

absl::Status Train(const plumb_run_training& training, SharedRuntime* runtime) {
  PLUMB_ASSIGN_OR_RETURN(const TrainRequest request, ToRequest(training));
  absl::StatusOr<std::unique_ptr<TrainRun>> opened = TrainRun::Open(runtime->host(), request);
  runtime->LogWarnings();
  PLUMB_RETURN_IF_ERROR(opened.status());
  TrainRun& run = **opened;
  const int64_t stop_at =
      training.stop_at > 0 ? training.stop_at : std::numeric_limits<int64_t>::max();
  bool stops = false;
  while (!run.done() && run.step() < stop_at && !stops) {
    PLUMB_ASSIGN_OR_RETURN(const StepReport report, run.Step());
    runtime->LogWarnings();
    stops = Stops(training, run, report);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string checkpoint, run.SaveCheckpoint());
  if (!stops || run.done()) return absl::OkStatus();
  return absl::CancelledError(absl::StrCat(request.out, ": stopped by the caller after step ",
                                           run.step(), "; resume continues from ", checkpoint));
}

}  // namespace
}  // namespace plumb::runs

using plumb::capi::Guard;
using plumb::capi::NullArgument;

plumb_status plumb_run_open(plumb_runtime* runtime, const char* path, uint32_t flags,
                            plumb_model** model, plumb_tokenizer** tokenizer, int64_t* step,
                            plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (runtime == nullptr) return NullArgument("runtime");
    if (path == nullptr) return NullArgument("path");
    if (model == nullptr) return NullArgument("model");
    if ((flags & ~uint32_t{PLUMB_RUN_AVERAGE}) != 0) {
      return absl::InvalidArgumentError(absl::StrCat("flags: ", flags, " is not known"));
    }
    plumb::runs::SharedRuntime shared(*runtime);
    PLUMB_ASSIGN_OR_RETURN(
        const plumb::RunModel run,
        plumb::OpenRunModel(shared.host(), path, (flags & PLUMB_RUN_AVERAGE) != 0));
    shared.LogWarnings();
    if (tokenizer != nullptr) {
      plumb_error* failed = nullptr;
      if (plumb_tokenizer_from_directory(run.run.c_str(), tokenizer, &failed) != PLUMB_OK) {
        const absl::Status status(static_cast<absl::StatusCode>(plumb_error_code(failed)),
                                  plumb_error_message(failed));
        plumb_error_free(failed);
        return status;
      }
    }
    *model = new plumb_model{run.model.get()->state};
    if (step != nullptr) *step = run.step;
    return absl::OkStatus();
  });
}

plumb_status plumb_run_train(plumb_runtime* runtime, const plumb_run_training* training,
                             plumb_error** error) {
  return Guard(error, [&]() -> absl::Status {
    if (runtime == nullptr) return NullArgument("runtime");
    if (training == nullptr) return NullArgument("training");
    PLUMB_ASSIGN_OR_RETURN(const plumb_run_training complete, plumb::capi::Complete(training));
    plumb::runs::SharedRuntime shared(*runtime);
    return plumb::runs::Train(complete, &shared);
  });
}
