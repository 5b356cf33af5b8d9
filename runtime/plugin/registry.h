// SPDX-License-Identifier: Apache-2.0
// PluginRegistry: finds norm plugins by id, on demand. Thread-compatible; owned by one Runtime.
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

// A colon-separated variable (PLUMB_PLUGIN_PATH), as secure_getenv gives it, to directories.
// Entries that are not absolute are dropped with a warning.
std::vector<std::string> PathFromEnvironment(const char* variable,
                                             std::vector<std::string>* warnings);

// One candidate file on the search path.
struct PluginFile {
  std::string path;
  std::string id;         // from the ELF note, without running any of its code; "" if it has none
  std::string problem;    // why it is not usable; "" if it is
  bool shadowed = false;  // that another file, or the host, offers the same norm before it
  std::string version;    // of a norm that is loaded
};

class PluginRegistry {
 public:
  PluginRegistry() = default;
  PluginRegistry(const PluginRegistry&) = delete;
  PluginRegistry& operator=(const PluginRegistry&) = delete;

  // Directories searched by Find, in order.
  void AddDirectory(std::string directory) { directories_.push_back(std::move(directory)); }

  const std::vector<std::string>& directories() const { return directories_; }

  // Guards the operands of all calls of norms that are loaded or registered from now on
  // (NormPlugin::GuardCalls).
  void GuardCalls() { guards_calls_ = true; }

  // Loads all norms of one file now (--plugin FILE). Errors: not found, not a shared library, a
  // shared library that is not a plumb plugin, another ABI major, missing functions, unknown
  // mandatory flags.
  absl::Status LoadFile(const std::string& path);

  // A norm that is linked into the host. kAlreadyExists if the id is taken.
  absl::Status Register(const plumb_norm_plugin* table);

  // The norm with this id, loading its library if need be. kNotFound lists where it looked and
  // suggests the nearest id. A broken file on the path is an error only if it is the one that
  // is wanted.
  absl::StatusOr<const NormPlugin*> Find(const std::string& id);

  // Every loaded or registered norm, by id, and then the other files on the search path, in search
  // order; a file of several norms once for each. Runs none of their code.
  std::vector<PluginFile> Scan() const;
  std::vector<const NormPlugin*> Loaded() const;  // by id

  // Things worth telling a user that were not errors: duplicate ids, skipped files.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  absl::Status Load(const LibraryFile& file);
  void Warn(std::string warning);  // once
  void WarnOfDuplicate(const std::string& id, const std::string& path);

  bool guards_calls_ = false;
  std::vector<std::string> directories_;
  std::map<std::pair<uint64_t, uint64_t>, std::string> loaded_files_;  // (device, inode) -> path
  std::map<std::string, std::unique_ptr<NormPlugin>> plugins_;         // by id
  std::vector<std::string> warnings_;
};

}  // namespace plumb

#endif  // PLUMB_RUNTIME_PLUGIN_REGISTRY_H_
