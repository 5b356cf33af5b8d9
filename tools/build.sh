#!/usr/bin/env bash
# Configures and builds, from any working directory, into build/PRESET.
#
#   tools/build.sh                          everything, release
#   tools/build.sh dev                      another preset: release, dev, asan
#   tools/build.sh release plumb            some targets only
#
# As many compilers run as there are processors, or as CMAKE_BUILD_PARALLEL_LEVEL says.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
shift || true
jobs=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}

cmake --preset "$preset"
if [ $# = 0 ]; then
  cmake --build --preset "$preset" --parallel "$jobs"
else
  cmake --build --preset "$preset" --parallel "$jobs" --target "$@"
fi
