// SPDX-License-Identifier: Apache-2.0
#include "runtime/client/placements.h"

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "plumb/v1/model.schema.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"
#include "runtime/schema/reader.h"

namespace plumb {
namespace {

// Returns the path of each placement by name, from the first directory that has it.
std::map<std::string, std::string> PlacementFiles(const HostRuntime& runtime) {
  const auto report = nlohmann::json::parse(runtime.DescribeJson());
  std::map<std::string, std::string> files;
  for (const auto& directory : report["placements"]["directories"]) {
    for (const std::string name : directory["names"]) {
      files.emplace(name, JoinPath(directory["path"], absl::StrCat(name, ".pbtxt")));
    }
  }
  return files;
}

absl::StatusOr<InstalledPlacement> ReadPlacement(const std::string& name, const std::string& path) {
  InstalledPlacement placement = {name, path, "", ""};
  PLUMB_ASSIGN_OR_RETURN(placement.text, ReadFile(path, kMaxTextBytes));
  v1::Library library;
  textproto::Locations locations;
  PLUMB_RETURN_IF_ERROR(textproto::ReadText(placement.text, path, &library, &locations));
  for (int i = 0; i < library.placement_size(); ++i) {
    if (library.placement(i).name() == name) placement.doc = library.placement(i).doc();
  }
  return placement;
}

}  // namespace

absl::StatusOr<std::vector<InstalledPlacement>> ListPlacements(const HostRuntime& runtime) {
  std::vector<InstalledPlacement> placements;
  for (const auto& [name, path] : PlacementFiles(runtime)) {
    PLUMB_ASSIGN_OR_RETURN(InstalledPlacement placement, ReadPlacement(name, path));
    placements.push_back(std::move(placement));
  }
  return placements;
}

absl::StatusOr<InstalledPlacement> FindPlacement(const HostRuntime& runtime,
                                                 const std::string& name) {
  const std::map<std::string, std::string> files = PlacementFiles(runtime);
  if (const auto file = files.find(name); file != files.end()) {
    return ReadPlacement(name, file->second);
  }
  std::vector<std::string> names;
  for (const auto& [known, path] : files) names.push_back(known);
  return absl::NotFoundError(
      absl::StrCat("there is no placement ", QuoteName(name), DidYouMean(name, names)));
}

}  // namespace plumb
