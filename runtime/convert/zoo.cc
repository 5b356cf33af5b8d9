// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/zoo.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/convert/families.h"
#include "runtime/zoo/config_keys.h"

namespace plumb {
namespace {

constexpr absl::string_view kModel = ".pbtxt", kImport = ".import.pbtxt", kPart = ".part.pbtxt";

// Returns (name, path) of each model, sorted by name.
std::vector<std::pair<std::string, std::string>> ModelFiles(const HostRuntime& runtime) {
  std::vector<std::pair<std::string, std::string>> files;
  for (const std::string& path : ZooFiles(runtime, kModel)) {
    if (absl::EndsWith(path, kImport) || absl::EndsWith(path, kPart)) continue;
    const std::string name = path.substr(path.rfind('/') + 1);
    files.emplace_back(absl::StripSuffix(name, kModel), path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<ZooModel> Describe(HostRuntime* runtime, const std::string& name,
                                  const std::string& path) {
  ZooModel model;
  model.name = name;
  model.path = path;
  PLUMB_ASSIGN_OR_RETURN(model.text, ReadFile(path, kMaxTextBytes));
  PLUMB_ASSIGN_OR_RETURN(const api::Spec spec, ReadSpec(path));
  PLUMB_ASSIGN_OR_RETURN(const api::Model made, CreateModel(runtime, spec));
  PLUMB_ASSIGN_OR_RETURN(model.description, DescribeModel(made));
  return model;
}

}  // namespace

absl::StatusOr<std::vector<ZooModel>> ListZoo(HostRuntime* runtime) {
  std::vector<ZooModel> models;
  for (const auto& [name, path] : ModelFiles(*runtime)) {
    PLUMB_ASSIGN_OR_RETURN(ZooModel model, Describe(runtime, name, path));
    models.push_back(std::move(model));
  }
  return models;
}

absl::StatusOr<ZooModel> FindZooModel(HostRuntime* runtime, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [each, path] : ModelFiles(*runtime)) {
    if (each == name) return Describe(runtime, name, path);
    names.push_back(each);
  }
  return absl::NotFoundError(absl::StrCat("there is no model ", QuoteName(name), " in the zoo",
                                          DidYouMean(name, names), "; plumb zoo list has them"));
}

std::vector<std::string> ListFamilies(const HostRuntime& runtime) {
  std::vector<std::string> names;
  for (const std::string& path : ZooFiles(runtime, kImport)) {
    const std::string file = path.substr(path.rfind('/') + 1);
    names.emplace_back(absl::StripSuffix(file, kImport));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<ZooKey>> ListZooKeys(const HostRuntime& runtime) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<Family> families, ReadFamilies(runtime));
  std::vector<ZooKey> keys;
  for (const KeyRow& row : KeyTable(families)) {
    ZooKey key;
    key.key = row.key;
    for (const auto& [family, use] : row.uses) {
      if (use == KeyUse::kRead) key.read.push_back(family);
      if (use == KeyUse::kIrrelevant) key.irrelevant[row.reasons.at(family)].push_back(family);
      if (use == KeyUse::kRefused) key.refused.push_back(family);
    }
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace plumb
