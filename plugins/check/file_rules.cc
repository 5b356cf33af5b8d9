// SPDX-License-Identifier: Apache-2.0
// Rules E1, E2, E5 and M1: the file, its symbols and dynamic section, the effects of loading it,
// and its tables of norms. Each runs in a process that has not loaded the file yet.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plugins/check/plugin.h"
#include "plugins/check/rules.h"
#include "plugins/check/state.h"
#include "runtime/base/utf8.h"
#include "runtime/plugin/descriptor.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

// Returns the ids of the file's notes for this major version, which are the ids that a host finds;
// fails unless there are some.
std::set<std::string> ReadIds(const Subject& subject, Report* report) {
  std::set<std::string> ids;
  const int fd = open(subject.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return report->Fail("the file cannot be opened"), ids;
  const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
  close(fd);
  if (!notes.ok()) return report->Fail(absl::StrCat("the file ", notes.status().message())), ids;
  for (const NormNote& note : *notes) {
    if (note.abi_major != PLUMB_NORM_ABI_MAJOR || ids.insert(note.id).second) continue;
    report->Fail(absl::StrCat("two notes name the norm ", note.id));
  }
  if (notes->empty()) {
    report->Fail(
        "the file is a shared library but not a plumb plugin: it has no " PLUMB_NORM_NOTE_SECTION
        " note (PLUMB_NORM_NOTE)");
  } else if (ids.empty()) {
    report->Fail(absl::StrFormat("the file is for norm ABI %d, and this is %d",
                                 notes->front().abi_major, PLUMB_NORM_ABI_MAJOR));
  }
  return ids;
}

// -- E2 -------------------------------------------------------------------------------------------

// Name in the dynamic symbol table.
struct Symbol {
  std::string name;
  unsigned char bind = 0;  // STB_*
};

// Contents of the file as the loader has mapped it.
struct LoadedFile {
  std::vector<Symbol> exported;
  std::vector<std::string> needed;
  bool says_stack = false, has_executable_stack = false, has_text_relocations = false;
};

// Returns the number of symbols. Only the hash tables have it.
size_t CountSymbols(const uint32_t* hash, const uint32_t* gnu_hash) {
  if (hash != nullptr) return hash[1];
  if (gnu_hash == nullptr) return 0;
  const uint32_t n_buckets = gnu_hash[0], first = gnu_hash[1], bloom_words = gnu_hash[2];
  const uint32_t* buckets = gnu_hash + 4 + bloom_words * (sizeof(ElfW(Addr)) / sizeof(uint32_t));
  const uint32_t* chains = buckets + n_buckets;
  uint32_t i = *std::max_element(buckets, buckets + n_buckets);
  if (i < first) return first;
  while ((chains[i - first] & 1) == 0) ++i;  // the last entry of a chain has its lowest bit set
  return i + 1;
}

// Loads the subject. Returns false if that fails, which E1 reports.
bool LoadSubject(const Subject& subject, LoadedFile* file) {
  const absl::StatusOr<void*> library = Open(subject.path);
  link_map* map = nullptr;
  if (!library.ok() || dlinfo(*library, RTLD_DI_LINKMAP, &map) != 0) return false;
  // Some loaders write addresses into the dynamic section, others keep offsets.
  const auto find = [map](ElfW(Sxword) tag) -> const char* {
    for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
      const ElfW(Addr) at = entry->d_un.d_ptr;
      if (entry->d_tag != tag) continue;
      return reinterpret_cast<const char*>(at < map->l_addr ? at + map->l_addr : at);
    }
    return nullptr;
  };
  const char* strings = find(DT_STRTAB);
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    const ElfW(Sxword) tag = entry->d_tag;
    const ElfW(Xword) value = entry->d_un.d_val;
    if (tag == DT_NEEDED) file->needed.emplace_back(strings + value);
    if (tag == DT_TEXTREL || (tag == DT_FLAGS && (value & DF_TEXTREL) != 0)) {
      file->has_text_relocations = true;
    }
  }
  const auto* symbols = reinterpret_cast<const ElfW(Sym)*>(find(DT_SYMTAB));
  const size_t count = CountSymbols(reinterpret_cast<const uint32_t*>(find(DT_HASH)),
                                    reinterpret_cast<const uint32_t*>(find(DT_GNU_HASH)));
  for (size_t i = 1; i < count; ++i) {
    const unsigned char type = symbols[i].st_info & 0xf, bind = symbols[i].st_info >> 4;
    const unsigned char visibility = symbols[i].st_other & 3;
    const bool is_visible = visibility == STV_DEFAULT || visibility == STV_PROTECTED;
    const bool is_named =
        type != STT_SECTION && type != STT_FILE && strings[symbols[i].st_name] != 0;
    if (symbols[i].st_shndx == SHN_UNDEF || bind == STB_LOCAL || !is_named || !is_visible) continue;
    file->exported.push_back({strings + symbols[i].st_name, bind});
  }
  std::pair<const link_map*, LoadedFile*> wanted(map, file);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const auto& [own, to] = *static_cast<std::pair<const link_map*, LoadedFile*>*>(data);
        for (int i = 0; info->dlpi_addr == own->l_addr && i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_GNU_STACK) continue;
          to->says_stack = true;
          to->has_executable_stack = (info->dlpi_phdr[i].p_flags & PF_X) != 0;
        }
        return 0;
      },
      &wanted);
  return true;
}

// Returns true if the host exports this name too, so that the plugin's own calls may reach the
// host's function. Names of a C++ standard library are the same text wherever they were compiled.
bool IsHosts(const Symbol& symbol) {
  for (const char* prefix : {"plumb_", "_ZN5plumb", "_ZNK5plumb"}) {
    if (absl::StartsWith(symbol.name, prefix)) return true;
  }
  return symbol.bind == STB_GLOBAL && symbol.name[0] != '_' &&
         dlsym(RTLD_DEFAULT, symbol.name.c_str()) != nullptr;
}

// Fails on names that the host has too; warns of others.
void CheckExports(const LoadedFile& file, Report* report) {
  // Symbols that older linkers add to every library.
  const std::set<std::string> of_linker = {"_init", "_fini", "_edata", "_end", "__bss_start"};
  std::vector<std::string> colliding, spare;
  for (const Symbol& symbol : file.exported) {
    const bool is_entry = absl::StartsWith(symbol.name, "plumb_norm_plugin_v");
    if (is_entry || of_linker.count(symbol.name) > 0) continue;
    if (IsHosts(symbol)) {
      colliding.push_back(symbol.name);
    } else if (symbol.bind == STB_GLOBAL) {
      // Weak ones are mostly templates of the standard library.
      spare.push_back(symbol.name);
    }
  }
  const auto report_names = [report](Verdict verdict, const char* what,
                                     std::vector<std::string> names, const char* advice) {
    constexpr size_t kMaxNamed = 8;
    if (names.empty()) return;
    if (names.size() > kMaxNamed) {
      names[kMaxNamed] = absl::StrCat(names.size() - kMaxNamed, " more");
      names.resize(kMaxNamed + 1);
    }
    report->Add(verdict, absl::StrCat(what, ": ", absl::StrJoin(names, ", "), "; ", advice));
  };
  report_names(Verdict::kFail,
               "exports names that the host has too, and may itself be given the host's", colliding,
               "compile with -fvisibility=hidden");
  report_names(Verdict::kWarn, "exports more than its entry", spare,
               "compile with -fvisibility=hidden, and link with -Wl,--exclude-libs,ALL");
}

// -- M1 -------------------------------------------------------------------------------------------

void CheckTexts(const Norm& table, const std::string& who, Report* report) {
  const struct {
    const char* what;
    const char* text;
    bool wanted;
  } texts[] = {{"id", table.id, true},
               {"name", table.name, false},
               {"version", table.version, true},
               {"vendor", table.vendor, false},
               {"license", table.license, false},
               {"doc", table.doc, true}};
  for (const auto& each : texts) {
    const std::string what = absl::StrCat(who, ": its ", each.what);
    const absl::StatusOr<std::string> text = ReadText(each.text, what, kMaxNormTextLength);
    if (!text.ok()) {
      report->Fail(std::string(text.status().message()));
    } else if (FindInvalidUtf8(*text)) {
      report->Fail(what + " is not UTF-8");
    } else if (each.wanted && absl::StripAsciiWhitespace(*text).empty()) {
      report->Fail(what + " is missing");
    } else if (each.text == table.id && !IsNormId(*text)) {
      report->Fail(absl::StrCat(
          what, " \"", *text,
          "\" is not of the form [a-z][a-z0-9_]*(\\.[a-z0-9_]+)*, at most 63 characters"));
    }
  }
}

}  // namespace

void CheckLoads(const Subject& subject, Report* report) {
  ReadIds(subject, report);
  if (report->failed()) return;  // its code must not run
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = Load(subject.path);
  if (!entry.ok()) report->Fail(std::string(entry.status().message()));
}

void CheckLinks(const Subject& subject, Report* report) {
  LoadedFile file;
  if (!LoadSubject(subject, &file)) return report->Skip("it does not load (E1)");
  CheckExports(file, report);
  if (file.has_text_relocations) {
    report->Fail("its code must be written to when it is loaded (TEXTREL); compile with -fPIC");
  }
  if (!file.says_stack || file.has_executable_stack) {
    report->Fail("needs an executable stack, or does not say; link with -z noexecstack");
  }
  for (const std::string& library : file.needed) {
    for (const char* shared :
         {"libprotobuf", "libabsl_", "libgomp", "libomp", "libiomp", "libdnnl", "libtbb"}) {
      if (!absl::StartsWith(library, shared)) continue;
      report->Warn(absl::StrCat("needs ", library,
                                ", of which a host may have another version or its own threads"));
    }
  }
}

void CheckLoadEffects(const Subject& subject, Report* report) {
  constexpr double kMaxSeconds = 0.1;
  ProcessWatch watch;
  const auto start = std::chrono::steady_clock::now();
  const absl::StatusOr<void*> library = Open(subject.path);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  const std::string changes = watch.End();
  if (!library.ok()) return report->Skip("it does not load (E1)");
  if (!changes.empty()) report->Fail("loading it changes the process: " + changes);
  if (took.count() < kMaxSeconds) return;
  report->Warn(absl::StrFormat("loading it takes %.0f ms", 1e3 * took.count()));
}

void CheckMetadata(const Subject& subject, Report* report) {
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = Load(subject.path);
  if (!entry.ok()) return report->Skip("it does not load (E1)");
  std::vector<const Norm*> tables;
  std::set<std::string> ids;
  for (uint32_t i = 0; i < kMaxNorms; ++i) {
    const Norm* table = NormAt(*entry, i);
    if (table == nullptr) break;
    tables.push_back(table);
    const std::string who = absl::StrCat("norm ", i);
    const std::string problem = TableProblem(*table);
    if (!problem.empty()) report->Fail(absl::StrCat(who, ": ", problem));
    if (table->struct_size < sizeof(Norm)) continue;
    CheckTexts(*table, who, report);
    if (table->id != nullptr && !ids.insert(table->id).second) {
      report->Fail(absl::StrCat(who, ": another norm has the id ", table->id, ", too"));
    }
  }
  const auto count = static_cast<uint32_t>(tables.size());
  if (count == 0) report->Fail("the file holds no norm: its entry gives NULL for index 0");
  for (const uint32_t index : {count, count + 1, 1000u, 0x7fffffffu, 0xffffffffu}) {
    if (NormAt(*entry, index) == nullptr) continue;
    report->Fail(
        absl::StrFormat("the entry gives a norm for index %d, and it has %d", index, count));
  }
  for (uint32_t i = 0; i < count; ++i) {
    if (NormAt(*entry, i) == tables[i]) continue;
    report->Fail(
        absl::StrFormat("the entry gives another pointer when index %d is asked again", i));
  }
  const std::set<std::string> notes = ReadIds(subject, report);
  for (const std::string& id : ids) {
    if (notes.count(id) > 0) continue;
    report->Fail(absl::StrCat("no note names the norm ", id, ": PLUMB_NORM_NOTE(\"", id, "\")"));
  }
  for (const std::string& note : notes) {
    if (ids.count(note) > 0) continue;
    report->Fail(absl::StrCat("a note names the norm ", note, ", which the file does not hold"));
  }
}

}  // namespace plumb::check
