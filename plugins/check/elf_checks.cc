// E1 to E3: what can be said of the file without loading it.
#include "plugins/check/elf_checks.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "plugins/check/elf_file.h"
#include "plugins/check/lists.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/elf_note.h"

namespace plumb::check {
namespace {

constexpr size_t kMostNamed = 8;  // names in one message

// "a, b, c and 12 more"
std::string Some(const std::vector<std::string>& names) {
  const size_t shown = std::min(names.size(), kMostNamed);
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

// What older linkers put into every library.
bool IsLinkers(const std::string& name) {
  for (const char* known : {"_init", "_fini", "_edata", "_end", "__bss_start"}) {
    if (name == known) return true;
  }
  return false;
}

// Of the C++ standard library or the language's run time. E3 speaks of them.
bool IsStandardLibrarys(const std::string& name) {
  for (const char* prefix : {"_ZSt",
                             "_ZNSt",
                             "_ZNKSt",
                             "_ZTVSt",
                             "_ZTISt",
                             "_ZTSSt",
                             "_ZTTSt",
                             "_ZGVNSt",
                             "_ZN9__gnu_cxx",
                             "_ZNK9__gnu_cxx",
                             "_ZN10__cxxabiv",
                             "_ZTVN10__cxxabiv",
                             "_ZTIN10__cxxabiv",
                             "_ZTSN10__cxxabiv",
                             "_ZTVN9__gnu_cxx",
                             "_ZTIN9__gnu_cxx",
                             "_ZTSN9__gnu_cxx",
                             "__cxa_",
                             "__gxx_",
                             "_Znw",
                             "_Zna",
                             "_Zdl",
                             "_Zda"}) {
    if (absl::StartsWith(name, prefix)) return true;
  }
  // Type information of types that are built in: _ZTIi, _ZTSPKc.
  const bool is_type = absl::StartsWith(name, "_ZTI") || absl::StartsWith(name, "_ZTS");
  return is_type && name.size() > 4 && name[4] != 'N' && std::isdigit(name[4]) == 0;
}

// A name that the host has too, so that the plugin's own calls of it may end up in the host.
bool IsHosts(const ElfSymbol& symbol) {
  if (absl::StartsWith(symbol.name, "plumb_") || absl::StartsWith(symbol.name, "_ZN5plumb") ||
      absl::StartsWith(symbol.name, "_ZNK5plumb")) {
    return true;
  }
  // Templates are the same text wherever they were compiled.
  return symbol.bind == STB_GLOBAL && dlsym(RTLD_DEFAULT, symbol.name.c_str()) != nullptr;
}

// The file, or a skipped check: E1 says what is wrong with it.
bool ReadSubject(const Subject& subject, ElfFile* file, Report* report) {
  absl::StatusOr<ElfFile> read = ReadElf(subject.path);
  if (!read.ok()) {
    report->Skip(absl::StrCat("the file ", read.status().message()));
    return false;
  }
  *file = *std::move(read);
  return true;
}

void CheckStack(const ElfFile& file, Report* report) {
  const auto stack =
      std::find_if(file.segments.begin(), file.segments.end(),
                   [](const Elf64_Phdr& segment) { return segment.p_type == PT_GNU_STACK; });
  if (stack == file.segments.end()) {
    report->Fail(
        "does not say what stack it needs (no PT_GNU_STACK), which means an executable "
        "one; link with -z noexecstack");
  } else if ((stack->p_flags & PF_X) != 0) {
    report->Fail("makes every thread's stack executable; link with -z noexecstack");
  }
}

void CheckDependencies(const ElfFile& file, Report* report) {
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

void CheckSymbols(const ElfFile& file, Report* report) {
  std::vector<std::string> unique, standard;
  for (const ElfSymbol& symbol : file.symbols) {
    if (!symbol.Exported()) continue;
    if (symbol.bind == STB_GNU_UNIQUE) unique.push_back(symbol.name);
    if (symbol.bind == STB_GLOBAL && IsStandardLibrarys(symbol.name)) {
      standard.push_back(symbol.name);
    }
  }
  if (!unique.empty()) {
    report->Warn(absl::StrCat("has symbols that are one for the whole process (STB_GNU_UNIQUE): ",
                              Some(unique), "; compile with -fno-gnu-unique"));
  }
  if (!standard.empty()) {
    report->Warn(absl::StrCat("exports a C++ standard library of its own: ", Some(standard),
                              "; link with -Wl,--exclude-libs,ALL"));
  }
}

}  // namespace

void CheckNote(const Subject& subject, Report* report) {
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
  // The dynamic loader believes what the file says of itself, and dies of it.
  const absl::StatusOr<ElfFile> file = ReadElf(subject.path);
  if (!file.ok()) report->Fail(absl::StrCat("the file ", file.status().message()));
}

void CheckExports(const Subject& subject, Report* report) {
  ElfFile file;
  if (!ReadSubject(subject, &file, report)) return;
  std::vector<std::string> colliding, spare;
  for (const ElfSymbol& symbol : file.symbols) {
    // Unique symbols and the standard library are E3's.
    if (!symbol.Exported() || IsEntry(symbol.name) || IsLinkers(symbol.name) ||
        IsStandardLibrarys(symbol.name) || symbol.bind == STB_GNU_UNIQUE) {
      continue;
    }
    (IsHosts(symbol) ? colliding : spare).push_back(symbol.name);
  }
  if (!colliding.empty()) {
    report->Fail(
        absl::StrCat("exports names that the host has too, and may itself be given the "
                     "host's: ",
                     Some(colliding), "; compile with -fvisibility=hidden"));
  }
  if (!spare.empty()) {
    report->Warn(absl::StrCat("exports more than its entry: ", Some(spare),
                              "; compile with -fvisibility=hidden"));
  }
}

void CheckDynamicSection(const Subject& subject, Report* report) {
  ElfFile file;
  if (!ReadSubject(subject, &file, report)) return;
  if (file.HasEntry(DT_TEXTREL) || file.HasFlag(DT_FLAGS, DF_TEXTREL)) {
    report->Fail("its code must be written to when it is loaded (TEXTREL); compile with -fPIC");
  }
  CheckStack(file, report);
  if (file.HasFlag(DT_FLAGS, DF_STATIC_TLS)) {
    report->Warn(
        "needs thread-local memory from the loader's small reserve (STATIC_TLS), so that "
        "it may not load late; do not compile with -ftls-model=initial-exec");
  }
  CheckDependencies(file, report);
  CheckSymbols(file, report);
}

std::vector<Check> ElfChecks() {
  return {
      {"E1", 1, Scope::kFile, "ELF note, machine and ABI numbers", CheckNote},
      {"E2", 1, Scope::kFile, "exports its entry and nothing else", CheckExports},
      {"E3", 1, Scope::kFile, "dynamic section holds nothing dangerous", CheckDynamicSection},
      {"E4", 1, Scope::kLibrary, "loads, with every symbol resolved", CheckLoads},
      {"E5", 1, Scope::kLibrary, "loading changes nothing in the process", CheckLoadEffects},
      {"E6", 1, Scope::kLibrary, "loads within 100 ms", CheckLoadTime, /*timed=*/true},
  };
}

}  // namespace plumb::check
