// SPDX-License-Identifier: Apache-2.0
// plumb doctor: shows the machine and libraries that plumb runs on, the plugins and placements that
// it found or rejected, and problems that would make it fail or run slowly.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/command.h"
#include "cli/output.h"
#include "runtime/base/status.h"
#include "runtime/train/run_identity.h"

namespace plumb::cli {
namespace {

// Appends a row; a row without a label continues the last one.
void AddRow(const std::string& label, const std::string& value, std::string* text) {
  constexpr size_t kWidth = 17;
  absl::StrAppend(text, label, std::string(kWidth - label.size(), ' '), value, "\n");
}

std::string Text(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_null() ? "unknown" : value.dump();
}

void AddMachine(const Json& report, std::string* text) {
  const Json& version = report["plumb"];
  AddRow("plumb",
         absl::StrCat(Text(version["version"]), ", C ABI ", Text(version["c_abi"]), ", norm ABI ",
                      Text(version["norm_abi"])),
         text);
  AddRow("build", absl::StrCat(BuildId(), ", ", Text(version["compiler"])), text);
  const Json& processor = report["processor"];
  AddRow("processor",
         absl::StrCat(Text(processor["name"]), ", ", Text(processor["vendor"]), " family ",
                      Text(processor["family"]), " model ", Text(processor["model"])),
         text);
  std::vector<std::string> sets;
  for (const Json& set : processor["instruction_sets"]) {
    if (!set["has"].get<bool>()) continue;
    sets.push_back(absl::StrCat(Text(set["name"]), set["used"].get<bool>() ? "" : " (not used)"));
  }
  AddRow("kernels",
         absl::StrCat(Text(processor["kernels"]), " of ",
                      sets.empty() ? "no set that plumb could use" : absl::StrJoin(sets, ", ")),
         text);
  AddRow("matrix products", absl::StrCat("f32: ", Text(processor["gemm"]["f32"])), text);
  AddRow("", absl::StrCat("bf16: ", Text(processor["gemm"]["bf16"])), text);
  const Json& onednn = report["onednn"];
  AddRow("oneDNN",
         onednn["state"] == "loaded"
             ? absl::StrCat(Text(onednn["version"]), " ", Text(onednn["isa"]), ", ",
                            Text(onednn["file"]))
             : absl::StrCat(Text(onednn["wanted"]), ": ", Text(onednn["state"])),
         text);
  const Json& threads = report["threads"];
  AddRow("threads",
         absl::StrCat(Text(threads["used"]),
                      threads["because"].is_null() ? "" : ", " + Text(threads["because"]), "; ",
                      Text(threads["available"]), " of ", Text(threads["machine"]),
                      " processors available"),
         text);
  const Json& memory = report["memory"];
  AddRow("memory",
         absl::StrCat(Bytes(memory["limit"].get<int64_t>()), " (", Text(memory["limited_by"]),
                      "), ", Bytes(memory["available"].get<int64_t>()), " of it free"),
         text);
}

void AddNorms(const Json& norms, std::string* text) {
  std::vector<std::string> ids;
  for (const Json& norm : norms) {
    if (norm["problem"].is_null()) ids.push_back(Text(norm["id"]));
  }
  AddRow("", absl::StrCat("  ", ids.empty() ? "none" : absl::StrJoin(ids, ", ")), text);
  for (const Json& norm : norms) {
    if (norm["problem"].is_null()) continue;
    AddRow("",
           absl::StrCat(norm["shadowed"].get<bool>() ? "  " : "  refused: ",
                        norm["id"].is_null() ? "" : Text(norm["id"]) + ": ", Text(norm["problem"])),
           text);
  }
}

void AddDirectories(const Json& report, std::string* text) {
  const Json& plugins = report["plugins"];
  if (!plugins["others"].empty()) {
    AddRow("norms", "named by the command line or linked in", text);
    AddNorms(plugins["others"], text);
  }
  for (const Json& directory : plugins["directories"]) {
    AddRow("norms", absl::StrCat(Text(directory["path"]), " (", Text(directory["from"]), ")"),
           text);
    if (directory["problem"].is_null()) {
      AddNorms(directory["norms"], text);
    } else {
      AddRow("", absl::StrCat("  ", Text(directory["problem"])), text);
    }
  }
  for (const Json& directory : report["placements"]["directories"]) {
    const std::string found =
        directory["problem"].is_null()
            ? Count(static_cast<int64_t>(directory["names"].size()), "placement")
            : Text(directory["problem"]);
    AddRow("placements", absl::StrCat(Text(directory["path"]), ": ", found), text);
  }
}

std::string ToText(const Json& report) {
  std::string text;
  AddMachine(report, &text);
  AddDirectories(report, &text);
  const Json& problems = report["problems"];
  if (problems.empty()) return absl::StrCat(text, "\nNo problems found.\n");
  absl::StrAppend(&text, "\n", Count(static_cast<int64_t>(problems.size()), "problem"), ":\n");
  int number = 0;
  for (const Json& problem : problems) {
    absl::StrAppend(&text, "  ", ++number, ". ", Text(problem["what"]), "\n     ",
                    problem["fatal"].get<bool>() ? "plumb cannot run until this is fixed: " : "",
                    Text(problem["do"]), "\n");
  }
  return text;
}

absl::StatusOr<int> Report(bool json, const Invocation& invocation) {
  absl::StatusOr<std::unique_ptr<HostRuntime>> runtime = invocation.CreateRuntime();
  const absl::Status refused = runtime.status();
  if (!refused.ok()) {
    // Reports the rest without the options that may be the reason.
    Invocation bare = invocation;
    bare.plugin_files.clear();
    bare.gemm = "auto";
    runtime = bare.CreateRuntime();
    PLUMB_RETURN_IF_ERROR(runtime.status());
  }
  (*runtime)->matmul();  // loads oneDNN, so that the report can say whether that works
  Json report = Json::parse((*runtime)->DescribeJson());
  Json& problems = report["problems"];
  if (!refused.ok()) {
    problems.insert(problems.begin(), Json({{"fatal", true},
                                            {"what", std::string(refused.message())},
                                            {"do", "fix it, or drop the option"}}));
  }
  PLUMB_RETURN_IF_ERROR(json ? PrintJson(report) : PrintResult(ToText(report)));
  for (const Json& problem : problems) {
    if (problem["fatal"].get<bool>()) return kExitFailed;
  }
  return kExitOk;
}

}  // namespace

void AddDoctorCommand(CLI::App* program, Invocation* invocation) {
  const auto json = std::make_shared<bool>(false);
  CLI::App* app = program->add_subcommand(
      "doctor",
      "Show the machine, the plugins that were found or refused, and problems with their fixes");
  app->add_flag("--json", *json,
                "Print the report as JSON, with the fields of plumb_runtime_describe");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Exit code 1 if plumb cannot be used here, otherwise 0, even if something is slow.\n\n"
      "Example:\n"
      "  plumb doctor\n"
      "  plumb doctor --plugin ./my_norm.so");
  app->callback([json, invocation] {
    invocation->run = [json, invocation] { return Report(*json, *invocation); };
  });
}

}  // namespace plumb::cli
