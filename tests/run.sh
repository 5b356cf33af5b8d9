#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the tests of a fresh clone: installs what is missing, builds the preset quick, runs ctest. Arguments
# are passed to ctest:
#
#   tests/run.sh
#   tests/run.sh --release                                         also those with the label release
#   tests/run.sh -R 'spec|model' --verbose
#   PLUMB_TEST_TARGETS=spec_test tests/run.sh -R '^spec_test$'     builds only these targets
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tools/install_dependencies.sh test
read -ra targets <<< "${PLUMB_TEST_TARGETS:-}"
tools/build.sh quick ${targets[@]+"${targets[@]}"}
tests=(--label-exclude '^release$')
if [ "${1:-}" = --release ]; then tests=(); shift; fi
exec ctest --preset quick --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}" ${tests[@]+"${tests[@]}"} "$@"
