// SPDX-License-Identifier: Apache-2.0
// Messages for people who ask for help, and for command lines that could not be parsed. Stateless.
#ifndef PLUMB_CLI_HELP_H_
#define PLUMB_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

// After program.parse threw `error`: the mistake, a suggestion, and where help is.
std::string UsageError(const CLI::App& program, const CLI::ParseError& error);

// The names of an app's commands.
std::vector<std::string> CommandNames(const CLI::App& app);

// What `plumb` alone says: how to begin, and how to see all commands.
std::string FirstHelp();

// The page of `app`, which is called `path`, "plumb plugin new", as input of man.
// kFailedPrecondition: the command is another program's, which does not tell its help.
absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path);

// Writes the pages of the program and of all commands, "plumb-plugin-new.1", into an existing
// directory. Errors are those of ManPage; kUnavailable: a file cannot be written.
absl::Status WriteManPages(CLI::App* program, const std::string& directory);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_HELP_H_
