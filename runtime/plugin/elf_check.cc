#include "runtime/plugin/elf_check.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "plumb/norm_plugin.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

constexpr uint64_t kMaxElfSymbols = uint64_t{1} << 22;
// What every library's _init() calls while it is loaded, if anybody defines it: nobody does, unless
// its relocation is of another symbol by now.
constexpr char kCalledByInit[] = "__gmon_start__";
constexpr uint16_t kVersionIndex = 0x7fff;  // without the mark of a hidden symbol

absl::Status NoEntryIsExported() {
  return absl::FailedPreconditionError(
      absl::StrCat("does not export ", PLUMB_NORM_ENTRY_SYMBOL, "; see docs/plugin-abi.md"));
}

// The tables of names, one after the other; each is used by those that follow.
class NameTables {
 public:
  explicit NameTables(const ElfImage& image) : image_(image) {}

  absl::StatusOr<ElfFacts> Check() {
    PLUMB_RETURN_IF_ERROR(ReadStrings());
    PLUMB_ASSIGN_OR_RETURN(const uint64_t count, CountSymbols());
    PLUMB_RETURN_IF_ERROR(ReadVersions());
    PLUMB_RETURN_IF_ERROR(ReadSymbols(count));
    ElfFacts facts;
    for (const int64_t tag : {DT_RPATH, DT_RUNPATH}) {
      const absl::string_view path = image_.Has(tag) ? StringAt(image_.Value(tag)) : "";
      facts.has_origin |= absl::StrContains(path, "$ORIGIN") || absl::StrContains(path, "${ORIGIN");
    }
    return facts;
  }

  const std::vector<Elf64_Sym>& symbols() const { return symbols_; }
  const std::vector<uint64_t>& must_relocate() const { return must_relocate_; }
  bool has_entry() const { return has_entry_; }

 private:
  bool IsString(uint64_t at) const { return at < strings_.size(); }
  // REQUIRES: IsString(at). The table ends with NUL.
  absl::string_view StringAt(uint64_t at) const { return strings_.data() + at; }

  absl::Status ReadStrings() {
    const uint64_t size = image_.Value(DT_STRSZ);
    const char* const at = image_.Find(image_.Value(DT_STRTAB), size);
    if (at == nullptr || size == 0 || at[0] != '\0' || at[size - 1] != '\0') {
      return DamagedElf("its table of names is not where it should be");
    }
    strings_ = absl::string_view(at, size);
    std::vector<uint64_t> names = image_.needed();
    for (const int64_t tag : {int64_t{DT_SONAME}, int64_t{DT_RPATH}, int64_t{DT_RUNPATH},
                              int64_t{DT_AUXILIARY}, int64_t{DT_FILTER}}) {
      if (image_.Has(tag)) names.push_back(image_.Value(tag));
    }
    for (const uint64_t name : names) {
      if (!IsString(name)) return DamagedElf("a library that it needs has no name");
    }
    for (const uint64_t name : image_.needed()) needed_.insert(StringAt(name));
    return absl::OkStatus();
  }

  // The table of symbols does not say how long it is; its hash tables do.
  absl::StatusOr<uint64_t> CountSymbols() const {
    uint64_t count = 0;
    if (image_.Has(DT_HASH)) {
      PLUMB_ASSIGN_OR_RETURN(count, CheckHash());
    }
    if (image_.Has(DT_GNU_HASH)) {
      PLUMB_ASSIGN_OR_RETURN(const uint64_t counted, CheckGnuHash());
      if (image_.Has(DT_HASH) && counted > count) return DamagedElf("its hash tables disagree");
      count = std::max(count, counted);
    }
    if (count == 0) return NoEntryIsExported();
    return count;
  }

  // Buckets, chains: one chain entry a symbol, with the index of the next one.
  absl::StatusOr<uint64_t> CheckHash() const {
    uint32_t sizes[2];
    const uint64_t table = image_.Value(DT_HASH);
    if (!image_.Get(table, &sizes) || sizes[0] == 0 || sizes[1] == 0 || sizes[1] > kMaxElfSymbols ||
        sizes[0] > kMaxElfSymbols) {
      return DamagedElf("its hash table has no size");
    }
    const uint64_t total = uint64_t{sizes[0]} + sizes[1];
    const char* const words = image_.Find(table + sizeof(sizes), total * sizeof(uint32_t));
    if (words == nullptr || table % alignof(uint32_t) != 0) {
      return DamagedElf("its hash table is not where it should be");
    }
    const auto word = [words](uint64_t i) {
      uint32_t value;
      std::memcpy(&value, words + i * sizeof(value), sizeof(value));
      return value;
    };
    std::vector<bool> seen(sizes[1]);
    for (uint64_t bucket = 0; bucket < sizes[0]; ++bucket) {
      for (uint32_t i = word(bucket); i != 0; i = word(sizes[0] + uint64_t{i})) {
        if (i >= sizes[1] || seen[i]) return DamagedElf("its hash table leads nowhere");
        seen[i] = true;
      }
    }
    return uint64_t{sizes[1]};
  }

  // Header, bloom filter, buckets, and the hashes of symbols from the first hashed one on, those of
  // a bucket together, the last of them odd.
  absl::StatusOr<uint64_t> CheckGnuHash() const {
    struct {
      uint32_t buckets, first, bloom_words, shift;
    } header;
    const uint64_t table = image_.Value(DT_GNU_HASH);
    if (table % alignof(uint64_t) != 0 || !image_.Get(table, &header) || header.buckets == 0 ||
        header.bloom_words == 0 || (header.bloom_words & (header.bloom_words - 1)) != 0 ||
        header.shift >= 64 || header.first == 0 || header.first > kMaxElfSymbols) {
      return DamagedElf("its hash table has no size");
    }
    const uint64_t buckets = table + sizeof(header) + uint64_t{header.bloom_words} * 8;
    const uint64_t hashes = buckets + uint64_t{header.buckets} * 4;
    if (image_.Find(table, hashes - table) == nullptr) {
      return DamagedElf("its hash table is not where it should be");
    }
    uint64_t count = 0;
    for (uint64_t bucket = 0; bucket < header.buckets; ++bucket) {
      uint32_t symbol;
      if (!image_.Get(buckets + bucket * 4, &symbol))
        return DamagedElf("its hash table has no end");
      if (symbol == 0) continue;
      if (symbol < header.first) return DamagedElf("its hash table leads nowhere");
      for (uint32_t hash = 0; (hash & 1) == 0; ++symbol) {
        if (symbol > kMaxElfSymbols ||
            !image_.Get(hashes + uint64_t{symbol - header.first} * 4, &hash)) {
          return DamagedElf("its hash table has no end");
        }
      }
      count = std::max<uint64_t>(count, symbol);
    }
    return count;
  }

  absl::Status ReadVersions() {
    if ((image_.Has(DT_VERNEED) || image_.Has(DT_VERDEF)) != image_.Has(DT_VERSYM)) {
      return DamagedElf("its table of versions is not complete");
    }
    versions_ = {VER_NDX_LOCAL, VER_NDX_GLOBAL};
    if (image_.Has(DT_VERNEED)) PLUMB_RETURN_IF_ERROR(ReadNeededVersions());
    if (image_.Has(DT_VERDEF)) PLUMB_RETURN_IF_ERROR(ReadDefinedVersions());
    return absl::OkStatus();
  }

  // The records of a list are as many as it says, each `next` bytes behind the one before, the last
  // 0.
  template <class Record, class Visit>
  absl::Status ForEachRecord(uint64_t at, uint64_t count, uint32_t Record::*next,
                             const Visit& visit) const {
    for (uint64_t i = 0; i < count; ++i) {
      Record record;
      if (at % alignof(Record) != 0 || !image_.Get(at, &record)) {
        return DamagedElf("its table of versions has no end");
      }
      PLUMB_RETURN_IF_ERROR(visit(record, at));
      if ((record.*next == 0) != (i + 1 == count)) {
        return DamagedElf("its table of versions has no end");
      }
      at += record.*next;
    }
    return count == 0 ? DamagedElf("its table of versions is empty") : absl::OkStatus();
  }

  absl::Status ReadNeededVersions() {
    return ForEachRecord(
        image_.Value(DT_VERNEED), image_.Value(DT_VERNEEDNUM), &Elf64_Verneed::vn_next,
        [&](const Elf64_Verneed& file, uint64_t at) -> absl::Status {
          // The loader aborts over the version of a library that is not needed.
          if (file.vn_version != VER_NEED_CURRENT || !IsString(file.vn_file) ||
              needed_.count(StringAt(file.vn_file)) == 0) {
            return DamagedElf("it needs a version of a library that it does not need");
          }
          return ForEachRecord(at + file.vn_aux, file.vn_cnt, &Elf64_Vernaux::vna_next,
                               [&](const Elf64_Vernaux& version, uint64_t) -> absl::Status {
                                 return AddVersion(version.vna_other, version.vna_name);
                               });
        });
  }

  absl::Status ReadDefinedVersions() {
    return ForEachRecord(
        image_.Value(DT_VERDEF), image_.Value(DT_VERDEFNUM), &Elf64_Verdef::vd_next,
        [&](const Elf64_Verdef& version, uint64_t at) -> absl::Status {
          if (version.vd_version != VER_DEF_CURRENT) {
            return DamagedElf("it defines a version of an unknown kind");
          }
          return ForEachRecord(at + version.vd_aux, version.vd_cnt, &Elf64_Verdaux::vda_next,
                               [&](const Elf64_Verdaux& name, uint64_t) -> absl::Status {
                                 return AddVersion(version.vd_ndx, name.vda_name);
                               });
        });
  }

  absl::Status AddVersion(uint16_t index, uint64_t name) {
    if (!IsString(name)) return DamagedElf("a version has no name");
    versions_.insert(index & kVersionIndex);
    return absl::OkStatus();
  }

  absl::Status ReadSymbols(uint64_t count) {
    const uint64_t table = image_.Value(DT_SYMTAB), versions = image_.Value(DT_VERSYM);
    if (table % alignof(Elf64_Sym) != 0 ||
        image_.Find(table, count * sizeof(Elf64_Sym)) == nullptr) {
      return DamagedElf("its table of symbols is not where it should be");
    }
    if (image_.Has(DT_VERSYM) && (versions % alignof(uint16_t) != 0 ||
                                  image_.Find(versions, count * sizeof(uint16_t)) == nullptr)) {
      return DamagedElf("its table of versions is not where it should be");
    }
    symbols_.resize(count);
    std::set<std::pair<absl::string_view, uint16_t>> undefined;
    for (uint64_t i = 0; i < count; ++i) {
      Elf64_Sym& symbol = symbols_[i];
      uint16_t version = VER_NDX_GLOBAL;
      if (!image_.Get(table + i * sizeof(symbol), &symbol) || !IsString(symbol.st_name) ||
          (image_.Has(DT_VERSYM) && !image_.Get(versions + i * sizeof(version), &version)) ||
          versions_.count(version & kVersionIndex) == 0) {
        return DamagedElf("a symbol has no name or no version");
      }
      if (i == 0) continue;  // the symbol that is none
      const absl::string_view name = StringAt(symbol.st_name);
      if (symbol.st_shndx != SHN_UNDEF) {
        PLUMB_RETURN_IF_ERROR(CheckDefined(symbol, name));
        has_entry_ |= name == PLUMB_NORM_ENTRY_SYMBOL && IsEntry(symbol);
        continue;
      }
      if (name == kCalledByInit) must_relocate_.push_back(i);
      if (ELF64_ST_BIND(symbol.st_info) == STB_LOCAL ||
          ELF64_ST_VISIBILITY(symbol.st_other) != STV_DEFAULT ||
          !undefined.emplace(name, version).second) {
        return DamagedElf("a symbol that others are to define is of an impossible kind");
      }
    }
    return absl::OkStatus();
  }

  bool IsEntry(const Elf64_Sym& symbol) const {
    return ELF64_ST_TYPE(symbol.st_info) == STT_FUNC && ELF64_ST_BIND(symbol.st_info) != STB_LOCAL;
  }

  absl::Status CheckDefined(const Elf64_Sym& symbol, absl::string_view name) const {
    const unsigned char type = ELF64_ST_TYPE(symbol.st_info);
    bool fits = true;
    if (type == STT_TLS) {
      fits = image_.tls_segment() && symbol.st_value <= image_.tls_segment()->p_memsz;
    } else if (type == STT_FUNC || type == STT_GNU_IFUNC) {
      fits = image_.Find(symbol.st_value, 1, PF_X) != nullptr;
    } else if (symbol.st_shndx != SHN_ABS) {  // a name may be that of an end
      fits = symbol.st_value <= image_.end();
    }
    return fits ? absl::OkStatus()
                : DamagedElf(absl::StrCat("its symbol ", absl::CHexEscape(name.substr(0, 64)),
                                          " is not where it should be"));
  }

  const ElfImage& image_;
  absl::string_view strings_;
  std::set<absl::string_view> needed_;  // names of libraries
  std::set<uint16_t> versions_;         // indices
  std::vector<Elf64_Sym> symbols_;
  std::vector<uint64_t> must_relocate_;
  bool has_entry_ = false;
};

}  // namespace

absl::StatusOr<ElfFacts> CheckElf(int fd) {
  PLUMB_ASSIGN_OR_RETURN(const ElfImage image, ElfImage::Read(fd));
  NameTables names(image);
  PLUMB_ASSIGN_OR_RETURN(const ElfFacts facts, names.Check());
  PLUMB_RETURN_IF_ERROR(CheckElfRelocations(image, names.symbols(), names.must_relocate()));
  if (!names.has_entry()) return NoEntryIsExported();
  return facts;
}

}  // namespace plumb
