// SPDX-License-Identifier: Apache-2.0
// Help pages and their layout, and messages for command lines that could not be parsed. Stateless;
// HelpFormatter is immutable.
#ifndef PLUMB_CLI_HELP_H_
#define PLUMB_CLI_HELP_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb::cli {

// Returns the message after program.parse threw `error`: the problem, a suggestion, and where to
// find help.
std::string UsageError(const CLI::App& program, const CLI::ParseError& error);

// Returns the text of `plumb` without arguments: how to begin, and how to see all commands.
std::string FirstHelp();

// Returns the man page of `app`, whose command line is `path`, such as "plumb plugin new". Errors:
// kFailedPrecondition if the command is another program, whose --help fails.
absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path);

// Writes the pages of the program and of all commands, such as "plumb-plugin-new.1", into an
// existing directory. Errors: those of ManPage; kUnavailable if a file cannot be written.
absl::Status WriteManPages(CLI::App* program, const std::string& directory);

// Breaks `text` between words into lines of at most `columns` characters, the first of which begins
// at `column` and the others after `column` blanks. Longer words get a line of their own.
std::string FillText(absl::string_view text, size_t column, size_t columns);

// Returns at most `columns` bytes of a line, cut between characters.
std::string CutLine(std::string line, size_t columns);

// Returns the description of an option with what CLI11 knows about it: "Text to train on.
// Required".
std::string OptionText(const CLI::Option* option);

// Layout of --help: two columns, filled to a width, with whole words.
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

#endif  // PLUMB_CLI_HELP_H_
