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
#include "plugins/check/child.h"
#include "plugins/check/points.h"
#include "plugins/check/subprocess.h"
#include "runtime/base/status.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

// Without these the file cannot be loaded, and nothing else can be said of it.
constexpr const char* kGates[] = {"E1", "E4"};

bool IsGate(const Check& check) {
  return std::any_of(std::begin(kGates), std::end(kGates),
                     [&check](const char* id) { return std::strcmp(id, check.id) == 0; });
}

// Tasks and what has become of them, in order.
struct Batch {
  std::vector<Task> tasks;
  std::vector<TaskResult> results;
  std::vector<double> seconds;
  bool may_end_early = false;  // at a failure, when one is enough
};

// What a child says on its last line before it dies of an assertion or a sanitizer.
std::string LastWords(const std::string& printed) {
  constexpr size_t kMost = 1000;
  std::string words = printed.substr(0, kMost);
  while (!words.empty() && words.back() == '\n') words.pop_back();
  return words;
}

TaskResult ResultOf(const Ended& ended) {
  absl::StatusOr<TaskResult> result = ParseTaskResult(ended.findings);
  if (result.ok() && ended.death.empty()) return *std::move(result);
  std::string why = ended.death;
  if (why.empty()) {
    why = ended.last_call.empty() ? "ended the process before the check was over"
                                  : absl::StrCat("ended the process during ", ended.last_call);
  }
  const std::string words = LastWords(ended.printed);
  TaskResult dead;
  dead.findings.push_back(
      {Verdict::kFail, words.empty() ? why : absl::StrCat(why, "; it printed: ", words)});
  return dead;
}

class Runner {
 public:
  explicit Runner(const RunnerOptions& options) : options_(options) {
    for (const Check& check : AllChecks()) {
      const bool named =
          std::find(options.only.begin(), options.only.end(), check.id) != options.only.end();
      if (options.only.empty() ? check.level <= options.level : named) selected_.push_back(&check);
    }
    total_ = selected_.size();
  }

  absl::StatusOr<FileResult> Run() {
    FileResult file;
    file.path = options_.path;
    PLUMB_RETURN_IF_ERROR(RunGates(&file));
    if (file.load_problem.empty()) PLUMB_RETURN_IF_ERROR(ListNorms(&file));
    if (!file.load_problem.empty()) {
      NormsOfNotes(&file);
      SkipTheRest("the file cannot be loaded", &file);
      return file;
    }
    PLUMB_RETURN_IF_ERROR(RunTheRest(&file));
    return file;
  }

 private:
  Task TaskFor(const Check* check, uint32_t norm_index = 0) const {
    const auto explores = [](const Check* each) { return each->explores; };
    const auto sharing = std::count_if(selected_.begin(), selected_.end(), explores);
    const double share =
        options_.seconds * options_.parallel / static_cast<double>(std::max<ptrdiff_t>(sharing, 1));
    return {
        check,         norm_index, options_.path, options_.seed, std::min(share, options_.seconds),
        options_.point};
  }

  // Checks of the file that need not load it, and loading.
  absl::Status RunGates(FileResult* file) {
    Batch batch;
    for (const Check& check : AllChecks()) {
      const bool selected =
          std::find(selected_.begin(), selected_.end(), &check) != selected_.end();
      if ((selected && check.scope == Scope::kFile) || std::strcmp(check.id, "E1") == 0) {
        batch.tasks.push_back(TaskFor(&check));
      }
    }
    PLUMB_RETURN_IF_ERROR(RunBatch(1, &batch));
    Take(batch, file);
    if (!file->load_problem.empty()) return absl::OkStatus();
    Batch load;
    for (const Check& check : AllChecks()) {
      if (IsGate(check) && check.scope == Scope::kLibrary) load.tasks.push_back(TaskFor(&check));
    }
    PLUMB_RETURN_IF_ERROR(RunBatch(1, &load));
    Take(load, file);
    return absl::OkStatus();
  }

  absl::Status ListNorms(FileResult* file) {
    Batch batch;
    batch.tasks.push_back(TaskFor(nullptr));
    PLUMB_RETURN_IF_ERROR(RunBatch(1, &batch));
    norms_ = batch.results[0].norms;
    for (const Finding& finding : batch.results[0].findings) {
      file->load_problem = absl::StrCat("its norms cannot be listed: ", finding.text);
    }
    if (norms_.empty() && file->load_problem.empty()) file->load_problem = "it holds no norm";
    for (const ListedNorm& norm : norms_) file->norms.push_back(norm.id);
    return absl::OkStatus();
  }

  // The names to skip under when the norms themselves cannot be asked.
  void NormsOfNotes(FileResult* file) {
    const int fd = open(options_.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) return;
    const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
    close(fd);
    if (!notes.ok()) return;
    file->norms.clear();
    for (const NormNote& note : *notes) file->norms.push_back(note.id.empty() ? "?" : note.id);
  }

  absl::Status RunTheRest(FileResult* file) {
    Batch together, alone;
    together.may_end_early = alone.may_end_early = true;
    for (const Check* check : selected_) {
      if (check->scope != Scope::kLibrary || IsGate(*check)) continue;
      (check->timed ? alone : together).tasks.push_back(TaskFor(check));
    }
    total_ = done_ + together.tasks.size() + alone.tasks.size();
    std::vector<CheckResult> skipped;
    for (const ListedNorm& norm : norms_) {
      const std::string why = !norm.problem.empty() ? "see M1: " + norm.problem
                              : !norm.unavailable.empty()
                                  ? "not available on this machine: " + norm.unavailable
                                  : "";
      for (const Check* check : selected_) {
        if (check->scope != Scope::kNorm) continue;
        if (!why.empty()) {
          skipped.push_back(Skipped(check, norm.id, why));
          continue;
        }
        ++total_;
        (check->timed ? alone : together).tasks.push_back(TaskFor(check, norm.index));
      }
    }
    PLUMB_RETURN_IF_ERROR(RunBatch(options_.parallel, &together));
    PLUMB_RETURN_IF_ERROR(RunBatch(1, &alone));
    Take(together, file);
    Take(alone, file);
    file->results.insert(file->results.end(), skipped.begin(), skipped.end());
    Sort(file);
    return absl::OkStatus();
  }

  void SkipTheRest(const std::string& why, FileResult* file) {
    const auto has = [file](const Check* check, const std::string& norm) {
      return std::any_of(
          file->results.begin(), file->results.end(),
          [&](const CheckResult& result) { return result.check == check && result.norm == norm; });
    };
    if (file->norms.empty()) file->norms.emplace_back("?");
    for (const Check* check : selected_) {
      if (check->scope == Scope::kNorm) {
        for (const std::string& norm : file->norms) {
          file->results.push_back(Skipped(check, norm, why));
        }
      } else if (!has(check, "")) {
        // What M1 would say of a table is known only to it; it loads the file by itself.
        file->results.push_back(Skipped(check, "", why));
      }
    }
    Sort(file);
  }

  static CheckResult Skipped(const Check* check, const std::string& norm, const std::string& why) {
    CheckResult result;
    result.check = check;
    result.norm = norm;
    result.verdict = Verdict::kSkip;
    result.findings.push_back({Verdict::kSkip, why});
    return result;
  }

  // Turns results of tasks into those of checks. A gate that was not requested shows when it fails.
  void Take(const Batch& batch, FileResult* file) {
    for (size_t i = 0; i < batch.tasks.size(); ++i) {
      const Task& task = batch.tasks[i];
      CheckResult result;
      result.check = task.check;
      if (task.check->scope == Scope::kNorm) result.norm = IdOf(task.norm_index);
      result.findings = batch.results[i].findings;
      result.seconds = batch.seconds[i];
      for (const Finding& finding : result.findings) {
        result.verdict = std::max(result.verdict, finding.verdict);
      }
      const bool failed = result.verdict == Verdict::kFail;
      if (failed && IsGate(*task.check) && file->load_problem.empty()) {
        file->load_problem = result.findings.front().text;
      }
      const bool selected =
          std::find(selected_.begin(), selected_.end(), task.check) != selected_.end();
      if (selected || failed) file->results.push_back(std::move(result));
    }
  }

  std::string IdOf(uint32_t index) const {
    for (const ListedNorm& norm : norms_) {
      if (norm.index == index) return norm.id;
    }
    return "?";
  }

  static void Sort(FileResult* file) {
    const auto place = [file](const CheckResult& result) {
      const auto norm = std::find(file->norms.begin(), file->norms.end(), result.norm);
      return std::make_pair(result.norm.empty() ? -1 : norm - file->norms.begin(), result.check);
    };
    std::stable_sort(
        file->results.begin(), file->results.end(),
        [&place](const CheckResult& a, const CheckResult& b) { return place(a) < place(b); });
  }

  bool Ends(const Batch& batch) const { return enough_ && batch.may_end_early; }

  void NoteFailure(const TaskResult& result) {
    enough_ = enough_ ||
              (options_.fail_fast && std::any_of(result.findings.begin(), result.findings.end(),
                                                 [](const Finding& finding) {
                                                   return finding.verdict == Verdict::kFail;
                                                 }));
  }

  void Tell(const Task& task) {
    if (task.check == nullptr) return;
    ++done_;
    if (!options_.progress) return;
    const std::string norm = task.check->scope == Scope::kNorm ? IdOf(task.norm_index) : "";
    options_.progress(done_, std::max(done_, total_),
                      absl::StrCat(task.check->id, norm.empty() ? "" : " ", norm));
  }

  absl::Status RunBatch(int parallel, Batch* batch) {
    TaskResult not_run;
    not_run.findings.push_back({Verdict::kSkip, "another check failed before it ended"});
    batch->results.assign(batch->tasks.size(), not_run);
    batch->seconds.resize(batch->tasks.size());
    if (Ends(*batch)) return absl::OkStatus();
    if (options_.in_process) {
      for (size_t i = 0; i < batch->tasks.size() && !Ends(*batch); ++i) {
        batch->results[i] = Perform(batch->tasks[i]);
        Tell(batch->tasks[i]);
        NoteFailure(batch->results[i]);
      }
      return absl::OkStatus();
    }
    std::vector<std::vector<std::string>> jobs;
    for (const Task& task : batch->tasks) jobs.push_back(ChildArguments(task));
    SubprocessOptions options;
    options.parallel = parallel;
    options.timeout_seconds = options_.timeout_seconds;
    std::vector<size_t> crashed;
    PLUMB_RETURN_IF_ERROR(RunChildren(jobs, options, [&](size_t i, Ended ended) {
      batch->results[i] = ResultOf(ended);
      batch->seconds[i] = ended.seconds;
      Task& task = batch->tasks[i];
      Tell(task);
      NoteFailure(batch->results[i]);
      const bool dead = !ended.death.empty() || !ParseTaskResult(ended.findings).ok();
      if (!dead || ended.point.empty() || task.check == nullptr) return !Ends(*batch);
      batch->results[i].findings.back().text +=
          RepeatCommand(task.path, task.check->id, ended.point);
      // What hung would hang again at each try.
      if (!ended.stopped && task.point.empty()) crashed.push_back(i);
      task.point = ended.point;
      return !Ends(*batch);
    }));
    return Shrink(crashed, options, batch);
  }

  // Looks for a smaller point where one ended its process; what it finds is the result then.
  absl::Status Shrink(const std::vector<size_t>& crashed, const SubprocessOptions& options,
                      Batch* batch) {
    std::vector<std::vector<std::string>> jobs;
    for (const size_t i : crashed) {
      Task task = batch->tasks[i];
      task.shrinks = true;
      jobs.push_back(ChildArguments(task));
    }
    return RunChildren(jobs, options, [&](size_t job, Ended ended) {
      const absl::StatusOr<TaskResult> result = ParseTaskResult(ended.findings);
      if (result.ok() && ended.death.empty() && !result->findings.empty()) {
        batch->results[crashed[job]] = *result;
      }
      return true;
    });
  }

  const RunnerOptions& options_;
  std::vector<const Check*> selected_;
  std::vector<ListedNorm> norms_;
  size_t done_ = 0, total_ = 0;
  bool enough_ = false;  // a check failed, and one is enough
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
