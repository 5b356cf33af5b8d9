#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Configures and builds, from any working directory, into build/PRESET.
#
#   tools/build.sh                          everything, with the preset quick
#   tools/build.sh dev                      another preset: release, dev, asan, tsan
#   tools/build.sh release plumb            some targets only
#   tools/build.sh run                      plumb, the norms and the checker alone, quick: needs no
#                                           package of the tests
#
# As many compilers run as there are processors, or as CMAKE_BUILD_PARALLEL_LEVEL says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-quick}
shift || true
without=()  # parts that are not built
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

if [ "$preset" = run ]; then
  preset=quick
  set -- plumb plugins/all
  # A directory that has the tests keeps them.
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
