#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests plumb bench under a launcher: one report, with measured next to predicted times, and the profile of
# the exchange. The times are arbitrary.
#
#   bench_test.sh PLUMB
set -euo pipefail
plumb=$1
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"
root=$(realpath "$(dirname "$0")/../..")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
bench=("$plumb" bench "$root/examples/why_normalise/pre.pbtxt" --vocab 27 --batch 2 --rounds 2 --threads 1)
for more in "" "--fixed-batch --set train.units=2" "--set train.shard=OPTIMIZER --dtype bf16" \
  "--set train.shard=GRADIENTS --set train.wire=BF16"; do
  counts=1,2,64
  case $more in *fixed*) counts=1,2 ;; esac
  # shellcheck disable=SC2086  # the options are split into words
  ends_with 0 2 "${bench[@]}" --json --profile --ranks $counts --link 1Gbit,50us $more
  python3 - "$scratch/out" << 'END' || fail "the JSON of $more"
import json, sys
report = json.load(open(sys.argv[1]))
assert [row["ranks"] for row in report["ranks"]] == ([1, 2, 64] if not report["fixed_batch"] else [1, 2])
assert ["measured" in row for row in report["ranks"]][:2] == [False, True]
assert report["ranks"][1]["measured"]["median"] > 0
waits = {row["name"]: row["seconds"] for row in report["profile"]["rows"] if "waiting" in row["name"]}
assert waits and all(seconds > 0 for seconds in waits.values()), waits
END
done
ends_with 0 2 "${bench[@]}"
[ "$(grep -c '^ranks\|^ *ranks ' "$scratch/out")" = 1 ] || fail "not one table"
grep -q 'predicted / measured' "$scratch/out" || fail "nothing was measured"
grep -q 'the slowest of 2 that compute at once' "$scratch/out" || fail "the assumption is missing"
ends_with 2 2 "${bench[@]}" --only decode
[ "$(grep -c '^ *error: ' "$scratch/err")" = 1 ] || fail "not one error"
echo ok
