#include "cli/man_page.h"

#include <algorithm>
#include <fstream>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/command_tree.h"
#include "cli/plugin_check.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

constexpr size_t kColumns = 78;

// Text as roff, in which "-" is a hyphen and "\-" the character of options and file names.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"},
                                    {"-", "\\-"},
                                    {"'", "\\(aq"},
                                    {"`", "\\(ga"},
                                    {"^", "\\(ha"},
                                    {"~", "\\(ti"}});
}

// A line of input, which is no request whatever it begins with.
std::string RoffLine(absl::string_view roff) {
  return absl::StrCat(absl::StartsWith(roff, ".") ? "\\&" : "", roff, "\n");
}

// Filled text, in lines that an editor shows.
std::string Paragraph(absl::string_view text) {
  std::string result, line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    // A hyphen within a word is one, at which a line may be broken.
    std::string roff = Escaped(word);
    if (!absl::StartsWith(word, "-") && !absl::StrContains(word, "--")) {
      roff = absl::StrReplaceAll(roff, {{"\\-", "-"}});
    }
    if (!line.empty() && line.size() + 1 + roff.size() > kColumns) {
      absl::StrAppend(&result, RoffLine(line));
      line.clear();
    }
    absl::StrAppend(&line, line.empty() ? "" : " ", roff);
  }
  return line.empty() ? result : absl::StrCat(result, RoffLine(line));
}

std::string Verbatim(const std::vector<absl::string_view>& lines) {
  std::string result = ".nf\n";
  for (const absl::string_view line : lines) absl::StrAppend(&result, RoffLine(Escaped(line)));
  return absl::StrCat(result, ".fi\n");
}

std::string PageName(const std::string& path) { return absl::StrReplaceAll(path, {{" ", "-"}}); }

std::string Reference(const std::string& path) {
  return absl::StrCat("\\fB", Escaped(PageName(path)), "\\fR(1)");
}

std::string OptionHead(CLI::Option* option) {
  std::vector<std::string> names;
  for (const std::string& name : option->get_snames()) {
    names.push_back(absl::StrCat("\\fB\\-", Escaped(name), "\\fR"));
  }
  for (const std::string& name : option->get_lnames()) {
    names.push_back(absl::StrCat("\\fB\\-\\-", Escaped(name), "\\fR"));
  }
  std::string head = absl::StrJoin(names, ", ");
  if (TakesValue(option)) {
    absl::StrAppend(&head, " \\fI", Escaped(Metavariable(option)), "\\fR");
  }
  return head;
}

std::string OptionText(CLI::Option* option) {
  std::string text = option->get_description();
  const std::vector<std::string> choices = Choices(option);
  const bool tells_all =
      std::all_of(choices.begin(), choices.end(),
                  [&text](const std::string& word) { return absl::StrContains(text, word); });
  if (!tells_all) absl::StrAppend(&text, ". One of ", absl::StrJoin(choices, ", "));
  if (option->get_required()) absl::StrAppend(&text, ". Required");
  std::set<std::string> excluded;  // by name: CLI11 orders them by address
  for (const CLI::Option* other : option->get_excludes()) excluded.insert(other->get_name());
  if (!excluded.empty()) absl::StrAppend(&text, ". Not with ", absl::StrJoin(excluded, ", "));
  return absl::EndsWith(text, ".") ? text : text + ".";
}

std::string OptionSections(CLI::App* app) {
  std::string text;
  for (const std::string& group : app->get_groups()) {
    std::string entries;
    for (CLI::Option* option : Options(app)) {
      if (option->get_group() != group) continue;
      absl::StrAppend(&entries, ".TP\n", OptionHead(option), "\n", Paragraph(OptionText(option)));
    }
    if (entries.empty()) continue;
    absl::StrAppend(&text, ".SH \"", absl::AsciiStrToUpper(group), "\"\n", entries);
  }
  return text;
}

// The notes and the examples that a help ends with: paragraphs apart from each other by an empty
// line, that of examples under "Example:", lines that begin with a blank as they are.
struct Footer {
  std::string notes, examples;
};

Footer ParseFooter(const std::string& text) {
  Footer footer;
  for (const absl::string_view paragraph : absl::StrSplit(text, "\n\n", absl::SkipWhitespace())) {
    const bool is_example = absl::StartsWith(paragraph, "Example");
    std::string* out = is_example ? &footer.examples : &footer.notes;
    std::vector<absl::string_view> as_they_are;
    std::string filled;
    const auto flush = [&] {
      if (!filled.empty()) absl::StrAppend(out, out->empty() ? "" : ".PP\n", Paragraph(filled));
      if (!as_they_are.empty()) {
        absl::StrAppend(out, out->empty() ? "" : ".PP\n", Verbatim(as_they_are));
      }
      filled.clear();
      as_they_are.clear();
    };
    for (const absl::string_view line : absl::StrSplit(paragraph, '\n', absl::SkipWhitespace())) {
      if (is_example && absl::StartsWith(line, "Example")) continue;
      const bool is_verbatim = absl::StartsWith(line, " ");
      if (is_verbatim ? !filled.empty() : !as_they_are.empty()) flush();
      if (is_verbatim) {
        as_they_are.push_back(line);
      } else {
        absl::StrAppend(&filled, filled.empty() ? "" : " ", line);
      }
    }
    flush();
  }
  return footer;
}

std::string Synopsis(CLI::App* app, const std::string& path) {
  std::string text = absl::StrCat("\\fB", Escaped(path), "\\fR");
  absl::StrAppend(&text, app->get_prefix_command() ? " [\\fIARGUMENTS\\fR]" : " [\\fIOPTIONS\\fR]");
  for (CLI::Option* option : Positionals(app)) {
    std::string name = absl::StrCat("\\fI", Escaped(Metavariable(option)), "\\fR");
    if (IsRepeatable(option)) absl::StrAppend(&name, "...");
    absl::StrAppend(&text, " ", option->get_required() ? name : absl::StrCat("[", name, "]"));
  }
  if (!Commands(app).empty()) absl::StrAppend(&text, " \\fICOMMAND\\fR [\\fIARGUMENTS\\fR]");
  return RoffLine(text);
}

std::string SeeAlso(CLI::App* app, const std::string& path) {
  std::vector<std::string> pages;
  for (std::string above = path; absl::StrContains(above, " ");) {
    above.resize(above.rfind(' '));
    pages.insert(pages.begin(), Reference(above));
  }
  for (CLI::App* command : Commands(app)) {
    pages.push_back(Reference(absl::StrCat(path, " ", command->get_name())));
  }
  return absl::StrCat(RoffLine(absl::StrJoin(pages, ",\n")));
}

absl::Status WriteAll(CLI::App* app, const std::string& path, const std::string& directory) {
  PLUMB_ASSIGN_OR_RETURN(const std::string page, ManPage(app, path));
  const std::string file = absl::StrCat(directory, "/", PageName(path), ".1");
  std::ofstream out(file, std::ios::binary);
  out << page;
  if (!out.flush()) return absl::UnavailableError(absl::StrCat(file, ": cannot be written"));
  for (CLI::App* command : Commands(app)) {
    PLUMB_RETURN_IF_ERROR(
        WriteAll(command, absl::StrCat(path, " ", command->get_name()), directory));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path) {
  std::string help;
  if (app->get_prefix_command()) {  // its options are the other program's
    PLUMB_ASSIGN_OR_RETURN(std::string checker, CheckerHelp());
    help = std::move(checker);
  }
  std::string about = app->get_description();
  absl::StrAppend(&about, absl::EndsWith(about, ".") ? "" : ".");
  std::string name_line = about.substr(0, about.size() - 1);
  name_line[0] = absl::ascii_tolower(static_cast<unsigned char>(name_line[0]));

  // No date: a page changes with the program's version alone.
  std::string page =
      absl::StrCat(".TH ", Escaped(absl::AsciiStrToUpper(PageName(path))),
                   " 1 \"\" \"plumb " PLUMB_VERSION "\" \"User Commands\"\n.SH NAME\n",
                   Escaped(PageName(path)), " \\- ", Paragraph(name_line), ".SH SYNOPSIS\n",
                   Synopsis(app, path), ".SH DESCRIPTION\n", Paragraph(about));
  for (CLI::Option* option : Positionals(app)) {
    absl::StrAppend(&page, ".TP\n\\fI", Escaped(Metavariable(option)), "\\fR\n",
                    Paragraph(OptionText(option)));
  }
  const Footer footer = ParseFooter(app->get_footer());
  if (!footer.notes.empty()) absl::StrAppend(&page, ".PP\n", footer.notes);
  if (!help.empty()) {
    absl::StrAppend(&page, ".PP\n",
                    Verbatim(absl::StrSplit(absl::StripTrailingAsciiWhitespace(help), '\n')));
  }
  if (!Commands(app).empty()) {
    absl::StrAppend(&page, ".SH COMMANDS\n");
    for (CLI::App* command : Commands(app)) {
      absl::StrAppend(&page, ".TP\n\\fB", Escaped(command->get_name()), "\\fR\n",
                      Paragraph(command->get_description() + "."));
    }
  }
  if (help.empty()) absl::StrAppend(&page, OptionSections(app));
  if (!footer.examples.empty()) absl::StrAppend(&page, ".SH EXAMPLES\n", footer.examples);
  return absl::StrCat(page, ".SH \"SEE ALSO\"\n", SeeAlso(app, path));
}

absl::Status WriteManPages(CLI::App* program, const std::string& directory) {
  return WriteAll(program, program->get_name(), directory);
}

}  // namespace plumb::cli
