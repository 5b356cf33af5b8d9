#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that PLUMB_MPI=OFF configures with an installed MPI and builds no libplumb-mpi.so, that ON fails
# without an MPI, and that other values are refused.
#
#   options_test.sh SOURCES
set -euo pipefail
sources=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
fail() {
  echo "$*" >&2
  cat "$work/log" >&2
  exit 1
}
configure() { # DIRECTORY OPTION...
  local directory=$1
  shift
  cmake -G Ninja -S "$sources" -B "$work/$directory" -DPLUMB_BUILD_TESTS=ON -DPLUMB_BUILD_BENCH=OFF "$@" > "$work/log" 2>&1
}
configure off -DPLUMB_MPI=OFF || fail "PLUMB_MPI=OFF does not configure"
! ninja -C "$work/off" -t targets all | grep 'libplumb-mpi' > /dev/null || fail "PLUMB_MPI=OFF builds libplumb-mpi.so"
ninja -C "$work/off" -n plumb ranks_test launch_test > "$work/log" 2>&1 || fail "PLUMB_MPI=OFF: plumb is not built"
! configure on -DPLUMB_MPI=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON || fail "PLUMB_MPI=ON without an MPI configures"
! configure other -DPLUMB_MPI=MAYBE || fail "PLUMB_MPI=MAYBE configures"
grep -q 'it can be AUTO, ON or OFF' "$work/log" || fail "PLUMB_MPI=MAYBE: another error"
configure none -DPLUMB_MPI=AUTO -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON || fail "without an MPI AUTO does not configure"
! ninja -C "$work/none" -t targets all | grep 'libplumb-mpi' > /dev/null || fail "without an MPI libplumb-mpi.so is built"
echo ok
