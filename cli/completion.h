// SPDX-License-Identifier: Apache-2.0
// Completion in shells: the candidates for the last word of a command line. Pure functions of the
// command tree; the scripts in cli/completion call `plumb __complete`.
#ifndef PLUMB_CLI_COMPLETION_H_
#define PLUMB_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"

namespace plumb::cli {

struct Completions {
  Takes takes = Takes::kText;  // the shell itself completes files and directories
  std::vector<std::pair<std::string, std::string>> words;  // word and description
};

// Returns the candidates for the last of `words`, which may be "" or incomplete. An option with its
// value in one word counts as three words, as in bash: "--dtype", "=", "bf".
Completions Complete(CLI::App* program, const std::vector<std::string>& words);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPLETION_H_
