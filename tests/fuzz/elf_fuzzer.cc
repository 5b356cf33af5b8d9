// SPDX-License-Identifier: Apache-2.0
// Fuzzes shared libraries, whose norm notes are read without running their code.
#include "plumb/norm_plugin.h"
#include "runtime/base/check.h"
#include "runtime/plugin/elf_note.h"
#include "tests/fuzz/fuzz.h"

namespace plumb {
namespace {

PLUMB_FUZZER(elf) {
  const MemoryFile memory(AsText(data, size));
  const auto notes = ReadNormNotes(memory.fd());
  if (!notes.ok()) return;
  for (const NormNote& note : *notes) {
    PLUMB_CHECK(IsNormId(note.id) || (note.id.empty() && note.abi_major != PLUMB_NORM_ABI_MAJOR),
                "a note with a wrong id");
  }
}

}  // namespace
}  // namespace plumb
