// SPDX-License-Identifier: Apache-2.0
// plumb-norm-check: tests a norm plugin against the contract (plugins/abi/plumb/norm_plugin.h).

#include <sys/ioctl.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "plugins/check/bench.h"
#include "plugins/check/report.h"
#include "plugins/check/runner.h"
#include "runtime/base/utf8.h"

namespace plumb::check {
namespace {

struct Options {
  RunnerOptions run;
  bool json = false, only_failed = false, list = false;
};

bool IsTerminal(FILE* stream) {
  const char* term = std::getenv("TERM");
  return isatty(fileno(stream)) != 0 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

int Fail(const std::string& message) {
  std::fprintf(stderr, "error: %s\n", PrintableText(message).c_str());
  return kExitNotLoaded;
}

// Prints results. Returns false if they cannot be written, which counts as failure.
bool Print(const std::string& text) {
  return std::fwrite(text.data(), 1, text.size(), stdout) == text.size() &&
         std::fflush(stdout) == 0;
}

std::string ValidCheckId(std::string& id) {
  id = absl::AsciiStrToUpper(id);
  for (const Check& check : AllChecks()) {
    if (id == check.id) return "";
  }
  const std::string successor = FindSuccessor(id);
  if (!successor.empty()) return absl::StrCat(id, " is removed; use ", successor);
  return absl::StrCat("there is no check \"", id, "\"; --list shows them all");
}

void AddOptions(CLI::App* app, Options* options) {
  RunnerOptions* run = &options->run;
  app->add_option("FILE", run->path, "The plugin, a shared library")->type_name("");
  app->add_flag("--json", options->json, "Print the report as JSON");
  app->add_option("--seed", run->seed, "Seed of the checks' random numbers (default 0)")
      ->type_name("N");
  app->add_option("--level", run->level,
                  "1: file and declarations; 2: also numbers;\n3: also strict (default)")
      ->check(CLI::Range(1, 3))
      ->type_name("N");
  app->add_option("--check", run->only, "Only this check, at any level (repeatable)")
      ->transform(CLI::Validator(ValidCheckId, ""))
      ->type_name("ID")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
  app->add_option("--norm", run->norm, "Only the norm with this id")->type_name("ID");
  app->add_flag("--only-failed", options->only_failed, "Show only what fails or warns");
  app->add_flag("--fail-fast", run->fail_fast, "End at the first check that fails");
  app->add_flag("--in-process", run->in_process,
                "Load the plugin into this process, for a debugger");
  app->add_option("--jobs", run->parallel, "Concurrent processes (default: one per core)")
      ->check(CLI::Range(1, 1024))
      ->type_name("N");
  app->add_option("--timeout", run->timeout_seconds,
                  "Seconds after which a call counts as a hang\n(default 10)")
      ->check(CLI::Range(0.1, 3600.0))
      ->type_name("SECONDS");
  app->add_option("--seconds", run->seconds,
                  "Seconds for all exploring checks of a norm\n(default 20)")
      ->check(CLI::Range(0.1, 36000.0))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast)
      ->type_name("SECONDS");
  app->add_flag_function(
      "--quick", [run](int64_t) { run->seconds = 5; }, "The same as --seconds 5");
  app->add_flag_function(
      "--thorough", [run](int64_t) { run->seconds = 300; }, "The same as --seconds 300");
  app->add_option("--point", run->point,
                  "Let the checks try only this point, in the form\nthat a failure prints")
      ->type_name("POINT");
  app->add_flag_function(
         "--perf",
         [](int64_t) { throw CLI::ValidationError("--perf is removed; use plumb plugin bench"); })
      ->group("");
  app->add_flag("--list", options->list, "List the checks and exit");
  app->footer(
      "Each check tests one property, and each cause is reported once. N and R checks\n"
      "try fixed points first, then random calls from --seed until the time is over. A\n"
      "failure is shrunk, and printed with the command that repeats it.\n\n"
      "Every check runs in a process of its own: a crash or a hang of the plugin is a\n"
      "finding.\n\n"
      "Example:\n"
      "  plumb plugin check ./my_norm.so\n"
      "  plumb plugin check ./my_norm.so --check N2 --check N7 --seed 3\n"
      "  gdb --args plumb-norm-check ./my_norm.so --check N7 --in-process\n\n"
      "Exit codes: 0 all passed (warnings allowed), 1 a check failed, 2 the file could\n"
      "not be loaded, or bad usage.");
}

// Shows "[12/35] N7 rms_norm" in one line of the terminal, which the next call overwrites.
void ShowProgress(size_t done, size_t total, const std::string& what) {
  winsize size = {};
  const bool known = ioctl(fileno(stderr), TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
  std::string line = absl::StrFormat("[%d/%d] %s", done, total, what);
  line = line.substr(0, known ? size.ws_col - 1 : 79);
  for (char& c : line) c = absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  std::fprintf(stderr, "\r\033[K%s%s", line.c_str(), done == total ? "\r\033[K" : "");
  std::fflush(stderr);
}

int Run(Options options) {
  if (options.list) return Print(ListChecks()) ? kExitPassed : kExitFailed;
  if (options.run.path.empty()) return Fail("FILE is missing: which plugin? (--help explains)");
  const bool progress = IsTerminal(stderr);
  if (progress) options.run.progress = ShowProgress;
  const absl::StatusOr<FileResult> file = RunChecks(options.run);
  if (progress) std::fputs("\r\033[K", stderr);
  if (!file.ok()) return Fail(std::string(file.status().message()));
  const std::string text =
      options.json ? ToJson(*file, options.only_failed) : ToText(*file, options.only_failed);
  if (!Print(text)) {
    Fail(absl::StrCat("the report cannot be written: ", std::strerror(errno)));
    return kExitFailed;
  }
  return ToExitCode(*file);
}

// Runs `plumb plugin bench`, whose options and help are plumb's (cli/plugin_check.cc):
//   plumb-norm-check --bench FILE ID AGAINST_FILE AGAINST_ID ROUNDS json|text      ID may be ""
int Bench(const std::vector<std::string>& words) {
  int rounds = 0;
  if (words.size() != 6 || !absl::SimpleAtoi(words[4], &rounds) || rounds < 1) {
    return Fail("--bench is for plumb plugin bench");
  }
  const absl::Status status =
      BenchNorms({words[0], words[1]}, {words[2], words[3]}, rounds, words[5] == "json", Print);
  return status.ok() ? kExitPassed : Fail(std::string(status.message()));
}

int Main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (argc > 1 && std::strcmp(argv[1], "--bench") == 0) {
    return Bench(std::vector<std::string>(argv + 2, argv + argc));
  }
  Options options;
  options.run.parallel = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  // `plumb plugin check` passes its own name.
  CLI::App app("Tries a norm plugin against the norm ABI, check by check.",
               argc > 0 && std::strchr(argv[0], ' ') != nullptr ? argv[0] : "plumb-norm-check");
  AddOptions(&app, &options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return Print(app.help()) ? kExitPassed : kExitFailed;
  } catch (const CLI::ParseError& error) {
    return Fail(absl::StrCat(error.what(), " (--help explains)"));
  }
  return Run(std::move(options));
}

}  // namespace
}  // namespace plumb::check

int main(int argc, char** argv) {
  try {
    return plumb::check::Main(argc, argv);
  } catch (const std::exception& error) {
    return plumb::check::Fail(error.what());
  }
}
