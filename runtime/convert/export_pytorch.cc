// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/export_pytorch.h"

#include <memory>
#include <vector>

#include "absl/strings/match.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/safetensors.h"
#include "runtime/train/checkpoint/staged_directory.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_model.h"

namespace plumb {
namespace {

absl::Status WriteModel(const api::Model& model, const std::string& recipe, int64_t step,
                        const std::string& out) {
  PLUMB_RETURN_IF_ERROR(StagedDirectory::CheckFree(out));
  api::ExplainOptions options;
  options.stage = api::Stage::kPyTorch;
  options.recipe = recipe;
  PLUMB_ASSIGN_OR_RETURN(const std::string code, ToStatus(model.Explain(options)));
  std::vector<TensorToWrite> tensors;
  for (size_t i = 0; i < model.TensorCount(); ++i) {
    PLUMB_ASSIGN_OR_RETURN(const auto tensor, ToStatus(model.Tensor(i)));
    std::vector<int64_t> dims(tensor.shape.begin(), tensor.shape.begin() + tensor.rank);
    tensors.push_back({std::string(tensor.name), F32(Shape(dims)), tensor.data.data()});
  }
  // A model whose formulas read the step keeps it in a buffer.
  const auto buffer = static_cast<float>(step);
  if (absl::StrContains(code, "register_buffer(\"step\"")) {
    tensors.push_back({"step", F32({1}), &buffer});
  }
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<StagedDirectory> staged,
                         StagedDirectory::Create(out));
  PLUMB_RETURN_IF_ERROR(WriteSafetensors(JoinPath(staged->path(), "model.safetensors"), tensors));
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(staged->path(), "model.py"), code));
  return staged->Commit();
}

}  // namespace

absl::Status ExportPyTorch(const api::Model& model, const std::string& recipe, int64_t step,
                           const std::string& out) {
  return OrOutOfMemory("the weights", [&] { return WriteModel(model, recipe, step, out); });
}

absl::Status ExportRunAsPyTorch(HostRuntime* runtime, const ExportRequest& request) {
  PLUMB_ASSIGN_OR_RETURN(const RunModel opened,
                         OpenRunModel(runtime, request.run, request.average));
  PLUMB_ASSIGN_OR_RETURN(const RunFiles files, ReadRunFiles(opened.run, {}));
  return ExportPyTorch(opened.model, files.recipe.text, opened.step, request.out);
}

}  // namespace plumb
