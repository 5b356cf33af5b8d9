// SPDX-License-Identifier: Apache-2.0
// The commands of `plumb`: each adds itself to the command line and sets the function to run when
// it is selected. There is one file per command, a thin layer over the public headers. Also paths
// of this program and of its installed files.
#ifndef PLUMB_CLI_COMMAND_H_
#define PLUMB_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"

namespace plumb::cli {

// State shared by all commands. Lives until the program exits.
struct Invocation {
  std::vector<std::string> plugin_files;  // --plugin
  int64_t threads = 0;                    // --threads; 0: not given
  std::string gemm = "auto";              // --gemm
  std::string command;                    // the command line, quoted for a shell
  // Runs the selected command and returns the exit code. Set while the command line is parsed.
  std::function<absl::StatusOr<int>()> run;

  absl::StatusOr<std::unique_ptr<HostRuntime>> CreateRuntime() const;
};

// Adds --plugin, --threads and --gemm. They are added to the program and to each
// command, because users write them in either place.
void AddGlobalOptions(CLI::App* app, Invocation* invocation);

// Registers `run` to be called with the parsed flags, and with `invocation` if it takes one, when
// `app` is the selected command.
template <typename Flags>
void RunWhenSelected(CLI::App* app, const std::shared_ptr<Flags>& flags,
                     absl::StatusOr<int> (*run)(const Flags&, const Invocation&),
                     Invocation* invocation) {
  app->callback([=] { invocation->run = [=] { return run(*flags, *invocation); }; });
}
template <typename Flags>
void RunWhenSelected(CLI::App* app, const std::shared_ptr<Flags>& flags,
                     absl::StatusOr<int> (*run)(const Flags&), Invocation* invocation) {
  app->callback([=] { invocation->run = [=] { return run(*flags); }; });
}

// Opens the model at `path` with the --set assignments applied, for commands that only inspect it.
// Prints warnings to stderr. Requires: `runtime` outlives the model.
absl::StatusOr<api::Model> OpenModel(const std::string& path,
                                     const std::vector<std::string>& assignments,
                                     HostRuntime* runtime);

void AddHelpCommand(CLI::App* program, Invocation* invocation);
void AddDemoCommand(CLI::App* program, Invocation* invocation);
void AddTrainCommand(CLI::App* program, Invocation* invocation);
void AddCompareCommand(CLI::App* program, Invocation* invocation);
void AddReportCommand(CLI::App* program, Invocation* invocation);
void AddSampleCommand(CLI::App* program, Invocation* invocation);
void AddEvalCommand(CLI::App* program, Invocation* invocation);
void AddDescribeCommand(CLI::App* program, Invocation* invocation);
void AddExplainCommand(CLI::App* program, Invocation* invocation);
void AddTheoryCommand(CLI::App* program, Invocation* invocation);
void AddImportCommand(CLI::App* program, Invocation* invocation);
void AddExportCommand(CLI::App* program, Invocation* invocation);
void AddZooCommand(CLI::App* program, Invocation* invocation);
void AddTokenizeCommand(CLI::App* program, Invocation* invocation);
void AddTokenizeTrainCommand(CLI::App* tokenize, Invocation* invocation);
void AddBenchCommand(CLI::App* program, Invocation* invocation);
void AddPluginCommand(CLI::App* program, Invocation* invocation);
void AddPluginCheckCommand(CLI::App* plugin, Invocation* invocation);  // plugin check
void AddPluginBenchCommand(CLI::App* plugin, Invocation* invocation);  // plugin bench
// Returns the --help text of the checker program that `plumb plugin check` runs. Errors:
// kFailedPrecondition if it is not installed or cannot be run.
absl::StatusOr<std::string> CheckerHelp();
void AddDocsCommand(CLI::App* program, Invocation* invocation);
void AddDoctorCommand(CLI::App* program, Invocation* invocation);

// Returns the directory of this program, without a trailing slash; "" if it is unknown.
std::string OwnDirectory();

// Returns the prefix under which this program is installed, such as "/usr/local", computed from the
// program's own path, so that an installed tree can be moved; a build tree has the same layout.
// Returns "" if the program is in neither.
std::string InstallPrefix();

// Returns the directory of the installed pages and examples, such as "/usr/share/doc/plumb", which
// need not exist; "" if InstallPrefix() is unknown.
std::string DocDirectory();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMMAND_H_
