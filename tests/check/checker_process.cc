// SPDX-License-Identifier: Apache-2.0
#include "tests/check/checker_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

#include "runtime/base/check.h"

namespace plumb::check {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;

std::string Contents(FILE* file) {
  std::rewind(file);
  std::string text;
  char buffer[4096];
  while (const size_t n = std::fread(buffer, 1, sizeof(buffer), file)) text.append(buffer, n);
  return text;
}

}  // namespace

CheckerRun RunChecker(const std::vector<std::string>& arguments) {
  std::vector<std::string> words = {"plumb-norm-check"};
  // Tests explore only briefly, unless they set a time.
  words.insert(words.end(), {"--seconds", "0.1"});
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const File out(std::tmpfile(), &std::fclose), err(std::tmpfile(), &std::fclose);
  PLUMB_CHECK(out != nullptr && err != nullptr, "no temporary files");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, fileno(out.get()), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, fileno(err.get()), STDERR_FILENO);
  pid_t pid = -1;
  const int failed =
      posix_spawn(&pid, PLUMB_NORM_CHECK_BINARY, &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  PLUMB_CHECK(failed == 0, "plumb-norm-check cannot be started");
  int status = 0;
  waitpid(pid, &status, 0);
  CheckerRun run;
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.out = Contents(out.get());
  run.err = Contents(err.get());
  return run;
}

std::set<std::string> ChecksWith(const std::string& verdict, const nlohmann::json& report) {
  std::set<std::string> checks;
  for (const nlohmann::json& result : report.at("results")) {
    if (result.at("verdict") == verdict) checks.insert(result.at("check").get<std::string>());
  }
  return checks;
}

std::string MutantPath(const std::string& name) { return PLUMB_MUTANT_DIR "/" + name + ".so"; }

}  // namespace plumb::check
