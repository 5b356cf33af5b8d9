#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs every test of a fresh clone: installs what is missing, builds the preset quick, runs ctest. Arguments
# are passed to ctest:
#
#   tests/run.sh
#   tests/run.sh -R 'spec|model' --verbose
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/install_dependencies.sh test
tools/build.sh quick
exec ctest --preset quick --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}" "$@"
