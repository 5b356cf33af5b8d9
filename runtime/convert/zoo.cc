// SPDX-License-Identifier: Apache-2.0
#include "runtime/convert/zoo.h"

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/formats/strict_json.h"

namespace plumb {
namespace {

using Json = nlohmann::json;

constexpr absl::string_view kModel = ".pbtxt", kImport = ".import.pbtxt", kPart = ".part.pbtxt";

// Returns the directories of models and families, in search order.
std::vector<std::string> ZooDirectories(const HostRuntime& runtime) {
  constexpr int kDepth = 32;
  std::vector<std::string> directories;
  const absl::StatusOr<Json> report = ParseStrictJson(runtime.DescribeJson(), kDepth);
  if (!report.ok()) return directories;
  const Json* placements = FindMember(*report, "placements");
  const Json* list = placements == nullptr ? nullptr : FindMember(*placements, "directories");
  if (list == nullptr) return directories;
  for (const Json& directory : *list) {
    directories.push_back(JoinPath(ParentDirectory(TextMember(directory, "path")), "zoo"));
  }
  return directories;
}

// Returns the files in the directories whose names end with `ending`, the first of each name.
std::vector<std::string> ZooFiles(const std::vector<std::string>& directories,
                                  absl::string_view ending) {
  std::vector<std::string> paths;
  std::set<std::string> seen;
  for (const std::string& directory : directories) {
    const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
    if (!names.ok()) continue;  // a directory of placements may have no zoo next to it
    for (const std::string& name : *names) {
      if (!absl::EndsWith(name, ending) || !seen.insert(name).second) continue;
      paths.push_back(JoinPath(directory, name));
    }
  }
  return paths;
}

// Returns the path of each model, by its name.
std::map<std::string, std::string> ModelFiles(const HostRuntime& runtime) {
  std::map<std::string, std::string> files;
  for (const std::string& path : ZooFiles(ZooDirectories(runtime), kModel)) {
    if (absl::EndsWith(path, kImport) || absl::EndsWith(path, kPart)) continue;
    files[std::string(absl::StripSuffix(path.substr(path.rfind('/') + 1), kModel))] = path;
  }
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

// Reads a family. Its parts are searched next to it, then in the directories.
absl::StatusOr<Family> ReadFamilyFile(const std::string& path,
                                      std::vector<std::string> directories) {
  directories.insert(directories.begin(), ParentDirectory(path));
  PLUMB_ASSIGN_OR_RETURN(std::string text, ReadFile(path, kMaxTextBytes));
  const auto read_part = [&directories](const std::string& name) -> absl::StatusOr<FamilyText> {
    const std::string file_name = absl::StrCat(name, kPart);
    for (const std::string& directory : directories) {
      const std::string file = JoinPath(directory, file_name);
      if (!FileExists(file)) continue;
      PLUMB_ASSIGN_OR_RETURN(std::string part, ReadFile(file, kMaxTextBytes));
      return FamilyText{file, std::move(part)};
    }
    return absl::NotFoundError(
        absl::StrCat("there is no ", file_name, " in ", absl::StrJoin(directories, ", ")));
  };
  return ParseFamily({path, std::move(text)}, read_part);
}

bool HasAnArchitecture(const Family& family, const Json& config) {
  const Json* found = FindMember(config, "architectures");
  if (found == nullptr || !found->is_array()) return false;
  return std::any_of(found->begin(), found->end(), [&family](const Json& each) {
    return each.is_string() && absl::c_linear_search(family.architectures, each.get<std::string>());
  });
}

// Returns the names that begin with the same word as `type`: "gemma4_text" is no relative of
// "llama4_text".
std::vector<std::string> RelatedNames(const std::string& type,
                                      const std::vector<std::string>& names) {
  const auto word = [](const std::string& name) {
    const auto end = std::find_if_not(name.begin(), name.end(), [](char c) {
      return absl::ascii_isalpha(static_cast<unsigned char>(c));
    });
    return std::string(name.begin(), end);
  };
  std::vector<std::string> related;
  for (const std::string& name : names) {
    const std::string a = word(type), b = word(name);
    if (absl::StartsWith(a, b) || absl::StartsWith(b, a)) related.push_back(name);
  }
  return related;
}

std::vector<std::string> GetNames(const std::vector<Family>& families) {
  std::vector<std::string> names;
  for (const Family& family : families) names.push_back(family.name);
  std::sort(names.begin(), names.end());
  return names;
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
  for (const std::string& path : ZooFiles(ZooDirectories(runtime), kImport)) {
    const std::string file = path.substr(path.rfind('/') + 1);
    names.emplace_back(absl::StripSuffix(file, kImport));
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<std::vector<KeyUses>> ListZooKeys(const HostRuntime& runtime) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<Family> families, ReadFamilies(runtime));
  return KeyTable(families);
}

absl::StatusOr<Family> ReadFamily(const HostRuntime& runtime, const std::string& path) {
  return ReadFamilyFile(path, ZooDirectories(runtime));
}

absl::StatusOr<std::vector<Family>> ReadFamilies(const HostRuntime& runtime) {
  const std::vector<std::string> directories = ZooDirectories(runtime);
  std::vector<Family> families;
  for (const std::string& path : ZooFiles(directories, kImport)) {
    PLUMB_ASSIGN_OR_RETURN(Family family, ReadFamilyFile(path, directories));
    families.push_back(std::move(family));
  }
  return families;
}

absl::StatusOr<Family> FindFamily(const std::vector<Family>& families, const Json& config,
                                  const std::string& config_path) {
  const std::string type = TextMember(config, "model_type");
  std::vector<const Family*> found;
  for (const Family& family : families) {
    if (absl::c_linear_search(family.model_types, type)) found.push_back(&family);
  }
  // Kinds of models with the same type differ in their architectures; models without a type have
  // only these.
  if (found.size() != 1) {
    std::vector<const Family*> by_architecture;
    for (const Family& family : families) {
      const bool fits = found.empty() || absl::c_linear_search(family.model_types, type);
      if (fits && HasAnArchitecture(family, config)) by_architecture.push_back(&family);
    }
    if (!by_architecture.empty()) found = std::move(by_architecture);
  }
  if (found.size() == 1) return *found.front();
  const std::vector<std::string> names = GetNames(families);
  if (!found.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(config_path, ": matches two families, ",
                                                   found[0]->file, " and ", found[1]->file,
                                                   "; choose one with --family FILE"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      config_path, ": model_type ", QuoteName(type), ": no family of models has it",
      DidYouMean(type, RelatedNames(type, names)), "\nthere are ", absl::StrJoin(names, ", "),
      "; a new one is a file, for --family (plumb docs zoo)"));
}

absl::StatusOr<Family> FindFamilyNamed(const std::vector<Family>& families,
                                       const std::string& name) {
  for (const Family& family : families) {
    if (family.name == name) return family;
  }
  const std::vector<std::string> names = GetNames(families);
  return absl::NotFoundError(absl::StrCat("there is no family ", QuoteName(name),
                                          DidYouMean(name, names), "; there are ",
                                          absl::StrJoin(names, ", ")));
}

}  // namespace plumb
