#include "cli/compare/run_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

// No run has such a name: they end in a seed.
constexpr char kGathering[] = ".incoming";

absl::Status FileError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

bool LeadsInside(const std::string& path) {
  if (path.empty() || path.front() == '/') return false;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.empty() || part == "." || part == "..";
  });
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& directory) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(directory, error), end;
  for (; !error && entry != end; entry.increment(error)) {
    if (!entry->is_regular_file(error)) continue;
    files.push_back(entry->path().lexically_relative(directory).string());
  }
  if (error) return FileError(directory, error);
  std::sort(files.begin(), files.end());
  return files;
}

IncomingRun::IncomingRun(std::string directory)
    : directory_(std::move(directory)), gathering_(absl::StrCat(directory_, kGathering)) {}

absl::StatusOr<IncomingRun> IncomingRun::Begin(const std::string& directory) {
  IncomingRun run(directory);
  PLUMB_RETURN_IF_ERROR(RemoveTree(run.gathering_));
  PLUMB_RETURN_IF_ERROR(MakeDirectories(run.gathering_));
  return run;
}

absl::Status IncomingRun::Add(const std::string& path, absl::string_view content) {
  if (!LeadsInside(path)) {
    return absl::InvalidArgumentError(absl::StrCat(directory_, ": no file of a run: ", path));
  }
  const std::string whole = absl::StrCat(gathering_, "/", path);
  if (const size_t slash = whole.rfind('/'); slash > gathering_.size()) {
    PLUMB_RETURN_IF_ERROR(MakeDirectories(whole.substr(0, slash)));
  }
  return WriteFile(whole, content);
}

absl::Status IncomingRun::Finish() {
  PLUMB_RETURN_IF_ERROR(RemoveTree(directory_));
  std::error_code error;
  std::filesystem::rename(gathering_, directory_, error);
  return error ? FileError(directory_, error) : absl::OkStatus();
}

absl::Status CopyRun(const std::string& from, const std::string& to) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> files, ListRunFiles(from));
  PLUMB_ASSIGN_OR_RETURN(IncomingRun run, IncomingRun::Begin(to));
  for (const std::string& file : files) {
    PLUMB_ASSIGN_OR_RETURN(const std::string content,
                           ReadFile(absl::StrCat(from, "/", file), kMaxResultBytes));
    PLUMB_RETURN_IF_ERROR(run.Add(file, content));
  }
  return run.Finish();
}

absl::Status RemoveIncomingRuns(const std::string& out) {
  const std::string runs = absl::StrCat(out, "/runs");
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(runs);
  if (absl::IsNotFound(names.status())) return absl::OkStatus();
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!absl::EndsWith(name, kGathering)) continue;
    if (absl::Status removed = RemoveTree(absl::StrCat(runs, "/", name)); !removed.ok()) {
      return removed;
    }
  }
  return absl::OkStatus();
}

}  // namespace plumb::cli
