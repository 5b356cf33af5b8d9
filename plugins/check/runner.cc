// SPDX-License-Identifier: Apache-2.0
#include "plugins/check/runner.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "plugins/check/plugin.h"
#include "plugins/check/points.h"
#include "plugins/check/process.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

// Reports each norm of the file: its id, skipped with the reason if it cannot be used here.
void ReportNorms(const std::string& path, Report* report) {
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = Load(path);
  if (!entry.ok()) throw CheckEnded{std::string(entry.status().message())};
  for (uint32_t i = 0; i < kMaxNorms; ++i) {
    const plumb_norm_plugin* table = NormAt(*entry, i);
    if (table == nullptr) break;
    std::string problem = TableProblem(*table);
    if (!problem.empty()) problem = "see M1: " + problem;
    const std::string why = problem.empty() ? Unavailable(*table) : "";
    if (!why.empty()) problem = "not available on this machine: " + why;
    const bool has_id = table->struct_size >= offsetof(plumb_norm_plugin, id) + sizeof(table->id);
    const std::string id = has_id && table->id != nullptr ? table->id : "?";
    report->Add(problem.empty() ? Verdict::kPass : Verdict::kSkip, id + "\n" + problem);
  }
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options) {
    file_.path = options.path;
    for (const Check& check : AllChecks()) {
      const auto named = std::find(options.only.begin(), options.only.end(), check.id);
      const bool wanted =
          options.only.empty() ? check.level <= options.level : named != options.only.end();
      if (wanted) selected_.push_back(&check);
      if (wanted && check.explores) ++exploring_;
    }
  }

  absl::StatusOr<FileResult> Run() {
    const Check* loads = &AllChecks().front();  // no other check is meaningful if it fails
    PLUMB_RETURN_IF_ERROR(RunAll({{loads, {}}}, 1));
    if (file_.results[0].verdict == Verdict::kFail) {
      file_.load_problem = file_.results[0].findings[0].text;
    } else {
      if (selected_.empty() || selected_[0] != loads) file_.results.clear();
      PLUMB_ASSIGN_OR_RETURN(norms_, ListNorms(options_.path, &file_.load_problem));
    }
    std::vector<Item> of_file, of_norms;
    for (const ListedNorm& norm : norms_) {
      if (!options_.norm.empty() && norm.id != options_.norm) continue;
      file_.norms.push_back(norm.id);
      for (const Check* check : selected_) {
        if (!check->of_file) of_norms.push_back({check, norm});
      }
    }
    if (file_.norms.empty() && file_.load_problem.empty()) {
      file_.load_problem = absl::StrCat("it holds no norm ", options_.norm);
    }
    for (const Check* check : selected_) {
      if (!file_.load_problem.empty() && check != loads) {
        Add({check, {}}, {{{Verdict::kSkip, "the file cannot be loaded"}}, "", 0});
      } else if (check->of_file && check != loads) {
        of_file.push_back({check, {}});
      }
    }
    if (!file_.load_problem.empty()) return std::move(file_);
    total_ = done_ + of_file.size() + of_norms.size();
    PLUMB_RETURN_IF_ERROR(RunAll(of_file, 1));  // one at a time, because loading is timed
    PLUMB_RETURN_IF_ERROR(RunAll(of_norms, options_.parallel));
    KeepCauses();
    return std::move(file_);
  }

 private:
  struct Item {
    const Check* check;
    ListedNorm norm;
  };

  Task TaskFor(const Item& item) const {
    Subject subject;
    subject.path = options_.path;
    subject.seed = options_.seed;
    subject.point = options_.point;
    subject.seconds =
        std::min(options_.seconds, options_.seconds * options_.parallel / std::max(exploring_, 1));
    return [item, subject](Report* report) mutable {
      if (!item.norm.problem.empty()) return report->Skip(item.norm.problem);
      if (!item.check->of_file) subject.norm = &GetNorm(subject.path, item.norm);
      item.check->run(subject, report);
    };
  }

  // Runs the items, `parallel` at a time, and adds their results in the same order.
  absl::Status RunAll(const std::vector<Item>& items, int parallel) {
    const TaskResult skipped = {{{Verdict::kSkip, "another check failed before it ended"}}, "", 0};
    std::vector<TaskResult> results(items.size(), skipped);
    std::vector<Task> tasks;
    for (const Item& item : items) tasks.push_back(TaskFor(item));
    const auto done = [&](size_t i, TaskResult result) {
      const char* id = items[i].check->id;
      ++done_;
      if (options_.progress) {
        options_.progress(done_, std::max(done_, total_), absl::StrCat(id, " ", items[i].norm.id));
      }
      if (!result.point.empty()) {
        result.findings.back().text += RepeatCommand(options_.path, id, result.point);
      }
      for (const Finding& finding : result.findings) {
        enough_ = enough_ || (options_.fail_fast && finding.verdict == Verdict::kFail);
      }
      results[i] = std::move(result);
      return !enough_;
    };
    if (options_.in_process) {
      for (size_t i = 0; i < tasks.size() && !enough_; ++i) done(i, Perform(tasks[i]));
    } else if (!enough_) {
      PLUMB_RETURN_IF_ERROR(RunTasks(tasks, parallel, options_.timeout_seconds, done));
    }
    for (size_t i = 0; i < items.size(); ++i) Add(items[i], std::move(results[i]));
    return absl::OkStatus();
  }

  void Add(const Item& item, TaskResult result) {
    Verdict worst = Verdict::kPass;
    for (const Finding& finding : result.findings) worst = std::max(worst, finding.verdict);
    file_.results.push_back(
        {item.check, item.norm.id, worst, std::move(result.findings), result.seconds});
  }

  // Withdraws failures that the failure of another check explains.
  void KeepCauses() {
    std::map<std::pair<std::string, std::string>, Verdict> verdicts;  // of norm and check
    for (const CheckResult& each : file_.results) {
      verdicts[{each.norm, each.check->id}] = each.verdict;
    }
    for (CheckResult& result : file_.results) {
      if (result.verdict != Verdict::kFail) continue;
      for (const std::string& cause : result.check->causes) {
        const auto it = verdicts.find({result.norm, cause});
        if (it == verdicts.end() || it->second != Verdict::kFail) continue;
        result.verdict = Verdict::kSkip;
        result.findings = {{Verdict::kSkip, cause + " failed, which may be the cause"}};
        break;
      }
    }
  }

  const RunnerOptions& options_;
  FileResult file_;
  std::vector<const Check*> selected_;
  int exploring_ = 0;  // number of selected checks that explore
  std::vector<ListedNorm> norms_;
  size_t done_ = 0, total_ = 0;
  bool enough_ = false;  // a check failed, and fail_fast is set
};

}  // namespace

absl::StatusOr<std::vector<ListedNorm>> ListNorms(const std::string& path, std::string* problem) {
  std::vector<ListedNorm> norms;
  const Task task = [&path](Report* report) { ReportNorms(path, report); };
  PLUMB_RETURN_IF_ERROR(RunTasks({task}, 1, kTimeout, [&](size_t, TaskResult result) {
    for (const Finding& finding : result.findings) {
      const size_t end = finding.text.find('\n');
      if (finding.verdict == Verdict::kFail) {
        *problem = "its norms cannot be listed: " + finding.text;
      } else {
        norms.push_back({static_cast<uint32_t>(norms.size()), finding.text.substr(0, end),
                         finding.text.substr(end + 1)});
      }
    }
    return true;
  }));
  return norms;
}

const plumb_norm_plugin& GetNorm(const std::string& path, const ListedNorm& norm) {
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = Load(path);
  if (!entry.ok()) throw CheckEnded{absl::StrCat(path, ": ", entry.status().message())};
  const plumb_norm_plugin* table = NormAt(*entry, norm.index);
  if (table == nullptr) throw CheckEnded{"the norm is not there when it is asked for again"};
  Unavailable(*table);
  return *table;
}

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
