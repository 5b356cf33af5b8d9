// SPDX-License-Identifier: Apache-2.0
#include "runtime/train/init_from_run.h"

#include <algorithm>
#include <filesystem>
#include <list>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"
#include "runtime/train/checkpoint/checkpoint.h"
#include "runtime/train/run_model.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

// Buffer with the number of the last step, which a new run counts from 0.
constexpr char kStepBuffer[] = "step";

using Tensors = std::map<std::string, api::TensorView<const float>>;

template <class T>
std::string NameWithShape(const api::TensorView<T>& tensor) {
  return absl::StrCat(std::string(tensor.name), "[",
                      absl::StrJoin(tensor.shape.begin(), tensor.shape.begin() + tensor.rank, ", "),
                      "]");
}

// Adds the statistics of norms, which a checkpoint has besides the parameters. `copies` holds them.
absl::Status AddBuffers(const std::string& directory, Tensors* tensors,
                        std::list<std::vector<float>>* copies) {
  PLUMB_ASSIGN_OR_RETURN(const Checkpoint checkpoint, ReadCheckpoint(directory));
  PLUMB_ASSIGN_OR_RETURN(const SafetensorsFile file, OpenCheckpointModel(checkpoint));
  for (const TensorEntry& entry : file.tensors()) {
    if (entry.name == kStepBuffer || tensors->count(entry.name) > 0) continue;
    const absl::Span<const int64_t> dims = entry.shape.dims();
    std::vector<float>& copy =
        copies->emplace_back(static_cast<size_t>(entry.shape.num_elements()));
    PLUMB_RETURN_IF_ERROR(file.Read(entry.name, F32(entry.shape), copy.data()));
    auto& [name, tensor] = *tensors->emplace(entry.name, Tensors::mapped_type()).first;
    tensor.name = name;
    tensor.rank = static_cast<int>(dims.size());
    std::copy(dims.begin(), dims.end(), tensor.shape.begin());
    tensor.data = {copy.data(), copy.size()};
  }
  return absl::OkStatus();
}

std::string AbsolutePath(const std::string& path) {
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  return error ? path : absolute.lexically_normal().string();
}

}  // namespace

absl::StatusOr<InitialWeights> InitFromRun(HostRuntime* runtime, const std::string& run,
                                           api::Trainer* trainer) {
  PLUMB_ASSIGN_OR_RETURN(const RunModel opened, OpenRunModel(runtime, run, /*average=*/false));
  std::list<std::vector<float>> copies;
  Tensors theirs;
  for (size_t i = 0; i < opened.model.TensorCount(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(const auto tensor, ToStatus(opened.model.Tensor(i)));
    theirs.emplace(tensor.name, tensor);
  }
  if (!opened.checkpoint.empty()) {
    PLUMB_RETURN_IF_ERROR(AddBuffers(opened.checkpoint, &theirs, &copies));
  }
  InitialWeights initial;
  initial.run = run;
  initial.weights = AbsolutePath(opened.checkpoint.empty() ? opened.run : opened.checkpoint);
  for (size_t i = 0;; ++i) {
    const auto own = trainer->StateTensor(api::State::kModel, i);
    if (!own.ok()) break;
    if (own->name == kStepBuffer) continue;
    const auto at = theirs.find(std::string(own->name));
    if (at == theirs.end() || at->second.rank != own->rank || at->second.shape != own->shape) {
      initial.drawn.push_back(NameWithShape(*own));
      continue;
    }
    PLUMB_RETURN_IF_ERROR(ToStatus(trainer->WriteState(api::State::kModel, i, 0, at->second.data)));
    theirs.erase(at);
    ++initial.taken;
  }
  for (const auto& each : theirs) initial.left.push_back(NameWithShape(each.second));
  if (initial.taken > 0) return initial;
  return absl::InvalidArgumentError(absl::StrCat(
      run, ": none of its tensors has the name and shape of one of the model",
      initial.left.empty() ? "" : absl::StrCat("; its first is ", initial.left.front()),
      "; choose a run of a similar model for --init"));
}

std::string WithInit(const std::string& json, const InitialWeights& initial) {
  Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  if (!object.is_object() || initial.run.empty()) return json;
  object["init"] = {{"run", initial.run}, {"weights", initial.weights}};
  return object.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<InitSource> GetInit(const std::string& json) {
  const Json object = Json::parse(json, nullptr, /*allow_exceptions=*/false);
  InitSource source;
  if (!object.is_object() || !object.contains("init")) return source;
  const Json& init = object["init"];
  for (const auto& [key, value] :
       {std::pair{"run", &source.run}, std::pair{"weights", &source.weights}}) {
    if (!init.is_object() || !init.contains(key) || !init[key].is_string()) {
      return absl::DataLossError("\"init\" must be {\"run\": path, \"weights\": path}");
    }
    *value = init[key].get<std::string>();
  }
  return source;
}

}  // namespace plumb
