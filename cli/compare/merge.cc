#include "cli/compare/merge.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/compare/run_files.h"
#include "cli/compare/run_record.h"
#include "cli/compare/study_directory.h"
#include "cli/output.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

bool IsSameDirectory(const std::string& a, const std::string& b) {
  std::error_code error;
  return std::filesystem::equivalent(a, b, error);
}

std::string RunIn(const Plan& plan, const PlanRun& run, const std::string& directory) {
  return absl::StrCat(directory, run.directory.substr(plan.out.size()));
}

std::string NameOf(const Plan& plan, const PlanRun& run) {
  return absl::StrCat(plan.groups[run.group].name, ", seed ", run.seed);
}

// Where a run that has ended lies, `plan.out` before all others; "": nowhere.
absl::StatusOr<std::string> FindRun(const Plan& plan, const PlanRun& run,
                                    const std::vector<std::string>& directories) {
  std::string found;
  for (const std::string& directory : directories) {
    std::string here = RunIn(plan, run, directory);
    const absl::StatusOr<std::optional<RunResult>> result = ReadRunResult(here);
    if (!result.ok()) return result.status();
    if (!result->has_value()) continue;
    if (const absl::Status whole = ReadRunRecord(here, "").status(); !whole.ok()) return whole;
    if (found.empty()) {
      found = std::move(here);
      continue;
    }
    const absl::StatusOr<std::string> difference = FirstDifference(found, here);
    if (!difference.ok()) return difference.status();
    if (difference->empty()) continue;
    return absl::FailedPreconditionError(
        absl::StrCat(here, "/", *difference, ": is not what ", found,
                     " has, though both are the run of ", NameOf(plan, run),
                     "; delete one of them. Processors of different kinds round differently"));
  }
  return found;
}

absl::Status MissingError(const Plan& plan, const std::vector<size_t>& missing,
                          const std::vector<std::string>& directories) {
  constexpr size_t kNamed = 12;
  std::string message =
      absl::StrCat(missing.size(), " of ", Count(static_cast<int64_t>(plan.runs.size()), "run"),
                   " of the study are in none of the directories:");
  for (size_t i = 0; i < std::min(kNamed, missing.size()); ++i) {
    const PlanRun& run = plan.runs[missing[i]];
    absl::StrAppend(&message, "\n  ", NameOf(plan, run), "  (run ", missing[i]);
    for (const std::string& directory : directories) {
      if (!FileExists(RunIn(plan, run, directory))) continue;
      absl::StrAppend(&message, "; begun in ", directory);
    }
    absl::StrAppend(&message, ")");
  }
  if (missing.size() > kNamed) absl::StrAppend(&message, "\n  …");
  absl::StrAppend(&message,
                  "\nshard I of N trains the runs whose number has the remainder I when it is "
                  "divided by N: give the same\n--shard I/N again, which resumes, or the directory "
                  "that has them");
  return absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<std::string> CommonStudyText(const std::vector<std::string>& directories) {
  std::string common;
  for (const std::string& directory : directories) {
    const std::string path = absl::StrCat(directory, "/study.pbtxt");
    absl::StatusOr<std::string> text = ReadFile(path, kMaxResultBytes);
    if (absl::IsNotFound(text.status())) {
      return absl::InvalidArgumentError(
          absl::StrCat(directory, ": is no study's directory: it has no study.pbtxt"));
    }
    if (!text.ok()) return text.status();
    if (common.empty()) {
      common = *std::move(text);
      continue;
    }
    const absl::Status same = CheckSameStudy(
        common, *text,
        absl::StrCat(path, ": is another study than ", directories.front(), "/study.pbtxt."));
    if (!same.ok()) return same;
  }
  return common;
}

absl::Status MergeStudies(const Plan& plan, const std::vector<std::string>& directories) {
  std::vector<std::shared_ptr<void>> locks;
  std::vector<std::string> all = {plan.out};
  for (const std::string& directory : directories) {
    if (std::any_of(all.begin(), all.end(), [&directory](const std::string& other) {
          return IsSameDirectory(directory, other);
        })) {
      continue;
    }
    absl::StatusOr<std::shared_ptr<void>> lock = LockDirectory(directory);
    if (absl::IsAlreadyExists(lock.status())) {
      return absl::AlreadyExistsError(
          absl::StrCat(directory, ": another plumb compare is at work here; wait for it"));
    }
    if (!lock.ok()) return lock.status();
    locks.push_back(*std::move(lock));
    all.push_back(directory);
  }
  std::vector<std::string> sources;
  std::vector<size_t> missing;
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    absl::StatusOr<std::string> source = FindRun(plan, plan.runs[i], all);
    if (!source.ok()) return source.status();
    if (source->empty()) missing.push_back(i);
    sources.push_back(*std::move(source));
  }
  if (!missing.empty()) return MissingError(plan, missing, all);
  for (size_t i = 0; i < plan.runs.size(); ++i) {
    const std::string& to = plan.runs[i].directory;
    if (sources[i] == to) continue;
    if (const absl::Status copied = CopyRun(sources[i], to); !copied.ok()) return copied;
  }
  return absl::OkStatus();
}

}  // namespace plumb::cli
