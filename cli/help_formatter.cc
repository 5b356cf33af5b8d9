// SPDX-License-Identifier: Apache-2.0
#include "cli/help_formatter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/arguments.h"

namespace plumb::cli {
namespace {

constexpr size_t kTextColumn = 24;      // where descriptions begin
constexpr size_t kMinTextColumns = 20;  // width of descriptions in a narrow terminal

// Returns the names in alphabetical order, because CLI11 orders options by address.
std::string NamesOf(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;
  for (const CLI::Option* option : options) names.insert(option->get_name());
  return absl::StrJoin(names, ", ");
}

}  // namespace

std::string FillText(absl::string_view text, size_t column, size_t columns) {
  std::string filled;
  size_t at = column;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \n"), absl::SkipEmpty())) {
    const bool begins = filled.empty();
    if (!begins && at + 1 + word.size() > columns) {
      absl::StrAppend(&filled, "\n", std::string(column, ' '));
      at = column;
    } else if (!begins) {
      filled.push_back(' ');
      ++at;
    }
    absl::StrAppend(&filled, word);
    at += word.size();
  }
  return filled;
}

std::string OptionText(const CLI::Option* option) {
  std::string text = option->get_description();
  if (option->get_required()) absl::StrAppend(&text, ". Required");
  if (const std::string needed = NamesOf(option->get_needs()); !needed.empty()) {
    absl::StrAppend(&text, ". Needs ", needed);
  }
  if (const std::string excluded = NamesOf(option->get_excludes()); !excluded.empty()) {
    absl::StrAppend(&text, ". Not with ", excluded);
  }
  return text;
}

HelpFormatter::HelpFormatter(size_t columns)
    : columns_(std::max(columns, kTextColumn + kMinTextColumns)) {
  label("Positionals", "Arguments");
  label("SUBCOMMAND", "COMMAND");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name,
                                     CLI::AppFormatMode mode) const {
  // CLI11 puts two empty lines between groups of options.
  return absl::StrReplaceAll(CLI::Formatter::make_help(app, std::move(name), mode),
                             {{"\n\n\n", "\n\n"}});
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return absl::StrCat(FillText(app->get_description(), 0, columns_), "\n\n");
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return Entry(command->get_display_name(true), command->get_description());
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::string text, paragraph;
  const auto flush = [&] {
    if (!paragraph.empty()) absl::StrAppend(&text, FillText(paragraph, 0, columns_), "\n");
    paragraph.clear();
  };
  for (const absl::string_view line : absl::StrSplit(app->get_footer(), '\n')) {
    if (!line.empty() && line[0] != ' ') {
      absl::StrAppend(&paragraph, line, " ");
      continue;
    }
    flush();
    absl::StrAppend(&text, line, "\n");
  }
  flush();
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  std::string head = make_option_name(option, is_positional);
  if (!is_positional && TakesValue(option)) absl::StrAppend(&head, " ", Metavariable(option));
  return Entry(head, OptionText(option));
}

std::string HelpFormatter::Entry(const std::string& head, const std::string& text) const {
  std::string entry = absl::StrCat("  ", head);
  // Two blanks separate the columns.
  if (entry.size() + 2 > kTextColumn) absl::StrAppend(&entry, "\n");
  const size_t begin = entry.back() == '\n' ? 0 : entry.size();
  absl::StrAppend(&entry, std::string(kTextColumn - begin, ' '),
                  FillText(text, kTextColumn, columns_), "\n");
  return entry;
}

}  // namespace plumb::cli
