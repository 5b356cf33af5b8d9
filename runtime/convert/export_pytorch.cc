// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/export_pytorch.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"
#include "runtime/train/checkpoint/staged_directory.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_model.h"

namespace plumb {
namespace {

constexpr uint64_t kSeed = 1;  // default of the recipe's seed

struct ModelToExport {
  api::Model model;
  std::string recipe;  // "": the defaults
  int64_t step = 0;    // of the weights
};

absl::StatusOr<ModelToExport> OpenSource(HostRuntime* runtime, const PyTorchRequest& request) {
  if (absl::EndsWith(request.source, ".pbtxt")) {
    if (request.average) {
      return absl::InvalidArgumentError(
          absl::StrCat(request.source, ": a model file has no averaged weights; drop --ema"));
    }
    PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(request.source, request.settings));
    if (GetVocabSize(spec) == 0) {
      return absl::InvalidArgumentError(absl::StrCat(
          request.source, ": vocab_size is missing; set it with ", "--set model.vocab_size=N"));
    }
    PLUMB_ASSIGN_OR_RETURN(api::Model model, CreateModel(runtime, spec));
    PLUMB_RETURN_IF_ERROR(ToStatus(model.Init(kSeed)));
    return ModelToExport{std::move(model), "", 0};
  }
  if (!request.settings.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        request.source, ": --set is for model files; the model of a run is that of its weights"));
  }
  PLUMB_ASSIGN_OR_RETURN(RunModel opened, OpenRunModel(runtime, request.source, request.average));
  PLUMB_ASSIGN_OR_RETURN(const RunFiles files, ReadRunFiles(opened.run, {}));
  return ModelToExport{std::move(opened.model), files.recipe.text, opened.step};
}

absl::Status Export(HostRuntime* runtime, const PyTorchRequest& request) {
  PLUMB_RETURN_IF_ERROR(StagedDirectory::CheckFree(request.out));
  PLUMB_ASSIGN_OR_RETURN(const ModelToExport source, OpenSource(runtime, request));
  api::ExplainOptions options;
  options.stage = api::Stage::kPyTorch;
  options.recipe = source.recipe;
  PLUMB_ASSIGN_OR_RETURN(const std::string code, ToStatus(source.model.Explain(options)));
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < source.model.TensorCount(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(const auto tensor, ToStatus(source.model.Tensor(i)));
    std::vector<int64_t> dims(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    tensors.push_back({std::string(tensor.name), F32(Shape(dims)), tensor.data.data()});
  }
  // A model whose formulas read the step keeps it in a buffer.
  const auto step = static_cast<float>(source.step);
  if (absl::StrContains(code, "register_buffer(\"step\"")) {
    tensors.push_back({"step", F32({1}), &step});
  }
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<StagedDirectory> staged,
                         StagedDirectory::Create(request.out));
  PLUMB_RETURN_IF_ERROR(WriteSafetensors(JoinPath(staged->path(), "model.safetensors"), tensors));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(staged->path(), "model.py"), code));
  return staged->Commit();
}

}  // namespace

absl::Status ExportPyTorch(HostRuntime* runtime, const PyTorchRequest& request) {
  return OrOutOfMemory("the weights", [&] { return Export(runtime, request); });
}

}  // namespace plumb
