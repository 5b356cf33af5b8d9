// SPDX-License-Identifier: Apache-2.0
// Options that several commands share, and numbers on the command line that are read strictly:
// "1e3", "0x10" or "010" for a whole number is a mistake and not a surprise.
#ifndef PLUMB_CLI_ARGUMENTS_H_
#define PLUMB_CLI_ARGUMENTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/app/model.h"
#include "runtime/app/train/train.h"

namespace plumb::cli {

// An option `name` NUMBER in [low, high].
CLI::Option* AddInt(CLI::App* app, const std::string& name, int64_t* value, int64_t low,
                    int64_t high, const std::string& help);
CLI::Option* AddDouble(CLI::App* app, const std::string& name, double* value, double low,
                       double high, const std::string& help);
CLI::Option* AddSeed(CLI::App* app, std::optional<uint64_t>* seed, const std::string& help);

// A positional argument `name` that must be given.
CLI::Option* AddRequired(CLI::App* app, const std::string& name, std::string* value,
                         const std::string& help);
// An option `name` that takes any text, which the help calls `type`.
CLI::Option* AddText(CLI::App* app, const std::string& name, const std::string& type,
                     std::string* value, const std::string& help);

// Repeatable: every occurrence takes one word.
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, const std::string& type,
                         std::vector<std::string>* values, const std::string& help);

// How the recipe's dtype and recompute are said on the command line: "" when they are not.
struct RunFormat {
  std::string dtype;      // "f32", "bf16"
  std::string recompute;  // "none", "block"

  // As settings of a recipe: {"dtype", "BF16"}.
  Overrides Settings() const;
};
// --dtype, and --recompute. `otherwise`: the source of the defaults.
void AddDType(CLI::App* app, std::string* dtype, const std::string& otherwise = "train.dtype");
void AddRecompute(CLI::App* app, std::string* recompute,
                  const std::string& otherwise = "train.recompute");

// --set "model.n_layer=4" and "train.max_steps=200", in order.
struct Settings {
  Overrides model, train;
};
absl::StatusOr<Settings> ParseSettings(const std::vector<std::string>& assignments);

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

// Kind of thing that an option's value names.
enum class Takes { kText, kFile, kModelFile, kDirectory, kCommand };
// Returns the kind by the option's metavariable. A new metavariable that names a file is added
// here.
Takes WhatItTakes(CLI::Option* option);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_ARGUMENTS_H_
