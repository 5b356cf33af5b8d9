// SPDX-License-Identifier: Apache-2.0
// Help pages, and messages for command lines that could not be parsed. Stateless.
#ifndef PLUMB_CLI_HELP_H_
#define PLUMB_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

// Returns the message after program.parse threw `error`: the problem, a suggestion, and where to
// find help.
std::string UsageError(const CLI::App& program, const CLI::ParseError& error);

// Returns the text of `plumb` without arguments: how to begin, and how to see all commands.
std::string FirstHelp();

// Returns the man page of `app`, whose command line is `path`, such as "plumb plugin new". Errors:
// kFailedPrecondition if the command is another program, whose --help fails.
absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path);

// Writes the pages of the program and of all commands, such as "plumb-plugin-new.1", into an
// existing directory. Errors: those of ManPage; kUnavailable if a file cannot be written.
absl::Status WriteManPages(CLI::App* program, const std::string& directory);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_HELP_H_
