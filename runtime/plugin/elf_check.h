// Checks a shared library before the dynamic loader sees it. The loader trusts what it reads: a
// file with a flipped bit in its tables ends the process that opens it. What no table says cannot
// be checked: damaged code, constants, and the addresses of code. Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_ELF_CHECK_H_
#define PLUMB_RUNTIME_PLUGIN_ELF_CHECK_H_

#include <elf.h>

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/plugin/elf_image.h"

namespace plumb {

struct ElfFacts {
  bool has_origin = false;  // looks for libraries in places relative to its own ($ORIGIN)
};

// Everything that the loader reads of the file: segments, dynamic section, names, symbols, hash
// tables, versions, relocations, and where its constructors lie. Errors, without the file's name:
// kFailedPrecondition with what is wrong; also when it does not export the entry of a plugin.
// REQUIRES: ReadNormNotes took the file.
absl::StatusOr<ElfFacts> CheckElf(int fd);

// The part of it on relocations and arrays of constructors (elf_relocations.cc). `must_relocate`:
// indices of symbols of which at least one relocation must be.
absl::Status CheckElfRelocations(const ElfImage& image, const std::vector<Elf64_Sym>& symbols,
                                 const std::vector<uint64_t>& must_relocate);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_ELF_CHECK_H_
