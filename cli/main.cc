// SPDX-License-Identifier: Apache-2.0
// plumb: trains and samples transformers whose norm placement is a formula.

#include <execinfo.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/interrupt.h"
#include "cli/output.h"
#include "cli/ranks.h"
#include "cli/study_run.h"
#include "runtime/base/memory.h"
#include "runtime/client/host_runtime.h"
#include "runtime/ranks/launch.h"
#include "runtime/train/run_identity.h"

namespace plumb::cli {
namespace {

constexpr rlim_t kStack = rlim_t{8} << 20;
constexpr rlim_t kMinStack = rlim_t{1} << 20;

// Grows the stack to the size that most commands need, so that memory for it cannot run out later.
void TouchStack() {
  volatile char pages[kMinStack / 2];
  for (size_t i = 0; i < sizeof(pages); i += 4096) pages[i] = 0;
}

// Opens /dev/null on descriptors 0 to 2 that the caller closed; otherwise a checkpoint could get
// one of them and be printed into. Writing to a closed stdout must still fail, so it is opened
// read-only.
void GuardStandardStreams() {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; ++fd) {
    if (fcntl(fd, F_GETFD) != -1) continue;
    if (open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) != fd) _exit(kExitFailed);
  }
}

// Prepares for resource limits of the process, so that exceeding one is an error where it happens.
absl::Status PrepareForLimits() {
  // A write beyond ulimit -f fails instead of killing the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // A smaller stack would overflow somewhere in the middle. Sets the size for other threads too,
  // whose default was taken from the limit when the program started.
  struct rlimit stack;
  if (getrlimit(RLIMIT_STACK, &stack) == 0 && stack.rlim_cur < kStack) {
    stack.rlim_cur = std::min<rlim_t>(kStack, stack.rlim_max);
    setrlimit(RLIMIT_STACK, &stack);
    if (stack.rlim_cur < kMinStack) {
      return absl::ResourceExhaustedError(absl::StrCat("the stack may have ", stack.rlim_cur >> 10,
                                                       " KiB (ulimit -s), and needs ",
                                                       kMinStack >> 10, "; raise the limit"));
    }
  }
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) == 0) {
    pthread_attr_setstacksize(&attributes, kStack);
    pthread_setattr_default_np(&attributes);
    pthread_attr_destroy(&attributes);
  }
  if (ProcessMemoryLimit().available < static_cast<int64_t>(2 * kMinStack)) {
    return absl::ResourceExhaustedError(
        absl::StrCat("out of memory; ", MemoryLimitText(), ", and plumb needs more to start"));
  }
  // Under ulimit -v a stack that cannot grow crashes, and unwinding loads a library at its first
  // use; both happen here, while there is memory.
  TouchStack();
  void* frame;
  backtrace(&frame, 1);
  return absl::OkStatus();
}

void AddCommands(CLI::App* program, Invocation* invocation) {
  program->name("plumb");
  program->formatter(std::make_shared<HelpFormatter>(TerminalColumns(STDOUT_FILENO)));
  // This is a function, because the text needs libraries that are otherwise not loaded.
  program->set_version_flag(
      "--version",
      [] {
        return absl::StrCat(VersionText(), "\nbuild ", BuildId(), "\nproducts: ", MatmulText());
      },
      "Print the version and exit");
  program->require_subcommand(1);
  AddGlobalOptions(program, invocation);
  AddHelpCommand(program, invocation);
  AddDocsCommand(program, invocation);
  AddDemoCommand(program, invocation);
  AddTrainCommand(program, invocation);
  AddCompareCommand(program, invocation);
  AddReportCommand(program, invocation);
  AddSampleCommand(program, invocation);
  AddEvalCommand(program, invocation);
  AddDescribeCommand(program, invocation);
  AddExplainCommand(program, invocation);
  AddTheoryCommand(program, invocation);
  AddImportCommand(program, invocation);
  AddExportCommand(program, invocation);
  AddZooCommand(program, invocation);
  AddTokenizeCommand(program, invocation);
  AddBenchCommand(program, invocation);
  AddPluginCommand(program, invocation);
  AddDoctorCommand(program, invocation);
  program->add_subcommand("completion")->group("")->allow_extras()->callback([] {
    throw CLI::ValidationError("completion", "was removed; remove it from the files of your shell");
  });
  // Commands added later would inherit the footer.
  program->footer(
      "Example:\n"
      "  plumb demo\n"
      "  plumb train model.pbtxt --data names.txt --out runs/names\n"
      "  plumb sample runs/names\n\n"
      "Exit codes: 0 ok, 1 failed at run time, 2 usage or bad input, 3 a norm plugin cannot be\n"
      "used, 4 diverged, 130 interrupted, 141 the reader of stdout has ended.\n"
      "\"plumb help COMMAND\" explains a command, \"plumb help recipe\" the fields of a recipe\n"
      "(also: model, study, formula, family), and \"plumb help placements\" or \"plumb help\n"
      "norms\" lists what a model can name.");
}

// Returns the command-line words in reverse order, as CLI11 expects them. CLI11 would take the word
// after "--prompt=" as the prompt, so an empty value becomes a separate word.
std::vector<std::string> ReversedWords(int argc, char** argv) {
  std::vector<std::string> words;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool is_empty_value =
        word.size() > 3 && absl::StartsWith(word, "--") && word.find('=') == word.size() - 1;
    words.push_back(is_empty_value ? word.substr(0, word.size() - 1) : word);
    if (is_empty_value) words.emplace_back();
  }
  std::reverse(words.begin(), words.end());
  return words;
}

int Finish(const absl::Status& status) {
  if (!status.ok() && !IsReaderGone(status)) PrintError(status.message());
  return ToExitCode(status);
}

// Prints the error with the memory limit, or without it if no memory is left for that.
void PrintOutOfMemory() {
  try {
    PrintError(absl::StrCat("out of memory; ", MemoryLimitText()));
  } catch (const std::bad_alloc&) {
    constexpr absl::string_view kText = "error: out of memory\n";
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kText.data(), kText.size());
  }
}

int Run(int argc, char** argv) {
  CLI::App program("Trains and samples transformers whose norm placement is a formula.");
  Invocation invocation;
  invocation.command = "plumb";
  for (int i = 1; i < argc; ++i) absl::StrAppend(&invocation.command, " ", Quoted(argv[i]));
  AddCommands(&program, &invocation);
  try {
    program.parse(ReversedWords(argc, argv));
  } catch (const CLI::CallForHelp&) {
    return Finish(PrintResult(program.help()));
  } catch (const CLI::CallForVersion& version) {
    return Finish(PrintResult(absl::StrCat(version.what(), "\n")));
  } catch (const CLI::ParseError& error) {
    if (argc > 1) {
      return EndBeforeJoining(absl::InvalidArgumentError(UsageError(program, error)));
    }
    if (Launch::LaunchedRank() == 0) PrintNote(FirstHelp());
    return EndBeforeJoining(absl::InvalidArgumentError(""));
  }
  const absl::StatusOr<int> exit_code = invocation.run();
  return exit_code.ok() ? *exit_code : Finish(exit_code.status());
}

}  // namespace
}  // namespace plumb::cli

int main(int argc, char** argv) {
  plumb::cli::GuardStandardStreams();
  plumb::cli::HandleEndingSignals();
  // A closed pipe becomes a failed write, so that it does not end a training run.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    if (const absl::Status prepared = plumb::cli::PrepareForLimits(); !prepared.ok()) {
      return plumb::cli::Finish(prepared);
    }
    return plumb::cli::Run(argc, argv);
  } catch (const std::bad_alloc&) {
    plumb::cli::PrintOutOfMemory();
  } catch (const std::exception& error) {
    plumb::cli::PrintError(error.what());
  }
  return plumb::cli::kExitFailed;
}
