#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the messages over MPI: runs mpi_ranks.cc under a launcher, with up to five ranks.
#
#   mpi_test.sh MPI_RANKS LIBPLUMB_MPI
set -euo pipefail
program=$1 library=$2
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"

fail() {
  echo "$*" >&2
  exit 1
}

for n in 1 2 3 5; do
  "${launch[@]}" -n $n "$program" "$library" messages
done
# The job sends 2 GiB and needs twice that, once more in shared memory.
if [ "$(awk '/MemAvailable/ { print int($2 / 1048576) }' /proc/meminfo)" -ge 12 ]; then
  "${launch[@]}" -n 2 "$program" "$library" large
else
  echo "not tried: a message of 2 GiB, which wants 12 GiB of memory"
fi
code=0
"${launch[@]}" -n 3 "$program" "$library" abort > /dev/null 2>&1 || code=$?
[ $code = 42 ] || fail "Abort(42): mpirun exits with $code"
# Without the library there is an error and no crash.
"$program" /nowhere/libplumb-mpi.so messages > /dev/null 2>&1 && fail "a library that is not there was loaded"
echo ok
