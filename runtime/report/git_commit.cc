// SPDX-License-Identifier: Apache-2.0
#include "runtime/report/git_commit.h"

#include <filesystem>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "runtime/base/file.h"

namespace plumb {
namespace {

constexpr size_t kDigits = 40;  // of a SHA-1; SHA-256 repositories have 64

// Returns the first line of a file; "" if it cannot be read.
std::string FirstLine(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path, kMaxTextBytes);
  return text.ok() ? text->substr(0, text->find('\n')) : "";
}

bool IsHash(absl::string_view text) {
  return text.size() >= kDigits &&
         text.find_first_not_of("0123456789abcdef") == absl::string_view::npos;
}

// Returns the commit of a reference such as "refs/heads/main".
std::string CommitOfReference(const std::string& repository, const std::string& reference) {
  const std::string own = FirstLine(JoinPath(repository, reference));
  if (IsHash(own)) return own;
  const absl::StatusOr<std::string> packed =
      ReadFile(JoinPath(repository, "packed-refs"), kMaxTextBytes);
  if (!packed.ok()) return "";
  for (absl::string_view line : absl::StrSplit(*packed, '\n')) {
    const absl::string_view name = reference;
    if (absl::ConsumeSuffix(&line, name) && absl::ConsumeSuffix(&line, " ") && IsHash(line)) {
      return std::string(line);
    }
  }
  return "";
}

}  // namespace

std::string GitCommitOf(const std::string& file) {
  std::error_code error;
  std::filesystem::path directory = std::filesystem::absolute(file, error).parent_path();
  while (!error && !FileExists((directory / ".git").string())) {
    if (directory == directory.parent_path()) return "";
    directory = directory.parent_path();
  }
  std::string repository = (directory / ".git").string();
  std::string common = repository;
  // A worktree has a file that names its part of the repository, which names the rest.
  absl::string_view line;
  const std::string link = IsDirectory(repository) ? "" : FirstLine(repository);
  line = link;
  if (absl::ConsumePrefix(&line, "gitdir: ")) {
    repository = (directory / std::string(line)).string();
    common = JoinPath(repository, FirstLine(JoinPath(repository, "commondir")));
  }
  const std::string head = FirstLine(JoinPath(repository, "HEAD"));
  line = head;
  if (!absl::ConsumePrefix(&line, "ref: ")) return IsHash(head) ? head : "";
  return CommitOfReference(common, std::string(absl::StripAsciiWhitespace(line)));
}

}  // namespace plumb
