#include "plugins/check/elf_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/base/status.h"

namespace plumb::check {
namespace {

constexpr size_t kMaxFileBytes = size_t{1} << 30;
constexpr size_t kMaxDynamicEntries = 4096;
constexpr size_t kMaxSymbols = size_t{1} << 22;
constexpr size_t kMaxSegments = 512;
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
constexpr unsigned char kByteOrder = ELFDATA2MSB;
#else
constexpr unsigned char kByteOrder = ELFDATA2LSB;
#endif

absl::Status Malformed(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("has a malformed ", what));
}

class Parser {
 public:
  explicit Parser(absl::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<ElfFile> Parse() {
    PLUMB_RETURN_IF_ERROR(ReadSegments());
    PLUMB_RETURN_IF_ERROR(ReadDynamic());
    PLUMB_RETURN_IF_ERROR(ReadStringTable());
    PLUMB_RETURN_IF_ERROR(ReadPaths());
    PLUMB_RETURN_IF_ERROR(ReadSymbols());
    return std::move(file_);
  }

 private:
  template <class T>
  bool Read(uint64_t offset, T* to) const {
    if (offset > bytes_.size() || sizeof(T) > bytes_.size() - offset) return false;
    std::memcpy(to, bytes_.data() + offset, sizeof(T));
    return true;
  }

  // A T at a virtual address, as the segments' content from the file has it.
  template <class T>
  bool ReadAddress(uint64_t address, T* to) const {
    uint64_t offset = 0, available = 0;
    return Locate(address, &offset, &available) && available >= sizeof(T) && Read(offset, to);
  }

  // Where in the file a virtual address lies, and how many bytes of its segment follow.
  bool Locate(uint64_t address, uint64_t* offset, uint64_t* available) const {
    for (const Elf64_Phdr& segment : file_.segments) {
      if (segment.p_type != PT_LOAD || address < segment.p_vaddr) continue;
      const uint64_t into = address - segment.p_vaddr;
      if (into >= segment.p_filesz || segment.p_offset > bytes_.size() ||
          into >= bytes_.size() - segment.p_offset) {
        continue;
      }
      *offset = segment.p_offset + into;
      *available = std::min<uint64_t>(segment.p_filesz - into, bytes_.size() - *offset);
      return true;
    }
    return false;
  }

  absl::Status ReadSegments() {
    Elf64_Ehdr header;
    if (!Read(0, &header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
      return absl::FailedPreconditionError("is not a shared library (it has no ELF header)");
    }
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != kByteOrder) {
      return absl::FailedPreconditionError("is a program file for another kind of machine");
    }
    if (header.e_type != ET_DYN || header.e_phentsize != sizeof(Elf64_Phdr) ||
        header.e_phnum > kMaxSegments) {
      return Malformed("ELF header");
    }
    for (uint64_t i = 0; i < header.e_phnum; ++i) {
      Elf64_Phdr segment;
      if (header.e_phoff > bytes_.size() || !Read(header.e_phoff + i * sizeof(segment), &segment)) {
        return absl::FailedPreconditionError("is truncated");
      }
      if (segment.p_type == PT_LOAD && (segment.p_offset > bytes_.size() ||
                                        segment.p_filesz > bytes_.size() - segment.p_offset)) {
        return absl::FailedPreconditionError("is truncated");
      }
      file_.segments.push_back(segment);
    }
    return absl::OkStatus();
  }

  absl::Status ReadDynamic() {
    for (const Elf64_Phdr& segment : file_.segments) {
      if (segment.p_type != PT_DYNAMIC) continue;
      const uint64_t count = segment.p_filesz / sizeof(Elf64_Dyn);
      for (uint64_t i = 0; i < count; ++i) {
        Elf64_Dyn entry;
        if (segment.p_offset > bytes_.size() || i > kMaxDynamicEntries ||
            !Read(segment.p_offset + i * sizeof(entry), &entry)) {
          return Malformed("dynamic section");
        }
        if (entry.d_tag == DT_NULL) return absl::OkStatus();
        file_.dynamic.push_back(entry);
      }
    }
    if (file_.dynamic.empty()) return absl::FailedPreconditionError("has no dynamic section");
    return absl::OkStatus();
  }

  // The value of the first entry with the tag, 0 if there is none.
  uint64_t Value(int64_t tag) const {
    for (const Elf64_Dyn& entry : file_.dynamic) {
      if (entry.d_tag == tag) return entry.d_un.d_val;
    }
    return 0;
  }

  absl::Status ReadStringTable() {
    uint64_t offset = 0, available = 0;
    if (!Locate(Value(DT_STRTAB), &offset, &available)) return Malformed("string table");
    strings_ = bytes_.substr(offset, std::min(available, Value(DT_STRSZ)));
    return absl::OkStatus();
  }

  bool String(uint64_t at, std::string* to) const {
    if (at >= strings_.size()) return false;
    const absl::string_view rest = strings_.substr(at);
    const size_t length = rest.find('\0');
    if (length == absl::string_view::npos) return false;
    *to = std::string(rest.substr(0, length));
    return true;
  }

  absl::Status ReadPaths() {
    for (const Elf64_Dyn& entry : file_.dynamic) {
      const bool is_needed = entry.d_tag == DT_NEEDED;
      if (!is_needed && entry.d_tag != DT_RPATH && entry.d_tag != DT_RUNPATH) continue;
      std::string text;
      if (!String(entry.d_un.d_val, &text)) return Malformed("dynamic section");
      if (is_needed) {
        file_.needed.push_back(std::move(text));
      } else {
        for (const absl::string_view part : absl::StrSplit(text, ':')) {
          file_.run_path.emplace_back(part);
        }
      }
    }
    return absl::OkStatus();
  }

  // The symbol table does not say how long it is; its hash tables do.
  absl::StatusOr<uint64_t> CountSymbols() const {
    if (file_.HasEntry(DT_HASH)) {
      uint32_t sizes[2];  // buckets, chains: one chain entry a symbol
      if (!ReadAddress(Value(DT_HASH), &sizes)) return Malformed("hash table");
      return uint64_t{sizes[1]};
    }
    if (!file_.HasEntry(DT_GNU_HASH)) return absl::FailedPreconditionError("has no hash table");
    const uint64_t at = Value(DT_GNU_HASH);
    uint32_t header[4];  // buckets, first hashed symbol, words of the bloom filter, shift
    if (!ReadAddress(at, &header)) return Malformed("hash table");
    const uint64_t buckets = at + sizeof(header) + uint64_t{header[2]} * sizeof(uint64_t);
    const uint64_t chains = buckets + uint64_t{header[0]} * sizeof(uint32_t);
    if (header[0] > kMaxSymbols) return Malformed("hash table");
    uint64_t last = 0;
    for (uint64_t i = 0; i < header[0]; ++i) {
      uint32_t first;
      if (!ReadAddress(buckets + i * sizeof(first), &first)) return Malformed("hash table");
      last = std::max<uint64_t>(last, first);
    }
    if (last == 0) return uint64_t{header[1]};  // nothing is exported
    if (last < header[1]) return Malformed("hash table");
    for (;; ++last) {  // the end of a chain has its lowest bit set
      uint32_t hash;
      if (last > kMaxSymbols || !ReadAddress(chains + (last - header[1]) * sizeof(hash), &hash)) {
        return Malformed("hash table");
      }
      if ((hash & 1) != 0) return last + 1;
    }
  }

  absl::Status ReadSymbols() {
    if (!file_.HasEntry(DT_SYMTAB)) return absl::FailedPreconditionError("has no symbol table");
    PLUMB_ASSIGN_OR_RETURN(const uint64_t count, CountSymbols());
    if (count > kMaxSymbols) return Malformed("symbol table");
    uint64_t offset = 0, available = 0;
    if (!Locate(Value(DT_SYMTAB), &offset, &available) || available / sizeof(Elf64_Sym) < count) {
      return Malformed("symbol table");
    }
    for (uint64_t i = 1; i < count; ++i) {
      Elf64_Sym raw;
      ElfSymbol symbol;
      if (!Read(offset + i * sizeof(raw), &raw) || !String(raw.st_name, &symbol.name)) {
        return Malformed("symbol table");
      }
      symbol.bind = ELF64_ST_BIND(raw.st_info);
      symbol.type = ELF64_ST_TYPE(raw.st_info);
      symbol.visibility = ELF64_ST_VISIBILITY(raw.st_other);
      symbol.defined = raw.st_shndx != SHN_UNDEF;
      file_.symbols.push_back(std::move(symbol));
    }
    return absl::OkStatus();
  }

  absl::string_view bytes_;
  absl::string_view strings_;
  ElfFile file_;
};

}  // namespace

bool ElfSymbol::Exported() const {
  return defined && !name.empty() && bind != STB_LOCAL &&
         (visibility == STV_DEFAULT || visibility == STV_PROTECTED) && type != STT_SECTION &&
         type != STT_FILE;
}

bool ElfFile::HasFlag(int64_t tag, uint64_t bit) const {
  return std::any_of(dynamic.begin(), dynamic.end(), [tag, bit](const Elf64_Dyn& entry) {
    return entry.d_tag == tag && (entry.d_un.d_val & bit) != 0;
  });
}

bool ElfFile::HasEntry(int64_t tag) const {
  return std::any_of(dynamic.begin(), dynamic.end(),
                     [tag](const Elf64_Dyn& entry) { return entry.d_tag == tag; });
}

absl::StatusOr<ElfFile> ParseElf(absl::string_view bytes) { return Parser(bytes).Parse(); }

absl::StatusOr<ElfFile> ReadElf(const std::string& path) {
  std::ifstream stream(path, std::ios::binary | std::ios::ate);
  const std::streamoff size = stream ? static_cast<std::streamoff>(stream.tellg()) : -1;
  if (size < 0) return absl::NotFoundError("cannot be read");
  if (static_cast<size_t>(size) > kMaxFileBytes) {
    return absl::FailedPreconditionError("is larger than 1 GiB");
  }
  std::string bytes(static_cast<size_t>(size), '\0');
  stream.seekg(0);
  if (!stream.read(bytes.data(), size)) return absl::NotFoundError("cannot be read");
  return ParseElf(bytes);
}

}  // namespace plumb::check
