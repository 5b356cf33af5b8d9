// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/run_store.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "runtime/app/study/study_directory.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"

namespace plumb {
namespace {

constexpr char kStoreFile[] = "plumb-store.txt";
constexpr char kStoreText[] =
    "Finished runs of plumb compare --store, each under the hash of what determines it. A run may "
    "be\ndeleted; it is trained again when a study needs it.\n";

}  // namespace

absl::StatusOr<RunStore> RunStore::Open(const std::string& directory) {
  const std::string marker = JoinPath(directory, kStoreFile);
  if (FileExists(marker)) return RunStore(directory);
  PLUMB_RETURN_IF_ERROR(MakeDirectories(directory));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
  // Jobs that begin at the same time all create the store: the marker, its temporary files or, by
  // now, runs are theirs.
  const bool is_new = std::all_of(names.begin(), names.end(), [](const std::string& name) {
    return absl::StartsWith(name, kStoreFile);
  });
  if (!is_new && !FileExists(marker)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--store ", directory, ": has files and is no store of runs; name an empty directory"));
  }
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(marker, kStoreText));
  return RunStore(directory);
}

std::string RunStore::PathOf(absl::string_view hash) const {
  return absl::StrCat(directory_, "/", hash.substr(0, 2), "/", hash.substr(2));
}

bool RunStore::Has(absl::string_view hash) const {
  return FileExists(absl::StrCat(PathOf(hash), "/result.json"));
}

absl::Status RunStore::Fetch(absl::string_view hash, const std::string& run) const {
  return CopyRun(PathOf(hash), run);
}

absl::Status RunStore::Put(absl::string_view hash, const std::string& run) const {
  if (Has(hash)) return absl::OkStatus();
  const std::string path = PathOf(hash);
  // Two threads or processes may store the same run at the same time; the first rename wins.
  const std::string mine = absl::StrCat(path, "-", getpid(), "-",
                                        std::hash<std::thread::id>()(std::this_thread::get_id()));
  const UnfinishedPath unfinished(mine);
  PLUMB_RETURN_IF_ERROR(CopyRun(run, mine));
  std::error_code error;
  std::filesystem::rename(mine, path, error);
  if (!error) return absl::OkStatus();
  PLUMB_RETURN_IF_ERROR(RemoveTree(mine));
  if (Has(hash)) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

}  // namespace plumb
