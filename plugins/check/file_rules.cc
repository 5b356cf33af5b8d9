// SPDX-License-Identifier: Apache-2.0
// Rules E1, E2 and E5: the file, its symbols and dynamic section, and the effects of loading it.
// Each runs in a process that has not loaded the file yet.
#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "plugins/check/calls.h"
#include "plugins/check/process_state.h"
#include "plugins/check/rules.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

constexpr size_t kMaxNamed = 8;  // max names in one message

// Returns text such as "a, b, c and 12 more".
std::string Some(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMaxNamed);
  std::string text =
      absl::StrJoin(names.begin(), names.begin() + static_cast<std::ptrdiff_t>(shown), ", ");
  if (shown < names.size()) absl::StrAppend(&text, " and ", names.size() - shown, " more");
  return text;
}

bool IsEntry(const std::string& name) {
  constexpr char kPrefix[] = "plumb_norm_plugin_v";
  if (!absl::StartsWith(name, kPrefix) || name.size() == sizeof(kPrefix) - 1) return false;
  return std::all_of(name.begin() + sizeof(kPrefix) - 1, name.end(),
                     [](unsigned char c) { return std::isdigit(c) != 0; });
}

// Returns true for symbols that older linkers add to every library.
bool IsLinkers(const std::string& name) {
  for (const char* known : {"_init", "_fini", "_edata", "_end", "__bss_start"}) {
    if (name == known) return true;
  }
  return false;
}

// Name in the dynamic symbol table.
struct Symbol {
  std::string name;
  unsigned char bind = 0;  // STB_*
};

// Contents of the file as the loader has mapped it.
struct LoadedFile {
  std::vector<ElfW(Dyn)> dynamic;
  std::vector<Symbol> exported;
  std::vector<std::string> needed, run_path;
  bool says_stack = false, has_executable_stack = false;

  bool HasEntry(ElfW(Sxword) tag) const {
    return std::any_of(dynamic.begin(), dynamic.end(),
                       [tag](const ElfW(Dyn) & entry) { return entry.d_tag == tag; });
  }
  bool HasFlag(ElfW(Sxword) tag, ElfW(Xword) bit) const {
    return std::any_of(dynamic.begin(), dynamic.end(), [tag, bit](const ElfW(Dyn) & entry) {
      return entry.d_tag == tag && (entry.d_un.d_val & bit) != 0;
    });
  }
};

// Returns the number of symbols. Only the hash tables know it, not the symbol table.
size_t CountSymbols(const uint32_t* hash, const uint32_t* gnu_hash) {
  if (hash != nullptr) return hash[1];
  if (gnu_hash == nullptr) return 0;
  // Header: buckets, first hashed symbol, words of the bloom filter, shift.
  const uint32_t n_buckets = gnu_hash[0], first = gnu_hash[1], bloom_words = gnu_hash[2];
  const uint32_t* buckets = gnu_hash + 4 + bloom_words * sizeof(size_t) / sizeof(uint32_t);
  const uint32_t* chains = buckets + n_buckets;
  const uint32_t last = n_buckets == 0 ? 0 : *std::max_element(buckets, chains);
  if (last < first) return first;  // nothing is exported
  size_t i = last;
  while ((chains[i - first] & 1) == 0) ++i;  // the last entry of a chain has its lowest bit set
  return i + 1;
}

void ReadSymbols(const ElfW(Sym) * symbols, size_t count, const char* strings, LoadedFile* file) {
  for (size_t i = 1; i < count; ++i) {
    const ElfW(Sym)& symbol = symbols[i];
    const unsigned char type = symbol.st_info & 0xf, bind = symbol.st_info >> 4;
    const unsigned char visibility = symbol.st_other & 3;
    const char* name = strings + symbol.st_name;
    const bool is_exported = symbol.st_shndx != SHN_UNDEF && name[0] != '\0' && bind != STB_LOCAL &&
                             type != STT_SECTION && type != STT_FILE &&
                             (visibility == STV_DEFAULT || visibility == STV_PROTECTED);
    if (is_exported) file->exported.push_back({name, bind});
  }
}

// Loads the subject. Returns false if that fails, which E1 reports.
bool LoadSubject(const Subject& subject, LoadedFile* file) {
  const absl::StatusOr<void*> library = Open(subject.path);
  link_map* map = nullptr;
  if (!library.ok() || dlinfo(*library, RTLD_DI_LINKMAP, &map) != 0) return false;
  for (const ElfW(Dyn)* entry = map->l_ld; entry->d_tag != DT_NULL; ++entry) {
    file->dynamic.push_back(*entry);
  }
  // Some loaders write addresses into the dynamic section, others keep offsets.
  const auto find = [&](ElfW(Sxword) tag) -> const char* {
    for (const ElfW(Dyn) & entry : file->dynamic) {
      if (entry.d_tag != tag) continue;
      const ElfW(Addr) at = entry.d_un.d_ptr;
      return reinterpret_cast<const char*>(at < map->l_addr ? at + map->l_addr : at);
    }
    return nullptr;
  };
  const char* strings = find(DT_STRTAB);
  for (const ElfW(Dyn) & entry : file->dynamic) {
    const ElfW(Sxword) tag = entry.d_tag;
    if (tag == DT_NEEDED) file->needed.emplace_back(strings + entry.d_un.d_val);
    if (tag != DT_RPATH && tag != DT_RUNPATH) continue;
    for (const absl::string_view part : absl::StrSplit(strings + entry.d_un.d_val, ':')) {
      file->run_path.emplace_back(part);
    }
  }
  const size_t count = CountSymbols(reinterpret_cast<const uint32_t*>(find(DT_HASH)),
                                    reinterpret_cast<const uint32_t*>(find(DT_GNU_HASH)));
  ReadSymbols(reinterpret_cast<const ElfW(Sym)*>(find(DT_SYMTAB)), count, strings, file);
  std::pair<const link_map*, LoadedFile*> wanted(map, file);
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* data) {
        const auto& [own, to] = *static_cast<std::pair<const link_map*, LoadedFile*>*>(data);
        if (info->dlpi_addr != own->l_addr) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          if (info->dlpi_phdr[i].p_type != PT_GNU_STACK) continue;
          to->says_stack = true;
          to->has_executable_stack = (info->dlpi_phdr[i].p_flags & PF_X) != 0;
        }
        return 1;
      },
      &wanted);
  return true;
}

// Returns true if the host exports this name too, so that the plugin's own calls may reach the
// host's function. Names of a C++ standard library are the same text wherever they were compiled.
bool IsHosts(const Symbol& symbol) {
  if (absl::StartsWith(symbol.name, "plumb_") || absl::StartsWith(symbol.name, "_ZN5plumb") ||
      absl::StartsWith(symbol.name, "_ZNK5plumb")) {
    return true;
  }
  return symbol.bind == STB_GLOBAL && symbol.name[0] != '_' &&
         dlsym(RTLD_DEFAULT, symbol.name.c_str()) != nullptr;
}

void CheckDependencies(const LoadedFile& file, Report* report) {
  for (const std::string& library : file.needed) {
    for (const char* shared :
         {"libprotobuf", "libabsl_", "libgomp", "libomp", "libiomp", "libdnnl", "libtbb"}) {
      if (!absl::StartsWith(library, shared)) continue;
      report->Warn(absl::StrCat("needs ", library,
                                ", of which a host may have another version or its own threads"));
    }
  }
  for (const std::string& entry : file.run_path) {
    if (absl::StartsWith(entry, "/") || absl::StartsWith(entry, "$ORIGIN") ||
        absl::StartsWith(entry, "${ORIGIN}")) {
      continue;
    }
    report->Warn(absl::StrCat("its run path has the relative entry \"", entry,
                              "\", which means the host's working directory"));
  }
}

// Fails unless the notes name norms of this ABI.
void CheckNotes(const Subject& subject, Report* report) {
  const int fd = open(subject.path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return report->Fail("the file cannot be opened");
  const absl::StatusOr<std::vector<NormNote>> notes = ReadNormNotes(fd);
  close(fd);
  if (!notes.ok()) return report->Fail(absl::StrCat("the file ", notes.status().message()));
  if (notes->empty()) {
    return report->Fail(
        absl::StrCat("the file is a shared library but not a plumb plugin: it has no ",
                     PLUMB_NORM_NOTE_SECTION, " note (PLUMB_NORM_NOTE)"));
  }
  std::set<std::string> ids;
  size_t usable = 0;
  for (const NormNote& note : *notes) {
    if (note.abi_major != PLUMB_NORM_ABI_MAJOR) continue;
    ++usable;
    if (!ids.insert(note.id).second) {
      report->Fail(absl::StrCat("two notes name the norm ", note.id));
    }
  }
  if (usable == 0) {
    report->Fail(absl::StrFormat("the file is for norm ABI %d, and this is %d",
                                 notes->front().abi_major, PLUMB_NORM_ABI_MAJOR));
  }
}

// Fails on names that the host has too; warns of others.
void CheckExports(const LoadedFile& file, Report* report) {
  std::vector<std::string> colliding, spare, unique;
  for (const Symbol& symbol : file.exported) {
    if (IsEntry(symbol.name) || IsLinkers(symbol.name)) continue;
    if (symbol.bind == STB_GNU_UNIQUE) unique.push_back(symbol.name);
    if (IsHosts(symbol)) {
      colliding.push_back(symbol.name);
    } else if (symbol.bind == STB_GLOBAL) {
      // Weak ones are mostly templates of the standard library.
      spare.push_back(symbol.name);
    }
  }
  if (!colliding.empty()) {
    report->Fail(
        absl::StrCat("exports names that the host has too, and may itself be given the "
                     "host's: ",
                     Some(colliding), "; compile with -fvisibility=hidden"));
  }
  if (!spare.empty()) {
    report->Warn(absl::StrCat("exports more than its entry: ", Some(spare),
                              "; compile with -fvisibility=hidden, and link with "
                              "-Wl,--exclude-libs,ALL"));
  }
  if (!unique.empty()) {
    report->Warn(absl::StrCat("has symbols that are one for the whole process (STB_GNU_UNIQUE): ",
                              Some(unique), "; compile with -fno-gnu-unique"));
  }
}

}  // namespace

void CheckLoads(const Subject& subject, Report* report) {
  CheckNotes(subject, report);
  if (report->failed()) return;  // its code must not run
  const absl::StatusOr<void*> library = Open(subject.path);
  if (!library.ok()) return report->Fail(std::string(library.status().message()));
  const absl::StatusOr<plumb_norm_plugin_v1_fn> entry = EntryOf(*library);
  if (!entry.ok()) report->Fail(absl::StrCat("the file ", entry.status().message()));
}

void CheckLinks(const Subject& subject, Report* report) {
  LoadedFile file;
  if (!LoadSubject(subject, &file)) return report->Skip("it does not load (E1)");
  CheckExports(file, report);
  if (file.HasEntry(DT_TEXTREL) || file.HasFlag(DT_FLAGS, DF_TEXTREL)) {
    report->Fail("its code must be written to when it is loaded (TEXTREL); compile with -fPIC");
  }
  if (!file.says_stack || file.has_executable_stack) {
    report->Fail("needs an executable stack, or does not say; link with -z noexecstack");
  }
  if (file.HasFlag(DT_FLAGS, DF_STATIC_TLS)) {
    report->Warn(
        "needs thread-local memory from the loader's small reserve (STATIC_TLS), so that "
        "it may not load late; do not compile with -ftls-model=initial-exec");
  }
  CheckDependencies(file, report);
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

}  // namespace plumb::check
