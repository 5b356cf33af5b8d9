// SPDX-License-Identifier: Apache-2.0
#include "cli/plugin_new.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "runtime/base/file.h"
#include "runtime/base/status.h"
#include "runtime/base/unfinished_paths.h"

namespace plumb::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kTemplateId = "org.example.my_norm";
constexpr absl::string_view kTemplateName = "my_norm";
constexpr size_t kMaxIdLength = 63;  // see PLUMB_NORM_NOTE

struct Language {
  absl::string_view name;
  std::vector<EmbeddedFile> (*files)();
  absl::string_view check;
};
constexpr Language kLanguages[] = {
    {"c", CTemplate, "make check"},
    {"c++", CppTemplate,
     "cmake -B build && cmake --build build && ctest --test-dir build --output-on-failure"},
    {"rust", RustTemplate,
     "cargo build --release && plumb plugin check target/release/libmy_norm.so"},
};

bool IsWord(absl::string_view text, bool may_begin_with_digit) {
  if (text.empty() || (absl::ascii_isdigit(text[0]) && !may_begin_with_digit)) return false;
  for (const char c : text) {
    if (!absl::ascii_islower(c) && !absl::ascii_isdigit(c) && c != '_') return false;
  }
  return may_begin_with_digit || text[0] != '_';
}

// Returns a valid name similar to `text`: "My-Norm 2" becomes "my_norm_2".
std::string AsWord(absl::string_view text) {
  std::string word;
  for (const char c : text) word += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '_';
  return word.empty() || !absl::ascii_isalpha(word[0]) ? absl::StrCat("norm_", word) : word;
}

absl::Status CheckName(const std::string& name) {
  if (IsWord(name, false)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a norm's name is made of a-z, 0-9 and _, and begins with a letter; \"", name,
                   "\" is not; try --name ", AsWord(name)));
}

// Replaces the template's id and name in one pass, so that inserted text is not replaced again.
std::string Renamed(absl::string_view text, const std::string& name, const std::string& id) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (text.substr(i, kTemplateId.size()) == kTemplateId) {
      out += id;
      i += kTemplateId.size();
    } else if (text.substr(i, kTemplateName.size()) == kTemplateName) {
      out += name;
      i += kTemplateName.size();
    } else {
      out += text[i++];
    }
  }
  return out;
}

absl::Status Failure(const std::string& path, const std::error_code& error) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": cannot write: ", error.message()));
}

// Constants of plumb_norm_note in plumb/norm_plugin.h; tests/cli/plugin_note_test.sh compares them.
constexpr int kAbiMajor = 1, kAbiMinor = 0;  // minimum: other languages have no newer header
constexpr size_t kIdBytes = 64;

std::vector<std::string> ProjectLanguages() {
  std::vector<std::string> names;
  for (const Language& language : kLanguages) names.emplace_back(language.name);
  return names;
}

}  // namespace

absl::Status CheckId(const std::string& id) {
  const std::vector<std::string> parts = absl::StrSplit(id, '.');
  bool good = id.size() <= kMaxIdLength && IsWord(parts[0], false);
  for (const std::string& part : parts) good = good && IsWord(part, true);
  if (!good) {
    return absl::InvalidArgumentError(
        absl::StrCat("an id is words of a-z, 0-9 and _ with points between them, at most ",
                     kMaxIdLength, " characters, as in org.example.my_norm; \"", id, "\" is not"));
  }
  if (parts.size() == 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ids of one word are those of the norms that ship with plumb; begin yours with a domain of "
        "yours, reversed: --id org.example.",
        id));
  }
  return absl::OkStatus();
}

absl::StatusOr<NormProject> NewProject(const std::string& name, const std::string& id,
                                       const std::string& language) {
  PLUMB_RETURN_IF_ERROR(CheckName(name));
  PLUMB_RETURN_IF_ERROR(CheckId(id));
  for (const Language& each : kLanguages) {
    if (each.name != language) continue;
    NormProject project{each.files(), Renamed(each.check, name, id)};
    for (EmbeddedFile& file : project.files) {
      file.name = Renamed(file.name, name, id);
      file.content = Renamed(file.content, name, id);
    }
    return project;
  }
  return absl::InvalidArgumentError(absl::StrCat("--lang: \"", language, "\" is not one of ",
                                                 absl::StrJoin(ProjectLanguages(), ", "),
                                                 "; plumb plugin note helps with other languages"));
}

absl::Status WriteProject(const std::vector<EmbeddedFile>& files, const std::string& directory) {
  std::error_code error;
  const fs::file_status there = fs::status(directory, error);
  if (fs::exists(there) && !(fs::is_directory(there) && fs::is_empty(directory, error))) {
    return absl::AlreadyExistsError(absl::StrCat(
        directory, ": is there already, and nothing of it is touched; name another directory"));
  }
  std::string path = directory;
  while (path.size() > 1 && path.back() == '/') path.pop_back();
  const std::string temporary = absl::StrCat(path, ".tmp-", getpid());
  const UnfinishedPath unfinished(temporary);
  if (!fs::create_directory(temporary, error)) return Failure(path, error);
  absl::Status status;
  for (const EmbeddedFile& file : files) {
    status = WriteFileAtomically(absl::StrCat(temporary, "/", file.name), file.content);
    if (!status.ok()) break;
  }
  if (status.ok()) {
    fs::rename(temporary, path, error);
    if (error) status = Failure(path, error);
  }
  if (!status.ok()) fs::remove_all(temporary, error);
  return status;
}

absl::StatusOr<std::string> NoteAssembly(const std::string& id) {
  PLUMB_RETURN_IF_ERROR(CheckId(id));
  return absl::StrCat("# The ELF note by which plumb finds the norm ", id,
                      ": assemble it (cc -c) and link it in.\n",
                      "  .section .note.plumb,\"a\",%note\n", "  .balign 4\n", "  .long 6, ",
                      8 + kIdBytes, ", 1\n", "  .asciz \"plumb\"\n", "  .balign 4\n", "  .long ",
                      kAbiMajor, ", ", kAbiMinor, "\n", "  .ascii \"", id, "\"\n", "  .zero ",
                      kIdBytes - id.size(), "\n", "  .section .note.GNU-stack,\"\",%progbits\n");
}

}  // namespace plumb::cli
