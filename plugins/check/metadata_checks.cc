// M1: the tables of a file's norms, before anything is called.
#include "plugins/check/checks.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "plugins/check/library.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

constexpr size_t kMaxText = 4096;

// A text of the table; "" with a failure when it is unfit.
std::string ReadText(const char* text, const std::string& what, bool wanted, Report* report) {
  if (text == nullptr) {
    if (wanted) report->Fail(absl::StrCat(what, " is missing"));
    return "";
  }
  const size_t length = strnlen(text, kMaxText + 1);
  if (length > kMaxText) {
    report->Fail(absl::StrFormat("%s is longer than %d characters", what, kMaxText));
    return "";
  }
  const std::string copy(text, length);
  if (FindInvalidUtf8(copy)) report->Fail(absl::StrCat(what, " is not UTF-8"));
  if (wanted && absl::StripAsciiWhitespace(copy).empty()) {
    report->Fail(absl::StrCat(what, " is empty"));
  }
  return copy;
}

void CheckTexts(const plumb_norm_plugin& table, const std::string& who, Report* report) {
  ReadText(table.name, who + ": its name", false, report);
  ReadText(table.version, who + ": its version", true, report);
  ReadText(table.vendor, who + ": its vendor", false, report);
  ReadText(table.license, who + ": its license", false, report);
  ReadText(table.doc, who + ": its doc", true, report);
}

// The ids that the file's notes name for this major; those are what a host looks for.
std::set<std::string> IdsOfNotes(const std::string& path) {
  std::set<std::string> ids;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return ids;
  const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
  close(fd);
  if (!notes.ok()) return ids;
  for (const NormNote& note : *notes) {
    if (note.abi_major == PLUMB_NORM_ABI_MAJOR) ids.insert(note.id);
  }
  return ids;
}

void CompareWithNotes(const std::set<std::string>& ids, const std::set<std::string>& notes,
                      Report* report) {
  for (const std::string& id : ids) {
    if (notes.count(id) == 0) {
      report->Fail(absl::StrCat("no note names the norm ", id, ": PLUMB_NORM_NOTE(\"", id, "\")"));
    }
  }
  for (const std::string& note : notes) {
    if (ids.count(note) == 0) {
      report->Fail(absl::StrCat("a note names the norm ", note, ", which the file does not hold"));
    }
  }
}

// Out of range is NULL, and the same index gives the same pointer.
void CheckEntry(plumb_norm_plugin_v1_fn entry, const std::vector<const plumb_norm_plugin*>& tables,
                Report* report) {
  const auto count = static_cast<uint32_t>(tables.size());
  for (const uint32_t index : {count, count + 1, 1000u, 0x7fffffffu, 0xffffffffu}) {
    if (NormAt(entry, index) != nullptr) {
      report->Fail(
          absl::StrFormat("the entry gives a norm for index %d, and it has %d", index, count));
    }
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (NormAt(entry, i) != tables[i]) {
      report->Fail(
          absl::StrFormat("the entry gives another pointer when index %d is asked again", i));
    }
  }
}

}  // namespace

bool IsName(const char* name) {
  if (name == nullptr) return false;
  const size_t length = strnlen(name, sizeof(plumb_norm_note::id));
  if (length == 0 || length == sizeof(plumb_norm_note::id) ||
      !absl::ascii_islower(static_cast<unsigned char>(name[0])))
    return false;
  return std::all_of(name, name + length, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
  });
}

void CheckMetadata(const Subject& subject, Report* report) {
  const absl::StatusOr<void*> library = Open(subject.path);
  if (!library.ok()) return report->Skip("it does not load (E4)");
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) return report->Skip("it does not load (E4)");
  std::vector<const plumb_norm_plugin*> tables;
  std::set<std::string> ids;
  while (tables.size() < kMaxNorms) {
    const auto index = static_cast<uint32_t>(tables.size());
    const plumb_norm_plugin* table = NormAt(*entry, index);
    if (table == nullptr) break;
    tables.push_back(table);
    const std::string number = absl::StrFormat("norm %d", index);
    if (table->struct_size < sizeof(plumb_norm_plugin)) {
      report->Fail(absl::StrCat(number, ": ", TableProblem(*table)));
      continue;
    }
    const std::string id = ReadText(table->id, number + ": its id", true, report);
    if (!id.empty() && !IsNormId(id)) {
      report->Fail(absl::StrCat(number, ": its id \"", id,
                                "\" is not of the form [a-z][a-z0-9_]*(\\.[a-z0-9_]+)*, at most 63 "
                                "characters"));
    }
    const std::string who = id.empty() ? number : id;
    if (!id.empty() && !ids.insert(id).second) report->Fail(who + ": two norms have this id");
    if (const std::string problem = TableProblem(*table); !problem.empty()) {
      report->Fail(absl::StrCat(who, ": ", problem));
    }
    CheckTexts(*table, who, report);
  }
  if (tables.empty()) report->Fail("the file holds no norm: its entry gives NULL for index 0");
  CheckEntry(*entry, tables, report);
  CompareWithNotes(ids, IdsOfNotes(subject.path), report);
}

}  // namespace plumb::check
