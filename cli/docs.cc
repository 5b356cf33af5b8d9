// SPDX-License-Identifier: Apache-2.0
// plumb docs: lists and prints the installed pages.

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/arguments.h"
#include "cli/command.h"
#include "cli/doc_pages.h"
#include "cli/help_formatter.h"
#include "cli/output.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/utf8.h"

namespace plumb::cli {
namespace {

struct DocsFlags {
  std::string page;
  bool path = false;
};

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
  app->footer(
      "A terminal shows the page in $PAGER, by default less. Pages are Markdown; the\n"
      "examples that they name are in the same directory.\n\n"
      "Example:\n"
      "  plumb docs\n"
      "  plumb docs first-model\n"
      "  plumb docs placements | grep -n deepnorm");
  RunWhenSelected(app, flags, Docs, invocation);
}

}  // namespace plumb::cli
