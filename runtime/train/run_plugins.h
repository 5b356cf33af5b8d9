// SPDX-License-Identifier: Apache-2.0
// Files of a run's norm plugins, as run.json records them, so that a norm that is missing later can
// be named by its file. A recorded file is never loaded on that account: it may have been replaced
// by anyone who could write it, and a plugin runs with all rights. Stateless.
#ifndef PLUMB_RUNTIME_TRAIN_RUN_PLUGINS_H_
#define PLUMB_RUNTIME_TRAIN_RUN_PLUGINS_H_

#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "runtime/client/host_runtime.h"
#include "runtime/client/model.h"

namespace plumb {

struct PluginFileRecord {
  std::string path;  // absolute
  std::string hash;  // SHA-256 when it was loaded

  bool operator==(const PluginFileRecord& other) const {
    return path == other.path && hash == other.hash;
  }
};

// Records, keyed by the norm's id.
using RunPlugins = std::map<std::string, PluginFileRecord>;

// Returns the files of the model's norms, except the norms that ship with plumb, whose ids have one
// word, and norms that are linked into the program. Errors: a file that no longer exists.
absl::StatusOr<RunPlugins> GetPlugins(HostRuntime* runtime, const api::Model& model);

// Write the records into the JSON object of run.json and read them back. Runs written before plumb
// recorded them have none. Errors: kDataLoss.
std::string WithPlugins(const std::string& json, const RunPlugins& plugins);
absl::StatusOr<RunPlugins> PluginsIn(const std::string& json);

// Returns `error`, which creating the model of `run` has caused, after a line for each recorded
// norm that cannot be found: the file where it was, and what to do.
absl::Status NameMissingPlugins(HostRuntime* runtime, const std::string& run,
                                const absl::Status& error);

}  // namespace plumb

#endif  // PLUMB_RUNTIME_TRAIN_RUN_PLUGINS_H_
