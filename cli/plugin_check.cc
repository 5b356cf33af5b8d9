// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/arguments.h"
#include "cli/output.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr char kProgram[] = "plumb-norm-check";

// Returns the possible paths of the checker: next to this program (a build), or where `make
// install` puts it.
std::vector<std::string> Places() {
  const std::string own = OwnDirectory();
  if (own.empty()) return {};
  const std::string installed = PLUMB_LIBEXEC_DIR;
  return {absl::StrCat(own, "/", kProgram),
          absl::StrCat(installed[0] == '/' ? "" : own + "/../", installed, "/plumb/", kProgram)};
}

// Replaces this process by the checker, and therefore returns only on failure. `name` is the one
// that the checker's help shows.
absl::Status Exec(const std::string& program, const std::string& name,
                  const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {name};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  execv(program.c_str(), argv.data());
  return absl::FailedPreconditionError(
      absl::StrCat(program, ": cannot be run: ", std::strerror(errno)));
}

absl::StatusOr<std::string> FindChecker() {
  const std::vector<std::string> places = Places();
  for (const std::string& place : places) {
    if (access(place.c_str(), F_OK) == 0) return place;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("the program ", kProgram, ", which checks plugins, is not installed; it was ",
                   "looked for at ", absl::StrJoin(places, " and ")));
}

absl::StatusOr<int> RunChecker(const std::vector<std::string>& arguments) {
  PLUMB_ASSIGN_OR_RETURN(const std::string program, FindChecker());
  return Exec(program, "plumb plugin check", arguments);
}

struct PluginBenchFlags {
  std::string norm, against = "rms_norm";
  int64_t rounds = 15;
  bool json = false;
};

// Returns the file of a norm, and its id if the norm was given by its id.
absl::StatusOr<std::pair<std::string, std::string>> GetFile(const std::string& norm,
                                                            HostRuntime* runtime) {
  if (absl::StrContains(norm, '/') || absl::EndsWith(norm, ".so")) return std::make_pair(norm, "");
  PLUMB_ASSIGN_OR_RETURN(const std::string text,
                         WithWarnings(runtime, ToStatus(runtime->api().DescribePlugin(norm))));
  const std::string path = Json::parse(text)["path"];
  if (!path.empty()) return std::make_pair(path, norm);
  return absl::InvalidArgumentError(absl::StrCat("the norm ", norm, " is in no file"));
}

absl::StatusOr<int> RunBench(const PluginBenchFlags& options, const Invocation& invocation) {
  PLUMB_ASSIGN_OR_RETURN(const std::string program, FindChecker());
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  PLUMB_ASSIGN_OR_RETURN(const auto norm, GetFile(options.norm, runtime.get()));
  PLUMB_ASSIGN_OR_RETURN(const auto against, GetFile(options.against, runtime.get()));
  return Exec(program, "plumb plugin bench",
              {"--bench", norm.first, norm.second, against.first, against.second,
               absl::StrCat(options.rounds), options.json ? "json" : "text"});
}

}  // namespace

absl::StatusOr<std::string> CheckerHelp() {
  PLUMB_ASSIGN_OR_RETURN(const std::string program, FindChecker());
  const std::string quoted = absl::StrReplaceAll(program, {{"'", "'\\''"}});
  FILE* pipe = popen(absl::StrCat("'", quoted, "' --help").c_str(), "r");
  if (pipe == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat(program, ": ", std::strerror(errno)));
  }
  std::string text;
  for (int c = fgetc(pipe); c != EOF; c = fgetc(pipe)) text.push_back(static_cast<char>(c));
  if (pclose(pipe) != 0 || text.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(program, " --help failed"));
  }
  return absl::StrReplaceAll(text,
                             {{absl::StrCat("Usage: ", kProgram), "Usage: plumb plugin check"}});
}

void AddPluginCheckCommand(CLI::App* plugin, Invocation* invocation) {
  CLI::App* app =
      plugin->add_subcommand("check", "Check a plugin against the norm ABI; has its own --help");
  // All following words belong to the checker, including --help.
  app->set_help_flag();
  app->prefix_command();
  app->callback([app, invocation] {
    const std::vector<std::string> arguments = app->remaining();
    invocation->run = [arguments] { return RunChecker(arguments); };
  });
}

void AddPluginBenchCommand(CLI::App* plugin, Invocation* invocation) {
  const auto options = std::make_shared<PluginBenchFlags>();
  CLI::App* app = plugin->add_subcommand("bench", "Measure how fast a norm is");
  AddRequired(app, "NORM", &options->norm, "Id of the norm, or its file");
  AddText(app, "--against", "NORM", &options->against,
          "Norm to compare with, id or file. Default: rms_norm");
  AddInt(app, "--rounds", &options->rounds, 3, 1000, "Measurements of each size. Default: 15");
  app->add_flag("--json", options->json, "Print the figures as JSON");
  AddGlobalOptions(app, invocation);
  app->footer(
      "Times forward and backward on rows in memory, on one thread and with default attributes, "
      "in\n"
      "f32 and bf16, for rows that fit into caches and rows that do not. Rounds interleave the "
      "norm,\n"
      "the other norm, and a memcpy of the bytes that the pass must move, which is the limit.\n\n"
      "Example:\n"
      "  plumb plugin bench ./my_norm.so\n"
      "  plumb plugin bench layer_norm --against rms_norm");
  RunWhenSelected(app, options, RunBench, invocation);
}

}  // namespace plumb::cli
