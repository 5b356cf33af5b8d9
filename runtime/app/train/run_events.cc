// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/train/run_events.h"

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/types/span.h"
#include "runtime/base/status.h"
#include "runtime/ranks/communicator.h"

namespace plumb {
namespace {

// Returns a code block in Markdown, which no content can end.
std::string Indented(absl::string_view text) {
  return absl::StrCat("    ", absl::StrReplaceAll(text, {{"\n", "\n    "}}));
}

// `model` is the content of plumb_model_describe.
std::string EquationsText(const nlohmann::ordered_json& model) {
  std::string text;
  const auto add = [&text](const nlohmann::ordered_json& lines) {
    for (const nlohmann::ordered_json& line : lines)
      absl::StrAppend(&text, line.get<std::string>(), "\n");
  };
  add(model["begin"]);
  for (const nlohmann::ordered_json& group : model["layers"]) {
    absl::StrAppend(&text, "layers ", group["first"].get<int64_t>(), " to ",
                    group["last"].get<int64_t>(), ": ", group["placement"].get<std::string>(),
                    "\n");
    for (const char* lines : {"equations", "scalars", "norms"}) add(group[lines]);
  }
  add(model["end"]);
  return text;
}

}  // namespace

double SystemSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

absl::StatusOr<std::unique_ptr<RunEvents>> RunEvents::Open(const std::string& run,
                                                           const api::Model& model,
                                                           const Recipe& recipe, int64_t first_step,
                                                           const std::function<double()>& clock) {
  PLUMB_ASSIGN_OR_RETURN(const auto description, DescribeModel(model));
  PLUMB_ASSIGN_OR_RETURN(const std::string model_text, ToStatus(model.Text()));
  EventFileOptions options;
  options.host = OwnHostName();
  options.clock = clock;
  options.first_step = first_step;
  PLUMB_ASSIGN_OR_RETURN(EventFile file, EventFile::Create(run, options));
  const std::pair<const char*, std::string> texts[] = {{"equations", EquationsText(description)},
                                                       {"model.pbtxt", model_text},
                                                       {"train.pbtxt", recipe.text}};
  for (const auto& [tag, text] : texts) {
    PLUMB_RETURN_IF_ERROR(file.AddText(first_step, tag, Indented(text)));
  }
  PLUMB_RETURN_IF_ERROR(file.Flush());
  return std::unique_ptr<RunEvents>(new RunEvents(std::move(file)));
}

absl::Status RunEvents::Add(const StepReport& report) {
  const double tokens_per_second =
      report.seconds > 0 ? static_cast<double>(report.tokens) / report.seconds : 0;
  const std::array<EventScalar, 5> scalars = {{{"train/loss", report.loss},
                                               {"train/lr", report.learning_rate},
                                               {"train/grad_norm", report.grad_norm},
                                               {"train/tokens_per_second", tokens_per_second},
                                               {"val/loss", report.val_loss.value_or(0)}}};
  const size_t count = report.val_loss.has_value() ? 5 : 4;
  PLUMB_RETURN_IF_ERROR(file_.AddScalars(report.step, absl::MakeConstSpan(scalars).first(count)));
  if (report.probe != nullptr) PLUMB_RETURN_IF_ERROR(AddProbe(*report.probe));
  return report.val_loss.has_value() ? file_.Flush() : absl::OkStatus();
}

absl::Status RunEvents::AddProbe(const ProbeFigures& probe) {
  const auto add = [&](const char* kind, const std::string& name, const char* figure,
                       std::optional<double> value) {
    if (!value.has_value()) return absl::OkStatus();
    const std::string tag = absl::StrCat(kind, "/", name, "/", figure);
    return file_.AddScalars(probe.step, {{tag, *value}});
  };
  for (const ProbedTensor& tensor : probe.activations) {
    PLUMB_RETURN_IF_ERROR(add("activations", tensor.name, "rms", tensor.figures.rms));
    PLUMB_RETURN_IF_ERROR(add("activations", tensor.name, "max", tensor.figures.max));
    PLUMB_RETURN_IF_ERROR(add("activations", tensor.name, "mean", tensor.figures.mean));
  }
  for (const ProbedTensor& tensor : probe.gradients) {
    PLUMB_RETURN_IF_ERROR(add("gradients", tensor.name, "rms", tensor.figures.rms));
  }
  for (const ProbedParameter& parameter : probe.parameters) {
    const auto add_figure = [&](const char* figure, std::optional<double> value) {
      return add("parameters", parameter.name, figure, value);
    };
    PLUMB_RETURN_IF_ERROR(add_figure("rms", parameter.value.rms));
    PLUMB_RETURN_IF_ERROR(add_figure("grad_rms", parameter.gradient.rms));
    PLUMB_RETURN_IF_ERROR(add_figure("update_ratio", parameter.update_ratio));
    PLUMB_RETURN_IF_ERROR(add_figure("spectral_norm", parameter.spectral_norm));
    if (const std::optional<LearnedRange>& learned = parameter.learned) {
      PLUMB_RETURN_IF_ERROR(add_figure("value_mean", learned->mean));
      PLUMB_RETURN_IF_ERROR(add_figure("value_min", learned->min));
      PLUMB_RETURN_IF_ERROR(add_figure("value_max", learned->max));
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb
