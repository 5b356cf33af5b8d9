// SPDX-License-Identifier: Apache-2.0
// Shared libraries on disk: inspects them without running any code, and loads them on demand. Only
// this module calls the dynamic loader. Stateless; a loaded library is never unloaded.
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

// Source of a file. One that a user named may be writable by others, with a warning; one that was
// found by searching directories may not.
enum class FileOrigin { kNamed, kSearched };

using FileKey = std::pair<uint64_t, uint64_t>;  // (device, inode)

class OpenLibrary;

// A file and the results of its inspection. None of its code has run.
struct LibraryFile {
  std::string path;  // without symbolic links if it exists
  FileKey key{0, 0};
  // Notes for any ABI major; filled even with a problem, if they can be read.
  std::vector<NormNote> notes;
  absl::Status problem;               // reason not to load it; begins with the path
  std::vector<std::string> warnings;  // begin with the path
  // The inspected file, which is the one that is loaded, even if another file has its path by then.
  // Null if it could not be opened or was closed again.
  std::shared_ptr<OpenLibrary> opened;

  // Returns true if it has a note with this id, for any ABI major.
  bool Names(const std::string& id) const;
  // Returns the ids of its notes: "org.example.a, org.example.b".
  std::string NormIds() const;
};

// Inspects a file. Problems: kNotFound; kFailedPrecondition if it is not a plugin, is for another
// ABI major, is damaged, or others could change it.
LibraryFile InspectLibrary(const std::string& path, FileOrigin origin);

// Loads the file and returns its entry function. Restores the thread's floating-point mode, which
// the library's constructors may change. Fails also if the file changed since its inspection.
// REQUIRES: file.problem.ok() and file.opened.
absl::StatusOr<plumb_norm_plugin_v1_fn> LoadLibrary(const LibraryFile& file);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_LIBRARY_H_
