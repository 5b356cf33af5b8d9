// An ELF shared library, read by hand: what the dynamic loader would see of it, without loading.
// Trusts no number in the file. A value.
#ifndef PLUMB_PLUGINS_CHECK_ELF_FILE_H_
#define PLUMB_PLUGINS_CHECK_ELF_FILE_H_

#include <elf.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace plumb::check {

// A name in the dynamic symbol table.
struct ElfSymbol {
  std::string name;
  unsigned char bind = 0;        // STB_*
  unsigned char type = 0;        // STT_*
  unsigned char visibility = 0;  // STV_*
  bool defined = false;

  // Whether others may bind to it.
  bool Exported() const;
};

struct ElfFile {
  std::vector<Elf64_Phdr> segments;
  std::vector<Elf64_Dyn> dynamic;  // up to DT_NULL
  std::vector<ElfSymbol> symbols;
  std::vector<std::string> needed;    // DT_NEEDED
  std::vector<std::string> run_path;  // entries of DT_RPATH and DT_RUNPATH

  // Is the bit set in the dynamic entry `tag` (DT_FLAGS, DT_FLAGS_1)?
  bool HasFlag(int64_t tag, uint64_t bit) const;
  bool HasEntry(int64_t tag) const;
};

// Error: not a shared library for 64 bits and this byte order, or truncated or malformed; without
// the file's name.
absl::StatusOr<ElfFile> ParseElf(absl::string_view bytes);

// The same of a file; at most 1 GiB.
absl::StatusOr<ElfFile> ReadElf(const std::string& path);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_ELF_FILE_H_
