#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests ranks on several hosts: their messages, and the end of a job when a host is cut off.
#
#   hosts_test.sh MPI_RANKS LAUNCH_RANKS LIBPLUMB_MPI
set -euo pipefail
messages=$1 program=$2
export PLUMB_MPI_LIBRARY=$3
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"
# shellcheck source=tests/ranks/hosts.sh
. "$(dirname "$0")/hosts.sh"
scratch=$(mktemp -d)
trap 'remove_hosts; rm -rf "$scratch"' EXIT
make_hosts 3

job=("${launch_hosts[@]}" -x PLUMB_MPI_LIBRARY -n 3)
"${job[@]}" "$messages" "$PLUMB_MPI_LIBRARY" messages

code=0
"${job[@]}" "$program" 60 error 2 > "$scratch/out" 2>&1 || code=$?
[ $code = 7 ] || fail "an error on host 3: exit code $code and not 7"
grep -q '^ *error: rank 2 on host plumb-host3: no file x' "$scratch/out" || fail "the host is not named"

# A cable is cut. Both sides end through mpirun and its daemons: mpirun, and the rank on the other side.
code=0
"${job[@]}" "$program" 6 loop > "$scratch/out" 2>&1 &
mpirun=$!
until grep -q looping "$scratch/out"; do
  kill -0 $mpirun 2> /dev/null || fail "loop: ended"
  sleep 0.1
done
cut_host 3
date +"cut at %T"
wait $mpirun || code=$?
date +"mpirun ended at %T"
[ $code != 0 ] || fail "a host cut off: exit code 0"  # mpirun's code, because it has lost a daemon
grep -q '^ *note: ranks have waited .* s for rank 2 on host plumb-host3' "$scratch/out" || fail "a host cut off: not named"
while ip netns pids "$hosts_prefix-3" | xargs -r ps -o comm= -p | grep launch_ranks > /dev/null; do sleep 0.2; done
date +"its rank ended at %T"
echo ok
