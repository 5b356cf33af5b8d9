// SPDX-License-Identifier: Apache-2.0
// Reading of the notes that PLUMB_NORM_NOTE stores in an ELF file, without running any of its code.
// Stateless.
#ifndef PLUMB_RUNTIME_PLUGIN_ELF_NOTE_H_
#define PLUMB_RUNTIME_PLUGIN_ELF_NOTE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace plumb {

struct NormNote {
  uint32_t abi_major = 0;
  uint32_t abi_minor = 0;
  std::string id;
};

// Returns the plumb notes of the file open at `fd`, in file order; empty for a shared library
// without any. Trusts no number in the file. Errors, without the file's name: not a shared library
// for this machine, truncated, malformed.
absl::StatusOr<std::vector<NormNote>> ReadNormNotes(int fd);

// Returns true for a norm's id: [a-z][a-z0-9_]*(\.[a-z0-9_]+)*, at most 63 characters.
bool IsNormId(const std::string& id);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_ELF_NOTE_H_
