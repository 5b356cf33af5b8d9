#include "cli/compare/study_directory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

// What a study writes beside study.pbtxt and runs.
constexpr const char* kResultNames[] = {"metrics.jsonl",  "timing.csv", "report.json",
                                        "report.html",    "table.csv",  "table.md",
                                        "provenance.json"};

// The lines that only one of two texts has; each line counts as often as it stands there.
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

}  // namespace

absl::StatusOr<StudyLock> StudyLock::Acquire(const std::string& directory) {
  if (const absl::Status made = MakeDirectories(directory); !made.ok()) {
    return absl::InvalidArgumentError(made.message());
  }
  absl::StatusOr<std::shared_ptr<void>> lock = LockDirectory(directory);
  if (lock.ok()) return StudyLock(*std::move(lock));
  if (!absl::IsAlreadyExists(lock.status())) return lock.status();
  return absl::AlreadyExistsError(absl::StrCat(
      directory, ": another plumb compare is at work here; wait for it, or choose another --out"));
}

absl::Status ClaimDirectory(const std::string& directory, const std::string& text) {
  const std::string path = absl::StrCat(directory, "/study.pbtxt");
  if (!FileExists(path)) {
    if (FileExists(absl::StrCat(directory, "/runs"))) {
      return absl::InvalidArgumentError(absl::StrCat(
          directory, ": holds runs, but no study.pbtxt that says whose; choose another --out"));
    }
    for (const char* name : kResultNames) {
      const std::string result = absl::StrCat(directory, "/", name);
      if (!FileExists(result)) continue;
      return absl::InvalidArgumentError(
          absl::StrCat(result, ": a study would overwrite it; choose another --out"));
    }
    return WriteFile(path, text);
  }
  PLUMB_ASSIGN_OR_RETURN(const std::string begun, ReadFile(path, kMaxResultBytes));
  return CheckSameStudy(path, begun, text,
                        absl::StrCat("choose another --out, or delete ", directory, "."));
}

absl::Status CheckSameStudy(const std::string& path, const std::string& begun,
                            const std::string& text, const std::string& advice) {
  if (begun == text) return absl::OkStatus();
  const std::vector<std::string> before = absl::StrSplit(begun, '\n');
  const std::vector<std::string> now = absl::StrSplit(text, '\n');
  std::string message = absl::StrCat(path, ": is another study; ", advice);
  const std::vector<std::string> gone = OnlyIn(before, now), added = OnlyIn(now, before);
  if (gone.empty() && added.empty()) {
    absl::StrAppend(&message, " It has the same lines in another order.");
  }
  if (!gone.empty()) absl::StrAppend(&message, " It alone has");
  AppendLines("  - ", gone, &message);
  if (!added.empty()) absl::StrAppend(&message, "\nThis one alone has");
  AppendLines("  + ", added, &message);
  return absl::InvalidArgumentError(message);
}

}  // namespace plumb::cli
