// SPDX-License-Identifier: Apache-2.0
#include "tests/plugin/built_plugins.h"

#include <gtest/gtest.h>

#include <vector>

#include "runtime/base/file.h"

namespace plumb {

const PluginRegistry& BuiltPlugins(int level) {
  // Plugins are loaded by file, so that the umask of the build does not matter.
  static const PluginRegistry* const registries = [] {
    auto* all = new PluginRegistry[4];
    const std::vector<std::string> directories[] = {
        {PLUMB_LEVELS_DIR "/0"},
        {PLUMB_LEVELS_DIR "/1"},
        {PLUMB_LEVELS_DIR "/2"},
        {PLUMB_TEST_PLUGIN_DIR, PLUMB_README_PLUGIN_DIR, PLUMB_LEVELS_DIR "/3"}};
    for (int i = 0; i < 4; ++i) {
      for (const std::string& directory : directories[i]) {
        const auto names = ListDirectory(directory);
        if (!names.ok()) continue;
        for (const std::string& name : *names) {
          const absl::Status status = all[i].LoadFile(JoinPath(directory, name));
          if (!status.ok()) ADD_FAILURE() << status;
        }
      }
    }
    return all;
  }();
  return registries[level];
}

const NormPlugin* FindBuilt(const std::string& id, int level) {
  for (const NormPlugin* plugin : BuiltPlugins(level).Loaded()) {
    if (plugin->id() == id) return plugin;
  }
  return nullptr;
}

}  // namespace plumb
