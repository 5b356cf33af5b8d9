// The command line as data: what commands there are and what their options take. Manual pages and
// completion are made from it. Functions of CLI11's tree, which they do not change, but for
// SetChoices.
#ifndef PLUMB_CLI_COMMAND_TREE_H_
#define PLUMB_CLI_COMMAND_TREE_H_

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace plumb::cli {

// Says that an option takes one of these words, for who reads the tree; checks nothing.
CLI::Option* SetChoices(CLI::Option* option, const std::vector<std::string>& choices);
std::vector<std::string> Choices(CLI::Option* option);  // empty: not said

// The commands of a program or of a command, without hidden ones.
std::vector<CLI::App*> Commands(CLI::App* app);
// Its options, without hidden ones, in the order in which they were added; and what it takes in
// order, without an option.
std::vector<CLI::Option*> Options(CLI::App* app);
std::vector<CLI::Option*> Positionals(CLI::App* app);

bool TakesValue(const CLI::Option* option);  // and is no flag
bool IsRepeatable(const CLI::Option* option);
// "FILE", "N": what stands for the value in the help; of a positional one, its name.
std::string Metavariable(CLI::Option* option);

// What a value names. By the metavariable: a new one that names a file is to be added here.
enum class Takes { kText, kFile, kModelFile, kDirectory, kCommand };
Takes WhatItTakes(CLI::Option* option);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_COMMAND_TREE_H_
