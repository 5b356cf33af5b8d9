// The plugin's file, loaded, and the tables in it. Stateless; nothing is ever unloaded.
#ifndef PLUMB_PLUGINS_CHECK_LIBRARY_H_
#define PLUMB_PLUGINS_CHECK_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"
#include "plumb/norm_plugin.h"

namespace plumb::check {

// The most norms that are read from one file.
inline constexpr uint32_t kMaxNorms = 64;

// dlopen as plumb does it: RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE. Error: the loader's words.
absl::StatusOr<void*> Open(const std::string& path);
// The entry function of a loaded file. Error: it exports none.
absl::StatusOr<plumb_norm_plugin_v1_fn> EntryOf(void* library);

// Norm `index`, traced.
const plumb_norm_plugin* NormAt(plumb_norm_plugin_v1_fn entry, uint32_t index);

// Why a table cannot be used at all (too short, functions missing, another ABI needed), "" if it
// can.
std::string TableProblem(const plumb_norm_plugin& table);

}  // namespace plumb::check

#endif  // PLUMB_PLUGINS_CHECK_LIBRARY_H_
