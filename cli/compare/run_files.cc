#include "cli/compare/run_files.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "cli/compare/run_record.h"
#include "runtime/tools/file.h"

namespace plumb::cli {
namespace {

absl::Status SystemError(const std::string& path, const std::error_code& error) {
  return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
}

bool TellsTimesOnly(absl::string_view name) { return absl::StartsWith(name, "events.out."); }

std::string MetricsWithoutTimes(absl::string_view text) {
  std::string lines;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::StrAppend(&lines, WithoutTime(line), "\n");
  }
  return lines;
}

absl::StatusOr<bool> AreEqual(const std::string& name, const std::string& a, const std::string& b) {
  absl::StatusOr<std::string> text_a = ReadFile(absl::StrCat(a, "/", name), kMaxResultBytes);
  if (!text_a.ok()) return text_a.status();
  absl::StatusOr<std::string> text_b = ReadFile(absl::StrCat(b, "/", name), kMaxResultBytes);
  if (!text_b.ok()) return text_b.status();
  if (name != "metrics.jsonl") return *text_a == *text_b;
  return MetricsWithoutTimes(*text_a) == MetricsWithoutTimes(*text_b);
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ListRunFiles(const std::string& run) {
  std::vector<std::string> files;
  std::error_code error;
  std::filesystem::recursive_directory_iterator entry(run, error);
  for (; !error && entry != std::filesystem::recursive_directory_iterator();
       entry.increment(error)) {
    std::error_code unknown;
    if (!entry->is_regular_file(unknown)) continue;
    files.push_back(entry->path().lexically_relative(run).generic_string());
  }
  if (error) return SystemError(run, error);
  std::sort(files.begin(), files.end());
  return files;
}

absl::StatusOr<std::string> FirstDifference(const std::string& a, const std::string& b) {
  std::vector<std::string> names[2];
  for (int i = 0; i < 2; ++i) {
    absl::StatusOr<std::vector<std::string>> files = ListRunFiles(i == 0 ? a : b);
    if (!files.ok()) return files.status();
    for (const std::string& file : *files) {
      if (!TellsTimesOnly(file)) names[i].push_back(file);
    }
  }
  std::vector<std::string> only;
  std::set_symmetric_difference(names[0].begin(), names[0].end(), names[1].begin(), names[1].end(),
                                std::back_inserter(only));
  if (!only.empty()) return only.front();
  for (const std::string& name : names[0]) {
    const absl::StatusOr<bool> equal = AreEqual(name, a, b);
    if (!equal.ok()) return equal.status();
    if (!*equal) return name;
  }
  return std::string();
}

std::string IncomingName(const std::string& run) { return absl::StrCat(run, ".incoming"); }

absl::Status MoveIntoPlace(const std::string& run) {
  if (const absl::Status removed = RemoveTree(run); !removed.ok()) return removed;
  std::error_code error;
  std::filesystem::rename(IncomingName(run), run, error);
  return error ? SystemError(run, error) : absl::OkStatus();
}

absl::Status CopyRun(const std::string& from, const std::string& to) {
  const std::string incoming = IncomingName(to);
  if (const absl::Status removed = RemoveTree(incoming); !removed.ok()) return removed;
  const absl::StatusOr<std::vector<std::string>> files = ListRunFiles(from);
  if (!files.ok()) return files.status();
  for (const std::string& file : *files) {
    const std::string path = absl::StrCat(incoming, "/", file);
    const absl::Status made = MakeDirectories(path.substr(0, path.rfind('/')));
    if (!made.ok()) return made;
    const absl::StatusOr<std::string> content =
        ReadFile(absl::StrCat(from, "/", file), kMaxResultBytes);
    if (!content.ok()) return content.status();
    if (const absl::Status written = WriteFile(path, *content); !written.ok()) return written;
  }
  return MoveIntoPlace(to);
}

}  // namespace plumb::cli
