#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests the end of a job under a real launcher: one message, one exit code, and no remaining rank, whatever
# happens to a rank.
#
#   launch_test.sh LAUNCH_RANKS LIBPLUMB_MPI
set -euo pipefail
program=$1
export PLUMB_MPI_LIBRARY=$2
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# run CODE MESSAGE ARGUMENTS expects that the job exits with CODE and prints the error MESSAGE once; "" means
# no error. "aborted CODE" means that not all ranks end by themselves. MPICH's mpirun then has a code of its
# own, and takes so long that several ranks may report the error.
run() {
  local wanted=${1#aborted } message=$2 code=0 count
  [ "$1" = "$wanted" ] || [ -n "$is_open_mpi" ] || wanted="[1-9]*"
  shift 2
  "${launch[@]}" -n 3 "$program" "$@" > "$scratch/out" 2>&1 || code=$?
  # shellcheck disable=SC2053
  [[ $code == $wanted ]] || fail "$*: exit code $code and not $wanted"
  count=$(grep -c '^ *error: ' "$scratch/out" || true)
  case $wanted in *'*') [ "$count" = 0 ] || count=1 ;; esac
  if [ -z "$message" ]; then
    [ "$count" = 0 ] || fail "$*: an error"
  else
    [ "$count" = 1 ] || fail "$*: $count errors"
    grep -q "^ *error: $message" "$scratch/out" || fail "$*: not \"$message\""
  fi
}

host=$(hostname)
run 0 '' 60 well
run 4 '' 60 code 2
run 0 '' 60 threads
[ "$(grep -c '^threads [1-9]' "$scratch/out")" = 3 ] || fail "ranks of one machine do not share its processors"
run 'aborted 7' 'no file x' 60 error 0
run 'aborted 7' "rank 2 on host $host: no file x" 60 error 2
# A rank that delays others is named, and the job continues when it does. It computes, or is stopped.
for rank in 0 1; do
  run 0 '' 3 busy $rank
  grep -q "^note: ranks have waited .* s for rank $rank on host $host: it computes, hangs, or is cut off" "$scratch/out" ||
    fail "a long wait was not reported"
done
"${launch[@]}" -n 3 "$program" 2 stop 1 > "$scratch/out" 2>&1 &
job=$!
for ((i = 0; i < 300; ++i)); do
  ! grep -q "^note: ranks have waited .* for rank 1 on host $host" "$scratch/out" || break
  sleep 0.1
done
[ $i != 300 ] || fail "a stopped rank was not named"
pkill -CONT -f "^$program"
wait $job || fail "a rank that was stopped for a while: exit code $?"
# mpirun notices a killed rank and reports it in its own words.
run 'aborted 137' '' 60 kill 1

# One rank receives a signal.
code=0
"${launch[@]}" -n 3 "$program" 60 loop > "$scratch/out" 2>&1 &
job=$!
until grep -q looping "$scratch/out"; do
  kill -0 $job 2> /dev/null || fail "loop: ended"
  sleep 0.1
done
kill -USR1 "$(pgrep -n -f "^$program")"
wait $job || code=$?
[ $code = 130 ] || fail "loop: exit code $code and not 130"

# No rank remains.
for _ in 1 2 3 4 5 6 7 8 9 10; do
  pgrep -f "^$program" > /dev/null || break
  sleep 1
done
! pgrep -f "^$program" || fail "ranks are left"
echo ok
