// SPDX-License-Identifier: Apache-2.0
#include "runtime/capi/trainer_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"

namespace plumb::capi {
namespace {

constexpr char kWeight[] = "weight.", kFirst[] = "m.", kSecond[] = "v.", kAverage[] = "ema.";

void Append(std::vector<TensorToWrite> more, std::vector<TensorToWrite>* tensors) {
  for (TensorToWrite& tensor : more) tensors->push_back(std::move(tensor));
}

absl::StatusOr<int64_t> GetStep(const SafetensorsFile& file) {
  const auto at = file.metadata().find("step");
  if (at == file.metadata().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(),
                     ": is not a trainer's file: its metadata have no step; plumb_model_load reads "
                     "weights alone"));
  }
  int64_t step;
  constexpr int64_t kMaxSteps = int64_t{1} << 53;
  if (!absl::SimpleAtoi(at->second, &step) || step < 0 || step > kMaxSteps) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": \"", at->second, "\" is not a number of steps"));
  }
  return step;
}

// Fails for numbers that a trainer never saves: ones that are not finite, negative second moments.
absl::Status CheckNumbers(const SafetensorsFile& file) {
  std::vector<float> piece(size_t{1} << 16);
  for (const TensorEntry& tensor : file.tensors()) {
    const bool is_square = absl::StartsWith(tensor.name, kSecond);
    if (!is_square && !absl::StartsWith(tensor.name, kWeight) &&
        !absl::StartsWith(tensor.name, kFirst) && !absl::StartsWith(tensor.name, kAverage)) {
      continue;  // no other tensors are read
    }
    const size_t bytes = piece.size() * sizeof(float);
    for (size_t at = 0; at < tensor.data.size(); at += bytes) {
      const absl::string_view part = tensor.data.substr(at, bytes);
      std::memcpy(piece.data(), part.data(), part.size());
      for (size_t i = 0; i < part.size() / sizeof(float); ++i) {
        if (std::isfinite(piece[i]) && (!is_square || piece[i] >= 0)) continue;
        return absl::DataLossError(
            absl::StrCat(file.path(), ": ", tensor.name, " holds ", piece[i]));
      }
    }
  }
  return absl::OkStatus();
}

// Returns the first lines that differ, "d_model: 64" there and "d_model: 32" here; "" if none do.
std::string FirstDifference(absl::string_view there, absl::string_view here) {
  const std::vector<absl::string_view> theirs = absl::StrSplit(there, '\n');
  const std::vector<absl::string_view> ours = absl::StrSplit(here, '\n');
  const auto quoted = [](const std::vector<absl::string_view>& lines, size_t i) {
    return i < lines.size() ? absl::StrCat("\"", absl::StripAsciiWhitespace(lines[i]), "\"")
                            : std::string("nothing");
  };
  for (size_t i = 0; i < std::max(theirs.size(), ours.size()); ++i) {
    const std::string a = quoted(theirs, i), b = quoted(ours, i);
    if (a != b) return absl::StrCat(a, " there and ", b, " here");
  }
  return "";
}

}  // namespace

absl::string_view WeightPrefix(const SafetensorsFile& file) {
  std::set<absl::string_view> names;
  for (const TensorEntry& tensor : file.tensors()) names.insert(tensor.name);
  const auto has = [&names](absl::string_view prefix) {
    const auto at = names.lower_bound(prefix);
    return at != names.end() && absl::StartsWith(*at, prefix);
  };
  if (file.metadata().count("step") > 0 && has(kWeight)) return kWeight;
  // A file that has averages next to the weights themselves is one of weights.
  const bool holds_weights =
      std::any_of(names.begin(), names.end(), [&names](absl::string_view name) {
        return absl::ConsumePrefix(&name, kAverage) && names.count(name) > 0;
      });
  return has(kAverage) && !holds_weights ? kAverage : "";
}

absl::Status SaveTrainer(const TrainSession& session, const std::string& model,
                         const std::string& path) {
  PLUMB_RETURN_IF_ERROR(session.CheckFinite());
  std::vector<TensorToWrite> tensors = session.parameters().Tensors(kWeight);
  Append(session.optimizer().Tensors(), &tensors);
  if (session.average() != nullptr) Append(session.average()->Tensors(kAverage), &tensors);
  return WriteSafetensors(
      path, tensors,
      {{"plumb", plumb_version()}, {"model", model}, {"step", absl::StrCat(session.step())}});
}

absl::Status LoadTrainer(const std::string& path, const std::string& model, TrainSession* session,
                         std::string* difference) {
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  PLUMB_ASSIGN_OR_RETURN(const int64_t step, GetStep(file));
  const ParameterStore& parameters = session->parameters();
  PLUMB_RETURN_IF_ERROR(parameters.Check(file, kWeight));
  PLUMB_RETURN_IF_ERROR(session->optimizer().Check(file));
  const ParameterStore* const average = session->average();
  if (average != nullptr) PLUMB_RETURN_IF_ERROR(average->Check(file, kAverage));
  PLUMB_RETURN_IF_ERROR(CheckNumbers(file));
  PLUMB_RETURN_IF_ERROR(parameters.Read(file, kWeight));
  PLUMB_RETURN_IF_ERROR(session->optimizer().Read(file));
  if (average != nullptr) PLUMB_RETURN_IF_ERROR(average->Read(file, kAverage));
  session->ResumeAt(step);
  const auto trained = file.metadata().find("model");
  if (trained != file.metadata().end()) *difference = FirstDifference(trained->second, model);
  return absl::OkStatus();
}

}  // namespace plumb::capi
