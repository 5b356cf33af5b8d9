// plumb tokenize train.
#ifndef PLUMB_CLI_TOKENIZE_TRAIN_H_
#define PLUMB_CLI_TOKENIZE_TRAIN_H_

#include <CLI/CLI.hpp>

#include "cli/command.h"

namespace plumb::cli {

void AddTokenizeTrainCommand(CLI::App* tokenize, Invocation* invocation);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_TOKENIZE_TRAIN_H_
