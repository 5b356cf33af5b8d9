// SPDX-License-Identifier: Apache-2.0
#include "runtime/app/study/study_directory.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Files that a study writes next to study.pbtxt and runs.
constexpr const char* kResultNames[] = {
    "metrics.jsonl", "runs.csv", "timing.csv",      "report.json", "report.html",
    "table.csv",     "table.md", "provenance.json", "table.tex",   "differences.tex"};

// Returns the lines that `lines` has and `others` does not, counting repetitions.
std::vector<std::string> OnlyIn(const std::vector<std::string>& lines,
                                std::vector<std::string> others) {
  std::vector<std::string> only;
  for (const std::string& line : lines) {
    const auto found = std::find(others.begin(), others.end(), line);
    if (found == others.end()) {
      if (!line.empty()) only.push_back(line);
    } else {
      others.erase(found);
    }
  }
  return only;
}

void AppendLines(const char* head, const std::vector<std::string>& lines, std::string* message) {
  constexpr size_t kShown = 6;
  for (size_t i = 0; i < std::min(kShown, lines.size()); ++i) {
    absl::StrAppend(message, "\n", head, lines[i]);
  }
  if (lines.size() > kShown) absl::StrAppend(message, "\n", head, "…");
}

bool IsGroupLine(absl::string_view line) { return absl::StartsWith(line, "# group "); }

// Returns the lines of study.pbtxt that determine what a run is: the groups with their hashes, and
// the fields that change a run's files. Models, seeds and the grid say which runs there are; recipe
// and settings are in the hashes.
std::vector<std::string> RunLines(const std::string& text) {
  constexpr const char* kExtent[] = {"model:",   "train:",   "set:",           "match:",
                                     "seed:",    "seeds:",   "grid {",         "}",
                                     "  field:", "  value:", "choosing_seeds:"};
  std::vector<std::string> lines;
  for (absl::string_view line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const bool is_extent =
        std::any_of(std::begin(kExtent), std::end(kExtent),
                    [line](const char* head) { return absl::StartsWith(line, head); });
    if (!is_extent) lines.emplace_back(line);
  }
  return lines;
}

// Suffix of partly received runs. No run has such a name, because run names end in a seed.
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

// Fails with kInvalidArgument and the differences unless the study `text` has every group of
// `begun`, the content of `path`, with the same hashes and the same fields for its runs.
absl::Status CheckContains(const std::string& path, const std::string& begun,
                           const std::string& text, const std::string& advice) {
  const std::vector<std::string> runs_before = RunLines(begun), runs_now = RunLines(text);
  const std::vector<std::string> new_lines = OnlyIn(runs_now, runs_before);
  if (OnlyIn(runs_before, runs_now).empty() &&
      std::all_of(new_lines.begin(), new_lines.end(), IsGroupLine)) {
    return absl::OkStatus();
  }
  // Settings explain the difference of hashes.
  const std::vector<std::string> before = absl::StrSplit(begun, '\n');
  const std::vector<std::string> now = absl::StrSplit(text, '\n');
  const std::vector<std::string> gone = OnlyIn(before, now), added = OnlyIn(now, before);
  std::string message = absl::StrCat(path, ": is another study; ", advice);
  if (!gone.empty()) absl::StrAppend(&message, "\nit alone has");
  AppendLines("  - ", gone, &message);
  if (!added.empty()) absl::StrAppend(&message, "\nthis one alone has");
  AppendLines("  + ", added, &message);
  return absl::InvalidArgumentError(message);
}

}  // namespace

absl::StatusOr<StudyLock> StudyLock::Acquire(const std::string& directory) {
  if (const absl::Status made = MakeDirectories(directory); !made.ok()) {
    return absl::InvalidArgumentError(made.message());
  }
  absl::StatusOr<DirectoryLock> lock = DirectoryLock::Acquire(directory);
  if (lock.ok()) return StudyLock(*std::move(lock));
  if (!absl::IsAlreadyExists(lock.status())) return lock.status();
  return absl::AlreadyExistsError(absl::StrCat(
      directory,
      ": another plumb compare uses this directory; wait for it, or choose another --out"));
}

absl::Status ClaimDirectory(const std::string& directory, const std::string& text) {
  const std::string path = absl::StrCat(directory, "/study.pbtxt");
  if (!FileExists(path)) {
    if (FileExists(absl::StrCat(directory, "/runs"))) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory, ": holds runs, but not the study.pbtxt they belong to; choose another --out"));
    }
    for (const char* name : kResultNames) {
      const std::string result = absl::StrCat(directory, "/", name);
      if (!FileExists(result)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(result, ": a study would overwrite it; choose another --out"));
    }
    return WriteFileAtomically(path, text);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string begun, ReadFile(path, kMaxResultBytes));
  PLUMB_RETURN_IF_ERROR(CheckContains(path, begun, text,
                                      absl::StrCat("choose another --out, or delete ", directory)));
  return begun == text ? absl::OkStatus() : WriteFileAtomically(path, text);
}

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
    return absl::InvalidArgumentError(
        absl::StrCat(directory_, ": a rank sent a file that is not part of a run: ", path));
  }
  const std::string whole = absl::StrCat(gathering_, "/", path);
  if (const size_t slash = whole.rfind('/'); slash > gathering_.size()) {
    PLUMB_RETURN_IF_ERROR(MakeDirectories(whole.substr(0, slash)));
  }
  return WriteFileAtomically(whole, content);
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

}  // namespace plumb
