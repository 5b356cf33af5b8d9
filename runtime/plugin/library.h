// SPDX-License-Identifier: Apache-2.0
// Shared libraries on disk: looked at first, without running anything, and loaded when that is
// wanted. The one place that calls the dynamic loader. Stateless; a loaded library is never
// unloaded.
#ifndef PLUMB_RUNTIME_PLUGIN_LIBRARY_H_
#define PLUMB_RUNTIME_PLUGIN_LIBRARY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "plumb/norm_plugin.h"
#include "runtime/plugin/elf_note.h"

namespace plumb {

// Who chose a file. One that a user named may be writable by others, with a warning; one that was
// found by searching directories may not.
enum class FileOrigin { kNamed, kSearched };

using FileKey = std::pair<uint64_t, uint64_t>;  // (device, inode)

class OpenLibrary;

// A file as it was found. Nothing of it has run.
struct LibraryFile {
  std::string path;  // without symbolic links, where it exists
  FileKey key{0, 0};
  std::vector<NormNote>
      notes;  // of any ABI major; filled even when there is a problem, if they can be read
  absl::Status problem;               // why it must not be loaded; begins with the path
  std::vector<std::string> warnings;  // begin with the path
  // The file that all of this was read from: what is loaded is no other, whatever has the path by
  // then. Null if it could not be opened, or was given back.
  std::shared_ptr<OpenLibrary> opened;

  // Has it a note with this id, in whatever ABI major?
  bool Names(const std::string& id) const;
  // The ids of its notes: "org.example.a, org.example.b".
  std::string NormIds() const;
};

// Problems: kNotFound when there is no such file; kFailedPrecondition when it is not a plugin, is
// one of another ABI major, is damaged, or could be changed by somebody else.
LibraryFile InspectLibrary(const std::string& path, FileOrigin origin);

// Loads the file and finds its entry. REQUIRES: file.problem.ok() and file.opened. The thread's
// floating-point modes are what they were before, whatever the library's constructors did to them.
// Error: also when the file was written to since it was inspected.
absl::StatusOr<plumb_norm_plugin_v1_fn> LoadLibrary(const LibraryFile& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_LIBRARY_H_
