#include "cli/compare/merge.h"

#include <algorithm>
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
#include "runtime/base/status.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

std::string StudyFile(const std::string& directory) {
  return absl::StrCat(directory, "/study.pbtxt");
}

absl::Status NoStudy(const std::string& directory) {
  return absl::InvalidArgumentError(absl::StrCat(
      directory,
      ": is no directory of a study: it has no study.pbtxt; --merge takes what --out of "
      "plumb compare --shard was"));
}

absl::Status CheckDirectory(const Plan& plan, const std::string& directory) {
  std::error_code error;
  if (std::filesystem::equivalent(directory, plan.out, error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(directory, ": is --out too; runs that are there need not be merged"));
  }
  const absl::StatusOr<std::string> text = ReadFile(StudyFile(directory), kMaxResultBytes);
  if (absl::IsNotFound(text.status())) return NoStudy(directory);
  if (!text.ok()) return text.status();
  return CheckSameStudy(StudyFile(directory), *text, plan.StudyText(),
                        "leave it out, or put its files back as they were.");
}

// What has to be equal of a run that is there twice: all but times.
struct Finding {
  std::string directory;  // of the run
  std::string result;     // the text of result.json
  std::string metrics;
};

// nullopt: the run has not ended there.
absl::StatusOr<std::optional<Finding>> Find(const std::string& run) {
  PLUMB_ASSIGN_OR_RETURN(const std::optional<RunResult> result, ReadRunResult(run));
  if (!result.has_value()) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(RunRecord record, ReadRunRecord(run, ""));
  PLUMB_ASSIGN_OR_RETURN(std::string text,
                         ReadFile(absl::StrCat(run, "/result.json"), kMaxResultBytes));
  return Finding{run, std::move(text), std::move(record.metrics)};
}

absl::StatusOr<std::optional<Finding>> FindInAll(const std::vector<std::string>& directories,
                                                 const std::string& name) {
  std::optional<Finding> first;
  for (const std::string& directory : directories) {
    PLUMB_ASSIGN_OR_RETURN(std::optional<Finding> found,
                           Find(absl::StrCat(directory, "/runs/", name)));
    if (!found.has_value()) continue;
    if (!first) {
      first = *std::move(found);
    } else if (found->result != first->result || found->metrics != first->metrics) {
      return absl::DataLossError(
          absl::StrCat("the run ", name, " is there twice, and not the same: ", first->directory,
                       " and ", found->directory, "; delete one of them"));
    }
  }
  return first;
}

absl::Status MissingError(const std::vector<std::string>& missing, size_t runs) {
  constexpr size_t kShown = 12;
  std::string text = absl::StrCat(missing.size(), " of ", Count(static_cast<int64_t>(runs), "run"),
                                  missing.size() == 1 ? " is" : " are", " missing:");
  for (size_t i = 0; i < std::min(kShown, missing.size()); ++i) {
    absl::StrAppend(&text, "\n  ", missing[i]);
  }
  if (missing.size() > kShown) absl::StrAppend(&text, "\n  …");
  absl::StrAppend(&text,
                  "\nName the directories that have them, or give the commands of their shards "
                  "again, which go on.");
  return absl::NotFoundError(text);
}

}  // namespace

absl::StatusOr<Study> StudyOfDirectory(const std::string& directory) {
  if (!FileExists(StudyFile(directory))) return NoStudy(directory);
  return Study::FromFile(StudyFile(directory));
}

absl::Status MergeRuns(const Plan& plan, const std::vector<std::string>& directories) {
  std::vector<std::shared_ptr<void>> locks;
  for (const std::string& directory : directories) {
    PLUMB_RETURN_IF_ERROR(CheckDirectory(plan, directory));
    absl::StatusOr<std::shared_ptr<void>> lock = LockDirectory(directory);
    if (absl::IsAlreadyExists(lock.status())) {
      return absl::AlreadyExistsError(absl::StrCat(
          directory, ": a plumb compare is at work here, or it is named twice; wait for it"));
    }
    if (!lock.ok()) return lock.status();
    locks.push_back(*std::move(lock));
  }
  std::vector<std::string> places = {plan.out};
  places.insert(places.end(), directories.begin(), directories.end());
  std::vector<std::string> missing;
  std::vector<std::pair<std::string, std::string>> copies;  // from, to
  for (const PlanRun& run : plan.runs) {
    const std::string name = std::filesystem::path(run.directory).filename().string();
    PLUMB_ASSIGN_OR_RETURN(const std::optional<Finding> found, FindInAll(places, name));
    if (!found.has_value()) {
      missing.push_back(name);
    } else if (found->directory != run.directory) {
      copies.emplace_back(found->directory, run.directory);
    }
  }
  if (!missing.empty()) return MissingError(missing, plan.runs.size());
  PLUMB_RETURN_IF_ERROR(ClaimDirectory(plan.out, plan.StudyText()));
  for (const auto& [from, to] : copies) {
    PLUMB_RETURN_IF_ERROR(CopyRun(from, to));
  }
  return absl::OkStatus();
}

}  // namespace plumb::cli
