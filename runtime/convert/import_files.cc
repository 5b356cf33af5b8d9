// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/import_files.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/formats/strict_json.h"
#include "runtime/tokenizer/tokenizer_file.h"
#include "runtime/zoo/checkpoint_directory.h"
#include "runtime/zoo/family_template.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kTokenizerFiles[] = {"tokenizer.json",
                                                 kGenerationConfigFile,
                                                 "tokenizer_config.json",
                                                 "special_tokens_map.json",
                                                 "chat_template.jinja",
                                                 "added_tokens.json",
                                                 "vocab.json",
                                                 "merges.txt",
                                                 "vocab.txt",
                                                 "tokenizer.model"};

}  // namespace

absl::StatusOr<api::Model> MakeModel(HostRuntime* runtime, const Family& family,
                                     const ConfigValues& values) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ModelText(family, values));
  const std::string what = absl::StrCat("the model that ", family.file, " makes of config.json");
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ToStatus(api::Spec::FromText(text, what)));
  return CreateModel(runtime, spec);
}

absl::StatusOr<std::vector<WantedTensor>> TensorsOfModel(const api::Model& model) {
  PLUMB_ASSIGN_OR_RETURN(const auto description, DescribeModel(model));
  if (!description["buffers"].empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        description["buffers"][0]["name"].get<std::string>(),
        ": the model has norms with running statistics, which other formats do not store"));
  }
  std::vector<WantedTensor> tensors;
  for (const auto& tensor : description["tensors"]) {
    tensors.push_back({tensor["name"], Shape(tensor["shape"].get<std::vector<int64_t>>())});
  }
  return tensors;
}

absl::Status CopyTokenizerFiles(const std::string& from, const std::string& to) {
  for (const absl::string_view name : kTokenizerFiles) {
    if (!FileExists(JoinPath(from, name))) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::string path, PathInside(from, name));
    PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadFile(path, kMaxStateBytes));
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(JoinPath(to, name), content));
  }
  return absl::OkStatus();
}

absl::StatusOr<SpecialTokens> KeepSpecialTokens(const std::string& run, const Json& config,
                                                int64_t vocab_size) {
  const absl::StatusOr<Tokenizer> tokenizer = ReadTokenizer(run);
  PLUMB_ASSIGN_OR_RETURN(
      SpecialTokens special,
      ReadSpecialTokens(run, &config, tokenizer.ok() ? &*tokenizer : nullptr, vocab_size));
  const std::string path = JoinPath(run, kGenerationConfigFile);
  Json generation = Json::object(), found = Json::object();
  if (FileExists(path)) {
    PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
    constexpr int kDepth = 64;
    PLUMB_ASSIGN_OR_RETURN(generation, ParseStrictJson(text, kDepth));
  }
  PutSpecialTokenIds(special, &found);
  const Json before = generation;
  for (const auto& [key, value] : found.items()) {
    const Json* const said = FindMember(generation, key);
    if (value.is_null() || (said != nullptr && !said->is_null())) continue;
    generation[key] = value;
  }
  if (generation != before) {
    const std::string text = generation.dump(2, ' ', false, Json::error_handler_t::replace);
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, absl::StrCat(text, "\n")));
  }
  return special;
}

}  // namespace plumb
