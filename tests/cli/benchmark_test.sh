#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the benchmark with three placements and a few steps, and checks the page: its ranks and differences are those
# of the studies.
# Usage: benchmark_test.sh SOURCE PLUMB
set -euo pipefail
source=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
PLUMB=$2 "$source/examples/benchmark/run.sh" --quick --out "$work/out" --store "$work/store" 2> /dev/null
python3 - "$work/out" << 'EOP'
import json, re, sys
page = open(f"{sys.argv[1]}/README.md", encoding="utf-8").read()
for depth in ("4", "16"):
    report = json.load(open(f"{sys.argv[1]}/names_{depth}/report.json", encoding="utf-8"))
    section = page.split(f"## {depth} layers\n")[1].split("\n## ")[0]
    rows = re.findall(r"\| (\d)–(\d) \| `(\w+)` \| ([\d.]+) \| ([\d.]+) ±", section)
    names = [model["name"] for model in report["models"]]
    assert sorted(row[2] for row in rows) == sorted(names) and names[0] == "pre", rows
    assert [row[4] for row in rows] == sorted(row[4] for row in rows), "is not sorted"
    for first, last, name, rate, mean in rows:
        best = report["best"]["models"][names.index(name)]
        assert f"{best['mean']:.3f}" == mean and report["cells"][best["cell"]] == f"learning_rate={rate}", name
        significant = [pair for pair in report["best"]["paired"] if pair["p_holm"] is not None and pair["p_holm"] < 0.05
                       and names.index(name) in (pair["model"], pair["against"])]
        assert int(last) - int(first) == len(names) - 1 - len(significant), (name, first, last)
print("the pages of both depths agree with their studies")
EOP
