// SPDX-License-Identifier: Apache-2.0
#include "runtime/plugin/registry.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "runtime/base/diagnostics.h"
#include "runtime/base/file.h"
#include "runtime/base/sha256.h"
#include "runtime/base/status.h"
#include "runtime/plugin/guarded_call.h"
#include "runtime/plugin/library.h"

namespace plumb {
namespace {

constexpr uint32_t kMaxNormsPerFile = 64;

// Inspects the *.so files of a directory, sorted by name; none if it does not exist.
std::vector<LibraryFile> InspectDirectory(const std::string& directory) {
  std::vector<LibraryFile> files;
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return files;
  for (const std::string& name : *names) {
    if (absl::EndsWith(name, ".so")) {
      files.push_back(InspectLibrary(JoinPath(directory, name), FileOrigin::kSearched));
      files.back().opened = nullptr;  // a directory may have more files than a process may open
    }
  }
  return files;
}

// Returns the norms of a loaded library, in its order, after checking all of them.
absl::StatusOr<std::vector<std::unique_ptr<NormPlugin>>> ReadNorms(const LibraryFile& file,
                                                                   plumb_norm_plugin_v1_fn entry) {
  std::vector<std::unique_ptr<NormPlugin>> norms;
  // The record also covers reading the tables, which are the plugin's memory.
  const std::string ids = file.NormIds();
  const PluginCall record = {PLUMB_NORM_ENTRY_SYMBOL, ids.c_str(), file.path.c_str()};
  const PluginCallScope scope(&record);
  for (uint32_t index = 0;; ++index) {
    const plumb_norm_plugin* table = nullptr;
    PLUMB_RETURN_IF_ERROR(
        Annotate(Guarded(record, [&] { table = entry(index); }), absl::StrCat(file.path, ": ")));
    if (table == nullptr) break;
    if (index == kMaxNormsPerFile) {
      return absl::FailedPreconditionError(
          absl::StrCat(file.path, ": offers more than ", kMaxNormsPerFile, " norms"));
    }
    PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<NormPlugin> norm, NormPlugin::Create(table, file.path));
    norms.push_back(std::move(norm));
  }
  for (const NormNote& note : file.notes) {
    const bool offered = std::any_of(norms.begin(), norms.end(),
                                     [&note](const auto& norm) { return norm->id() == note.id; });
    if (!offered && note.abi_major == PLUMB_NORM_ABI_MAJOR) {
      return absl::FailedPreconditionError(absl::StrCat(file.path,
                                                        ": its note promises the norm \"", note.id,
                                                        "\", and the library does not offer it"));
    }
  }
  return norms;
}

// Returns "mine" for /usr/lib/plumb/norm-v1/mine.so, the norm that users expect in that file.
std::string Stem(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  return std::string(absl::StripSuffix(name, ".so"));
}

// Returns a line about the result of searching a directory.
std::string DescribeDirectory(const std::string& directory, const std::vector<LibraryFile>& files) {
  if (!IsDirectory(directory)) return absl::StrCat(directory, ": no such directory");
  std::set<std::string> ids;
  for (const LibraryFile& file : files) {
    for (const NormNote& note : file.notes) ids.insert(note.id);
  }
  return absl::StrCat(directory, ": ", ids.empty() ? "no norms" : absl::StrJoin(ids, ", "));
}

}  // namespace

std::vector<std::string> PathFromEnvironment(const char* variable,
                                             std::vector<std::string>* warnings) {
  std::vector<std::string> directories;
  const char* value = secure_getenv(variable);
  if (value == nullptr) return directories;
  for (absl::string_view entry : absl::StrSplit(value, ':', absl::SkipEmpty())) {
    if (absl::StartsWith(entry, "/")) {
      directories.emplace_back(entry);
    } else {
      warnings->push_back(
          absl::StrCat(variable, ": \"", entry, "\" is not an absolute path and is not searched"));
    }
  }
  return directories;
}

void PluginRegistry::Warn(std::string warning) {
  if (std::find(warnings_.begin(), warnings_.end(), warning) == warnings_.end()) {
    warnings_.push_back(std::move(warning));
  }
}

absl::Status PluginRegistry::Load(const LibraryFile& file) {
  for (const std::string& warning : file.warnings) Warn(warning);
  PLUMB_RETURN_IF_ERROR(file.problem);
  if (loaded_files_.count(file.key) != 0) return absl::OkStatus();
  if (file.opened == nullptr) {
    LibraryFile again = InspectLibrary(file.path, FileOrigin::kSearched);
    if (again.problem.ok() && again.key != file.key) {
      again.problem = absl::FailedPreconditionError(
          absl::StrCat(file.path, ": was replaced while norms were looked for; try again"));
    }
    PLUMB_RETURN_IF_ERROR(again.problem);
    return Load(again);
  }
  PLUMB_ASSIGN_OR_RETURN(const plumb_norm_plugin_v1_fn entry, LoadLibrary(file));
  PLUMB_ASSIGN_OR_RETURN(std::vector<std::unique_ptr<NormPlugin>> norms, ReadNorms(file, entry));
  for (const std::unique_ptr<NormPlugin>& norm : norms) {
    PLUMB_RETURN_IF_ERROR(CheckNotOwn(norm->id(), file.path));
  }
  loaded_files_[file.key] = file.path;
  for (std::unique_ptr<NormPlugin>& norm : norms) {
    if (!file.Names(norm->id())) {
      Warn(absl::StrCat(file.path, ": offers the norm \"", norm->id(),
                        "\" without a note, so a search does not find it"));
    }
    const auto [first, inserted] = plugins_.emplace(norm->id(), nullptr);
    if (inserted) {
      first->second = std::move(norm);
    } else {
      WarnOfDuplicate(first->first, file.path);
    }
  }
  return absl::OkStatus();
}

absl::Status PluginRegistry::CheckNotOwn(const std::string& id, const std::string& path) const {
  if (absl::StrContains(id, '.')) return absl::OkStatus();
  const std::filesystem::path parent = std::filesystem::path(path).parent_path();
  for (const std::string& directory : own_directories_) {
    std::error_code error;
    if (!path.empty() && std::filesystem::equivalent(parent, directory, error)) {
      return absl::OkStatus();
    }
  }
  for (const std::string& directory : own_directories_) {
    const std::string own = JoinPath(directory, id + ".so");
    if (!FileExists(own)) continue;
    if (!path.empty() && Sha256OfFile(own) == Sha256OfFile(path)) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat(
        path, path.empty() ? "" : ": ", "the norm \"", id, "\" is one of plumb's own, in ", own,
        "; give yours an id that begins with a domain: org.example.", id));
  }
  return absl::OkStatus();
}

void PluginRegistry::WarnOfDuplicate(const std::string& id, const std::string& path) {
  const std::string& first = plugins_.at(id)->path();
  Warn(absl::StrCat(path, ": the norm \"", id, "\" is already there from ",
                    first.empty() ? "the host itself" : first, "; the first one is used"));
}

absl::Status PluginRegistry::LoadFile(const std::string& path) {
  return Load(InspectLibrary(path, FileOrigin::kNamed));
}

absl::Status PluginRegistry::Register(const plumb_norm_plugin* table) {
  PLUMB_ASSIGN_OR_RETURN(std::unique_ptr<NormPlugin> norm, NormPlugin::Create(table, ""));
  const std::string id = norm->id();
  if (plugins_.count(id) != 0) {
    return absl::AlreadyExistsError(absl::StrCat("the norm \"", id, "\" is already registered"));
  }
  PLUMB_RETURN_IF_ERROR(CheckNotOwn(id, ""));
  plugins_[id] = std::move(norm);
  return absl::OkStatus();
}

absl::StatusOr<const NormPlugin*> PluginRegistry::Find(const std::string& id) {
  if (const auto found = plugins_.find(id); found != plugins_.end()) return found->second.get();

  std::vector<std::string> looked_in, known;
  for (const auto& [name, plugin] : plugins_) known.push_back(name);
  absl::Status bad_namesake;  // error of a file of this name without an id
  FileKey first_key{0, 0};
  for (const std::string& directory : directories_) {
    const std::vector<LibraryFile> files = InspectDirectory(directory);
    looked_in.push_back(DescribeDirectory(directory, files));
    for (const LibraryFile& file : files) {
      for (const NormNote& note : file.notes) known.push_back(note.id);
      if (file.Names(id)) {
        if (plugins_.count(id) == 0) {
          PLUMB_RETURN_IF_ERROR(Load(file));
          if (plugins_.count(id) == 0) {
            return absl::FailedPreconditionError(
                absl::StrCat(file.path, ": does not offer the norm \"", id, "\""));
          }
          first_key = file.key;
        } else if (file.key != first_key) {
          WarnOfDuplicate(id, file.path);
        }
      } else if (!file.problem.ok()) {
        Warn(std::string(file.problem.message()));
        if (file.notes.empty() && Stem(file.path) == id) bad_namesake.Update(file.problem);
      }
    }
  }
  if (const auto found = plugins_.find(id); found != plugins_.end()) return found->second.get();
  if (!bad_namesake.ok()) return bad_namesake;
  return absl::NotFoundError(
      absl::StrCat("unknown norm plugin \"", id, "\"", DidYouMean(id, known),
                   looked_in.empty() ? "; there is no directory to look in" : "\nlooked in ",
                   absl::StrJoin(looked_in, "\n          "),
                   "\nplumb docs plugin-abi lists the directories of norms"));
}

std::vector<PluginFile> PluginRegistry::Scan() const {
  std::vector<PluginFile> found;
  std::map<std::string, std::string> first;  // id -> the file that offers it first
  std::set<FileKey> seen;
  const auto add = [&](const std::string& path, const std::string& id, std::string problem) {
    bool shadowed = false;
    if (problem.empty()) problem = std::string(CheckNotOwn(id, path).message());
    if (!id.empty()) {
      const auto [taken, inserted] = first.emplace(id, path);
      if (!inserted && problem.empty()) {
        shadowed = true;
        problem = absl::StrCat("not used: the norm \"", id, "\" comes from ",
                               taken->second.empty() ? "the host itself" : taken->second);
      }
    }
    found.push_back({path, id, std::move(problem), shadowed, ""});
  };
  // Loaded norms are the ones in use, even if a search would find others now.
  for (const auto& [id, plugin] : plugins_) {
    add(plugin->path(), id, "");
    found.back().version = plugin->version();
  }
  for (const auto& [key, path] : loaded_files_) seen.insert(key);
  for (const std::string& directory : directories_) {
    for (const LibraryFile& file : InspectDirectory(directory)) {
      if (!seen.insert(file.key).second) continue;
      const std::string problem(file.problem.message());
      if (file.notes.empty()) add(file.path, "", problem);
      for (const NormNote& note : file.notes) {
        const bool other = note.abi_major != PLUMB_NORM_ABI_MAJOR;
        if (other && file.problem.ok()) continue;  // the file has a note for this host, too
        add(file.path, note.id, problem);
      }
    }
  }
  return found;
}

std::vector<const NormPlugin*> PluginRegistry::Loaded() const {
  std::vector<const NormPlugin*> loaded;
  for (const auto& [id, plugin] : plugins_) loaded.push_back(plugin.get());
  return loaded;
}

}  // namespace plumb
