// CheckElfRelocations: what the loader writes into a library that it has mapped, and the functions
// that it calls then.
#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"
#include "runtime/plugin/elf_check.h"

namespace plumb {
namespace {

enum class RelocationKind {
  kUnknown,
  kNone,
  kRelative,  // an address of the library itself
  kSymbol,    // the address of a symbol
  kSlot,      // the same, in a place that the linker makes once a symbol
  kTls,       // an offset, or the number of a module
  kTlsPair,   // two words
  kResolver,  // what a function of the library returns
};

RelocationKind KindOf(uint64_t type) {
  switch (type) {
#if defined(__x86_64__)
    case R_X86_64_NONE:
      return RelocationKind::kNone;
    case R_X86_64_RELATIVE:
      return RelocationKind::kRelative;
    case R_X86_64_64:
      return RelocationKind::kSymbol;
    case R_X86_64_GLOB_DAT:
    case R_X86_64_JUMP_SLOT:
      return RelocationKind::kSlot;
    case R_X86_64_DTPMOD64:
    case R_X86_64_DTPOFF64:
    case R_X86_64_TPOFF64:
      return RelocationKind::kTls;
    case R_X86_64_TLSDESC:
      return RelocationKind::kTlsPair;
    case R_X86_64_IRELATIVE:
      return RelocationKind::kResolver;
#elif defined(__aarch64__)
    case R_AARCH64_NONE:
      return RelocationKind::kNone;
    case R_AARCH64_RELATIVE:
      return RelocationKind::kRelative;
    case R_AARCH64_ABS64:
      return RelocationKind::kSymbol;
    case R_AARCH64_GLOB_DAT:
    case R_AARCH64_JUMP_SLOT:
      return RelocationKind::kSlot;
    case R_AARCH64_TLS_DTPMOD:
    case R_AARCH64_TLS_DTPREL:
    case R_AARCH64_TLS_TPREL:
      return RelocationKind::kTls;
    case R_AARCH64_TLSDESC:
      return RelocationKind::kTlsPair;
    case R_AARCH64_IRELATIVE:
      return RelocationKind::kResolver;
#elif defined(__riscv)
    case R_RISCV_NONE:
      return RelocationKind::kNone;
    case R_RISCV_RELATIVE:
      return RelocationKind::kRelative;
    case R_RISCV_64:
      return RelocationKind::kSymbol;
    case R_RISCV_JUMP_SLOT:
      return RelocationKind::kSlot;
    case R_RISCV_TLS_DTPMOD64:
    case R_RISCV_TLS_DTPREL64:
    case R_RISCV_TLS_TPREL64:
      return RelocationKind::kTls;
    case R_RISCV_IRELATIVE:
      return RelocationKind::kResolver;
#elif defined(__powerpc64__)
    case R_PPC64_NONE:
      return RelocationKind::kNone;
    case R_PPC64_RELATIVE:
      return RelocationKind::kRelative;
    case R_PPC64_ADDR64:
    case R_PPC64_UADDR64:
      return RelocationKind::kSymbol;
    case R_PPC64_GLOB_DAT:
    case R_PPC64_JMP_SLOT:
      return RelocationKind::kSlot;
    case R_PPC64_DTPMOD64:
    case R_PPC64_DTPREL64:
    case R_PPC64_TPREL64:
      return RelocationKind::kTls;
    case R_PPC64_IRELATIVE:
      return RelocationKind::kResolver;
#endif
    default:
      return RelocationKind::kUnknown;
  }
}

// 8 bytes, or more, that the loader writes.
struct RelocatedPlace {
  uint64_t address, size;
  bool is_code;  // becomes the address of code, as far as the file says
};

class RelocationTables {
 public:
  RelocationTables(const ElfImage& image, const std::vector<Elf64_Sym>& symbols)
      : image_(image), symbols_(symbols) {}

  absl::Status Check(const std::vector<uint64_t>& must_relocate) {
    PLUMB_RETURN_IF_ERROR(CheckTable(DT_RELA, DT_RELASZ, image_.Value(DT_RELACOUNT)));
    PLUMB_RETURN_IF_ERROR(CheckTable(DT_JMPREL, DT_PLTRELSZ, 0));
    PLUMB_RETURN_IF_ERROR(CheckRelr());
    PLUMB_RETURN_IF_ERROR(CheckPlaces());
    for (const uint64_t symbol : must_relocate) {
      if (relocated_.count(symbol) == 0) return DamagedElf("a symbol has lost its relocation");
    }
    PLUMB_RETURN_IF_ERROR(CheckFunctions(DT_INIT_ARRAY, DT_INIT_ARRAYSZ));
    PLUMB_RETURN_IF_ERROR(CheckFunctions(DT_FINI_ARRAY, DT_FINI_ARRAYSZ));
    const uint64_t init = image_.Value(DT_INIT_ARRAY), fini = image_.Value(DT_FINI_ARRAY);
    const uint64_t init_end = init + image_.Value(DT_INIT_ARRAYSZ);
    const uint64_t fini_end = fini + image_.Value(DT_FINI_ARRAYSZ);
    if (init < fini_end && fini < init_end && init != init_end && fini != fini_end) {
      return DamagedElf("its lists of constructors and destructors overlap");
    }
    return absl::OkStatus();
  }

 private:
  // The first `relative` are of that kind: the loader does not look at their type.
  absl::Status CheckTable(int64_t tag, int64_t size_tag, uint64_t relative) {
    const uint64_t table = image_.Value(tag), size = image_.Value(size_tag);
    const uint64_t count = size / sizeof(Elf64_Rela);
    if (!image_.Has(tag)) return absl::OkStatus();
    // Some linkers count the slots among the others.
    const uint64_t all = image_.Value(DT_RELA);
    if (tag == DT_JMPREL && image_.Has(DT_RELA) && table >= all &&
        table - all + size <= image_.Value(DT_RELASZ)) {
      return absl::OkStatus();
    }
    if (size % sizeof(Elf64_Rela) != 0 || table % alignof(Elf64_Rela) != 0 || relative > count ||
        (size > 0 && image_.Find(table, size) == nullptr)) {
      return DamagedElf("its table of relocations is not where it should be");
    }
    for (uint64_t i = 0; i < count; ++i) {
      Elf64_Rela relocation;
      if (!image_.Get(table + i * sizeof(relocation), &relocation)) {
        return DamagedElf("its table of relocations has no end");
      }
      const RelocationKind kind = KindOf(ELF64_R_TYPE(relocation.r_info));
      if (i < relative && kind != RelocationKind::kRelative) {
        return DamagedElf("a relocation has an unexpected type");
      }
      PLUMB_RETURN_IF_ERROR(CheckRelocation(relocation, kind));
    }
    return absl::OkStatus();
  }

  absl::Status CheckRelocation(const Elf64_Rela& relocation, RelocationKind kind) {
    const uint64_t symbol = ELF64_R_SYM(relocation.r_info);
    const uint64_t addend = static_cast<uint64_t>(relocation.r_addend);
    const bool has_symbol = symbol > 0 && symbol < symbols_.size();
    RelocatedPlace place = {relocation.r_offset, sizeof(uint64_t), false};
    bool fits = false;
    switch (kind) {
      case RelocationKind::kUnknown:
        return DamagedElf(
            absl::StrCat("a relocation has the type ", ELF64_R_TYPE(relocation.r_info)));
      case RelocationKind::kNone:
        return relocation.r_offset == 0 && relocation.r_info == 0
                   ? absl::OkStatus()
                   : DamagedElf("a relocation has no type");
      case RelocationKind::kRelative:
        fits = symbol == 0 && IsNearImage(addend);
        place.is_code = image_.Find(addend, 1, PF_X) != nullptr;
        break;
      case RelocationKind::kSymbol:
        fits = has_symbol;
        place.is_code = has_symbol && (symbols_[symbol].st_shndx == SHN_UNDEF ||
                                       image_.Find(symbols_[symbol].st_value, 1, PF_X) != nullptr);
        break;
      case RelocationKind::kSlot:
        fits = has_symbol && slots_.emplace(ELF64_R_TYPE(relocation.r_info), symbol).second;
        break;
      case RelocationKind::kTlsPair:
        place.size = 2 * sizeof(uint64_t);
        [[fallthrough]];
      case RelocationKind::kTls:
        fits = symbol < symbols_.size() && (symbol != 0 || image_.tls_segment().has_value());
        break;
      case RelocationKind::kResolver:
        fits = symbol == 0 && image_.Find(addend, 1, PF_X) != nullptr;
        break;
    }
    if (!fits) return DamagedElf("a relocation is to an address or a symbol that is not there");
    relocated_.insert(symbol);
    places_.push_back(place);
    return absl::OkStatus();
  }

  // A pointer may point before or behind what it belongs to, but not to another world.
  bool IsNearImage(uint64_t address) const {
    const uint64_t size = image_.end();
    return address <= 2 * size || address >= 0 - size;
  }

  // Addresses that are even, each followed by bitmaps of the 63 words behind it.
  absl::Status CheckRelr() {
    if (!image_.Has(kDtRelr)) return absl::OkStatus();
    const uint64_t table = image_.Value(kDtRelr), size = image_.Value(kDtRelrSize);
    uint64_t next = 0;
    for (uint64_t at = 0; at < size; at += sizeof(uint64_t)) {
      uint64_t entry;
      if (size % sizeof(entry) != 0 || table % alignof(uint64_t) != 0 ||
          !image_.Get(table + at, &entry)) {
        return DamagedElf("its table of relocations is not where it should be");
      }
      if (entry % 2 == 0) {
        places_.push_back({entry, sizeof(entry), IsCodeAddress(entry)});
        next = entry + sizeof(entry);
        continue;
      }
      for (int bit = 1; bit < 64; ++bit) {
        const uint64_t address = next + static_cast<uint64_t>(bit - 1) * sizeof(entry);
        if ((entry >> bit & 1) != 0) {
          places_.push_back({address, sizeof(entry), IsCodeAddress(address)});
        }
      }
      next += 63 * sizeof(entry);
    }
    return absl::OkStatus();
  }

  // Does the word at `place` point to code?
  bool IsCodeAddress(uint64_t place) const {
    uint64_t address;
    return image_.Get(place, &address) && image_.Find(address, 1, PF_X) != nullptr;
  }

  // Each is writable, relocated once, and none of the loader's own.
  absl::Status CheckPlaces() {
    const bool writes_code = image_.Has(DT_TEXTREL) || (image_.Value(DT_FLAGS) & DF_TEXTREL) != 0;
    const uint32_t rights = writes_code ? PF_R : PF_R | PF_W;
    const uint64_t dynamic = image_.dynamic_segment().p_vaddr;
    const uint64_t dynamic_end = dynamic + image_.dynamic_segment().p_memsz;
    std::sort(places_.begin(), places_.end(), [](const RelocatedPlace& a, const RelocatedPlace& b) {
      return a.address < b.address;
    });
    uint64_t free = 0;
    for (const RelocatedPlace& place : places_) {
      if (!image_.HasMemory(place.address, place.size, rights) || place.address < free ||
          (place.address < dynamic_end && place.address + place.size > dynamic)) {
        return DamagedElf("a relocation is of a place that cannot be relocated");
      }
      free = place.address + place.size;
    }
    return absl::OkStatus();
  }

  // Constructors or destructors: each is relocated, and to code.
  absl::Status CheckFunctions(int64_t tag, int64_t size_tag) const {
    const uint64_t list = image_.Value(tag), size = image_.Value(size_tag);
    if (size == 0) return absl::OkStatus();
    if (list % alignof(uint64_t) != 0 || size % sizeof(uint64_t) != 0 ||
        image_.Find(list, size) == nullptr) {
      return DamagedElf("its list of constructors is not where it should be");
    }
    for (uint64_t at = list; at < list + size; at += sizeof(uint64_t)) {
      const auto found = std::lower_bound(
          places_.begin(), places_.end(), at,
          [](const RelocatedPlace& place, uint64_t address) { return place.address < address; });
      if (found == places_.end() || found->address != at || !found->is_code) {
        return DamagedElf("a constructor is not code");
      }
    }
    return absl::OkStatus();
  }

  const ElfImage& image_;
  const std::vector<Elf64_Sym>& symbols_;
  std::vector<RelocatedPlace> places_;             // by address, after CheckPlaces
  std::set<uint64_t> relocated_;                   // symbols
  std::set<std::pair<uint64_t, uint64_t>> slots_;  // type, symbol
};

}  // namespace

absl::Status CheckElfRelocations(const ElfImage& image, const std::vector<Elf64_Sym>& symbols,
                                 const std::vector<uint64_t>& must_relocate) {
  return RelocationTables(image, symbols).Check(must_relocate);
}

}  // namespace plumb
