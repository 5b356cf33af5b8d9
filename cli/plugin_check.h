// plumb plugin check FILE.so: tries a plugin against the norm ABI. Runs the program
// plumb-norm-check, so that whatever a plugin does, it does not do it here.
#ifndef PLUMB_CLI_PLUGIN_CHECK_H_
#define PLUMB_CLI_PLUGIN_CHECK_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"

namespace plumb::cli {

// Adds `check` to the commands of `plugin`.
void AddPluginCheckCommand(CLI::App* plugin, Invocation* invocation);

// What the checker's --help prints. kFailedPrecondition: it is not installed, or cannot be run.
absl::StatusOr<std::string> CheckerHelp();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_PLUGIN_CHECK_H_
