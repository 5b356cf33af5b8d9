#include "plugins/check/child.h"

#include <locale.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <exception>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "plugins/check/float_state.h"
#include "plugins/check/guarded.h"
#include "plugins/check/library.h"
#include "plugins/check/subprocess.h"

namespace plumb::check {
namespace {

using Json = nlohmann::json;

constexpr char kListWord[] = "list";

const Check* FindCheck(absl::string_view id) {
  for (const Check& check : AllChecks()) {
    if (id == check.id) return &check;
  }
  return nullptr;
}

// Why this machine cannot run the norm, "" if it can. Comes before every other call.
std::string Unavailable(const plumb_norm_plugin& norm) {
  if (norm.available == nullptr) return "";
  char err[512] = "";
  const plumb_status status =
      Guarded(Function::kAvailable, 0, [&] { return norm.available(err, sizeof(err)); });
  err[sizeof(err) - 1] = '\0';
  if (status == PLUMB_OK) return "";
  return absl::StrCat(StatusText(status), err[0] == '\0' ? "" : ": ", err);
}

std::vector<ListedNorm> ListNorms(plumb_norm_plugin_v1_fn entry) {
  std::vector<ListedNorm> norms;
  for (uint32_t i = 0; i < kMaxNorms; ++i) {
    const plumb_norm_plugin* table = NormAt(entry, i);
    if (table == nullptr) break;
    ListedNorm norm;
    norm.index = i;
    norm.problem = TableProblem(*table);
    const bool has_id = table->struct_size >= offsetof(plumb_norm_plugin, id) + sizeof(table->id);
    norm.id = has_id && table->id != nullptr ? table->id : "?";
    if (norm.problem.empty()) norm.unavailable = Unavailable(*table);
    norms.push_back(std::move(norm));
  }
  return norms;
}

// As a host does it: what loading does to the floating-point state (E5 speaks of it) is undone.
absl::StatusOr<plumb_norm_plugin_v1_fn> Load(const std::string& path) {
  const FloatState before = FloatState::Current();
  const absl::StatusOr<void*> library = Open(path);
  before.Apply();
  if (!library.ok()) return library.status();
  return EntryOf(*library);
}

// Gives the process the environment of a user whose locale is not "C", so that a plugin that takes
// it over is seen to. Where the system has none that is always there, it stays as it is.
void SetUsersLocale() {
  constexpr char kLocale[] = "C.UTF-8";
  const locale_t locale = newlocale(LC_ALL_MASK, kLocale, nullptr);
  if (locale == nullptr) return;
  freelocale(locale);
  setenv("LC_ALL", kLocale, 1);
}

// All that can go wrong on the way is thrown.
void PerformOrThrow(const Task& task, Report* report, std::vector<ListedNorm>* norms) {
  SetUsersLocale();
  Subject subject;
  subject.path = task.path;
  subject.seed = task.seed;
  subject.seconds = task.seconds;
  subject.point = task.point;
  subject.shrinks = task.shrinks;
  if (task.check == nullptr || task.check->scope == Scope::kNorm) {
    const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = Load(task.path);
    if (!entry.ok()) throw CheckEnded{std::string(entry.status().message())};
    subject.entry = *entry;
  }
  if (task.check == nullptr) {
    *norms = ListNorms(subject.entry);
    return;
  }
  if (task.check->scope == Scope::kNorm) {
    subject.norm = NormAt(subject.entry, task.norm_index);
    if (subject.norm == nullptr)
      throw CheckEnded{"the norm is not there when it is asked for again"};
    Unavailable(*subject.norm);
  }
  task.check->run(subject, report);
}

Json ToJson(const Finding& finding) {
  return {{"verdict", static_cast<int>(finding.verdict)}, {"text", finding.text}};
}

Json ToJson(const ListedNorm& norm) {
  return {{"index", norm.index},
          {"norm", norm.id},
          {"problem", norm.problem},
          {"unavailable", norm.unavailable}};
}

bool WriteAll(int fd, const std::string& text) {
  size_t written = 0;
  while (written < text.size()) {
    const ssize_t n = write(fd, text.data() + written, text.size() - written);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    written += static_cast<size_t>(n);
  }
  return true;
}

}  // namespace

TaskResult Perform(const Task& task) {
  TaskResult result;
  Report report;
  try {
    PerformOrThrow(task, &report, &result.norms);
  } catch (const CheckEnded& ended) {
    report.Fail(ended.text);
  } catch (const std::exception& error) {
    report.Fail(absl::StrCat("the check itself failed: ", error.what()));
  }
  result.findings = report.findings();
  return result;
}

std::vector<std::string> ChildArguments(const Task& task) {
  return {task.check == nullptr ? kListWord : task.check->id,
          absl::StrCat(task.norm_index),
          absl::StrCat(task.seed),
          absl::StrCat(task.seconds),
          task.point,
          task.shrinks ? "1" : "0",
          task.path};
}

int ChildMain(const std::vector<std::string>& words) {
  Task task;
  int findings = -1, trace = -1;
  if (words.size() != 9 || !absl::SimpleAtoi(words[1], &task.norm_index) ||
      !absl::SimpleAtoi(words[2], &task.seed) || !absl::SimpleAtod(words[3], &task.seconds) ||
      !absl::SimpleAtoi(words[7], &findings) || !absl::SimpleAtoi(words[8], &trace) ||
      !UseTracePage(trace)) {
    return EXIT_FAILURE;
  }
  close(trace);
  task.point = words[4];
  task.shrinks = words[5] == "1";
  task.path = words[6];
  task.check = FindCheck(words[0]);
  if (task.check == nullptr && words[0] != kListWord) return EXIT_FAILURE;
  InstallCrashHandlers();
  const TaskResult result = Perform(task);
  std::string lines;
  const auto line = [&lines](const Json& json) {
    absl::StrAppend(&lines, json.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
  };
  for (const ListedNorm& norm : result.norms) line(ToJson(norm));
  for (const Finding& finding : result.findings) line(ToJson(finding));
  line({{"done", true}});
  // Destructors of the plugin's library are not what is looked at.
  _exit(WriteAll(findings, lines) ? EXIT_SUCCESS : EXIT_FAILURE);
}

absl::StatusOr<TaskResult> ParseTaskResult(const std::string& lines) try {
  TaskResult result;
  for (const absl::string_view line : absl::StrSplit(lines, '\n', absl::SkipEmpty())) {
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) break;
    if (json.contains("done")) return result;
    if (json.contains("norm")) {
      result.norms.push_back({json.value("index", 0u), json.value("norm", ""),
                              json.value("problem", ""), json.value("unavailable", "")});
    } else {
      result.findings.push_back(
          {static_cast<Verdict>(json.value("verdict", 0)), json.value("text", "")});
    }
  }
  return absl::DataLossError("its findings stop in the middle");
} catch (const Json::exception&) {
  return absl::DataLossError("its findings are not findings");
}

}  // namespace plumb::check
