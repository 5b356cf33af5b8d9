// SPDX-License-Identifier: Apache-2.0
// Handling of diverged steps and reporting of loss spikes in a TrainRun.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/train/train_run_state.h"

namespace plumb {
namespace {

// Returns "layer 3" for "layers.3.mlp.up.weight", or the first part of other names.
std::string GetLayer(absl::string_view tensor) {
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
    std::string place = GetLayer(std::string(gradient->name));
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

absl::Status TrainRunState::LogIncident(const IncidentLine& line) {
  if (incident_log == nullptr) return absl::OkStatus();
  // This may create the file, which would fail without the directory.
  PLUMB_RETURN_IF_ERROR(CheckDirectory());
  return incident_log->Append(line);
}

absl::Status TrainRunState::Stop(const absl::Status& divergence, int64_t step, int64_t batch) {
  // If the step is tried again, the error is the same, and it is logged only once.
  if (stopped_batch != batch) {
    PLUMB_RETURN_IF_ERROR(LogIncident({step, batch, "stop", std::string(divergence.message())}));
    if (incident_log != nullptr) PLUMB_RETURN_IF_ERROR(incident_log->Sync());
  }
  stopped_batch = batch;
  return divergence;
}

absl::Status TrainRunState::HandleDivergence(const absl::Status& divergence, bool weights_are_lost,
                                             StepReport* report) {
  const int64_t step = this->step() + 1;
  const int64_t batch = step + incidents.batches_skipped;
  const auto stop = [&](absl::string_view why) {
    return Stop(absl::AbortedError(absl::StrCat(divergence.message(), why)), step, batch);
  };
  if (fields().on_divergence() == v1::Train::STOP) return stop("");
  if (incidents.counts.skips >= fields().max_divergences()) {
    return stop(
        absl::StrCat("; it is one more than max_divergences, ", fields().max_divergences()));
  }
  if (weights_are_lost) return stop("; skipping the batch would not repair them");
  std::string message = absl::StrCat(divergence.message(), "; dropped batch ", batch);
  ++incidents.counts.skips;
  incidents.batches_skipped += 1;
  PLUMB_RETURN_IF_ERROR(LogIncident({step, batch, "skip", message}));
  report->probe = nullptr;  // it belongs to the step that diverged
  report->incidents.push_back({TrainIncident::Kind::kSkip, step, std::move(message)});
  return absl::OkStatus();
}

absl::Status TrainRunState::NoteSpike(StepReport* report) {
  if (!incidents.losses.Add(report->loss)) return absl::OkStatus();
  ++incidents.counts.spikes;
  const GradientShare largest = LargestGradient(*trainer);
  std::string message = absl::StrFormat("the loss jumps at step %d to %.4g, from a median of %.4g",
                                        report->step, report->loss, incidents.losses.level());
  if (!largest.place.empty()) {
    absl::StrAppendFormat(&message, "; %.0f %% of its gradient's square is in %s",
                          100 * largest.share, largest.place);
  }
  PLUMB_RETURN_IF_ERROR(
      LogIncident({report->step, report->step + incidents.batches_skipped, "spike", message}));
  report->incidents.push_back({TrainIncident::Kind::kSpike, report->step, std::move(message)});
  return absl::OkStatus();
}

}  // namespace plumb
