// SPDX-License-Identifier: Apache-2.0
#include "runtime/study/study_directory.h"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/study/text_fields.h"
#include "runtime/train/run_directory.h"
#include "runtime/train/run_identity.h"

namespace plumb {
namespace {

// Files that a study writes next to study.pbtxt and runs.
constexpr const char* kResultNames[] = {
    "runs.csv", "timing.csv", "report.json",     "report.html",     "table.csv",
    "table.md", "table.tex",  "provenance.json", "differences.tex", "best.tex"};

constexpr size_t kMaxShown = 6;

void AppendLines(const std::vector<std::string>& lines, std::string* message) {
  for (size_t i = 0; i < std::min(kMaxShown, lines.size()); ++i) {
    absl::StrAppend(message, "\n  ", lines[i]);
  }
  if (lines.size() > kMaxShown) absl::StrAppend(message, "\n  …");
}

// Suffix of partly received runs. No run has such a name, because run names end in a seed.
constexpr char kGathering[] = ".incoming";

absl::Status FileError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

std::string GetName(const PlanRun& run) {
  return std::filesystem::path(run.directory).filename().string();
}

bool LeadsInside(const std::string& path) {
  if (path.empty() || path.front() == '/') return false;
  const std::vector<std::string> parts = absl::StrSplit(path, '/');
  return std::none_of(parts.begin(), parts.end(), [](const std::string& part) {
    return part.empty() || part == "." || part == "..";
  });
}

// Returns the fields that differ between a file of a run and the text that the plan has for it.
std::string FieldChanges(const std::string& path, const std::string& planned) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  if (!text.ok()) return "";
  std::vector<std::string> changes;
  for (const auto& [field, values] : Differences({*text, planned})) {
    if (field == "seed" || changes.size() > kMaxShown) continue;
    changes.push_back(absl::StrCat(field, ": ", values[0].empty() ? "not set" : values[0], ", now ",
                                   values[1].empty() ? "not set" : values[1]));
  }
  return absl::StrJoin(changes, "; ");
}

// Returns what a run in the directory was trained with other than the plan says; empty if nothing.
absl::StatusOr<std::vector<std::string>> InputChanges(const PlanRun& run, const PlanGroup* group) {
  PLUMB_ASSIGN_OR_RETURN(const std::string json,
                         ReadFile(RunJsonPath(run.directory), kMaxStateBytes));
  PLUMB_ASSIGN_OR_RETURN(const auto then, RunIdentity::FromRunJson(json));
  if (!then.has_value()) {
    return std::vector<std::string>{
        "its run.json does not identify its inputs, as of an earlier "
        "plumb"};
  }
  std::vector<std::string> changes = then->Differences(run.identity);
  for (std::string& change : changes) {
    std::string fields;
    if (group != nullptr && absl::StartsWith(change, "recipe:")) {
      fields = FieldChanges(RunTrainPath(run.directory), group->training.train_text);
    } else if (group != nullptr && absl::StartsWith(change, "model:")) {
      fields = FieldChanges(RunModelPath(run.directory), group->text);
    }
    if (!fields.empty()) change = absl::StrCat(change.substr(0, change.find(':')), ": ", fields);
  }
  return changes;
}

// Fails if the directory, which has no study.pbtxt, has files that a study would overwrite.
absl::Status CheckIsFree(const std::string& directory) {
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
  return absl::OkStatus();
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

absl::StatusOr<std::vector<std::string>> ClaimDirectory(const StudyPlan& plan, bool overwrite) {
  const std::string path = absl::StrCat(plan.out, "/study.pbtxt"), text = plan.StudyText();
  if (!FileExists(path)) {
    PLUMB_RETURN_IF_ERROR(CheckIsFree(plan.out));
    PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, text));
    return std::vector<std::string>{};
  }
  std::map<std::string, const PlanRun*> planned;
  for (const PlanRun& run : plan.runs) planned[GetName(run)] = &run;
  std::vector<std::string> others, changed, lines;
  const auto names = ListDirectory(absl::StrCat(plan.out, "/runs"));
  if (!names.ok() && !absl::IsNotFound(names.status())) return names.status();
  for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
    if (!FileExists(RunJsonPath(absl::StrCat(plan.out, "/runs/", name)))) continue;
    const auto run = planned.find(name);
    if (run == planned.end()) {
      others.push_back(name);
      continue;
    }
    PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> changes,
                           InputChanges(*run->second, &plan.groups[run->second->group]));
    if (changes.empty()) continue;
    changed.push_back(name);
    lines.push_back(absl::StrCat(name, ": ", absl::StrJoin(changes, ", ")));
  }
  if (!others.empty()) {
    std::string message = absl::StrCat(
        plan.out, ": is another study; it has ", Count(static_cast<int64_t>(others.size()), "run"),
        " that this one has not; name all models, settings and seeds, or choose another --out");
    AppendLines(others, &message);
    return absl::InvalidArgumentError(message);
  }
  if (!changed.empty() && !overwrite) {
    std::string message = absl::StrCat(plan.out, ": is another study; ", changed.size(), " of its ",
                                       Count(static_cast<int64_t>(names->size()), "run"),
                                       " had other inputs; choose another --out"
                                       ", or train only these again with --overwrite");
    AppendLines(lines, &message);
    return absl::InvalidArgumentError(message);
  }
  for (const std::string& name : changed) {
    PLUMB_RETURN_IF_ERROR(RemoveRun(absl::StrCat(plan.out, "/runs/", name)));
  }
  PLUMB_RETURN_IF_ERROR(WriteFileAtomically(path, text));
  return changed;
}

absl::Status CheckInputs(const PlanRun& run) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<std::string> changes, InputChanges(run, nullptr));
  if (changes.empty() || !run.identity.UnknownPart().empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      run.directory, ": inputs changed while the study was trained: ", absl::StrJoin(changes, ", "),
      "; give the command again with --overwrite"));
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
  return WriteNewFile(whole, content);
}

absl::Status IncomingRun::Finish() {
  PLUMB_RETURN_IF_ERROR(RemoveTree(directory_));
  std::error_code error;
  std::filesystem::rename(gathering_, directory_, error);
  return error ? FileError(directory_, error) : absl::OkStatus();
}

absl::Status IncomingRun::Discard() { return RemoveTree(gathering_); }

absl::Status RemoveRun(const std::string& directory) {
  const std::string gone = absl::StrCat(directory, kGathering);
  PLUMB_RETURN_IF_ERROR(RemoveTree(gone));
  std::error_code error;
  std::filesystem::rename(directory, gone, error);
  if (error == std::errc::no_such_file_or_directory) return absl::OkStatus();
  return error ? FileError(directory, error) : RemoveTree(gone);
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
