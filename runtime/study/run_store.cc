// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/run_store.h"

#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"
#include "runtime/formats/hash.h"
#include "runtime/study/study_directory.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_identity.h"

namespace plumb {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kStoreFile[] = "plumb-store.txt";
constexpr char kStoreText[] =
    "Finished runs of plumb compare --store, each under the hash of what determines it. A run may "
    "be\ndeleted; it is trained again when a study needs it.\n";
// File of an entry with the hashes of its other files: {"files": {"result.json": "0123...", ...}}.
// An entry without it is not complete.
constexpr char kEntryFile[] = "entry.json";

// Returns true if `path` is a regular file below `directory`, without a symbolic link on the way.
bool IsPlainFile(const std::string& directory, const std::string& path) {
  std::filesystem::path whole = directory;
  std::error_code error;
  for (absl::string_view part : absl::StrSplit(path, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
    whole /= std::string(part);
    if (std::filesystem::is_symlink(std::filesystem::symlink_status(whole, error))) return false;
  }
  return std::filesystem::is_regular_file(whole, error);
}

absl::StatusOr<Json> ReadEntry(const std::string& path) {
  PLUMB_ASSIGN_OR_RETURN(const std::string text,
                         ReadFile(JoinPath(path, kEntryFile), kMaxStateBytes));
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("files") || !json["files"].is_object()) {
    return absl::DataLossError(absl::StrCat(kEntryFile, " is not readable"));
  }
  return json["files"];
}

absl::StatusOr<std::string> ReadChecked(const std::string& entry, const std::string& file,
                                        const Json& hash) {
  if (!IsPlainFile(entry, file)) {
    return absl::DataLossError(absl::StrCat(file, " is missing or not a plain file"));
  }
  PLUMB_ASSIGN_OR_RETURN(std::string content, ReadFile(JoinPath(entry, file), kMaxResultBytes));
  if (hash == Json(HexDigits(ContentHash(content)))) return content;
  return absl::DataLossError(absl::StrCat(file, " is damaged"));
}

absl::Status CopyEntry(const std::string& entry, absl::string_view hash, IncomingRun* run) {
  PLUMB_ASSIGN_OR_RETURN(const Json files, ReadEntry(entry));
  bool is_identified = false, has_result = false;
  for (const auto& [file, file_hash] : files.items()) {
    PLUMB_ASSIGN_OR_RETURN(const std::string content, ReadChecked(entry, file, file_hash));
    if (file == "result.json") has_result = true;
    if (file == "run.json") {
      PLUMB_ASSIGN_OR_RETURN(const auto identity, RunIdentity::FromRunJson(content));
      is_identified = identity.has_value() && identity->Hash() == hash;
    }
    PLUMB_RETURN_IF_ERROR(run->Add(file, content));
  }
  if (is_identified && has_result) return absl::OkStatus();
  return absl::DataLossError("its run.json and result.json are not of this run");
}

absl::Status RenameError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

// Directory of this thread below `parent`, locked so that others leave it alone while it lives.
class OwnDirectory {
 public:
  static absl::StatusOr<std::unique_ptr<OwnDirectory>> Make(const std::string& parent) {
    static std::atomic<int> count{0};
    while (true) {
      const std::string path =
          absl::StrCat(parent, "/", getpid(), "-", count.fetch_add(1, std::memory_order_relaxed));
      PLUMB_RETURN_IF_ERROR(MakeDirectories(path));
      absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(path);
      // A process of another host may have this name, or remove the directory before it is locked.
      if (absl::IsAlreadyExists(lock.status()) || absl::IsNotFound(lock.status())) continue;
      if (!lock.ok()) return lock.status();
      if (lock->Holds(path)) {
        return std::unique_ptr<OwnDirectory>(new OwnDirectory(path, *std::move(lock)));
      }
    }
  }
  ~OwnDirectory() { (void)RemoveTree(path_); }
  OwnDirectory(const OwnDirectory&) = delete;
  OwnDirectory& operator=(const OwnDirectory&) = delete;
  const std::string& path() const { return path_; }

 private:
  OwnDirectory(std::string path, DirectoryLock lock)
      : path_(std::move(path)), unfinished_(path_), lock_(std::move(lock)) {}
  const std::string path_;
  const UnfinishedPath unfinished_;
  const DirectoryLock lock_;
};

}  // namespace

absl::StatusOr<RunStore> RunStore::Open(const std::string& directory) {
  RunStore store(directory);
  const std::string marker = JoinPath(directory, kStoreFile);
  if (!FileExists(marker)) {
    PLUMB_RETURN_IF_ERROR(MakeDirectories(directory));
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> names, ListDirectory(directory));
    for (const std::string& name : names) {
      // Another process may be creating the store, or have been killed while it did.
      if (absl::StartsWith(name, kStoreFile) || FileExists(marker)) continue;
      return absl::InvalidArgumentError(absl::StrCat(
          "--store ", directory, ": has files and is no store of runs; name an empty directory"));
    }
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(marker, kStoreText));
  }
  PLUMB_RETURN_IF_ERROR(store.RemoveRemains());
  return store;
}

std::string RunStore::GetPath(absl::string_view hash) const {
  return absl::StrCat(directory_, "/", hash.substr(0, 2), "/", hash.substr(2));
}

std::string RunStore::IncomingDirectory() const { return JoinPath(directory_, "incoming"); }

absl::Status RunStore::RemoveRemains() const {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(IncomingDirectory());
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    const std::string path = JoinPath(IncomingDirectory(), name);
    // The lock of a process that was killed is free.
    const absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(path);
    if (lock.ok()) (void)RemoveTree(path);
  }
  return absl::OkStatus();
}

absl::Status RunStore::Remove(const std::string& entry) const {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<OwnDirectory> own,
                         OwnDirectory::Make(IncomingDirectory()));
  std::error_code error;
  std::filesystem::rename(entry, JoinPath(own->path(), "damaged"), error);
  return error && error != std::errc::no_such_file_or_directory ? RenameError(entry, error)
                                                                : absl::OkStatus();
}

absl::StatusOr<bool> RunStore::Fetch(absl::string_view hash, const std::string& run) const {
  const std::string entry = GetPath(hash);
  if (!FileExists(JoinPath(entry, kEntryFile))) return false;
  PLUMB_ASSIGN_OR_RETURN(IncomingRun incoming, IncomingRun::Begin(run));
  const absl::Status copied = CopyEntry(entry, hash, &incoming);
  if (copied.ok()) {
    PLUMB_RETURN_IF_ERROR(incoming.Finish());
    return true;
  }
  PLUMB_RETURN_IF_ERROR(incoming.Discard());
  if (!absl::IsDataLoss(copied) && !absl::IsInvalidArgument(copied)) return copied;
  PLUMB_RETURN_IF_ERROR(Remove(entry));
  return absl::DataLossError(absl::StrCat(entry, ": ", copied.message()));
}

absl::Status RunStore::Put(const std::string& run) const {
  PLUMB_ASSIGN_OR_RETURN(const std::string run_json, ReadFile(RunJsonPath(run), kMaxStateBytes));
  PLUMB_ASSIGN_OR_RETURN(const auto identity, RunIdentity::FromRunJson(run_json));
  if (!identity.has_value() || !identity->UnknownPart().empty()) return absl::OkStatus();
  const std::string entry = GetPath(identity->Hash());
  if (FileExists(JoinPath(entry, kEntryFile))) return absl::OkStatus();
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<OwnDirectory> own,
                         OwnDirectory::Make(IncomingDirectory()));
  PLUMB_ASSIGN_OR_RETURN(IncomingRun copy, IncomingRun::Begin(JoinPath(own->path(), "run")));
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListRunFiles(run));
  Json hashes = Json::object();
  for (const std::string& file : files) {
    if (!IsPlainFile(run, file)) continue;
    PLUMB_ASSIGN_OR_RETURN(const std::string content,
                           ReadFile(JoinPath(run, file), kMaxResultBytes));
    hashes[file] = HexDigits(ContentHash(content));
    PLUMB_RETURN_IF_ERROR(copy.Add(file, content));
  }
  PLUMB_RETURN_IF_ERROR(copy.Add(kEntryFile, Json{{"files", hashes}}.dump()));
  PLUMB_RETURN_IF_ERROR(copy.Finish());
  PLUMB_RETURN_IF_ERROR(MakeDirectories(ParentDirectory(entry)));
  // Another process may store the same run at the same time; the first rename wins. Remains of an
  // incomplete entry are replaced.
  for (const bool is_retry : {false, true}) {
    std::error_code error;
    std::filesystem::rename(JoinPath(own->path(), "run"), entry, error);
    if (!error || FileExists(JoinPath(entry, kEntryFile))) return absl::OkStatus();
    if (is_retry) return RenameError(entry, error);
    PLUMB_RETURN_IF_ERROR(Remove(entry));
  }
  return absl::OkStatus();
}

}  // namespace plumb
