#include "runtime/plugin/elf_image.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "runtime/base/status.h"

namespace plumb {
namespace {

// Far more than any norm, and no burden for whoever maps it.
constexpr uint64_t kMaxImageBytes = uint64_t{1} << 30;
constexpr uint64_t kMaxTlsBytes = 1 << 20;
constexpr uint64_t kMaxSegmentAlignment = 1 << 21;

bool IsPowerOfTwo(uint64_t n) { return n != 0 && (n & (n - 1)) == 0; }

uint64_t PageSize() { return static_cast<uint64_t>(sysconf(_SC_PAGESIZE)); }

uint64_t PageUp(uint64_t n) { return (n + PageSize() - 1) / PageSize() * PageSize(); }
uint64_t PageDown(uint64_t n) { return n / PageSize() * PageSize(); }

// [begin, begin + size) within [of, of + of_size), without overflow.
bool Within(uint64_t begin, uint64_t size, uint64_t of, uint64_t of_size) {
  return begin >= of && begin - of <= of_size && size <= of_size - (begin - of);
}

bool ReadUpTo(int fd, uint64_t size, std::string* bytes) {
  bytes->resize(size);
  for (uint64_t done = 0; done < size;) {
    const ssize_t n = pread(fd, bytes->data() + done, size - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    done += static_cast<uint64_t>(n);
  }
  return true;
}

// Entries that mean nothing without another, both ways.
constexpr std::pair<int64_t, int64_t> kPairs[] = {{DT_RELA, DT_RELASZ},
                                                  {DT_RELA, DT_RELAENT},
                                                  {DT_JMPREL, DT_PLTRELSZ},
                                                  {DT_JMPREL, DT_PLTREL},
                                                  {DT_INIT_ARRAY, DT_INIT_ARRAYSZ},
                                                  {DT_FINI_ARRAY, DT_FINI_ARRAYSZ},
                                                  {DT_VERNEED, DT_VERNEEDNUM},
                                                  {DT_VERDEF, DT_VERDEFNUM},
                                                  {DT_SYMTAB, DT_SYMENT},
                                                  {DT_STRTAB, DT_STRSZ},
                                                  {kDtRelr, kDtRelrSize},
                                                  {kDtRelr, kDtRelrEntry}};
constexpr std::pair<int64_t, uint64_t> kConstants[] = {{DT_SYMENT, sizeof(Elf64_Sym)},
                                                       {DT_RELAENT, sizeof(Elf64_Rela)},
                                                       {DT_PLTREL, DT_RELA},
                                                       {kDtRelrEntry, sizeof(uint64_t)}};

}  // namespace

absl::Status DamagedElf(absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat("is damaged: ", what, "; build it or copy it again"));
}

absl::StatusOr<ElfImage> ElfImage::Read(int fd) {
  ElfImage image;
  PLUMB_RETURN_IF_ERROR(image.ReadSegments(fd));
  PLUMB_RETURN_IF_ERROR(image.CheckLoads());
  for (const Elf64_Phdr& segment : image.segments_) {
    PLUMB_RETURN_IF_ERROR(image.CheckSegment(segment));
  }
  PLUMB_RETURN_IF_ERROR(image.ReadDynamic());
  return image;
}

absl::Status ElfImage::ReadSegments(int fd) {
  struct stat info;
  if (fstat(fd, &info) != 0) return absl::FailedPreconditionError("cannot be read");
  const uint64_t file_size = static_cast<uint64_t>(info.st_size);
  std::string start;
  if (!ReadUpTo(fd, std::min<uint64_t>(file_size, 1 << 16), &start) ||
      start.size() < sizeof(header_)) {
    return absl::FailedPreconditionError("is truncated");
  }
  std::memcpy(&header_, start.data(), sizeof(header_));
  const uint64_t table = uint64_t{header_.e_phnum} * sizeof(Elf64_Phdr);
  if (header_.e_phentsize != sizeof(Elf64_Phdr) || header_.e_phoff % alignof(Elf64_Phdr) != 0 ||
      !Within(header_.e_phoff, table, sizeof(header_), start.size() - sizeof(header_))) {
    return DamagedElf("its table of segments is not where the header says");
  }
  segments_.resize(header_.e_phnum);
  if (table > 0) std::memcpy(segments_.data(), start.data() + header_.e_phoff, table);
  uint64_t end = header_.e_phoff + table;
  for (const Elf64_Phdr& segment : segments_) {
    if (segment.p_type == PT_LOAD) {
      loads_.push_back(segment);
      if (!Within(segment.p_offset, segment.p_filesz, 0, file_size)) {
        return absl::FailedPreconditionError("is truncated");
      }
      end = std::max(end, segment.p_offset + segment.p_filesz);
    }
    for (auto [type, to] : {std::pair{PT_DYNAMIC, &dynamic_segment_}, {PT_TLS, &tls_segment_}}) {
      if (segment.p_type != static_cast<uint32_t>(type)) continue;
      if (to->has_value()) return DamagedElf("it has two segments where there can be one");
      *to = segment;
    }
  }
  if (end > kMaxImageBytes) return DamagedElf("it has a segment larger than 1 GiB");
  if (loads_.empty()) return DamagedElf("it has no segment to load");
  if (!dynamic_segment_) return DamagedElf("it has no dynamic section");
  if (!ReadUpTo(fd, end, &bytes_)) return absl::FailedPreconditionError("is truncated");
  return absl::OkStatus();
}

// Ascending and apart, in the file as in memory, which is how every linker lays them out.
absl::Status ElfImage::CheckLoads() {
  uint64_t memory_end = 0, file_end = 0;
  bool is_first = true;
  for (const Elf64_Phdr& load : loads_) {
    if (!IsPowerOfTwo(load.p_align) || load.p_align > kMaxSegmentAlignment ||
        load.p_align % PageSize() != 0 || (load.p_vaddr - load.p_offset) % load.p_align != 0) {
      return DamagedElf("a segment is not aligned");
    }
    if (load.p_filesz > load.p_memsz || load.p_memsz == 0 ||
        !Within(load.p_vaddr, load.p_memsz, 0, kMaxImageBytes)) {
      return DamagedElf("a segment has an impossible size or address");
    }
    if (!is_first && (PageDown(load.p_vaddr) < PageUp(memory_end) || load.p_offset < file_end)) {
      return DamagedElf("its segments overlap");
    }
    if ((load.p_flags & PF_R) == 0 || (load.p_flags & ~uint32_t{PF_R | PF_W | PF_X}) != 0 ||
        (load.p_filesz < load.p_memsz && (load.p_flags & PF_W) == 0)) {
      return DamagedElf("a segment has impossible rights");
    }
    memory_end = load.p_vaddr + load.p_memsz;
    file_end = load.p_offset + load.p_filesz;
    is_first = false;
  }
  return absl::OkStatus();
}

// The other segments lie in those that are loaded, and where they say in the file.
absl::Status ElfImage::CheckSegment(const Elf64_Phdr& segment) const {
  const auto comes_from = [&](uint64_t size, uint32_t rights) {
    const char* const at = Find(segment.p_vaddr, size, rights);
    return at != nullptr && static_cast<uint64_t>(at - bytes_.data()) == segment.p_offset;
  };
  bool fits = true;
  switch (segment.p_type) {
    case PT_DYNAMIC:  // the loader writes addresses into it
      fits = comes_from(segment.p_filesz, PF_R | PF_W) && segment.p_memsz == segment.p_filesz &&
             segment.p_vaddr % alignof(Elf64_Dyn) == 0;
      break;
    case PT_PHDR:
      fits = comes_from(segment.p_filesz, PF_R) && segment.p_offset == header_.e_phoff;
      break;
    case PT_NOTE:
    case kPtGnuProperty:
      fits = comes_from(segment.p_filesz, PF_R) && segment.p_memsz == segment.p_filesz &&
             segment.p_vaddr % 4 == 0;
      break;
    case PT_GNU_EH_FRAME:
      fits = comes_from(segment.p_filesz, PF_R);
      break;
    case PT_TLS:
      fits = segment.p_filesz <= segment.p_memsz && segment.p_memsz <= kMaxTlsBytes &&
             (segment.p_align == 0 || IsPowerOfTwo(segment.p_align)) &&
             segment.p_align <= PageSize() &&
             (segment.p_filesz == 0 || comes_from(segment.p_filesz, PF_R));
      break;
    case PT_GNU_RELRO:  // becomes read-only, page by page
      fits = std::any_of(loads_.begin(), loads_.end(), [&](const Elf64_Phdr& load) {
        return (load.p_flags & PF_W) != 0 &&
               Within(segment.p_vaddr, segment.p_memsz, load.p_vaddr,
                      PageUp(load.p_vaddr + load.p_memsz) - load.p_vaddr);
      });
      break;
    default:
      break;
  }
  return fits ? absl::OkStatus()
              : DamagedElf(absl::StrCat("a segment of type ", segment.p_type,
                                        " is not where its header says"));
}

absl::Status ElfImage::ReadDynamic() {
  bool ended = false;
  for (uint64_t at = 0; !ended; at += sizeof(Elf64_Dyn)) {
    Elf64_Dyn entry;
    if (dynamic_segment_->p_filesz - at < sizeof(entry) ||
        !Get(dynamic_segment_->p_vaddr + at, &entry)) {
      return DamagedElf("its dynamic section has no end");
    }
    if (entry.d_tag == DT_NULL) {
      ended = true;
    } else if (entry.d_tag == DT_NEEDED) {
      needed_.push_back(entry.d_un.d_val);
    } else if (!dynamic_.emplace(entry.d_tag, entry.d_un.d_val).second) {
      return DamagedElf("its dynamic section says something twice");
    }
  }
  for (const auto& [tag, partner] : kPairs) {
    if (Has(tag) != Has(partner)) return DamagedElf("its dynamic section is not complete");
  }
  for (const auto& [tag, value] : kConstants) {
    if (Has(tag) && Value(tag) != value) {
      return DamagedElf("its dynamic section has a size that cannot be");
    }
  }
  if (!Has(DT_SYMTAB) || !Has(DT_STRTAB) || Has(DT_REL)) {
    return DamagedElf("its dynamic section is not complete");
  }
  for (const int64_t function : {DT_INIT, DT_FINI}) {
    if (Has(function) && Find(Value(function), 1, PF_X) == nullptr) {
      return DamagedElf("its initialization is not code");
    }
  }
  return absl::OkStatus();
}

const char* ElfImage::Find(uint64_t address, uint64_t size, uint32_t rights) const {
  for (const Elf64_Phdr& load : loads_) {
    if ((load.p_flags & rights) == rights && Within(address, size, load.p_vaddr, load.p_filesz)) {
      return bytes_.data() + load.p_offset + (address - load.p_vaddr);
    }
  }
  return nullptr;
}

bool ElfImage::HasMemory(uint64_t address, uint64_t size, uint32_t rights) const {
  return std::any_of(loads_.begin(), loads_.end(), [&](const Elf64_Phdr& load) {
    return (load.p_flags & rights) == rights && Within(address, size, load.p_vaddr, load.p_memsz);
  });
}

}  // namespace plumb
