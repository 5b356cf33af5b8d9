#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the ladder of the benchmark with two placements and ten steps, and makes its page. The second call trains nothing; a
# placement that is added as one file gets its row, and leaves the others as they were. A changed CSV file and a changed page
# are found.
# Usage: ladder_test.sh SOURCE PLUMB
set -euo pipefail
ladder=$1/examples/benchmark
export PLUMB=$2 PYTHONDONTWRITEBYTECODE=1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
run() { python3 "$ladder/ladder.py" --quick --out "$work/out" "$@" > "$work/log"; }
page=$work/out/page.html
has() { # PLACEMENT RUNG: the page has a difference of the placement on the rung.
  python3 - "$page" "$@" << 'END'
import json, re, sys
block = re.search(r'id="ladder">(.*?)</script>', open(sys.argv[1], encoding="utf-8").read(), re.S).group(1)
row = {row["name"]: row for row in json.loads(block)["placements"]}[sys.argv[2]]
assert row["file"]["text"].startswith("placement {") and isinstance(row["cells"][sys.argv[3]]["mean"], float), row
END
}
check() { # Succeeds without numpy and scipy, too.
  python3 "$ladder/check_page.py" "$page" "$work/out/results" > "$work/log" 2> "$work/errors" || [ $? = 77 ]
}

run
[ "$(find "$work/out/results" -name '*.csv.gz' | wc -l)" = "$(grep -c '{"name": ' "$ladder/protocol.json")" ]
has post base
check

# JSON files have the seconds that training took: they are equal only if every run is from the store.
cp -r "$work/out/results" "$work/first"
rm "$work"/out/results/{base,recall,muon_width_64}.*
cp "$page" "$work/first.html"
run --rung base --rung recall --rung muon_width_64
diff -r "$work/first" "$work/out/results"
cmp "$work/first.html" "$page"

sed 's/name: "pre"/name: "half"/; s/x + f(norm(x))/x + 0.5 * f(norm(x))/' "$1/plugins/placements/pre.pbtxt" > "$work/half.pbtxt"
run --placement "$work/half.pbtxt" --rung base --rung tokens_64
has half base
has half tokens_64
check
for rung in base tokens_64; do
  zcat "$work/out/results/$rung.csv.gz" | grep -v ,half, | cmp - <(zcat "$work/first/$rung.csv.gz")
  zcat "$work/out/results/$rung.csv.gz" | grep -q ,half,judged,
done

if python3 -c 'import numpy, scipy' 2> /dev/null; then
  sed 's/"loss":\([0-9]\)/"loss":9\1/' "$page" > "$work/changed.html"
  if python3 "$ladder/check_page.py" "$work/changed.html" "$work/out/results" 2> "$work/errors"; then
    echo "a changed number of the page was not found" >&2
    exit 1
  fi
  grep -q '^page.placements.*loss is 9[0-9.]* on the page' "$work/errors"
fi

# One loss that is changed is another difference than plumb's.
zcat "$work/out/results/base.csv.gz" | sed '/,post,judged,/{s/finished,[01],[0-9]/finished,0,9/}' | gzip > "$work/changed"
mv "$work/changed" "$work/out/results/base.csv.gz"
if python3 "$ladder/make_page.py" "$work/out/results" 2> "$work/errors"; then
  echo "a changed loss was not found" >&2
  exit 1
fi
grep -q '^base: post: mean is ' "$work/errors"
echo "the ladder resumes, takes a new placement, and its numbers agree with plumb's"
