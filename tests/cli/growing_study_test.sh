#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Kills a study twice, continues it, and extends it by a seed and a model: only missing runs are trained, and all
# files equal those of the same study run at once. Then takes the study from a store without training a run.
# Usage: growing_study_test.sh SOURCE PLUMB
set -euo pipefail
source=$1 plumb=$2
work=$(mktemp -d)
trap 'kill %1 2> /dev/null || true; rm -rf "$work"' EXIT
examples=$source/examples/why_normalise
three=("$examples"/pre.pbtxt "$examples"/post.pbtxt "$examples"/no_norm.pbtxt)
sed 's/^d_ff: .*/d_ff: "32"/' "$examples/pre.pbtxt" > "$work/narrow.pbtxt"
# Options that all studies here share.
shared=(--data "$source/examples/data/names.txt" --set train.max_steps=60 --samples 1
  --grid 'train.learning_rate=0.001,0.003,0.01,0.03' --grid 'model.n_layer=1,2')

ended() { find "$work/grown/runs" -name result.json 2> /dev/null | wc -l; }
inodes() { find "$work/grown/runs" -name result.json -printf '%i %P\n' 2> /dev/null | sort -k2; }
fail() { echo "growing_study_test: $*" >&2; exit 1; }

for part in 20 60; do
  "$plumb" compare "${three[@]}" --seeds 5 "${shared[@]}" --out "$work/grown" --quiet > /dev/null &
  while [ "$(ended)" -lt "$part" ] && kill -0 %1 2> /dev/null; do sleep 0.02; done
  kill -KILL %1 2> /dev/null || fail "the study ended before $part runs had"
  wait %1 2> /dev/null || true
done
inodes > "$work/before"
before=$(wc -l < "$work/before")
[ "$before" -lt 120 ] || fail "the second kill came after the end"
"$plumb" compare "${three[@]}" --seeds 5 "${shared[@]}" --out "$work/grown" > /dev/null 2> "$work/log"
grep -q "^$before of 120 runs were done before and are reused" "$work/log" || fail "$(head -3 "$work/log")"
grep -q "; 120 of 120$" "$work/log" || fail "$(tail -3 "$work/log")"
"$plumb" compare "${three[@]}" "$work/narrow.pbtxt" --seeds 6 "${shared[@]}" --out "$work/grown" > /dev/null 2> "$work/log"
grep -q "^120 of 192 runs were done before and are reused" "$work/log" || fail "$(head -3 "$work/log")"
[ "$(grep -c ': loss .* after 60 steps' "$work/log")" = 72 ] || fail "trained others than the 72 missing runs"
inodes | grep -Ff "$work/before" | cmp - "$work/before" || fail "a run that had ended was written again"

"$plumb" compare "${three[@]}" "$work/narrow.pbtxt" --seeds 6 "${shared[@]}" --out "$work/whole" --store "$work/store" --quiet > /dev/null
"$plumb" compare "${three[@]}" "$work/narrow.pbtxt" --seeds 6 "${shared[@]}" --out "$work/again" --store "$work/store" > /dev/null 2> "$work/log"
grep -q "^copied 192 runs from the store" "$work/log" || fail "$(head -3 "$work/log")"
grep -q ': loss .* after' "$work/log" && fail "trained a run that the store has"
files=(study.pbtxt runs.csv table.csv table.md table.tex differences.tex best.tex report.json report.html)
# Removes the times of report.html.
equal() { sed 's/,"seconds_per_step":[^]]*]//' "$1"; }
for other in grown again; do
  for file in "${files[@]}"; do cmp <(equal "$work/whole/$file") <(equal "$work/$other/$file"); done
done
echo "192 runs: killed after 20 and 60, extended by 72, and taken from a store; ${#files[@]} files are equal"
