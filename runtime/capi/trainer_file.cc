#include "runtime/capi/trainer_file.h"

#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "plumb.h"
#include "runtime/base/status.h"
#include "runtime/io/safetensors.h"

namespace plumb::capi {
namespace {

constexpr char kWeight[] = "weight.", kFirst[] = "m.", kSecond[] = "v.";

void Append(std::vector<TensorToWrite> more, std::vector<TensorToWrite>* tensors) {
  for (TensorToWrite& tensor : more) tensors->push_back(std::move(tensor));
}

absl::StatusOr<int64_t> StepOf(const SafetensorsFile& file) {
  const auto at = file.metadata().find("step");
  if (at == file.metadata().end()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(),
                     ": is not a trainer's file: its metadata have no step; plumb_model_load reads "
                     "weights alone"));
  }
  int64_t step;
  if (!absl::SimpleAtoi(at->second, &step) || step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), ": \"", at->second, "\" is not a number of steps"));
  }
  return step;
}

}  // namespace

absl::Status SaveTrainer(const TrainSession& session, const std::string& model_name,
                         const std::string& path) {
  PLUMB_RETURN_IF_ERROR(session.CheckFinite());
  const ParameterLayout& layout = session.parameters().layout();
  std::vector<TensorToWrite> tensors = session.parameters().Tensors(kWeight);
  Append(layout.Tensors(kFirst, session.first_moments()), &tensors);
  Append(layout.Tensors(kSecond, session.second_moments()), &tensors);
  return WriteSafetensors(
      path, tensors,
      {{"plumb", plumb_version()}, {"model", model_name}, {"step", absl::StrCat(session.step())}});
}

absl::Status LoadTrainer(const std::string& path, TrainSession* session) {
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::Open(path));
  PLUMB_ASSIGN_OR_RETURN(const int64_t step, StepOf(file));
  const ParameterStore& parameters = session->parameters();
  const ParameterLayout& layout = parameters.layout();
  PLUMB_RETURN_IF_ERROR(parameters.Check(file, kWeight));
  PLUMB_RETURN_IF_ERROR(layout.Check(kFirst, file));
  PLUMB_RETURN_IF_ERROR(layout.Check(kSecond, file));
  PLUMB_RETURN_IF_ERROR(parameters.Read(file, kWeight));
  const TrainSession::Moments moments = session->moments();
  PLUMB_RETURN_IF_ERROR(layout.Read(kFirst, file, moments.m));
  PLUMB_RETURN_IF_ERROR(layout.Read(kSecond, file, moments.v));
  session->ResumeAt(step);
  return absl::OkStatus();
}

}  // namespace plumb::capi
