#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb doctor under a launcher: ranks are reported once, and so is an error of usage. A
# launcher without the library is an error, too.
#
#   doctor_test.sh PLUMB
set -euo pipefail
plumb=$1
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"
export NO_COLOR=1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ends_with 0 3 "$plumb" doctor --threads 64
[ "$(grep -c '^processor  ' "$scratch/out")" = 1 ] || fail "not one report"
for rank in 0 1 2; do
  grep -qE "^(ranks| ) +$rank on $(hostname), process [0-9]+: 64 threads on processors [0-9]" "$scratch/out" ||
    fail "rank $rank is missing"
done
grep -q 'ranks have 192 threads in all' "$scratch/out" || fail "too many threads are no problem"
ends_with 0 3 "$plumb" doctor --json
python3 - "$scratch/out" << 'END' || fail "the JSON"
import json, sys
report = json.load(open(sys.argv[1]))
assert [r["rank"] for r in report["ranks"]] == [0, 1, 2]
assert len({r["pid"] for r in report["ranks"]}) == 3
END
ends_with 2 3 "$plumb" doctor --no-such-option
[ "$(grep -c '^ *error: ' "$scratch/err")" = 1 ] || fail "an error of usage is not reported once"
export PLUMB_MPI_LIBRARY=/nowhere/libplumb-mpi.so
code=0
"${launch[@]}" -n 3 "$plumb" doctor > "$scratch/out" 2> "$scratch/err" || code=$?
[ $code != 0 ] || fail "without the library there is no error"
# Ranks without MPI know nothing of each other, so each that mpirun does not end in time reports the error.
grep -q 'error: .*no /nowhere/libplumb-mpi.so' "$scratch/err" || fail "the missing library is not reported"
[ "$(grep -c 'error: started as .*no /nowhere/libplumb-mpi.so' "$scratch/err")" -le 1 ] || fail "rank 0 reports it twice"
PLUMB_MPI_LIBRARY='' ends_with 0 3 "$plumb" doctor
[ "$(grep -c '^processor  ' "$scratch/out")" = 3 ] || fail "ranks that know nothing of each other"
echo ok
