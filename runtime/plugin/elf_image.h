// ElfImage: a shared library as the dynamic loader is going to map it, read from a file and checked
// as far as its headers and its dynamic section go. Trusts no number in the file. A value.
#ifndef PLUMB_RUNTIME_PLUGIN_ELF_IMAGE_H_
#define PLUMB_RUNTIME_PLUGIN_ELF_IMAGE_H_

#include <elf.h>

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb {

// Not in every elf.h.
inline constexpr int64_t kDtRelr = 36, kDtRelrSize = 35, kDtRelrEntry = 37;
inline constexpr uint32_t kPtGnuProperty = 0x6474e553;

// "is damaged: ...; build or copy it again".
absl::Status DamagedElf(absl::string_view what);

class ElfImage {
 public:
  // Errors, without the file's name: truncated, or what is damaged. REQUIRES: ReadNormNotes took
  // the file (elf_note.h), so that it is a library for this machine.
  static absl::StatusOr<ElfImage> Read(int fd);

  // Addresses are the file's own. The bytes of [address, address + size), if all of them come from
  // the file and lie in one segment with at least these rights (PF_R, PF_W, PF_X); else null.
  const char* Find(uint64_t address, uint64_t size, uint32_t rights = PF_R) const;
  // The same of memory, which may go beyond what comes from the file.
  bool HasMemory(uint64_t address, uint64_t size, uint32_t rights = PF_R) const;
  // Past the last address.
  uint64_t end() const { return loads_.back().p_vaddr + loads_.back().p_memsz; }

  // The T at an address; false where there is none.
  template <class T>
  bool Get(uint64_t address, T* to) const {
    const char* const at = Find(address, sizeof(T));
    if (at != nullptr) std::memcpy(to, at, sizeof(T));
    return at != nullptr;
  }

  bool Has(int64_t tag) const { return dynamic_.count(tag) != 0; }
  // Of a dynamic entry; 0 where there is none.
  uint64_t Value(int64_t tag) const {
    const auto found = dynamic_.find(tag);
    return found == dynamic_.end() ? 0 : found->second;
  }
  const std::vector<uint64_t>& needed() const { return needed_; }  // values of DT_NEEDED
  const Elf64_Phdr& dynamic_segment() const { return *dynamic_segment_; }
  const std::optional<Elf64_Phdr>& tls_segment() const { return tls_segment_; }

 private:
  absl::Status ReadSegments(int fd);
  absl::Status CheckLoads();
  absl::Status CheckSegment(const Elf64_Phdr& segment) const;
  absl::Status ReadDynamic();

  std::string bytes_;  // of the file, up to the end of the last segment that is loaded
  Elf64_Ehdr header_ = {};
  std::vector<Elf64_Phdr> segments_;
  std::vector<Elf64_Phdr> loads_;  // PT_LOAD, ascending
  std::optional<Elf64_Phdr> dynamic_segment_, tls_segment_;
  std::map<int64_t, uint64_t> dynamic_;
  std::vector<uint64_t> needed_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_ELF_IMAGE_H_
