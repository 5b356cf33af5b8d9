#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds with sanitizers and runs the tests for them:
#
#   tests/sanitize.sh asan          every test, with the address and undefined-behaviour sanitizers
#   tests/sanitize.sh tsan          the tests with threads (label threads), with ThreadSanitizer
#   tests/sanitize.sh asan 2/4      the second of four parts, which together are all tests, for machines that
#                                   limit the time of a job
#
# Each part builds the whole tree; a compiler cache or a build/asan that is kept between jobs makes that
# short. Compilers and tests run in parallel on all processors, or as CMAKE_BUILD_PARALLEL_LEVEL and
# CTEST_PARALLEL_LEVEL say.
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
if [ "$of" -gt 1 ]; then none=ignore; fi  # a part of a few tests may be empty
tests=()
targets=(all)
case $preset in
  asan) ;;
  tsan)
    targets=(thread_tests)
    tests=(-L threads)
    # TSan treats a fork of a process with threads, as in the tests, as an error by default. Its memory map
    # does not fit every random layout of a new kernel. There are no suppressions: the models of these tests
    # are too small for oneDNN, whose OpenMP would cause false reports of races.
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
# Runs every OF-th test, starting with the part's number.
exec ${run[@]+"${run[@]}"} ctest --preset "$preset" ${tests[@]+"${tests[@]}"} --no-tests="$none" \
  -I "$part,,$of" --parallel "${CTEST_PARALLEL_LEVEL:-$(nproc)}"
