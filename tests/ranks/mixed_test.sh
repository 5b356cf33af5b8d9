#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests ranks that run different commands, a command line with an error, and jobs without libplumb-mpi.so: the job
# ends with one error, in bounded time.
#
#   mixed_test.sh PLUMB SOURCES
set -euo pipefail
plumb=$1
sources=$2
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"
export NO_COLOR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
train=("$plumb" train "$sources/examples/why_normalise/pre.pbtxt" --data "$sources/examples/data/names.txt" --quiet
  --set train.max_steps=5 --set train.batch_size=2 --set train.units=2 --rank-grace 4 --out "$scratch/run")

# mixed CODE MESSAGE COMMAND... runs a job whose rank 1 runs COMMAND. Rank 0 trains and starts later. A script
# chooses the command by rank, because Open MPI 5.0.7 crashes on `mpirun -n 1 true : -n 1 true`.
mixed() {
  local wanted=$1 message=$2 code=0
  shift 2
  # shellcheck disable=SC2016
  printf '[ "${PMIX_RANK:-${PMI_RANK:-}}" != 0 ] || { sleep 2; exec %s; }\nexec %s\n' \
    "$(printf '%q ' "${train[@]}")" "$(printf '%q ' "$@")" > "$scratch/rank"
  timeout 120 "${launch[@]}" -n 2 bash "$scratch/rank" > "$scratch/out" 2> "$scratch/err" || code=$?
  [ $code != 124 ] || fail "$*: the job hangs"
  [ $code != 0 ] || fail "$*: the job ends as if all were well"
  [ -z "$is_open_mpi" ] || [ $code = "$wanted" ] || fail "$*: exit code $code and not $wanted"
  [ "$(grep -c "^error: .*$message" "$scratch/err")" = 1 ] || fail "$*: not one error with \"$message\""
  [ ! -e "$scratch/run" ] || fail "$*: a run was begun"
}

# These programs never join: a command of plumb without ranks, and another program.
mixed 1 'not all processes of the launcher have joined' "$plumb" --version
mixed 1 'not all processes of the launcher have joined' sleep 60
# These ranks join and then run another command.
mixed 2 'the command differs between ranks: train on rank 0 .*; compare on rank 1' \
  "$plumb" compare "$sources/examples/why_normalise/pre.pbtxt" --data "$sources/examples/data/names.txt" --out "$scratch/study"
mixed 2 'the command differs between ranks: train on rank 0 .*; train --resume on rank 1' "${train[@]}" --resume

# All ranks resume a run that does not exist yet, which starts it.
code=0
"${launch[@]}" -n 2 "${train[@]}" --resume > "$scratch/out" 2> "$scratch/err" || code=$?
[ $code = 0 ] || fail "--resume of a run that is not there: exit code $code"
rm -r "$scratch/run/checkpoints" "$scratch/run/latest"
cp "$scratch/run/metrics.csv" "$scratch/metrics"
# All ranks resume a run that has no checkpoint yet.
"${launch[@]}" -n 2 "${train[@]}" --resume > "$scratch/out" 2> "$scratch/err" || fail "without a checkpoint: an error"
losses() { cut -d, -f1,2 "$1"; }
[ "$(losses "$scratch/run/metrics.csv")" = "$(losses "$scratch/metrics")" ] || fail "other losses"

ends_with 2 3 "$plumb" train --no-such-option
[ "$(grep -c '^ *error: ' "$scratch/err")" = 1 ] || fail "an error of usage is not reported once"
export PLUMB_MPI_LIBRARY=/nowhere/libplumb-mpi.so
code=0
"${launch[@]}" -n 3 "${train[@]}" > "$scratch/out" 2> "$scratch/err" || code=$?
[ $code != 0 ] || fail "without the library there is no error"
# Ranks without MPI know nothing of each other, so each that mpirun does not end in time reports the error.
grep -q 'error: .*no /nowhere/libplumb-mpi.so' "$scratch/err" || fail "the missing library is not reported"
[ "$(grep -c 'error: started as .*no /nowhere/libplumb-mpi.so' "$scratch/err")" -le 1 ] || fail "rank 0 reports it twice"
echo ok
