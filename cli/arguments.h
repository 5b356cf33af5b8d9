// SPDX-License-Identifier: Apache-2.0
// Command-line options shared by several commands. Numbers are parsed strictly: "1e3", "0x10" and
// "010" are errors where a whole number is expected.
#ifndef PLUMB_CLI_ARGUMENTS_H_
#define PLUMB_CLI_ARGUMENTS_H_

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/model.h"
#include "runtime/client/recipe.h"
#include "runtime/train/train_run.h"

namespace plumb::cli {

// Adds an option `name` N, a number in [low, high].
CLI::Option* AddInt(CLI::App* app, const std::string& name, int64_t* value, int64_t low,
                    int64_t high, const std::string& help);
CLI::Option* AddDouble(CLI::App* app, const std::string& name, double* value, double low,
                       double high, const std::string& help);
CLI::Option* AddSeed(CLI::App* app, std::optional<uint64_t>* seed, const std::string& help);

// Adds a required positional argument `name`.
CLI::Option* AddRequired(CLI::App* app, const std::string& name, std::string* value,
                         const std::string& help);
// Adds an option `name` that takes any text; the help calls the value `type`.
CLI::Option* AddText(CLI::App* app, const std::string& name, const std::string& type,
                     std::string* value, const std::string& help);

// Adds a repeatable option; each occurrence takes one word.
CLI::Option* AddRepeated(CLI::App* app, const std::string& name, const std::string& type,
                         std::vector<std::string>* values, const std::string& help);

// Adds a hidden option that fails: "NAME: was removed; REPLACEMENT". It may have any number of
// words.
void AddRemoved(CLI::App* app, const std::string& name, const std::string& replacement);

// Values of --dtype and --recompute; "" if the option was not given.
struct RunFormat {
  std::string dtype;      // "f32", "bf16"
  std::string recompute;  // "none", "block"

  // Returns the values as recipe settings: {"dtype", "BF16"}.
  Overrides Settings() const;
};
// Adds --dtype or --recompute. `otherwise` names the source of the default in the help.
CLI::Option* AddDType(CLI::App* app, std::string* dtype,
                      const std::string& otherwise = "train.dtype");
void AddRecompute(CLI::App* app, std::string* recompute,
                  const std::string& otherwise = "train.recompute");

// Returns the visible subcommands of a program or of a command.
std::vector<CLI::App*> Commands(CLI::App* app);
// Returns the visible options, in the order in which they were added, or the positional arguments.
std::vector<CLI::Option*> Options(CLI::App* app);
std::vector<CLI::Option*> Positionals(CLI::App* app);

bool TakesValue(const CLI::Option* option);  // false for a flag
bool IsRepeatable(const CLI::Option* option);
// Returns the placeholder of the value in the help, "FILE" or "N"; for a positional, its name.
std::string Metavariable(const CLI::Option* option);

}  // namespace plumb::cli

#endif  // PLUMB_CLI_ARGUMENTS_H_
