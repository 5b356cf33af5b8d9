// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/runner.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plugins/check/points.h"
#include "plugins/check/process.h"
#include "runtime/base/status.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

// Returns true if the file cannot be loaded without passing this check, so that no other check is
// meaningful.
bool IsGate(const Check& check) {
  return std::strcmp(check.id, "E1") == 0 || std::strcmp(check.id, "E4") == 0;
}

bool HasFailed(const std::vector<Finding>& findings) {
  return std::any_of(findings.begin(), findings.end(),
                     [](const Finding& finding) { return finding.verdict == Verdict::kFail; });
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options) {
    file_.path = options.path;
    for (const Check& check : AllChecks()) {
      const bool named =
          std::find(options.only.begin(), options.only.end(), check.id) != options.only.end();
      if (options.only.empty() ? check.level <= options.level : named) selected_.push_back(&check);
    }
    total_ = selected_.size();
  }

  absl::StatusOr<FileResult> Run() {
    for (const Check& check : AllChecks()) {
      if (IsGate(check)) PLUMB_RETURN_IF_ERROR(RunGate(check));
      if (!file_.load_problem.empty()) break;
    }
    if (file_.load_problem.empty()) PLUMB_RETURN_IF_ERROR(ListNorms());
    if (!file_.load_problem.empty()) {
      SkipTheRest();
    } else {
      PLUMB_RETURN_IF_ERROR(RunTheRest());
    }
    Sort();
    return std::move(file_);
  }

 private:
  Task TaskFor(const Check* check, uint32_t norm_index = 0) const {
    const auto sharing = std::count_if(selected_.begin(), selected_.end(),
                                       [](const Check* each) { return each->explores; });
    const double share =
        options_.seconds * options_.parallel / static_cast<double>(std::max<ptrdiff_t>(sharing, 1));
    Task task;
    task.check = check;
    task.norm_index = norm_index;
    task.subject.path = options_.path;
    task.subject.seed = options_.seed;
    task.subject.seconds = std::min(share, options_.seconds);
    task.subject.point = options_.point;
    return task;
  }

  absl::Status RunOne(const Task& task, TaskResult* result) {
    return RunAll(1, {task}, [result](size_t, TaskResult each) { *result = std::move(each); });
  }

  // Runs a check that must pass. If it was not selected, it is reported only if it fails.
  absl::Status RunGate(const Check& check) {
    TaskResult result;
    PLUMB_RETURN_IF_ERROR(RunOne(TaskFor(&check), &result));
    const bool failed = HasFailed(result.findings);
    if (failed) file_.load_problem = result.findings.front().text;
    const bool selected = std::find(selected_.begin(), selected_.end(), &check) != selected_.end();
    if (selected || failed) Add(&check, "", std::move(result));
    return absl::OkStatus();
  }

  absl::Status ListNorms() {
    TaskResult result;
    PLUMB_RETURN_IF_ERROR(RunOne(TaskFor(nullptr), &result));
    norms_ = result.norms;
    for (const Finding& finding : result.findings) {
      file_.load_problem = absl::StrCat("its norms cannot be listed: ", finding.text);
    }
    if (norms_.empty() && file_.load_problem.empty()) file_.load_problem = "it holds no norm";
    for (const ListedNorm& norm : norms_) file_.norms.push_back(norm.id);
    return absl::OkStatus();
  }

  absl::Status RunTheRest() {
    std::vector<Task> together, alone;  // timed checks run alone
    const auto add = [&](const Check* check, uint32_t norm) {
      (check->timed ? alone : together).push_back(TaskFor(check, norm));
    };
    for (const Check* check : selected_) {
      if (check->scope != Scope::kNorm && !IsGate(*check)) add(check, 0);
    }
    for (const ListedNorm& norm : norms_) {
      const std::string why = !norm.problem.empty() ? "see M1: " + norm.problem
                              : !norm.unavailable.empty()
                                  ? "not available on this machine: " + norm.unavailable
                                  : "";
      for (const Check* check : selected_) {
        if (check->scope != Scope::kNorm) continue;
        why.empty() ? add(check, norm.index) : Skip(check, norm.id, why);
      }
    }
    total_ = done_ + together.size() + alone.size();
    PLUMB_RETURN_IF_ERROR(AddResultsOf(together, options_.parallel));
    return AddResultsOf(alone, 1);
  }

  // Runs the tasks, `parallel` at a time, and adds their results in the order of the tasks.
  absl::Status AddResultsOf(const std::vector<Task>& tasks, int parallel) {
    std::vector<TaskResult> results(tasks.size());
    for (TaskResult& result : results) {
      result.findings = {{Verdict::kSkip, "another check failed before it ended"}};
    }
    if (!enough_) {
      PLUMB_RETURN_IF_ERROR(RunAll(parallel, tasks, [&](size_t i, TaskResult result) {
        enough_ = enough_ || (options_.fail_fast && HasFailed(result.findings));
        results[i] = std::move(result);
      }));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      const Check* const check = tasks[i].check;
      Add(check, check->scope == Scope::kNorm ? IdOf(tasks[i].norm_index) : "",
          std::move(results[i]));
    }
    return absl::OkStatus();
  }

  // Skips all remaining checks. The notes name the norms, because the norms cannot be listed.
  void SkipTheRest() {
    const int fd = open(options_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
    close(fd);
    if (notes.ok()) {
      file_.norms.clear();
      for (const NormNote& note : *notes) file_.norms.push_back(note.id.empty() ? "?" : note.id);
    }
    if (file_.norms.empty()) file_.norms.emplace_back("?");
    const std::string why = "the file cannot be loaded";
    for (const Check* check : selected_) {
      if (check->scope == Scope::kNorm) {
        for (const std::string& norm : file_.norms) Skip(check, norm, why);
      } else if (std::none_of(file_.results.begin(), file_.results.end(),
                              [&](const CheckResult& result) { return result.check == check; })) {
        Skip(check, "", why);
      }
    }
  }

  void Skip(const Check* check, const std::string& norm, const std::string& why) {
    TaskResult result;
    result.findings = {{Verdict::kSkip, why}};
    Add(check, norm, std::move(result));
  }

  void Add(const Check* check, const std::string& norm, TaskResult task) {
    CheckResult result;
    result.check = check;
    result.norm = norm;
    result.findings = std::move(task.findings);
    result.seconds = task.seconds;
    for (const Finding& finding : result.findings) {
      result.verdict = std::max(result.verdict, finding.verdict);
    }
    file_.results.push_back(std::move(result));
  }

  std::string IdOf(uint32_t index) const {
    for (const ListedNorm& norm : norms_) {
      if (norm.index == index) return norm.id;
    }
    return "?";
  }

  void Sort() {
    const auto place = [this](const CheckResult& result) {
      const auto norm = std::find(file_.norms.begin(), file_.norms.end(), result.norm);
      return std::make_pair(result.norm.empty() ? -1 : norm - file_.norms.begin(), result.check);
    };
    std::stable_sort(
        file_.results.begin(), file_.results.end(),
        [&place](const CheckResult& a, const CheckResult& b) { return place(a) < place(b); });
  }

  void Tell(const Task& task) {
    if (task.check == nullptr) return;
    ++done_;
    if (!options_.progress) return;
    const std::string norm = task.check->scope == Scope::kNorm ? " " + IdOf(task.norm_index) : "";
    options_.progress(done_, std::max(done_, total_), absl::StrCat(task.check->id, norm));
  }

  // Runs the tasks. If one killed its process at a point, looks for a smaller point.
  absl::Status RunAll(int parallel, const std::vector<Task>& tasks,
                      const std::function<void(size_t, TaskResult)>& done) {
    if (options_.in_process) {
      for (size_t i = 0; i < tasks.size() && !enough_; ++i) {
        done(i, Perform(tasks[i]));
        Tell(tasks[i]);
      }
      return absl::OkStatus();
    }
    const ProcessOptions options = {parallel, options_.timeout_seconds};
    std::vector<std::pair<size_t, Task>> crashed;
    PLUMB_RETURN_IF_ERROR(RunTasks(tasks, options, [&](size_t i, TaskResult result) {
      Task task = tasks[i];
      Tell(task);
      if (result.died && !result.point.empty() && task.check != nullptr) {
        result.findings.back().text += RepeatCommand(options_.path, task.check->id, result.point);
        // A hanging call would hang again at each try.
        const bool shrinks = !result.hung && task.subject.point.empty();
        task.subject.point = result.point;
        task.subject.shrinks = true;
        if (shrinks) crashed.emplace_back(i, task);
      }
      done(i, std::move(result));
      return !enough_;
    }));
    for (const auto& [i, task] : crashed) {
      PLUMB_RETURN_IF_ERROR(RunTasks({task}, options, [&, at = i](size_t, TaskResult result) {
        if (!result.died && !result.findings.empty()) done(at, std::move(result));
        return true;
      }));
    }
    return absl::OkStatus();
  }

  const RunnerOptions& options_;
  FileResult file_;
  std::vector<const Check*> selected_;
  std::vector<ListedNorm> norms_;
  size_t done_ = 0, total_ = 0;
  bool enough_ = false;  // a check failed, and fail_fast is set
};

}  // namespace

absl::StatusOr<FileResult> RunChecks(const RunnerOptions& options) {
  struct stat info;
  if (stat(options.path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(options.path, ": ", std::strerror(errno)));
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(options.path, ": is not a file"));
  }
  return Runner(options).Run();
}

}  // namespace plumb::check
