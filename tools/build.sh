#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds into build/PRESET. Can be called from any working directory.
#
#   tools/build.sh                          everything, with the preset quick
#   tools/build.sh dev                      another preset: release, dev, asan, tsan
#   tools/build.sh release plumb            some targets only
#   tools/build.sh run                      only what cmake --install installs, quick: needs no
#                                           packages for tests
#
# Runs as many compilers as there are processors, or CMAKE_BUILD_PARALLEL_LEVEL of them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-quick}
shift || true
without=()  # parts that are not built
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

if [ "$preset" = run ]; then
  preset=quick
  set -- cli/all plugins/all runtime/all plumb_static
  # A directory that already builds the tests keeps them.
  grep -qs '^PLUMB_BUILD_TESTS:BOOL=ON' build/quick/CMakeCache.txt || without=(-DPLUMB_BUILD_TESTS=OFF -DPLUMB_BUILD_BENCH=OFF)
else
  without=(-DPLUMB_BUILD_TESTS=ON -DPLUMB_BUILD_BENCH=ON)
fi
cmake --preset "$preset" "${without[@]}"
if [ $# = 0 ]; then
  cmake --build --preset "$preset" --parallel "$jobs"
else
  cmake --build --preset "$preset" --parallel "$jobs" --target "$@"
fi
