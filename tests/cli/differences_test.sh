#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Checks that the differences of a study with a grid are between models in the same cell, and that
# their intervals and p-values are those that another program computes from runs.csv.
# Usage: differences_test.sh SOURCE PLUMB
set -euo pipefail
source=$1 plumb=$2
study=$(mktemp -d)
trap 'rm -rf "$study"' EXIT
"$plumb" compare "$source"/examples/why_normalise/{pre,post,none}.pbtxt --data "$source/examples/data/names.txt" \
  --set train.max_steps=120 --set model.n_layer=2 --grid train.learning_rate=0.001,0.02 --grid train.batch_size=1,2 \
  --seeds 4 --samples 0 --out "$study/out" --quiet > "$study/text"
python3 "$source/tests/cli/check_differences.py" "$study/out"
python3 - "$study/out" "$study/text" << 'EOF'
import json, sys
report = json.load(open(f"{sys.argv[1]}/report.json", encoding="utf-8"))
text = open(sys.argv[2], encoding="utf-8").read()
assert len(report["cells"]) == 4, report["cells"]
judged = [entry for entry in report["paired"] if entry["metric"] == report["judged"]]
assert len(judged) == 4 * 3, "three pairs of models in each of four cells"
for entry in report["paired"]:
    cells = {report["groups"][entry[key]]["cell"] for key in ("group", "against")}
    assert cells == {entry["cell"]}, entry
best = report["best"]
assert best["chosen_with"] == 2 and len(best["paired"]) == 3, best
assert "best setting" in text and "Each at its best setting: " in text, text
EOF
