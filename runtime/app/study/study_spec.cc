// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study_spec.h"

#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "plumb/v1/study.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"
#include "runtime/schema/located.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

constexpr int kMaxSeeds = 10000;

// Values of the field `match` that are not the default.
constexpr std::pair<v1::Study::Match, StudyMatch> kMatches[] = {
    {v1::Study::FLOPS, StudyMatch::kFlops},
    {v1::Study::PARAMETERS, StudyMatch::kParameters},
    {v1::Study::TOKENS, StudyMatch::kTokens}};

class Diagnostics {
 public:
  void Require(bool holds, const SourceLocation& place, absl::string_view message) {
    if (!holds) errors_.push_back(std::string(ErrorAt(place, message).message()));
  }
  absl::Status status() const {
    if (errors_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(ListDiagnostics(errors_));
  }

 private:
  std::vector<std::string> errors_;
};

void CheckGrid(const v1::Study& message, const Located& at, Diagnostics* errors) {
  for (int i = 0; i < message.grid_size(); ++i) {
    const v1::Grid& grid = message.grid(i);
    errors->Require(!grid.field().empty(), at.At("grid", i), "grid: field is missing");
    errors->Require(grid.value_size() > 0, at.At("grid", i),
                    absl::StrCat("grid: ", grid.field(), " has no value"));
  }
}

absl::Status Check(const v1::Study& message, const Located& at) {
  Diagnostics errors;
  if (message.has_seeds()) {
    errors.Require(message.seeds() >= 1 && message.seeds() <= kMaxSeeds, at.At("seeds"),
                   absl::StrCat("seeds must be in 1..", kMaxSeeds));
    errors.Require(message.seed_size() == 0, at.At("seeds"),
                   "seeds and seed: give a number of seeds or their values, not both");
  }
  std::set<uint64_t> seeds;
  for (int i = 0; i < message.seed_size(); ++i) {
    errors.Require(seeds.insert(message.seed(i)).second, at.At("seed", i),
                   absl::StrCat("seed ", message.seed(i), " is given twice"));
  }
  if (message.has_samples()) {
    errors.Require(message.samples() >= 0 && message.samples() <= 1000, at.At("samples"),
                   "samples must be in 0..1000");
  }
  if (message.has_choosing_seeds()) {
    errors.Require(message.choosing_seeds() >= 1, at.At("choosing_seeds"),
                   "choosing_seeds must be 1 or more");
  }
  errors.Require(message.probe_every() >= 0, at.At("probe_every"),
                 "probe_every must be zero or more");
  CheckGrid(message, at, &errors);
  return errors.status();
}

}  // namespace

absl::StatusOr<StudySpec> ParseStudySpec(absl::string_view text, const std::string& file) {
  v1::Study message;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(text, file, &message, &locations));
  const Located at(file, message, &locations);
  PLUMB_RETURN_IF_ERROR(Check(message, at));
  StudySpec spec;
  spec.models.assign(message.model().begin(), message.model().end());
  spec.data = message.data();
  spec.train = message.train();
  spec.init = message.init();
  for (int i = 0; i < message.set_size(); ++i) spec.settings.push_back(at.TextOf("set", i));
  for (int i = 0; i < message.grid_size(); ++i) {
    const v1::Grid& grid = message.grid(i);
    spec.grid.push_back({at.Nested("grid", i).TextOf("field"), {}});
    for (const std::string& value : grid.value()) {
      spec.grid.back().values.emplace_back(absl::StripAsciiWhitespace(value));
    }
  }
  for (const auto& [value, match] : kMatches) {
    if (message.match() == value) spec.match = match;
  }
  if (message.has_seeds()) spec.seeds = message.seeds();
  spec.seed_list.assign(message.seed().begin(), message.seed().end());
  if (message.has_samples()) spec.samples = message.samples();
  if (message.has_choosing_seeds()) spec.choosing_seeds = message.choosing_seeds();
  spec.probe_every = message.probe_every();
  spec.probe_points.assign(message.probe_point().begin(), message.probe_point().end());
  return spec;
}

std::string StudySpec::ToText() const {
  v1::Study message;
  for (const std::string& model : models) message.add_model(model);
  message.set_data(data);
  message.set_train(train);
  message.set_init(init);
  for (const SourceText& setting : settings) message.add_set(setting.value);
  for (const Grid& axis : grid) {
    v1::Grid* added = message.add_grid();
    added->set_field(axis.field.value);
    for (const std::string& value : axis.values) added->add_value(value);
  }
  for (const auto& [value, other] : kMatches) {
    if (match == other) message.set_match(value);
  }
  if (seeds.has_value()) message.set_seeds(static_cast<int32_t>(*seeds));
  for (uint64_t seed : seed_list) message.add_seed(seed);
  if (samples.has_value()) message.set_samples(static_cast<int32_t>(*samples));
  if (choosing_seeds > 0) message.set_choosing_seeds(static_cast<int32_t>(choosing_seeds));
  message.set_probe_every(static_cast<int32_t>(probe_every));
  for (const std::string& point : probe_points) message.add_probe_point(point);
  return textproto::PrintText(message);
}

}  // namespace plumb
