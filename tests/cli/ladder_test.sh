#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the ladder of the benchmark with two placements and ten steps. The second call trains nothing; a placement that is
# added as one file gets its row, and leaves the others as they were. A changed CSV file is found.
# Usage: ladder_test.sh SOURCE PLUMB
set -euo pipefail
ladder=$1/examples/benchmark
export PLUMB=$2 PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { python3 "$ladder/ladder.py" --quick --out "$work/out" "$@" > "$work/log"; }

run
[ "$(find "$work/out/results" -name '*.csv.gz' | wc -l)" = "$(grep -c '{"name": ' "$ladder/protocol.json")" ]
python3 "$ladder/check_page.py" "$work/out/results" > "$work/page.md"
grep -q '^| `post` |' "$work/page.md"

# JSON files have the seconds that training took: they are equal only if every run is from the store.
cp -r "$work/out/results" "$work/first"
rm "$work"/out/results/{base,recall,muon_width_64}.*
run --rung base --rung recall --rung muon_width_64
diff -r "$work/first" "$work/out/results"

sed 's/name: "pre"/name: "half"/; s/x + f(norm(x))/x + 0.5 * f(norm(x))/' "$1/plugins/placements/pre.pbtxt" > "$work/half.pbtxt"
run --placement "$work/half.pbtxt" --rung base --rung tokens_64
python3 "$ladder/check_page.py" "$work/out/results" > "$work/page.md"
grep -q '^| `half` | .* | [+−][0-9.]* (' "$work/page.md"
for rung in base tokens_64; do
  zcat "$work/out/results/$rung.csv.gz" | grep -v ,half, | cmp - <(zcat "$work/first/$rung.csv.gz")
  zcat "$work/out/results/$rung.csv.gz" | grep -q ,half,judged,
done

# One loss that is changed is another difference than plumb's.
zcat "$work/out/results/base.csv.gz" | sed '/,post,judged,/{s/finished,[01],[0-9]/finished,0,9/}' | gzip > "$work/changed"
mv "$work/changed" "$work/out/results/base.csv.gz"
if python3 "$ladder/check_page.py" "$work/out/results" > "$work/page.md" 2> "$work/errors"; then
  echo "a changed loss was not found" >&2
  exit 1
fi
grep -q '^base: post: mean is ' "$work/errors"
echo "the ladder resumes, takes a new placement, and its numbers agree with plumb's"
