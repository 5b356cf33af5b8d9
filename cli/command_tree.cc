#include "cli/command_tree.h"

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace plumb::cli {
namespace {

constexpr char kChoices[] = "choices";

}  // namespace

// CLI11 keeps nothing with an option but what checks it: the words are the description of a check
// that is switched off, so that it is neither made nor printed in the help.
CLI::Option* SetChoices(CLI::Option* option, const std::vector<std::string>& choices) {
  CLI::Validator words([](std::string&) { return std::string(); }, absl::StrJoin(choices, " "),
                       kChoices);
  return option->check(words.active(false));
}

std::vector<std::string> Choices(CLI::Option* option) {
  try {
    CLI::Validator words = *option->get_validator(kChoices);
    return absl::StrSplit(words.active(true).get_description(), ' ');
  } catch (const CLI::OptionNotFound&) {
    return {};
  }
}

std::vector<CLI::App*> Commands(CLI::App* app) {
  return app->get_subcommands([](CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<CLI::Option*> Options(CLI::App* app) {
  return app->get_options([](CLI::Option* option) {
    return !option->get_positional() && !option->get_group().empty();
  });
}

std::vector<CLI::Option*> Positionals(CLI::App* app) {
  return app->get_options([](CLI::Option* option) { return option->get_positional(); });
}

bool TakesValue(const CLI::Option* option) { return option->get_items_expected_max() > 0; }

bool IsRepeatable(const CLI::Option* option) {
  return option->get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll ||
         option->get_items_expected_max() > 1;
}

std::string Metavariable(CLI::Option* option) {
  if (option->get_positional()) return option->get_name(true);
  const std::string type = option->get_type_name();
  return type.substr(0, type.find(':'));  // checks that print themselves come after it
}

Takes WhatItTakes(CLI::Option* option) {
  const std::string name = Metavariable(option);
  if (name == "MODEL") return Takes::kModelFile;
  if (name == "FILE" || name == "OUT" || name == "TYPE|FILE" || name == "NAME|FILE" ||
      name == "SUBJECT") {
    return Takes::kFile;
  }
  if (name == "DIR" || name == "RUN") return Takes::kDirectory;
  if (name == "COMMAND") return Takes::kCommand;
  return Takes::kText;
}

}  // namespace plumb::cli
