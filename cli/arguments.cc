// SPDX-License-Identifier: Apache-2.0
#include "cli/arguments.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

// Returns true for decimal digits without a leading zero, which other programs read as octal.
bool IsDecimal(absl::string_view text, bool may_be_negative) {
  if (may_be_negative && !text.empty() && text.front() == '-') text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text.front() == '0')) return false;
  return text.find_first_not_of("0123456789") == absl::string_view::npos;
}

// Adds an option whose single value `parse` reads; `wanted` describes valid values in the error.
template <class Parse>
CLI::Option* AddParsed(CLI::App* app, const std::string& name, const std::string& wanted,
                       const std::string& help, Parse parse) {
  return app
      ->add_option(
          name,
          [name, wanted, parse](const CLI::results_t& words) {
            if (parse(words.back())) return true;
            throw CLI::ValidationError(
                absl::StrCat(name, ": \"", words.back(), "\" is not ", wanted));
          },
          help)
      ->type_name("N");
}

}  // namespace

CLI::Option* AddInt(CLI::App* app, const std::string& name, int64_t* value, int64_t low,
                    int64_t high, const std::string& help) {
  const std::string wanted = absl::StrCat("a whole number from ", low, " to ", high);
  return AddParsed(app, name, wanted, help, [value, low, high](const std::string& word) {
    return IsDecimal(word, true) && absl::SimpleAtoi(word, value) && *value >= low &&
           *value <= high;
  });
}

CLI::Option* AddDouble(CLI::App* app, const std::string& name, double* value, double low,
                       double high, const std::string& help) {
  const std::string wanted = absl::StrCat("a number from ", low, " to ", high);
  return AddParsed(app, name, wanted, help, [value, low, high](const std::string& word) {
    // This form rejects NaN.
    return absl::SimpleAtod(word, value) && *value >= low && *value <= high;
  });
}

CLI::Option* AddSeed(CLI::App* app, std::optional<uint64_t>* seed, const std::string& help) {
  const std::string wanted = "a whole number from 0 to 18446744073709551615";
  return AddParsed(app, "--seed", wanted, help, [seed](const std::string& word) {
    uint64_t value = 0;
    if (!IsDecimal(word, false) || !absl::SimpleAtoi(word, &value)) return false;
    *seed = value;
    return true;
  });
}

CLI::Option* AddRequired(CLI::App* app, const std::string& name, std::string* value,
                         const std::string& help) {
  return app->add_option(name, *value, help)->required()->type_name("");
}

CLI::Option* AddText(CLI::App* app, const std::string& name, const std::string& type,
                     std::string* value, const std::string& help) {
  return app->add_option(name, *value, help)->type_name(type);
}

CLI::Option* AddRepeated(CLI::App* app, const std::string& name, const std::string& type,
                         std::vector<std::string>* values, const std::string& help) {
  return app
      ->add_option(
          name,
          [values](const CLI::results_t& words) {
            values->insert(values->end(), words.begin(), words.end());
            return true;
          },
          help)
      ->type_name(type)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void AddRemoved(CLI::App* app, const std::string& name, const std::string& replacement) {
  app->add_option_function<std::vector<std::string>>(
         name,
         [name, replacement](const std::vector<std::string>&) {
           throw CLI::ValidationError(name, absl::StrCat("was removed; ", replacement));
         })
      ->expected(0, -1)
      ->group("");
}

Overrides RunFormat::Settings() const {
  Overrides settings;
  if (!dtype.empty()) settings.emplace_back("dtype", absl::AsciiStrToUpper(dtype));
  if (!recompute.empty()) settings.emplace_back("recompute", absl::AsciiStrToUpper(recompute));
  return settings;
}

CLI::Option* AddDType(CLI::App* app, std::string* dtype, const std::string& otherwise) {
  return app
      ->add_option(
          "--dtype", *dtype,
          absl::StrCat("Type of activations: f32, or bf16, which halves their memory and, on AMD "
                       "Zen 4 and 5 and with AMX, nearly halves the time; elsewhere it is as fast "
                       "as f32. Weights, gradients and moments are always f32. Default: ",
                       otherwise))
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->type_name("TYPE");
}

void AddRecompute(CLI::App* app, std::string* recompute, const std::string& otherwise) {
  app->add_option("--recompute", *recompute,
                  absl::StrCat("Activations to recompute in the backward pass instead of storing "
                               "them: block (all but the inputs of blocks) or none. Default: ",
                               otherwise))
      ->check(CLI::IsMember({"none", "block"}))
      ->type_name("WHAT");
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

std::string Metavariable(const CLI::Option* option) {
  if (option->get_positional()) return option->get_name(true);
  const std::string type = option->get_type_name();
  return type.substr(0, type.find(':'));  // validators append their descriptions
}

}  // namespace plumb::cli
