// SPDX-License-Identifier: Apache-2.0
// The plugins of the build, for tests that try each. Stateless but for the libraries, which stay
// loaded.
#ifndef PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_
#define PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_

#include <string>

#include "runtime/plugin/registry.h"

namespace plumb {

// At `level` 3 all plugins of the build and the one that plugins/README.md prints; at 0 to 2
// (PLUMB_ROWS_MAX_LEVEL) those on plumb/norm_rows.h, compiled for lower instruction sets. A test
// fails if one of them cannot be loaded.
const PluginRegistry& BuiltPlugins(int level);

// Null where there is none of this id.
const NormPlugin* FindBuilt(const std::string& id, int level = 3);

}  // namespace plumb

#endif  // PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_
