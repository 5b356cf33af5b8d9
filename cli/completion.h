// SPDX-License-Identifier: Apache-2.0
// Completion in shells: the candidates for the last word of a command line, from the command tree,
// the schema, and the norms, placements and families that are installed. The scripts in
// cli/completion call `plumb __complete`.
#ifndef PLUMB_CLI_COMPLETION_H_
#define PLUMB_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"
#include "cli/command.h"

namespace plumb::cli {

struct Completions {
  Takes takes = Takes::kText;  // the shell itself completes files and directories
  std::vector<std::pair<std::string, std::string>> words;  // word and description
};

// Returns the candidates for the last of `words`, which may be "" or incomplete. An option with its
// value in one word counts as three words, as in bash: "--dtype", "=", "bf". So may a setting:
// "--set", "train.dtype", "=", "B"; shells that do not split at "=" pass "train.dtype=B".
Completions Complete(CLI::App* program, const std::vector<std::string>& words,
                     const Invocation& invocation);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPLETION_H_
