// SPDX-License-Identifier: Apache-2.0
// Layout of --help: two columns, filled to a width, with whole words. Immutable; thread-safe.
#ifndef PLUMB_CLI_HELP_FORMATTER_H_
#define PLUMB_CLI_HELP_FORMATTER_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace plumb::cli {

// Breaks `text` between words into lines of at most `columns` characters, the first of which begins
// at `column` and the others after `column` blanks. Longer words get a line of their own.
std::string FillText(absl::string_view text, size_t column, size_t columns);

// Returns the description of an option with what CLI11 knows about it: "Text to train on.
// Required".
std::string OptionText(const CLI::Option* option);

class HelpFormatter : public CLI::Formatter {
 public:
  // Lines have at most `columns` characters, except where that leaves too little for descriptions
  // and in examples.
  explicit HelpFormatter(size_t columns);

  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode mode) const override;
  std::string make_description(const CLI::App* app) const override;
  std::string make_subcommand(const CLI::App* command) const override;
  // Fills paragraphs of the footer. Lines that begin with a blank are kept as they are.
  std::string make_footer(const CLI::App* app) const override;
  std::string make_option(const CLI::Option* option, bool is_positional) const override;

 private:
  std::string Entry(const std::string& head, const std::string& text) const;

  const size_t columns_;
};

}  // namespace plumb::cli

#endif  // PLUMB_CLI_HELP_FORMATTER_H_
