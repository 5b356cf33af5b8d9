#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes every file call and every large allocation of train, resume, compare and export fail once. ctest runs
# the same tests with every 8th call.
#
#   tests/fault/every_call.sh
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

tools/build.sh quick
PLUMB_FAULT_STRIDE=1 exec ctest --preset quick --parallel "$(nproc)" --verbose -R '_faults_test$' "$@"
