// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/runner.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plugins/check/points.h"
#include "plugins/check/process.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

Verdict WorstOf(const std::vector<Finding>& findings) {
  Verdict worst = Verdict::kPass;
  for (const Finding& finding : findings) worst = std::max(worst, finding.verdict);
  return worst;
}

TaskResult Skipped(const std::string& why) {
  TaskResult result;
  result.findings = {{Verdict::kSkip, why}};
  return result;
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
  }

  absl::StatusOr<FileResult> Run() {
    const Check& loads = AllChecks().front();  // no other check is meaningful if it fails
    std::vector<Task> tasks;
    for (const Check* check : selected_) {
      if (check->of_file && check != &loads) tasks.push_back(TaskFor(check, 0));
    }
    total_ = 1 + tasks.size();
    PLUMB_RETURN_IF_ERROR(RunAll({TaskFor(&loads, 0)}, 1));
    if (file_.results.front().verdict == Verdict::kFail) {
      file_.load_problem = file_.results.front().findings.front().text;
    } else {
      if (selected_.empty() || selected_.front() != &loads) file_.results.clear();
      PLUMB_RETURN_IF_ERROR(ListNorms());
    }
    if (!file_.load_problem.empty()) {
      for (const Check* check : selected_) {
        if (check != &loads) Add(check, "", Skipped("the file cannot be loaded"));
      }
      return std::move(file_);
    }
    // One at a time, because loading is timed.
    PLUMB_RETURN_IF_ERROR(RunAll(tasks, 1));
    tasks.clear();
    for (const ListedNorm& norm : norms_) {
      for (const Check* check : selected_) {
        if (check->of_file) continue;
        if (norm.problem.empty()) {
          tasks.push_back(TaskFor(check, norm.index));
        } else {
          Add(check, norm.id, Skipped(norm.problem));
        }
      }
    }
    total_ = done_ + tasks.size();
    PLUMB_RETURN_IF_ERROR(RunAll(tasks, options_.parallel));
    KeepCauses();
    return std::move(file_);
  }

 private:
  Task TaskFor(const Check* check, uint32_t norm_index) const {
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

  absl::Status ListNorms() {
    const auto list = [this](size_t, TaskResult result) {
      for (const ListedNorm& norm : result.norms) {
        if (!options_.norm.empty() && norm.id != options_.norm) continue;
        norms_.push_back(norm);
        file_.norms.push_back(norm.id);
      }
      for (const Finding& finding : result.findings) {
        file_.load_problem = absl::StrCat("its norms cannot be listed: ", finding.text);
      }
      return true;
    };
    if (options_.in_process) {
      list(0, Perform(TaskFor(nullptr, 0)));
    } else {
      PLUMB_RETURN_IF_ERROR(RunTasks({TaskFor(nullptr, 0)}, {1, options_.timeout_seconds}, list));
    }
    if (norms_.empty() && file_.load_problem.empty()) {
      file_.load_problem =
          options_.norm.empty() ? "it holds no norm" : "it holds no norm " + options_.norm;
    }
    return absl::OkStatus();
  }

  // Runs the tasks, `parallel` at a time, and adds their results in the order of the tasks.
  absl::Status RunAll(const std::vector<Task>& tasks, int parallel) {
    std::vector<TaskResult> results(tasks.size(), Skipped("another check failed before it ended"));
    const auto done = [&](size_t i, TaskResult result) {
      ++done_;
      if (options_.progress) {
        options_.progress(done_, std::max(done_, total_),
                          absl::StrCat(tasks[i].check->id, " ", IdOf(tasks[i])));
      }
      if (!result.point.empty()) {
        result.findings.back().text +=
            RepeatCommand(options_.path, tasks[i].check->id, result.point);
      }
      enough_ = enough_ || (options_.fail_fast && WorstOf(result.findings) == Verdict::kFail);
      results[i] = std::move(result);
      return !enough_;
    };
    if (options_.in_process) {
      for (size_t i = 0; i < tasks.size() && !enough_; ++i) done(i, Perform(tasks[i]));
    } else if (!enough_) {
      PLUMB_RETURN_IF_ERROR(RunTasks(tasks, {parallel, options_.timeout_seconds}, done));
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      Add(tasks[i].check, IdOf(tasks[i]), std::move(results[i]));
    }
    return absl::OkStatus();
  }

  void Add(const Check* check, const std::string& norm, TaskResult task) {
    const Verdict verdict = WorstOf(task.findings);
    file_.results.push_back({check, norm, verdict, std::move(task.findings), task.seconds});
  }

  // Withdraws failures that the failure of another check explains.
  void KeepCauses() {
    std::map<std::pair<std::string, std::string>, Verdict> verdicts;  // of norm and check
    for (const CheckResult& each : file_.results)
      verdicts[{each.norm, each.check->id}] = each.verdict;
    for (CheckResult& result : file_.results) {
      if (result.verdict != Verdict::kFail) continue;
      for (const std::string& cause : result.check->causes) {
        const auto it = verdicts.find({result.norm, cause});
        if (it == verdicts.end() || it->second != Verdict::kFail) continue;
        result.verdict = Verdict::kSkip;
        result.findings = {
            {Verdict::kSkip, absl::StrCat(cause, " failed, which may be the cause")}};
        break;
      }
    }
  }

  std::string IdOf(const Task& task) const {
    for (const ListedNorm& norm : norms_) {
      if (!task.check->of_file && norm.index == task.norm_index) return norm.id;
    }
    return "";
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
