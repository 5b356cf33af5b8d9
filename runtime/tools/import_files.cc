#include "runtime/tools/import_files.h"

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/family_template.h"

namespace plumb {
namespace {

constexpr const char* kTokenizerFiles[] = {"tokenizer.json",
                                           "tokenizer_config.json",
                                           "special_tokens_map.json",
                                           "added_tokens.json",
                                           "vocab.json",
                                           "merges.txt",
                                           "vocab.txt",
                                           "tokenizer.model"};

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> MakeModel(HostRuntime* runtime, const Family& family,
                                                 const ConfigValues& values) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ModelText(family, values));
  const std::string what = absl::StrCat("the model that ", family.file, " makes of config.json");
  PLUMB_ASSIGN_OR_RETURN(const Spec spec, Spec::FromText(text, what));
  return Model::Create(runtime, spec);
}

absl::StatusOr<std::vector<WantedTensor>> TensorsOfModel(const Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const ModelDescription description, model.Describe());
  if (!description.buffers.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(description.buffers[0].name,
                     ": the model keeps statistics of norms, which no checkpoint of others has"));
  }
  std::vector<WantedTensor> tensors;
  for (const TensorInfo& tensor : description.tensors) {
    tensors.push_back({tensor.name, Shape(tensor.shape)});
  }
  return tensors;
}

absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to) {
  for (const char* name : kTokenizerFiles) {
    if (!FileExists(JoinPath(from, name))) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::string path, PathInside(from, name));
    PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxStateBytes));
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(to, name), content));
  }
  return absl::OkStatus();
}

}  // namespace plumb
