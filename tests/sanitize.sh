#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with sanitizers, and runs the tests that concern them:
#
#   tests/sanitize.sh asan          every test, with the address and undefined-behaviour sanitizers
#   tests/sanitize.sh tsan          those of the threads (label threads), with the thread sanitizer
#   tests/sanitize.sh asan 2/4      the second of four parts, which together are all: for machines that
#                                   stop a job after a time
#
# A part builds what all of them need; a compiler cache or build/asan kept from job to job makes that
# short. As many compilers and tests run at once as there are processors, or as
# CMAKE_BUILD_PARALLEL_LEVEL and CTEST_PARALLEL_LEVEL say.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  echo "usage: tests/sanitize.sh asan|tsan [PART/OF]${1:+: $1}" >&2
  exit 2
}

preset=${1:-}
part=1 of=1
if [ $# -gt 2 ]; then usage "too many arguments"; fi
if [ $# = 2 ]; then
  [[ $2 =~ ^([1-9][0-9]*)/([1-9][0-9]*)$ ]] || usage "\"$2\" is not like 2/4"
  part=${BASH_REMATCH[1]} of=${BASH_REMATCH[2]}
  [ "$part" -le "$of" ] || usage "there is no part $part of $of"
fi

none=error
if [ "$of" -gt 1 ]; then none=ignore; fi  # of a few tests a part may be none
tests=()
targets=(all)
case $preset in
  asan) ;;
  tsan)
    targets=(thread_tests)
    tests=(-L threads)
    # A fork of a process with threads, which the tests do, is an error to it unless told. Its memory
    # map does not fit under every random layout of a new kernel. No suppressions: the models of these
    # tests are small, and do not enter oneDNN, whose OpenMP it would take for races.
    export TSAN_OPTIONS="die_after_fork=0 halt_on_error=1 ${TSAN_OPTIONS:-}"
    fixed=(setarch "$(uname -m)" --addr-no-randomize)
    if "${fixed[@]}" true 2>/dev/null; then
      run=("${fixed[@]}")
    fi
    ;;
  *) usage ;;
esac

cmake --preset "$preset" -DPLUMB_UNITY=ON -DPLUMB_BUILD_TESTS=ON -DPLUMB_BUILD_BENCH=OFF
cmake --build --preset "$preset" --parallel "${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}" \
  --target "${targets[@]}"
# From the part's number, every OF-th of the tests.
exec ${run[@]+"${run[@]}"} ctest --preset "$preset" ${tests[@]+"${tests[@]}"} --no-tests="$none" \
  -I "$part,,$of" --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}"
