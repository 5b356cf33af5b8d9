// Messages for command lines that could not be parsed, or that say nothing yet. Stateless.
#ifndef PLUMB_CLI_USAGE_H_
#define PLUMB_CLI_USAGE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace plumb::cli {

// After program.parse threw `error`: the mistake, a suggestion, and where help is.
std::string UsageError(const CLI::App& program, const CLI::ParseError& error);

// The names of an app's commands.
std::vector<std::string> CommandNames(const CLI::App& app);

// What `plumb` alone says: how to begin, and how to see all commands.
std::string FirstHelp();

}  // namespace plumb::cli

#endif  // PLUMB_CLI_USAGE_H_
