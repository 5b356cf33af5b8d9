// SPDX-License-Identifier: Apache-2.0
// Handling of diverged steps and reporting of loss spikes in a TrainRun.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/app/train/train_run_impl.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Returns "layer 3" for "layers.3.mlp.up.weight", or the first part of other names.
std::string LayerOf(absl::string_view tensor) {
  const std::vector<absl::string_view> names = absl::StrSplit(tensor, '.');
  return names.size() > 1 && names[0] == "layers" ? absl::StrCat("layer ", names[1])
                                                  : std::string(names[0]);
}

double SumOfSquares(api::Span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return sum;
}

struct GradientShare {
  std::string place;  // "layer 3", "head"
  double share = 0;
};

// Returns the layer, or the embedding or head, with the largest gradient norm in the last step, and
// its share of the squared norm of the whole gradient. Returns no place if each rank has only the
// gradients of some parameters.
GradientShare LargestGradient(const api::Trainer& trainer) {
  // In the order of the parameters; share contains squares until their sum is known.
  std::vector<GradientShare> places;
  double sum = 0;
  for (size_t i = 0;; ++i) {
    const api::Result<api::TensorView<const float>> gradient = trainer.Gradient(i);
    if (!gradient.ok()) break;
    std::string place = LayerOf(std::string(gradient->name));
    if (places.empty() || places.back().place != place) places.push_back({std::move(place), 0});
    const double square = SumOfSquares(gradient->data);
    places.back().share += square;
    sum += square;
  }
  if (places.empty()) return {};
  GradientShare largest = *std::max_element(
      places.begin(), places.end(),
      [](const GradientShare& a, const GradientShare& b) { return a.share < b.share; });
  if (sum > 0) largest.share /= sum;
  return largest;
}

}  // namespace

absl::Status TrainRun::Impl::LogIncident(const IncidentLine& line) {
  if (incident_log == nullptr) return absl::OkStatus();
  // This may create the file, which would fail without the directory.
  PLUMB_RETURN_IF_ERROR(CheckDirectory());
  return incident_log->Append(line);
}

absl::Status TrainRun::Impl::Stop(const absl::Status& divergence, int64_t step, int64_t batch) {
  // If the step is tried again, the error is the same, and it is logged only once.
  if (stopped_batch != batch) {
    PLUMB_RETURN_IF_ERROR(
        LogIncident({step, batch, "stop", std::string(divergence.message()), std::nullopt}));
    if (incident_log != nullptr) PLUMB_RETURN_IF_ERROR(incident_log->Sync());
  }
  stopped_batch = batch;
  return divergence;
}

absl::Status TrainRun::Impl::HandleDivergence(const absl::Status& divergence, bool weights_are_lost,
                                              StepReport* report) {
  const int64_t step = this->step() + 1;
  const int64_t batch = step + incidents.batches_skipped;
  const auto stop = [&](absl::string_view why) {
    return Stop(absl::AbortedError(absl::StrCat(divergence.message(), why)), step, batch);
  };
  if (fields().on_divergence() == v1::Train::STOP) return stop("");
  if (incidents.counts.skips + incidents.counts.step_backs >= fields().max_divergences()) {
    return stop(
        absl::StrCat("; it is one more than max_divergences, ", fields().max_divergences()));
  }
  if (fields().on_divergence() == v1::Train::STEP_BACK && metrics == nullptr) {
    return stop("; a run without a directory has no checkpoint to step back to");
  }
  TrainIncident incident;
  incident.step = step;
  if (fields().on_divergence() == v1::Train::SKIP) {
    if (weights_are_lost) return stop("; to drop a batch cannot mend that, STEP_BACK can");
    incident.kind = TrainIncident::Kind::kSkip;
    incident.message = absl::StrCat(divergence.message(), "; dropped batch ", batch);
    ++incidents.counts.skips;
    incidents.batches_skipped += 1;
    PLUMB_RETURN_IF_ERROR(LogIncident({step, batch, "skip", incident.message, std::nullopt}));
  } else {
    incident.kind = TrainIncident::Kind::kStepBack;
    PLUMB_ASSIGN_OR_RETURN(incident.message, Rollback(divergence, step, batch));
  }
  report->probe = nullptr;  // it belongs to the step that diverged
  report->incidents.push_back(std::move(incident));
  return absl::OkStatus();
}

absl::StatusOr<std::string> TrainRun::Impl::Rollback(const absl::Status& divergence, int64_t step,
                                                     int64_t batch) {
  PLUMB_RETURN_IF_ERROR(CheckDirectory());
  const int64_t good = incidents.last_good;
  const std::string path = CheckpointPath(info.out, good);
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(path));
  PLUMB_ASSIGN_OR_RETURN(const IncidentState then, IncidentsOf(checkpoint.state));
  std::string message =
      absl::StrCat(divergence.message(), "; back to step ", good, ", dropping batches ",
                   good + then.batches_skipped + 1, " to ", batch);
  // The counts continue; the losses are restored from the checkpoint.
  incidents.losses = then.losses;
  incidents.batches_skipped = batch - good;
  const double scale = fields().step_back_learning_rate_scale();
  incidents.learning_rate_scale *= scale;
  if (scale < 1) {
    absl::StrAppend(&message, "; learning rate x ", incidents.learning_rate_scale);
  }
  ++incidents.counts.step_backs;
  const auto read = [&]() -> absl::Status {
    PLUMB_RETURN_IF_ERROR(ReadTensors(checkpoint));
    return ApplyIncidents(good);
  };
  PLUMB_RETURN_IF_ERROR(WithStates(read));
  // The order matters: if the run is killed at any point, it resumes from before or after the
  // rollback.
  PLUMB_RETURN_IF_ERROR(LogIncident({step, batch, "step_back", message, good}));
  PLUMB_RETURN_IF_ERROR(WriteCheckpointNow());
  PLUMB_RETURN_IF_ERROR(RemoveCheckpointsAfter(info.out, good));
  metrics.reset();
  probe = std::make_unique<RunProbe>(RunProbesPath(info.out), weight_figures.get());
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateMetrics(RunMetricsPath(info.out), good)));
  PLUMB_RETURN_IF_ERROR(KeepLines(TruncateProbes(RunProbesPath(info.out), good)));
  PLUMB_ASSIGN_OR_RETURN(MetricsWriter writer, MetricsWriter::Open(RunMetricsPath(info.out)));
  metrics = std::make_unique<MetricsWriter>(std::move(writer));
  if (events != nullptr) {
    PLUMB_RETURN_IF_ERROR(events->Sync());
    PLUMB_ASSIGN_OR_RETURN(events,
                           RunEvents::Open(info.out, *model, recipe, good + 1, SystemSeconds));
  }
  return message;
}

absl::Status TrainRun::Impl::ApplyIncidents(int64_t step) {
  PLUMB_RETURN_IF_ERROR(ToStatus(trainer->SetSteps(step)));
  return ToStatus(trainer->ScaleLearningRate(incidents.learning_rate_scale));
}

absl::Status TrainRun::Impl::NoteSpike(StepReport* report) {
  if (!incidents.losses.Add(report->loss)) return absl::OkStatus();
  ++incidents.counts.spikes;
  const GradientShare largest = LargestGradient(*trainer);
  std::string message = absl::StrFormat("the loss jumps at step %d to %.4g, from a median of %.4g",
                                        report->step, report->loss, incidents.losses.level());
  if (!largest.place.empty()) {
    absl::StrAppendFormat(&message, "; %.0f %% of its gradient's square is in %s",
                          100 * largest.share, largest.place);
  }
  PLUMB_RETURN_IF_ERROR(LogIncident(
      {report->step, report->step + incidents.batches_skipped, "spike", message, std::nullopt}));
  report->incidents.push_back({TrainIncident::Kind::kSpike, report->step, std::move(message)});
  return absl::OkStatus();
}

void TrainRun::Impl::MarkGoodCheckpoint() {
  const int64_t step = this->step();
  // Checkpoints triggered by time differ between runs, and a rollback must not depend on them.
  const bool may_be_returned_to = fields().on_divergence() != v1::Train::STEP_BACK ||
                                  incidents.last_good < 0 ||
                                  step % fields().checkpoint_interval() == 0;
  if (may_be_returned_to && !incidents.losses.is_high()) incidents.last_good = step;
}

}  // namespace plumb
