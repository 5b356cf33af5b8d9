// SPDX-License-Identifier: Apache-2.0
// plumb docs: lists and prints the installed pages.

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/help.h"
#include "cli/output.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/text_format.h"
#include "runtime/base/utf8.h"

namespace plumb::cli {
namespace {

struct DocsFlags {
  std::string page, search;
  bool path = false;
};

// Page of the documentation.
struct DocPage {
  std::string name;   // "placements", "performance/results", "examples/wiring"
  std::string path;   // "/usr/share/doc/plumb/docs/placements.md"
  std::string about;  // its first sentence: "You can write any placement that ..."
};

// Returns the text with the links replaced by their texts.
std::string WithoutLinks(absl::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const size_t middle = text[at] == '[' ? text.find("](", at) : absl::string_view::npos;
    const size_t end = middle == absl::string_view::npos ? middle : text.find(')', middle);
    if (end == absl::string_view::npos) {
      result.push_back(text[at++]);
      continue;
    }
    absl::StrAppend(&result, text.substr(at + 1, middle - at - 1));
    at = end + 1;
  }
  return result;
}

// Returns the first paragraph that is neither a title nor a comment, as one line.
std::string FirstParagraph(const std::string& path) {
  std::ifstream file(path);
  std::string paragraph;
  for (std::string line; std::getline(file, line);) {
    if (line.empty() && !paragraph.empty()) break;
    if (line.empty() || absl::StartsWith(line, "#") || absl::StartsWith(line, "<!--")) continue;
    absl::StrAppend(&paragraph, paragraph.empty() ? "" : " ", line);
  }
  return paragraph;
}

// Returns the first sentence of a page, without "After this page", with which most of them begin.
std::string FirstSentence(const std::string& path) {
  std::string text = WithoutLinks(FirstParagraph(path));
  const size_t end = text.find(". ");
  if (end != std::string::npos) text.resize(end + 1);
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "After this page")) absl::ConsumePrefix(&rest, ",");
  std::string sentence(absl::StripLeadingAsciiWhitespace(rest));
  if (!sentence.empty() && rest.size() < text.size()) {
    sentence[0] = absl::ascii_toupper(static_cast<unsigned char>(sentence[0]));
  }
  return sentence;
}

// Returns the name of the page with this path below DocDirectory(): "docs/placements.md" is
// "placements", "plugins/README.md" is "plugins", "README.md" is "readme".
std::string DocPageName(absl::string_view path) {
  if (path == "README.md") return "readme";
  absl::ConsumeSuffix(&path, ".md");
  if (!absl::ConsumeSuffix(&path, "/README")) absl::ConsumePrefix(&path, "docs/");
  return absl::AsciiStrToLower(path);
}

// Returns all pages, ordered by name; none if they are not installed.
std::vector<DocPage> ListDocPages() {
  std::vector<DocPage> pages;
  const std::string directory = DocDirectory();
  std::error_code error;
  for (std::filesystem::recursive_directory_iterator file(directory, error), end;
       !error && file != end; file.increment(error)) {
    if (file->path().extension() != ".md") continue;
    const std::string path = file->path().string();
    pages.push_back({DocPageName(path.substr(directory.size() + 1)), path, FirstSentence(path)});
  }
  std::sort(pages.begin(), pages.end(),
            [](const DocPage& a, const DocPage& b) { return a.name < b.name; });
  return pages;
}

// Returns the page with this name; a path such as "docs/placements.md" or "placements.md", as links
// have it, is a name, too. Errors: kUnavailable if no pages are installed; kInvalidArgument
// with a suggestion if there is no such page.
absl::StatusOr<DocPage> FindDocPage(const std::string& name) {
  std::vector<DocPage> pages = ListDocPages();
  if (pages.empty()) {
    const std::string directory = DocDirectory();
    return absl::UnavailableError(
        absl::StrCat("the pages are not installed", directory.empty() ? "" : ": there are none in ",
                     directory, "; install plumb with them, or read docs/ of its source"));
  }
  const std::string wanted = DocPageName(name);
  std::vector<std::string> names;
  for (DocPage& page : pages) {
    if (page.name == wanted) return std::move(page);
    names.push_back(page.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("there is no page \"", name, "\"",
                                                 DidYouMean(wanted, names),
                                                 "\nplumb docs lists all pages"));
}

std::string PageList(const std::vector<DocPage>& pages) {
  size_t column = 0;
  for (const DocPage& page : pages) column = std::max(column, page.name.size() + 2);
  const auto columns = static_cast<size_t>(TerminalColumns(STDOUT_FILENO));
  std::string text;
  for (const DocPage& page : pages) {
    absl::StrAppend(&text, page.name, std::string(column - page.name.size(), ' '),
                    FillText(page.about, column, columns), "\n");
  }
  return absl::StrCat(text,
                      "\nplumb docs PAGE prints a page, and with --path its path.\n"
                      "plumb docs docs has the pages by task.\n");
}

// Line of a page that has a word.
struct DocLine {
  size_t number = 0;  // from 1
  bool is_heading = false;
  std::string text;  // after the heading above the line; a long one begins shortly before the word
};

// Page with its lines that have a word.
struct FoundPage {
  std::string name;
  std::vector<DocLine> lines;  // headings first
  double share = 0;            // of all lines of the page

  // Pages with the word in a heading are better, and then those with a larger share of such lines.
  std::pair<bool, double> rank() const { return {lines.front().is_heading, share}; }
};

// Returns the lines of a page that have a word, which is in lower case.
FoundPage SearchPage(const DocPage& page, const std::string& word) {
  constexpr size_t kBefore = 20;  // characters before the word
  FoundPage found = {page.name, {}, 0};
  std::ifstream file(page.path);
  std::string heading;
  bool is_code = false;
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (absl::StartsWith(line, "```")) is_code = !is_code;
    const bool is_heading = !is_code && absl::StartsWith(line, "#");
    std::string text = WithoutLinks(absl::StripAsciiWhitespace(line));
    const size_t begins = std::min(text.find_first_not_of("# "), text.size());
    if (is_heading) heading = text = text.substr(begins);
    const size_t at = absl::AsciiStrToLower(text).find(word);
    if (at == std::string::npos) continue;
    const size_t begin = at < kBefore ? 0 : text.rfind(' ', at - kBefore) + 1;
    if (begin > 0) text = absl::StrCat("... ", text.substr(begin));
    found.lines.push_back(
        {number, is_heading, is_heading ? heading : absl::StrCat(heading, ": ", text)});
  }
  std::stable_partition(found.lines.begin(), found.lines.end(),
                        [](const DocLine& line) { return line.is_heading; });
  found.share =
      static_cast<double>(found.lines.size()) / static_cast<double>(std::max<size_t>(number, 1));
  return found;
}

// Returns the lines of the pages that have a word, the best pages first, at most a screen.
absl::StatusOr<std::string> SearchPages(const std::string& word) {
  constexpr size_t kMaxPages = 5, kMaxLines = 3;
  std::vector<FoundPage> pages;
  for (const DocPage& page : ListDocPages()) {
    FoundPage found = SearchPage(page, absl::AsciiStrToLower(word));
    if (!found.lines.empty()) pages.push_back(std::move(found));
  }
  if (pages.empty()) {
    PLUMB_RETURN_IF_ERROR(FindDocPage("docs").status());  // fails if none are installed
    return absl::InvalidArgumentError(absl::StrCat("no page has \"", word, "\""));
  }
  std::stable_sort(pages.begin(), pages.end(),
                   [](const FoundPage& a, const FoundPage& b) { return a.rank() > b.rank(); });
  const auto columns = static_cast<size_t>(TerminalColumns(STDOUT_FILENO));
  std::string text;
  for (size_t i = 0; i < std::min(pages.size(), kMaxPages); ++i) {
    const std::vector<DocLine>& lines = pages[i].lines;
    const auto count = static_cast<int64_t>(lines.size());
    absl::StrAppend(&text, pages[i].name, "  ", Count(count, "line"), "\n");
    for (size_t k = 0; k < std::min(lines.size(), kMaxLines); ++k) {
      const std::string line = absl::StrCat("  ", lines[k].number, "  ", lines[k].text);
      absl::StrAppend(&text, CutLine(line, columns), "\n");
    }
  }
  if (pages.size() > kMaxPages) absl::StrAppend(&text, "and ", pages.size() - kMaxPages, " more\n");
  return absl::StrCat(text, "\nplumb docs PAGE | grep -n WORD prints all lines of a page.\n");
}

// Shows the text in $PAGER, by default less, as git does. Returns false if nothing was shown,
// because there is no pager or none is wanted.
bool ShowInPager(const std::string& text) {
  const char* pager = getenv("PAGER");
  if (pager == nullptr) pager = "less";
  if (pager[0] == '\0' || std::string(pager) == "cat") return false;
  // less ends if the text fits on the screen, and leaves it there.
  setenv("LESS", "FRX", /*replace=*/0);
  FILE* pipe = popen(pager, "w");
  if (pipe == nullptr) return false;
  // Ctrl-C is the pager's, for whose end plumb waits. After popen, because children inherit this.
  const auto previous = std::signal(SIGINT, SIG_IGN);
  fwrite(text.data(), 1, text.size(), pipe);  // fails if the pager ends before the text does
  const int status = pclose(pipe);
  std::signal(SIGINT, previous);
  constexpr int kCannotRun = 126, kNotFound = 127;  // exit codes of the shell
  const bool is_missing =
      WIFEXITED(status) && (WEXITSTATUS(status) == kCannotRun || WEXITSTATUS(status) == kNotFound);
  return status != -1 && !is_missing;
}

absl::StatusOr<int> Docs(const DocsFlags& flags) {
  if (!flags.search.empty()) {
    PLUMB_ASSIGN_OR_RETURN(const std::string found, SearchPages(flags.search));
    return ExitOk(PrintResult(found));
  }
  if (flags.page.empty()) {
    if (flags.path)
      return absl::InvalidArgumentError("--path: needs a page; plumb docs lists them");
    const std::vector<DocPage> pages = ListDocPages();
    if (pages.empty()) return FindDocPage("docs").status();
    return ExitOk(PrintResult(PageList(pages)));
  }
  PLUMB_ASSIGN_OR_RETURN(const DocPage page, FindDocPage(flags.page));
  if (flags.path) return ExitOk(PrintResult(page.path + "\n"));
  PLUMB_ASSIGN_OR_RETURN(const std::string text, ReadFile(page.path));
  if (StdoutIsTerminal() && ShowInPager(PrintableText(text))) return kExitOk;
  return ExitOk(PrintResult(text));
}

}  // namespace

void AddDocsCommand(CLI::App* program, Invocation* invocation) {
  const auto flags = std::make_shared<DocsFlags>();
  CLI::App* app =
      program->add_subcommand("docs", "List the pages of the documentation, or show one");
  app->add_option("PAGE", flags->page, "Name of a page, such as first-model or placements")
      ->type_name("");
  app->add_flag("--path", flags->path, "Print the path of the page's file instead");
  AddText(app, "--search", "WORD", &flags->search,
          "List the lines of all pages that have this word, the best pages first")
      ->excludes(app->get_option("PAGE"))
      ->excludes(app->get_option("--path"));
  app->footer(
      "A terminal shows the page in $PAGER, by default less. Pages are Markdown; the\n"
      "examples that they name are in the same directory.\n\n"
      "Example:\n"
      "  plumb docs\n"
      "  plumb docs first-model\n"
      "  plumb docs --search \"hyper-connections\"\n"
      "  plumb docs placements | grep -n deepnorm");
  RunWhenSelected(app, flags, Docs, invocation);
}

}  // namespace plumb::cli
