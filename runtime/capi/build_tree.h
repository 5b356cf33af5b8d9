// SPDX-License-Identifier: Apache-2.0
// Directories of norms and placements in a build tree. CMake links the definition only into tests
// and benchmarks, so that installed programs contain no path of the build.
#ifndef PLUMB_RUNTIME_CAPI_BUILD_TREE_H_
#define PLUMB_RUNTIME_CAPI_BUILD_TREE_H_

namespace plumb {

struct BuildTree {
  const char* plugin_directory;
  const char* placement_directory;
};

// Its address is null in all other programs.
__attribute__((weak, visibility("hidden"))) extern const BuildTree kBuildTree;

}  // namespace plumb

#endif  // PLUMB_RUNTIME_CAPI_BUILD_TREE_H_
