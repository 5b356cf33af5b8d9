// SPDX-License-Identifier: Apache-2.0
// Completion in shells: what may come next on a command line. Pure functions of the tree of
// commands; the shells' scripts (cli/completion) ask `plumb __complete`.
#ifndef PLUMB_CLI_COMPLETION_H_
#define PLUMB_CLI_COMPLETION_H_

#include <CLI/CLI.hpp>
#include <string>
#include <utility>
#include <vector>

#include "cli/arguments.h"

namespace plumb::cli {

struct Completions {
  Takes takes = Takes::kText;  // files and directories are found by the shell
  std::vector<std::pair<std::string, std::string>> words;  // with what they mean
};

// What may stand for the last of `words`, which is begun or "", after the others. An option and its
// value in one word are three: "--dtype", "=", "bf", as bash has them.
Completions Complete(CLI::App* program, const std::vector<std::string>& words);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMPLETION_H_
