// SPDX-License-Identifier: Apache-2.0
// PluginRegistry: finds norm plugins by id, on demand. Owned by one Runtime. Thread-compatible.
//
// A plugin runs with all rights of the host, so files come only from --plugin, PLUMB_PLUGIN_PATH
// (absolute directories), and the installed and built directories, in this order; never from the
// working directory, a model or a checkpoint. The first file that offers an id wins.
#ifndef PLUMB_RUNTIME_PLUGIN_REGISTRY_H_
#define PLUMB_RUNTIME_PLUGIN_REGISTRY_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/plugin/norm_plugin.h"

namespace plumb {

struct LibraryFile;

// Splits a colon-separated variable (PLUMB_PLUGIN_PATH), read by secure_getenv, into directories.
// Entries that are not absolute are dropped with a warning.
std::vector<std::string> PathFromEnvironment(const char* variable,
                                             std::vector<std::string>* warnings);

// A candidate file on the search path.
struct PluginFile {
  std::string path;
  std::string id;         // from the ELF note; "" without one
  std::string problem;    // why it cannot be used; "" if it can
  bool shadowed = false;  // true if an earlier file, or the host, offers the norm
  std::string version;    // version of the norm if it is loaded
};

class PluginRegistry {
 public:
  PluginRegistry() = default;
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Adds a directory for Find, which searches in the order of addition. `ships`: it has plumb's own
  // norms, which exporters and readers of checkpoints know by their ids.
  void AddDirectory(std::string directory, bool ships = false) {
    if (ships) own_directories_.push_back(directory);
    directories_.push_back(std::move(directory));
  }

  const std::vector<std::string>& directories() const { return directories_; }

  // Loads all norms of a file (--plugin FILE). Errors: not found, not a shared library, not a plumb
  // plugin, another ABI major, missing functions, unknown mandatory flags, the id of one of plumb's
  // own norms.
  absl::Status LoadFile(const std::string& path);

  // Registers a norm that is linked into the host. Errors: kAlreadyExists if the id is taken, also
  // by one of plumb's own norms.
  absl::Status Register(const plumb_norm_plugin* table);

  // Returns the norm with this id, loading its library if necessary. Errors: kNotFound lists the
  // directories searched and suggests the nearest id. A broken file on the path is an error only if
  // it is the one wanted.
  absl::StatusOr<const NormPlugin*> Find(const std::string& id);

  // Returns every loaded or registered norm, by id, and then the other files on the search path, in
  // search order; a file with several norms once for each. Runs none of their code.
  std::vector<PluginFile> Scan() const;
  std::vector<const NormPlugin*> Loaded() const;  // sorted by id

  // Returns messages for the user that are not errors: duplicate ids, skipped files.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status Load(const LibraryFile& file);
  // Fails if the norm is in a directory of plumb's own norms, as another file than `path`. "": the
  // host itself has it.
  absl::Status CheckNotOwn(const std::string& id, const std::string& path) const;
  void Warn(std::string warning);  // keeps each once
  void WarnOfDuplicate(const std::string& id, const std::string& path);

  std::vector<std::string> directories_, own_directories_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> loaded_files_;  // (device, inode) -> path
  std::map<std::string, std::unique_ptr<NormPlugin>> plugins_;         // sorted by id
  std::vector<std::string> warnings_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_REGISTRY_H_
