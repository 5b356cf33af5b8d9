#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that only libplumb-mpi.so links MPI, in any build, and that it exports only its two functions.
#
#   linked_test.sh PLUMB LIBPLUMB [LIBPLUMB_MPI]
set -euo pipefail
fail() {
  echo "$*" >&2
  exit 1
}
# Names of MPI's libraries and their dependencies: Open MPI, MPICH, Intel MPI.
pattern='libmpi|libmpich|libopen-(rte|pal)|libpmix|libprrte|libhwloc|libucp'
for file in "$1" "$2"; do
  linked=$(ldd "$file") || fail "ldd $file"
  grep -q libc.so <<< "$linked" || fail "ldd says nothing of $file"
  ! grep -E "$pattern" <<< "$linked" || fail "$file is linked with MPI"
done
# Without a launcher, running plumb loads none of them.
loaded=$(LD_DEBUG=files "$1" train nothing.pbtxt --data nothing.txt 2>&1 || true)
grep -q 'libc.so' <<< "$loaded" || fail "LD_DEBUG says nothing"
! grep -E "calling init: .*($pattern|libplumb-mpi)" <<< "$loaded" || fail "without a launcher MPI is loaded"
if [ $# -ge 3 ]; then
  grep -qE "$pattern" <<< "$(ldd "$3")" || fail "$3 is not linked with MPI"
  exported=$(nm -D --defined-only "$3" | awk '{ print $3 }' | sort | tr '\n' ' ')
  [ "$exported" = "plumb_mpi_communicator plumb_mpi_release " ] || fail "$3 exports $exported"
fi
echo ok
