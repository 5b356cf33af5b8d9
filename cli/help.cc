// SPDX-License-Identifier: Apache-2.0
// plumb and plumb help: an introduction for new users, and the fields of the files that they write.
#include "cli/help.h"

#include <algorithm>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/arguments.h"
#include "cli/catalog.h"
#include "cli/command.h"
#include "cli/embedded_files.h"
#include "cli/output.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

struct HelpFlags {
  std::vector<std::string> words;
  bool man = false;
  std::string man_pages;
};

constexpr char kPlacementsTopic[] = "placements", kNormsTopic[] = "norms";

// Returns the words other than commands that `plumb help` explains: "model", "placements".
std::vector<std::string> HelpTopics() {
  std::vector<std::string> topics;
  for (const EmbeddedFile& file : SchemaHelp()) topics.push_back(file.name);
  topics.insert(topics.end(), {kPlacementsTopic, kNormsTopic});
  return topics;
}

// Returns the names of an app's commands.
std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command :
       app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); })) {
    names.push_back(command->get_name());
  }
  return names;
}

absl::Status UnknownWord(const std::string& word, const CLI::App& app, bool is_first) {
  std::vector<std::string> known = CommandNames(app);
  const std::vector<std::string> topics = HelpTopics();
  if (is_first) known.insert(known.end(), topics.begin(), topics.end());
  return absl::InvalidArgumentError(absl::StrCat(
      "plumb help: unknown command \"", word, "\"", DidYouMean(word, known),
      "\nplumb --help lists all commands; other topics: ", absl::StrJoin(topics, ", "), "."));
}

// Returns the text about a topic that is not a command; nullopt if the words name none.
absl::StatusOr<std::optional<std::string>> TopicText(const std::vector<std::string>& words,
                                                     const Invocation& invocation) {
  if (words.empty() || words.size() > 2) return std::nullopt;
  for (const EmbeddedFile& file : SchemaHelp()) {
    if (words.size() == 1 && words[0] == file.name) return file.content;
  }
  if (words[0] != kPlacementsTopic && words[0] != kNormsTopic) return std::nullopt;
  PLUMB_ASSIGN_OR_RETURN(const std::unique_ptr<HostRuntime> runtime, invocation.CreateRuntime());
  const std::string name = words.size() == 2 ? words[1] : "";
  PLUMB_ASSIGN_OR_RETURN(
      std::string text,
      WithWarnings(runtime.get(), words[0] == kPlacementsTopic ? PlacementsHelp(name, runtime.get())
                                                               : NormsHelp(name, runtime.get())));
  return text;
}

absl::StatusOr<int> Help(CLI::App* program, const HelpFlags& options,
                         const Invocation& invocation) {
  if (!options.man_pages.empty()) {
    return ExitOk(WriteManPages(program, options.man_pages));
  }
  const std::vector<std::string>& words = options.words;
  PLUMB_ASSIGN_OR_RETURN(const std::optional<std::string> topic, TopicText(words, invocation));
  if (topic.has_value()) {
    if (options.man) {
      return absl::InvalidArgumentError(
          absl::StrCat("plumb help: ", words[0], " is not a command and has no manual page"));
    }
    return ExitOk(PrintResult(*topic));
  }
  CLI::App* app = program;
  std::string path;  // "plumb plugin", for the usage line
  for (const std::string& word : words) {
    const std::vector<CLI::App*> named =
        app->get_subcommands([&word](CLI::App* command) { return command->check_name(word); });
    if (named.empty()) {
      const auto placement = TopicText({kPlacementsTopic, word}, invocation);
      if (words.size() == 1 && placement.ok()) return ExitOk(PrintResult(**placement));
      return UnknownWord(word, *app, app == program);
    }
    absl::StrAppend(&path, path.empty() ? "" : " ", app->get_name());
    app = named.front();
  }
  std::string text = words.empty() ? FirstHelp() : app->help(path);
  if (options.man) {
    PLUMB_ASSIGN_OR_RETURN(
        text, ManPage(app, absl::StrCat(path, path.empty() ? "" : " ", app->get_name())));
  }
  return ExitOk(PrintResult(text));
}

// Returns the innermost selected command and sets `words` to its command line: "plumb plugin list".
const CLI::App* Reached(const CLI::App& program, std::string* words) {
  const CLI::App* app = &program;
  *words = program.get_name();
  while (!app->get_subcommands().empty()) {
    app = app->get_subcommands().back();
    absl::StrAppend(words, " ", app->get_name());
  }
  return app;
}

std::vector<std::string> OptionNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// Returns a message about the first word that nothing consumed.
std::string UnexpectedWord(const CLI::App& app, const std::string& word) {
  if (absl::StartsWith(word, "-")) {
    return absl::StrCat("unknown option ", word,
                        DidYouMean(word.substr(0, word.find('=')), OptionNames(app)));
  }
  const std::vector<std::string> commands = CommandNames(app);
  if (commands.empty()) return absl::StrCat("unexpected argument \"", word, "\"");
  return absl::StrCat("unknown command \"", word, "\"", DidYouMean(word, commands));
}

constexpr size_t kColumns = 78;

// Escapes text for roff, in which "-" is a hyphen and "\-" is the minus sign of options and file
// names.
std::string Escaped(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"\\", "\\e"},
                                    {"-", "\\-"},
                                    {"'", "\\(aq"},
                                    {"`", "\\(ga"},
                                    {"^", "\\(ha"},
                                    {"~", "\\(ti"}});
}

// Returns a line of roff input that is never read as a request.
std::string RoffLine(absl::string_view roff) {
  return absl::StrCat(absl::StartsWith(roff, ".") ? "\\&" : "", roff, "\n");
}

// Returns a paragraph of filled text, wrapped so that an editor can show it.
std::string Paragraph(absl::string_view text) {
  std::string result, line;
  for (const absl::string_view word : absl::StrSplit(text, ' ', absl::SkipEmpty())) {
    // A hyphen inside a word is a real hyphen, where roff may break the line.
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

std::string Sentence(const std::string& text) {
  return absl::EndsWith(text, ".") ? text : text + ".";
}

std::string OptionSections(CLI::App* app) {
  std::string text;
  for (const std::string& group : app->get_groups()) {
    std::string entries;
    for (CLI::Option* option : Options(app)) {
      if (option->get_group() != group) continue;
      absl::StrAppend(&entries, ".TP\n", OptionHead(option), "\n",
                      Paragraph(Sentence(OptionText(option))));
    }
    if (entries.empty()) continue;
    absl::StrAppend(&text, ".SH \"", absl::AsciiStrToUpper(group), "\"\n", entries);
  }
  return text;
}

// Footer of a help text: notes and examples. Empty lines separate the paragraphs; examples begin
// with "Example:", and lines that begin with a blank are printed verbatim.
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

constexpr size_t kTextColumn = 24;      // where descriptions begin
constexpr size_t kMinTextColumns = 20;  // width of descriptions in a narrow terminal

// Returns the names in alphabetical order, because CLI11 orders options by address.
std::string GetNames(const std::set<CLI::Option*>& options) {
  std::set<std::string> names;
  for (const CLI::Option* option : options) names.insert(option->get_name());
  return absl::StrJoin(names, ", ");
}

}  // namespace

void AddHelpCommand(CLI::App* program, Invocation* invocation) {
  const auto options = std::make_shared<HelpFlags>();
  CLI::App* app = program->add_subcommand(
      "help", "Show the first steps, or the help of a command, a file, placements or norms");
  app->add_option("COMMAND", options->words,
                  "A command, such as plugin new; a kind of file, whose fields are listed: model, "
                  "recipe, study, formula or family; placements [NAME]; or norms [NAME]")
      ->type_name("");
  app->add_flag("--man", options->man, "Print the help as a manual page, for man -l -");
  AddText(app, "--man-pages", "DIR", &options->man_pages,
          "Write all manual pages into this directory")
      ->group("");  // used by the build
  app->footer(
      "Example:\n"
      "  plumb help compare\n"
      "  plumb help recipe | less\n"
      "  plumb help placements deepnorm\n"
      "  plumb help --man train | man -l -");
  app->callback([program, options, invocation] {
    invocation->run = [program, options, invocation] {
      return Help(program, *options, *invocation);
    };
  });
}

std::string UsageError(const CLI::App& program, const CLI::ParseError& error) {
  std::string words;
  const CLI::App* app = Reached(program, &words);
  const bool is_about_leftovers = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr ||
                                  dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const std::vector<std::string> left = app->remaining();
  const std::string message =
      is_about_leftovers && !left.empty() ? UnexpectedWord(*app, left.front()) : error.what();
  return absl::StrCat(message, "\n", "See ", words, " --help.");
}

std::string FirstHelp() {
  return "plumb trains and samples transformers whose norm placement is a formula.\n\n"
         "Usage: plumb COMMAND [ARGUMENTS]\n\n"
         "To begin with:\n"
         "  plumb demo\n"
         "      see pre-norm, post-norm and no norm compared, in seconds; needs no files\n"
         "  plumb describe MODEL.pbtxt\n"
         "      show a model's equations, tensors and memory\n"
         "  plumb compare A.pbtxt B.pbtxt --data TEXT --out DIR\n"
         "      train models with the same seeds and data, and write a report\n"
         "  plumb train MODEL.pbtxt --data TEXT --out DIR\n"
         "      train one model; plumb sample DIR then generates text\n"
         "  plumb doctor\n"
         "      show the machine, the plugins, and problems with their fixes\n\n"
         "All commands: plumb --help. One of them: plumb help COMMAND.\n"
         "The fields of files: plumb help model, recipe, study or formula.\n"
         "What a model can name: plumb help placements, plumb help norms.\n"
         "The pages: plumb docs. plumb docs first-model goes from an empty file to a model\n"
         "that writes.\n";
}

absl::StatusOr<std::string> ManPage(CLI::App* app, const std::string& path) {
  std::string help;
  if (app->get_prefix_command()) {  // its options are those of the other program
    PLUMB_ASSIGN_OR_RETURN(std::string checker, CheckerHelp());
    help = std::move(checker);
  }
  std::string about = app->get_description();
  absl::StrAppend(&about, absl::EndsWith(about, ".") ? "" : ".");
  std::string name_line = about.substr(0, about.size() - 1);
  name_line[0] = absl::ascii_tolower(static_cast<unsigned char>(name_line[0]));

  // There is no date, so that a page changes only with the program's version.
  std::string page =
      absl::StrCat(".TH ", Escaped(absl::AsciiStrToUpper(PageName(path))),
                   " 1 \"\" \"plumb " PLUMB_VERSION "\" \"User Commands\"\n.SH NAME\n",
                   Escaped(PageName(path)), " \\- ", Paragraph(name_line), ".SH SYNOPSIS\n",
                   Synopsis(app, path), ".SH DESCRIPTION\n", Paragraph(about));
  for (CLI::Option* option : Positionals(app)) {
    absl::StrAppend(&page, ".TP\n\\fI", Escaped(Metavariable(option)), "\\fR\n",
                    Paragraph(Sentence(OptionText(option))));
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

std::string CutLine(std::string line, size_t columns) {
  if (line.size() <= columns) return line;
  while (columns > 0 && (static_cast<unsigned char>(line[columns]) & 0xc0) == 0x80) --columns;
  line.resize(columns);
  return line;
}

std::string OptionText(const CLI::Option* option) {
  std::string text = option->get_description();
  if (option->get_required()) absl::StrAppend(&text, ". Required");
  if (const std::string needed = GetNames(option->get_needs()); !needed.empty()) {
    absl::StrAppend(&text, ". Needs ", needed);
  }
  if (const std::string excluded = GetNames(option->get_excludes()); !excluded.empty()) {
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
