// Manual pages from the command line's own help, one for each command. Pure functions: the same
// program gives the same pages.
#ifndef PLUMB_CLI_MAN_PAGE_H_
#define PLUMB_CLI_MAN_PAGE_H_

#include <CLI/CLI.hpp>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace plumb::cli {

// The page of `app`, which is called `path`, "plumb plugin new", as input of man.
// kFailedPrecondition: the command is another program's, which does not tell its help.
absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path);

// Writes the pages of the program and of all commands, "plumb-plugin-new.1", into an existing
// directory. Errors are those of ManPage; kUnavailable: a file cannot be written.
absl::Status WriteManPages(CLI::App* program, const std::string& directory);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_MAN_PAGE_H_
