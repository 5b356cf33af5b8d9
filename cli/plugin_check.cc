// SPDX-License-Identifier: Apache-2.0
#include "cli/command.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "cli/installation.h"
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

// Replaces this process by the checker, and therefore returns only on failure.
absl::Status Exec(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"plumb plugin check"};  // name that the checker's help shows
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
  return Exec(program, arguments);
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

}  // namespace plumb::cli
