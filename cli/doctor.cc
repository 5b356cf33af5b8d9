// SPDX-License-Identifier: Apache-2.0
// plumb doctor: shows the machine and libraries that plumb runs on, the plugins that it found or
// rejected, and problems that would make it fail or run slowly.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "runtime/app/launch/launch.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr char kUnknown[] = "unknown";

// Returns the number of processors in a list such as "0-3,8"; 0 if it is malformed.
int64_t ProcessorsIn(const std::string& list) {
  int64_t count = 0;
  for (const absl::string_view range : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    const std::vector<absl::string_view> ends = absl::StrSplit(range, '-');
    int64_t first = 0, last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) || !absl::SimpleAtoi(ends.back(), &last)) return 0;
    count += last - first + 1;
  }
  return count;
}

// Table of labels and values; successive values with the same label show it once.
class Rows {
 public:
  void Add(const std::string& label, const std::string& value) {
    constexpr size_t kWidth = 17;
    const std::string& shown = label == label_ ? empty_ : label;
    absl::StrAppend(&text_, shown, std::string(kWidth - shown.size(), ' '), value, "\n");
    label_ = label;
  }
  std::string text() const { return text_; }

 private:
  const std::string empty_;
  std::string label_, text_;
};

std::string Text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? kUnknown : value.dump();
}

// Returns text such as "2 threads; 2 of 8 processors available", followed by the limits.
std::string Threads(const Json& threads) {
  std::string text = absl::StrCat(Count(threads["used"].get<int64_t>(), "thread"));
  if (!threads["because"].is_null()) absl::StrAppend(&text, ", ", Text(threads["because"]));
  absl::StrAppend(&text, "; ", Text(threads["available"]), " of ", Text(threads["machine"]),
                  " processors available");
  if (threads["affinity"] != threads["machine"]) {
    absl::StrAppend(&text, ", affinity ", Text(threads["affinity"]));
  }
  if (!threads["quota"].is_null()) absl::StrAppend(&text, ", quota ", Text(threads["quota"]));
  return text;
}

std::string Size(const Json& bytes) {
  return bytes.is_number() ? Bytes(bytes.get<int64_t>()) : Text(bytes);
}

std::string OneDnn(const Json& onednn) {
  const std::string state = Text(onednn["state"]);
  if (state == "loaded") {
    return absl::StrCat(Text(onednn["version"]), " ", Text(onednn["isa"]), ", ",
                        Text(onednn["file"]));
  }
  return absl::StrCat(Text(onednn["wanted"]), ": ", state,
                      onednn["problem"].is_null() ? "" : ": " + Text(onednn["problem"]));
}

void AddProcessor(const Json& report, Rows* rows) {
  const Json& processor = report["processor"];
  rows->Add("processor",
            absl::StrCat(Text(processor["name"]), ", ", Text(processor["vendor"]), " family ",
                         Text(processor["family"]), " model ", Text(processor["model"])));
  std::vector<std::string> has, used;
  for (const Json& set : processor["instruction_sets"]) {
    if (set["has"].get<bool>()) has.push_back(Text(set["name"]));
    if (set["used"].get<bool>()) used.push_back(Text(set["name"]));
  }
  rows->Add("  has", has.empty() ? "none that plumb could use" : absl::StrJoin(has, ", "));
  rows->Add("  kernels use", absl::StrCat(used.empty() ? "none" : absl::StrJoin(used, ", "), " (",
                                          Text(processor["kernels"]), ")"));
  const Json& gemm = processor["gemm"];
  rows->Add("matrix products", absl::StrCat("f32: ", Text(gemm["f32"])));
  rows->Add("matrix products", absl::StrCat("bf16: ", Text(gemm["bf16"])));
  if (gemm["engine"] != "auto") {
    rows->Add("matrix products", absl::StrCat("--gemm ", Text(gemm["engine"])));
  }
}

void AddLibraries(const Json& report, Rows* rows) {
  rows->Add("oneDNN", OneDnn(report["onednn"]));
  for (const auto& library : report["libraries"].items()) {
    rows->Add("libraries", absl::StrCat(library.key(), " ", Text(library.value())));
  }
  for (const Json& file : report["openmp"]) rows->Add("OpenMP", Text(file));
  if (report["openmp"].empty()) rows->Add("OpenMP", "none in the process");
}

void AddLimits(const Json& report, Rows* rows) {
  rows->Add("threads", Threads(report["threads"]));
  const Json& memory = report["memory"];
  rows->Add("memory", absl::StrCat(Size(memory["limit"]), " (", Text(memory["limited_by"]), "), ",
                                   Size(memory["available"]), " of it free"));
  const struct {
    const char* field;
    const char* name;
  } limits[] = {{"machine", "this machine"},
                {"control_group", "control group"},
                {"ulimit_v", "ulimit -v"},
                {"ulimit_d", "ulimit -d"}};
  for (const auto& limit : limits) {
    if (memory[limit.field].is_null() || memory[limit.field] == memory["limit"]) continue;
    rows->Add("memory", absl::StrCat(limit.name, " ", Size(memory[limit.field])));
  }
  rows->Add("stack", Size(memory["stack"]));
  rows->Add("huge pages", Text(memory["huge_pages"]));
  const Json& disk = report["disk"];
  rows->Add("disk", absl::StrCat(Size(disk["free"]), " free in ", Text(disk["directory"])));
  const Json& mode = report["floating_point"];
  rows->Add("floating point",
            absl::StrCat("rounds to ", Text(mode["rounding"]),
                         mode["flush_to_zero"].get<bool>() ? ", flushes denormals" : "",
                         mode["denormals_are_zero"].get<bool>() ? ", reads denormals as 0" : ""));
}

void AddNorms(const Json& norms, const char* empty, Rows* rows) {
  std::vector<std::string> ids;
  for (const Json& norm : norms) {
    if (norm["problem"].is_null()) ids.push_back(Text(norm["id"]));
  }
  rows->Add("norms", absl::StrCat("  ", ids.empty() ? empty : absl::StrJoin(ids, ", ")));
  for (const Json& norm : norms) {
    if (norm["problem"].is_null()) continue;
    const std::string id = norm["id"].is_null() ? "" : Text(norm["id"]) + ": ";
    rows->Add("norms", absl::StrCat(norm["shadowed"].get<bool>() ? "  " : "  refused: ", id,
                                    Text(norm["problem"])));
  }
}

void AddFound(const Json& report, Rows* rows) {
  const Json& plugins = report["plugins"];
  if (!plugins["others"].empty()) {
    rows->Add("norms", "named by the command line or linked in");
    AddNorms(plugins["others"], "none", rows);
  }
  for (const Json& directory : plugins["directories"]) {
    const bool is_there = directory["problem"].is_null();
    rows->Add("norms", absl::StrCat(Text(directory["path"]), " (", Text(directory["from"]), ")"));
    if (is_there) {
      AddNorms(directory["norms"], "none", rows);
    } else {
      rows->Add("norms", absl::StrCat("  ", Text(directory["problem"])));
    }
  }
  for (const Json& directory : report["placements"]["directories"]) {
    rows->Add("placements", Text(directory["path"]));
    rows->Add("placements",
              directory["problem"].is_null()
                  ? absl::StrCat(
                        "  ", Count(static_cast<int64_t>(directory["names"].size()), "placement"))
                  : absl::StrCat("  ", Text(directory["problem"])));
  }
  for (const Json& variable : report["environment"]) {
    const std::string problem =
        variable["problem"].is_null() ? "" : ": " + Text(variable["problem"]);
    rows->Add("environment",
              absl::StrCat(Text(variable["name"]), "=", Text(variable["value"]), problem));
  }
}

// Adds rows for each rank, under mpirun.
void AddRankRows(const Json& report, Rows* rows) {
  if (!report.contains("ranks")) return;
  for (const Json& rank : report["ranks"]) {
    rows->Add("ranks",
              absl::StrCat(Text(rank["rank"]), " on ", Text(rank["host"]), ", process ",
                           Text(rank["pid"]), ": ", Count(rank["threads"].get<int64_t>(), "thread"),
                           " on processors ", Text(rank["processors"])));
    rows->Add("ranks",
              absl::StrCat("  ", Text(rank["processor"]), ", kernels ", Text(rank["kernels"])));
  }
}

std::string ProblemsText(const Json& problems) {
  if (problems.empty()) return "No problems found.\n";
  std::string text = absl::StrCat(Count(static_cast<int64_t>(problems.size()), "problem"), ":\n");
  int number = 0;
  for (const Json& problem : problems) {
    absl::StrAppend(&text, "  ", ++number, ". ", Text(problem["what"]), "\n     ",
                    problem["fatal"].get<bool>() ? "plumb cannot run until this is fixed: " : "",
                    Text(problem["do"]), "\n");
  }
  return text;
}

std::string ToText(const Json& report) {
  const Json& version = report["plumb"];
  Rows rows;
  rows.Add("plumb", absl::StrCat(Text(version["version"]), ", C ABI ", Text(version["c_abi"]),
                                 ", norm ABI ", Text(version["norm_abi"])));
  AddProcessor(report, &rows);
  AddLibraries(report, &rows);
  AddLimits(report, &rows);
  AddRankRows(report, &rows);
  AddFound(report, &rows);
  return absl::StrCat(rows.text(), "\n", ProblemsText(report["problems"]));
}

// Adds problems with the layout of ranks.
void AddRankProblems(const std::vector<RankFacts>& ranks, Json* problems) {
  for (const RankFacts& each : ranks) {
    const RankFacts& first = ranks[0];
    if (each.matmul == first.matmul && each.isa == first.isa && each.processor == first.processor) {
      continue;
    }
    problems->push_back(
        {{"fatal", false},
         {"what",
          absl::StrCat("rank ", each.rank, " on ", each.host,
                       " computes on another kind of processor, or with another oneDNN, "
                       "than rank 0 on ",
                       first.host, ": results may have other bits than those of one machine")},
         {"do", "give mpirun hosts of one kind, or do without equal bits"}});
    break;
  }
  // Sum of the threads of all ranks that share a set of processors.
  std::map<std::pair<std::string, std::string>, int64_t> threads;
  for (const RankFacts& each : ranks) threads[{each.host, each.processors}] += each.threads;
  for (const auto& [where, sum] : threads) {
    const int64_t processors = ProcessorsIn(where.second);
    if (processors == 0 || sum <= processors) continue;
    problems->push_back(
        {{"fatal", false},
         {"what", absl::StrCat("on ", where.first, " ranks have ", sum, " threads in all on ",
                               processors, " processors (", where.second, ")")},
         {"do",
          "set --threads, or start fewer ranks per host; threads that share a processor wait for "
          "each other"}});
  }
}

// Adds facts and problems of all ranks to rank 0's report. Collective.
absl::Status AddRanksTo(Launch* launch, const HostRuntime& runtime, Json* report) {
  PLUMB_ASSIGN_OR_RETURN(const std::vector<RankFacts> ranks, launch->AllFacts(FactsOf(runtime)));
  Json& of_ranks = (*report)["ranks"] = Json::array();
  for (const RankFacts& each : ranks) {
    of_ranks.push_back({{"rank", each.rank},
                        {"host", each.host},
                        {"pid", each.pid},
                        {"processor", each.processor},
                        {"kernels", each.isa},
                        {"gemm", each.matmul},
                        {"threads", each.threads},
                        {"processors", each.processors}});
  }
  AddRankProblems(ranks, &(*report)["problems"]);
  return absl::OkStatus();
}

// Creates the runtime that the options describe; if that fails, sets `refused` to the reason and
// creates one without plugins and with the default GEMM engine.
absl::StatusOr<std::unique_ptr<HostRuntime>> AnyRuntime(const Invocation& invocation,
                                                        std::string* refused) {
  absl::StatusOr<std::unique_ptr<HostRuntime>> runtime = invocation.CreateRuntime();
  if (runtime.ok()) return runtime;
  *refused = std::string(runtime.status().message());
  Invocation bare = invocation;
  bare.plugin_files.clear();
  bare.gemm = "auto";
  return bare.CreateRuntime();
}

absl::StatusOr<int> Report(bool json, const Invocation& invocation, Launch* launch) {
  std::string refused;
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime,
                         AnyRuntime(ForRank(invocation, *launch), &refused));
  runtime->matmul();  // loads oneDNN, so that the report can say whether that works
  Json report = Json::parse(runtime->DescribeJson());
  Json& problems = report["problems"];
  if (!refused.empty()) {
    problems.insert(
        problems.begin(),
        Json({{"fatal", true}, {"what", refused}, {"do", "fix it, or drop the option"}}));
  }
  if (launch->size() > 1) {
    PLUMB_RETURN_IF_ERROR(AddRanksTo(launch, *runtime, &report));
  }
  if (!launch->is_first()) return kExitOk;
  PLUMB_RETURN_IF_ERROR(json ? PrintJson(report) : PrintResult(ToText(report)));
  for (const Json& problem : problems) {
    if (problem["fatal"].get<bool>()) return kExitFailed;
  }
  return kExitOk;
}

absl::StatusOr<int> Doctor(bool json, const Invocation& invocation, const RankOptions& options) {
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<Launch> launch, JoinRanks(options));
  const absl::Status same = CheckSameCommand(launch.get(), "doctor");
  return EndRanks(launch.get(), same.ok() ? Report(json, invocation, launch.get()) : same);
}

}  // namespace

void AddDoctorCommand(CLI::App* program, Invocation* invocation) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* app = program->add_subcommand(
      "doctor",
      "Show the machine, the plugins that were found or refused, and problems with their fixes");
  app->add_flag("--json", *json,
                "Print the report as JSON, with the fields of plumb_runtime_describe");
  const auto options = std::make_shared<RankOptions>();
  AddRankOptions(app, options.get());
  AddGlobalOptions(app, invocation);
  app->footer(
      "Exit code 1 if plumb cannot be used here, otherwise 0, even if something is slow.\n\n"
      "Under mpirun: the report of rank 0, with the host, processors and threads of every rank.\n\n"
      "Example:\n"
      "  plumb doctor\n"
      "  plumb doctor --plugin ./my_norm.so\n"
      "  mpirun -n 4 plumb doctor");
  app->callback([json, options, invocation] {
    invocation->run = [json, options, invocation] { return Doctor(*json, *invocation, *options); };
  });
}

}  // namespace plumb::cli
