// SPDX-License-Identifier: Apache-2.0
// The plugins of the build, for tests that try each. The loaded libraries are the only state.
#ifndef PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_
#define PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_

#include <string>

#include "runtime/plugin/registry.h"

namespace plumb {

// Returns the plugins: at `level` 3 all plugins of the build and the one in plugins/README.md, at 0
// to 2 (PLUMB_ROWS_MAX_LEVEL) those that use plumb/norm_rows.h, compiled for lower instruction
// sets. Fails the test if one of them cannot be loaded.
const PluginRegistry& BuiltPlugins(int level);

// Returns the plugin with this id, or null without one.
const NormPlugin* FindBuilt(const std::string& id, int level = 3);

}  // namespace plumb

#endif  // PLUMB_TESTS_PLUGIN_BUILT_PLUGINS_H_
