#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Tests measurements under a launcher: plumb bench is refused with one error, and plumb train --profile
# has the time of the exchange.
#
#   bench_test.sh PLUMB
set -euo pipefail
plumb=$1
# shellcheck source=tests/ranks/mpi.sh
. "$(dirname "$0")/mpi.sh"
examples=$(realpath "$(dirname "$0")/../../examples")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
ends_with 2 2 "$plumb" bench "$examples/why_normalise/pre.pbtxt" --vocab 27
[ "$(grep -c '^ *error: .*mpirun plumb train' "$scratch/err")" = 1 ] || fail "not one error"
ends_with 0 2 "$plumb" train "$examples/why_normalise/pre.pbtxt" --data "$examples/data/names.txt" \
  --train "$examples/why_normalise/train.pbtxt" --out "$scratch/run" --threads 1 \
  --set train.max_steps=4 --set train.batch_size=2 --set train.units=2 --quiet --json --profile
python3 - "$scratch/out" << 'END' || fail "the JSON"
import json, sys
report = json.load(open(sys.argv[1]))
waits = {row["name"]: row["seconds"] for row in report["profile"]["rows"] if "waiting" in row["name"]}
assert waits and all(seconds > 0 for seconds in waits.values()), waits
END
echo ok
