// SPDX-License-Identifier: Apache-2.0
#include "cli/doc_pages.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/installation.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/status.h"

namespace plumb::cli {
namespace {

namespace fs = std::filesystem;

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

}  // namespace

std::string DocPageName(absl::string_view path) {
  if (path == "README.md") return "readme";
  absl::ConsumeSuffix(&path, ".md");
  if (!absl::ConsumeSuffix(&path, "/README")) absl::ConsumePrefix(&path, "docs/");
  return absl::AsciiStrToLower(path);
}

std::vector<DocPage> ListDocPages() {
  std::vector<DocPage> pages;
  const std::string directory = DocDirectory();
  std::error_code error;
  for (fs::recursive_directory_iterator file(directory, error), end; !error && file != end;
       file.increment(error)) {
    if (file->path().extension() != ".md") continue;
    const std::string path = file->path().string();
    pages.push_back({DocPageName(path.substr(directory.size() + 1)), path, FirstSentence(path)});
  }
  std::sort(pages.begin(), pages.end(),
            [](const DocPage& a, const DocPage& b) { return a.name < b.name; });
  return pages;
}

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

}  // namespace plumb::cli
